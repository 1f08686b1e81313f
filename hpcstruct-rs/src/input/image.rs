//! One ELF image: its sections, where its code lies, its identity, its unwind table.
//!
//! Input: the bytes of a file. Invariants: nothing here trusts a size or an offset of the file
//! (the `object` crate checks them); addresses are the module's own, before relocation.

use crate::base::error::StructError;
use object::elf::{PT_GNU_EH_FRAME, SHF_ALLOC, SHF_EXECINSTR};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader as _};
use object::{Object, ObjectKind, ObjectSection, ObjectSegment, SectionFlags};
use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

/// A section above this size…
const LARGE: u64 = 32 << 20;
/// … may be this many times as large as its compressed bytes. Debug information compresses to a third
/// or a tenth; a small file that claims gigabytes is made to exhaust memory.
const MAX_EXPANSION: u64 = 32;

/// The most bytes that `packed` compressed ones are decompressed to.
pub(crate) fn most_of_packed(packed: usize) -> u64 {
    LARGE.max((packed as u64).saturating_mul(MAX_EXPANSION))
}

/// An ELF image that has passed its first checks.
#[derive(Debug)]
pub(crate) struct Image<'d> {
    pub(crate) file: object::File<'d>,
    /// Executable address ranges, sorted, with the section's name (empty for a segment).
    pub(crate) code: Vec<(Range<u64>, String)>,
    /// GNU build id, empty when there is none.
    pub(crate) build_id: Vec<u8>,
}

impl<'d> Image<'d> {
    /// The byte order of its sections.
    pub(crate) fn endian(&self) -> gimli::RunTimeEndian {
        match self.file.is_little_endian() {
            true => gimli::RunTimeEndian::Little,
            false => gimli::RunTimeEndian::Big,
        }
    }

    /// Parses `data`, which `path` names in errors.
    pub(crate) fn parse(path: &Path, data: &'d [u8]) -> Result<Image<'d>, StructError> {
        if !data.starts_with(b"\x7fELF") {
            return Err(StructError::NotElf(path.to_owned()));
        }
        let file = object::File::parse(data)
            .map_err(|e| StructError::BadElf { path: path.to_owned(), what: e.to_string() })?;
        let not_loadable = |kind| Err(StructError::NotLoadable { path: path.to_owned(), kind });
        match file.kind() {
            ObjectKind::Relocatable if file.section_by_name(".modinfo").is_some() => {
                return Err(StructError::KernelModule(path.to_owned()));
            }
            ObjectKind::Relocatable => return not_loadable("an object file"),
            ObjectKind::Core => return not_loadable("a core dump"),
            _ => {}
        }
        let build_id = file.build_id().ok().flatten().unwrap_or(&[]).to_vec();
        let code = code_ranges(&file);
        if code.is_empty() {
            return Err(StructError::BadElf {
                path: path.to_owned(),
                what: "it has no executable section or segment".to_owned(),
            });
        }
        Ok(Image { file, code, build_id })
    }

    /// Whether the file has the bytes of any of its code; separate debug files have none.
    pub(crate) fn has_code(&self) -> bool {
        let mut sections = self.file.sections().peekable();
        if sections.peek().is_none() {
            let mut segments = self.file.segments();
            return segments.any(|s| is_executable(&s) && s.file_range().1 > 0);
        }
        let has_bytes = |s: object::Section<'_, '_>| s.file_range().is_some_and(|r| r.1 > 0);
        sections.any(|s| self.code_at(s.address()).is_some() && has_bytes(s))
    }

    /// The executable range that holds `address`.
    pub(crate) fn code_at(&self, address: u64) -> Option<&(Range<u64>, String)> {
        let after = self.code.partition_point(|(r, _)| r.start <= address);
        let found = self.code.get(after.checked_sub(1)?)?;
        found.0.contains(&address).then_some(found)
    }

    /// The bytes of a section, decompressed; empty when it is absent or has no bytes in this file.
    ///
    /// A damaged section is an error text for a note.
    pub(crate) fn section(&self, name: &str) -> Result<Cow<'d, [u8]>, String> {
        section_of(&self.file, name)
    }

