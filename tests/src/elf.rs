//! ELF files from sections and back, so that mutants of debug information are whole ELF files.
//!
//! Input: bytes that name sections by number ([`pack`]), or a sound 64-bit little-endian file
//! (`sections`). Invariant: whatever the bytes are, [`unpack`] makes a file with sound headers.

use object::{Object, ObjectSection};

/// The sections that mutants have, after the code.
const NAMES: [&str; 11] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_str",
    ".debug_line_str",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_addr",
    ".debug_str_offsets",
    ".eh_frame",
    ".gnu_debugdata",
];

/// Where the code of mutants begins, and its size.
const TEXT: (u64, u64) = (0x1000, 0x8_0000);

/// Names and contents of the sections of a sound file.
fn sections(file: &[u8]) -> Vec<(String, &[u8])> {
    let file = object::File::parse(file).expect("a sound file");
    let mut all = Vec::new();
    for section in file.sections() {
        let name = section.name().expect("a name").to_owned();
        all.push((name, section.data().expect("contents")));
    }
    all
}

/// The sections of a file that mutants can have: for each its number, its size (three bytes), its
/// content.
pub fn pack(file: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, content) in sections(file) {
        let Some(number) = NAMES.iter().position(|n| *n == name) else {
            continue;
        };
        out.push(number as u8);
        out.extend(&(content.len() as u32).to_le_bytes()[..3]);
        out.extend(content);
    }
    out
}

/// An ELF file with the sections that [`pack`]ed bytes state; what does not fit is cut.
pub fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut contents = [&[][..]; NAMES.len()];
    let mut rest = packed;
    while let Some((number, after)) = rest.split_first() {
        let (size, after) = after.split_at(3.min(after.len()));
        let size = size.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
        let (content, later) = after.split_at(size.min(after.len()));
        contents[usize::from(*number) % NAMES.len()] = content;
        rest = later;
    }
    let mut file = vec![0; 64];
    let mut headers = vec![[0u64; 10]];
    let mut names = vec![0];
    let mut add = |file: &mut Vec<u8>, name: &str, fields: [u64; 3], content: &[u8]| {
        let [kind, flags, address] = fields;
        let at = file.len() as u64;
        // A section without contents is as large as the code.
        let size = if kind == 8 { TEXT.1 } else { content.len() as u64 };
        headers.push([names.len() as u64, kind, flags, address, at, size, 0, 0, 1, 0]);
        names.extend(name.bytes());
        names.push(0);
        file.extend(content);
    };
    add(&mut file, ".text", [8, 6, TEXT.0], &[]);
    for (name, content) in NAMES.iter().zip(contents) {
        add(&mut file, name, [1, 0, 0], content);
    }
    let at = file.len() as u64;
    let number = headers.len() as u64;
    headers.push([0, 3, 0, 0, at, names.len() as u64, 0, 0, 1, 0]);
    file.extend(&names);
    // Readers may refuse headers that are not aligned.
    file.resize(file.len().next_multiple_of(8), 0);
    let table = file.len() as u64;
    for [name, kind, flags, address, at, size, link, info, align, entry] in headers {
        file.extend((name as u32).to_le_bytes());
        file.extend((kind as u32).to_le_bytes());
        for field in [flags, address, at, size] {
            file.extend(field.to_le_bytes());
        }
        file.extend((link as u32).to_le_bytes());
        file.extend((info as u32).to_le_bytes());
        file.extend(align.to_le_bytes());
        file.extend(entry.to_le_bytes());
    }
    file[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
    file[20] = 1;
    file[0x28..0x30].copy_from_slice(&table.to_le_bytes());
    file[0x34..0x36].copy_from_slice(&64u16.to_le_bytes());
    file[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
    file[0x3c..0x3e].copy_from_slice(&(number as u16 + 1).to_le_bytes());
    file[0x3e..0x40].copy_from_slice(&(number as u16).to_le_bytes());
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let packed = [&[0u8, 3, 0, 0, 7, 8, 9][..], &[3, 1, 0, 0, 0]].concat();
        let file = unpack(&packed);
        let found = sections(&file);
        let content = |name: &str| found.iter().find(|(n, _)| n == name).map(|(_, c)| *c);
        assert_eq!(content(".debug_info"), Some(&[7, 8, 9][..]));
        assert_eq!(content(".debug_str"), Some(&[0][..]));
        assert_eq!(content(".debug_line"), Some(&[][..]));
        assert_eq!(sections(&unpack(&pack(&file))), found);
        // Sizes beyond the end are cut.
        unpack(&[0, 255, 255, 255, 1]);
        unpack(&[9, 1]);
    }
}
