//! The compressed symbol table that distributions leave in stripped modules: an ELF file inside
//! the section `.gnu_debugdata`, packed by xz.
//!
//! Input: the module. Invariant: what is unpacked is bounded, whatever the section claims.

use crate::input::image::{most_of_packed, section_of};
use std::io::Read as _;

pub(crate) const SECTION: &str = ".gnu_debugdata";

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
    let most = most_of_packed(packed.len());
    match reader.take(most.saturating_add(1)).read_to_end(&mut out) {
        Ok(size) if size as u64 > most => {
            notes.push(format!("damaged symbols: section {SECTION} holds more than {most} bytes"));
            None
        }
        Ok(_) => Some(out),
        Err(error) => {
            notes.push(format!("damaged symbols: section {SECTION}: {error}"));
            None
        }
    }
}
