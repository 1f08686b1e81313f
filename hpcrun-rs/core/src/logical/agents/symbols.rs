//! Code with a role, found by mangled names in a module's symbol table, which is read outside the handler.

use super::roles::{Range, Role};
use hpc_formats::process::bytes_of;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, elf};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;

/// The functions with a role; `None` if no name in the module contains `part`, or if it is stripped.
pub(super) fn ranges_of(
    path: &str,
    bias: u64,
    part: &[u8],
    role_of: fn(&[u8]) -> Option<Role>,
) -> Option<Vec<Range>> {
    let path = OsString::from_vec(bytes_of(path));
    let file = &ReadCache::new(File::open(path).ok()?);
    let header = elf::FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.section_headers(endian, file).ok()?;
    let table = sections.iter().find(|s| s.sh_type(endian) == elf::SHT_SYMTAB)?;
    let names = sections.get(table.sh_link(endian) as usize)?;
    let names = names.data(endian, file).ok()?;
    if !contains(names, part) {
        return None;
    }
    let symbols = table.data_as_array::<elf::Sym64<Endianness>, _>(endian, file).ok()?;
    let ranges = symbols.iter().filter_map(|symbol| {
        let name = names.get(symbol.st_name(endian) as usize..)?;
        let name = &name[..name.iter().position(|b| *b == 0)?];
        let start = symbol.st_value(endian).wrapping_add(bias);
        let size = symbol.st_size(endian);
        (symbol.st_type() == elf::STT_FUNC && size > 0).then_some(())?;
        Some(Range { start, end: start.checked_add(size)?, role: role_of(name)? })
    });
    Some(ranges.collect())
}

/// Searches with libc's vectorised memmem, because string tables take megabytes.
pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    let (text_start, part_start) = (text.as_ptr().cast(), part.as_ptr().cast());
    // SAFETY: memmem reads only within the two slices, which we borrow during the call.
    !unsafe { libc::memmem(text_start, text.len(), part_start, part.len()) }.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_wherever_they_are() {
        assert!(contains(b"aab", b"ab"));
        assert!(contains(b"ab", b"ab"));
        assert!(!contains(b"a", b"ab"));
        assert!(!contains(b"", b"ab"));
    }
}