    /// Address and bytes of the unwind table `.eh_frame`, by section or by program header.
    pub(crate) fn eh_frame(&self) -> Option<(u64, Cow<'d, [u8]>)> {
        if let Some(section) = self.file.section_by_name(".eh_frame") {
            let data = self.section(".eh_frame").ok()?;
            return Some((section.address(), data));
        }
        self.eh_frame_by_segment()
    }

    /// Without section headers `PT_GNU_EH_FRAME` leads to the table: its second word is the
    /// table's address, in practice as a 32-bit difference from the word itself.
    fn eh_frame_by_segment(&self) -> Option<(u64, Cow<'d, [u8]>)> {
        const PCREL_SDATA4: u8 = 0x1b;
        let header = eh_frame_header_address(&self.file)?;
        let at = |address: u64| -> Option<&'d [u8]> {
            self.file.segments().find_map(|segment| {
                let offset = usize::try_from(address.checked_sub(segment.address())?).ok()?;
                segment.data().ok()?.get(offset..)
            })
        };
        let bytes = at(header)?.get(..8)?;
        if bytes[1] != PCREL_SDATA4 {
            return None;
        }
        let difference = i32::from_le_bytes(bytes[4..8].try_into().ok()?);
        let address = header.checked_add(4)?.checked_add_signed(i64::from(difference))?;
        Some((address, Cow::Borrowed(at(address)?)))
    }
}

/// The bytes of a section of `file`, decompressed; empty when it is absent or has no bytes there.
///
/// A damaged section is an error text for a note.
pub(crate) fn section_of<'d>(file: &object::File<'d>, name: &str) -> Result<Cow<'d, [u8]>, String> {
    let Some(section) = file.section_by_name(name) else {
        return Ok(Cow::Borrowed(&[]));
    };
    let describe = |e: object::Error| format!("section {name}: {e}");
    let compressed = section.compressed_data().map_err(describe)?;
    if compressed.format != object::CompressionFormat::None {
        let (packed, whole) = (compressed.data.len(), compressed.uncompressed_size);
        if whole > most_of_packed(packed) {
            return Err(format!(
                "section {name}: {packed} bytes claim to hold {whole}; left out, as they would only fill \
                 the memory"
            ));
        }
    }
    compressed.decompress().map_err(describe)
}

fn eh_frame_header_address(file: &object::File<'_>) -> Option<u64> {
    fn of<E: FileHeader>(elf: &ElfFile<'_, E>) -> Option<u64> {
        let endian = elf.endian();
        let mut headers = elf.elf_program_headers().iter();
        let found = headers.find(|p| p.p_type(endian) == PT_GNU_EH_FRAME)?;
        Some(found.p_vaddr(endian).into())
    }
    match file {
        object::File::Elf64(elf) => of(elf),
        object::File::Elf32(elf) => of(elf),
        _ => None,
    }
}

fn code_ranges(file: &object::File<'_>) -> Vec<(Range<u64>, String)> {
    let wanted = u64::from(SHF_ALLOC | SHF_EXECINSTR);
    let mut ranges: Vec<_> = file
        .sections()
        .filter(|s| matches!(s.flags(), SectionFlags::Elf { sh_flags } if sh_flags & wanted == wanted))
        .filter_map(|s| {
            let end = s.address().checked_add(s.size())?;
            let name = String::from_utf8_lossy(s.name_bytes().ok()?).into_owned();
            (s.size() > 0).then_some((s.address()..end, name))
        })
        .collect();
    if ranges.is_empty() {
        ranges = executable_segments(file);
    }
    ranges.sort_by_key(|(r, _)| (r.start, r.end));
    ranges
}

fn is_executable(segment: &object::Segment<'_, '_>) -> bool {
    matches!(segment.flags(), object::SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_X != 0)
}

fn executable_segments(file: &object::File<'_>) -> Vec<(Range<u64>, String)> {
    file.segments()
        .filter(is_executable)
        .filter_map(|s| {
            let end = s.address().checked_add(s.size())?;
            (s.size() > 0).then_some((s.address()..end, String::new()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_load_module_is_refused_with_its_kind() {
        let path = Path::new("x");
        let error = |data: &[u8]| Image::parse(path, data).expect_err("refused").to_string();
        assert!(error(b"#!/bin/sh\n").contains("is not an ELF file"));
        assert!(error(b"").contains("is not an ELF file"));
        assert!(error(b"\x7fELF\x02\x01\x01").contains("truncated or corrupt"));
    }
}
