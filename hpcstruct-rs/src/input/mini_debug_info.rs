//! The compressed symbol table that distributions leave in stripped modules: an ELF file inside
//! the section `.gnu_debugdata`, packed by xz.
//!
//! Input: the module. Invariant: what is unpacked is bounded, whatever the section claims.

use crate::input::image::section_of;
use std::io::Read as _;

pub(crate) const SECTION: &str = ".gnu_debugdata";

/// Largest unpacked table; real ones have a few megabytes.
const MAX_SIZE: u64 = 256 << 20;

/// The unpacked ELF file, if the module has one.
pub(crate) fn symbols(file: &object::File<'_>, notes: &mut Vec<String>) -> Option<Vec<u8>> {
    let packed = match section_of(file, SECTION) {
        Ok(data) if data.is_empty() => return None,
        Ok(data) => data,
        Err(what) => {
            notes.push(format!("damaged symbols: {what}"));
            return None;
        }
    };
    let mut out = Vec::new();
    let reader = lzma_rust2::XzReader::new(&*packed, false);
    match reader.take(MAX_SIZE).read_to_end(&mut out) {
        Ok(_) => Some(out),
        Err(error) => {
            notes.push(format!("damaged symbols: section {SECTION}: {error}"));
            None
        }
    }
}
