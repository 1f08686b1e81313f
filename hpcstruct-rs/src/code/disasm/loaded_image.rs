//! The loaded image as the code sees it: bytes by address, relocated words, imported names.
//!
//! Input: an ELF file. Invariant: every read is checked; what is not in the file is `None`.

use object::read::elf::{FileHeader, ProgramHeader as _};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationTarget};

/// What a word of memory holds after the dynamic linker has run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word<'d> {
    /// The address of a symbol of another module.
    Import(&'d [u8]),
    /// An address of this module.
    Address(u64),
}

/// Bytes and relocations of an image.
#[derive(Debug, Default)]
pub(crate) struct LoadedImage<'d> {
    /// Loaded bytes by address, sorted.
    segments: Vec<(u64, &'d [u8])>,
    /// Words that point into this module, sorted by address.
    relative: Vec<(u64, u64)>,
    /// Words that a symbol of another module fills, sorted by address.
    imports: Vec<(u64, &'d [u8])>,
}

impl<'d> LoadedImage<'d> {
    /// Of an ELF file.
    pub(crate) fn new(file: &'d object::File<'d>) -> LoadedImage<'d> {
        let mut segments = match file {
            object::File::Elf64(elf) => loaded(elf.elf_header(), elf.endian(), elf.data()),
            _ => Vec::new(),
        };
        segments.sort_unstable_by_key(|s| s.0);
        let mut memory = LoadedImage { segments, ..LoadedImage::default() };
        memory.relocate(file);
        memory
    }

    /// Of bytes at an address, without relocations.
    pub(crate) fn of_bytes(address: u64, bytes: &'d [u8]) -> LoadedImage<'d> {
        LoadedImage { segments: vec![(address, bytes)], ..LoadedImage::default() }
    }

    fn relocate(&mut self, file: &'d object::File<'d>) {
        let symbols = file.dynamic_symbol_table();
        for (address, relocation) in file.dynamic_relocations().into_iter().flatten() {
            match relocation.target() {
                RelocationTarget::Absolute => {
                    self.relative.push((address, relocation.addend() as u64));
                }
                RelocationTarget::Symbol(index) => {
                    let symbol = symbols.as_ref().map(|s| s.symbol_by_index(index));
                    let Some(Ok(symbol)) = symbol else { continue };
                    if symbol.is_undefined() {
                        if let Ok(name) = symbol.name_bytes() {
                            self.imports.push((address, name));
                        }
                    } else {
                        let value = symbol.address().wrapping_add(relocation.addend() as u64);
                        self.relative.push((address, value));
                    }
                }
                _ => {}
            }
        }
        self.relative.sort_unstable();
        self.imports.sort_unstable();
    }

    /// The bytes from `address` to the end of its segment.
    pub(crate) fn bytes(&self, address: u64) -> Option<&'d [u8]> {
        let after = self.segments.partition_point(|s| s.0 <= address);
        let (start, bytes) = self.segments.get(after.checked_sub(1)?)?;
        let offset = usize::try_from(address - start).ok()?;
        bytes.get(offset..).filter(|b| !b.is_empty())
    }

    /// A little-endian number of 1, 2, 4 or 8 bytes as the file has it.
    pub(crate) fn number(&self, address: u64, bytes: u8) -> Option<u64> {
        let data = self.bytes(address)?.get(..usize::from(bytes))?;
        Some(data.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// The address that a word holds.
    pub(crate) fn pointer(&self, address: u64) -> Option<u64> {
        match self.relative.binary_search_by_key(&address, |r| r.0) {
            Ok(found) => Some(self.relative[found].1),
            Err(_) => self.number(address, 8),
        }
    }

    /// The addresses of this module that its relocated words hold.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.relative.iter().map(|(_, address)| *address)
    }

    /// What a word holds.
    pub(crate) fn word(&self, address: u64) -> Option<Word<'d>> {
        match self.imports.binary_search_by_key(&address, |r| r.0) {
            Ok(found) => Some(Word::Import(self.imports[found].1)),
            Err(_) => self.pointer(address).map(Word::Address),
        }
    }
}

fn loaded<'d, E: FileHeader>(header: &E, endian: E::Endian, data: &'d [u8]) -> Vec<(u64, &'d [u8])> {
    let headers = header.program_headers(endian, data).unwrap_or(&[]);
    headers
        .iter()
        .filter(|p| p.p_type(endian) == object::elf::PT_LOAD)
        .filter_map(|p| {
            let bytes = p.data(endian, data).ok()?;
            Some((p.p_vaddr(endian).into(), bytes))
        })
        .collect()
}
