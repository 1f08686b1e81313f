//! The unwind table `.eh_frame`: bounds of procedures, and their tables of exception handlers.
//!
//! Invariants: what is handed out is sorted, does not overlap and lies in executable ranges; a
//! damaged table ends the lists early.

use crate::input::image::Image;
use gimli::UnwindSection as _;
use object::Object as _;
use std::collections::HashMap;
use std::ops::Range;

/// An unwind entry with exception handlers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handler {
    /// First address of its code.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) table: u64,
}

/// What the unwind table tells.
#[derive(Debug, Default)]
pub(crate) struct Unwind {
    /// Ranges of the entries, and of procedures without one: those of code without symbols.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Entries whose code has exception handlers.
    pub(crate) handlers: Vec<Handler>,
    /// Starts of the entries whose code returns from signal handlers.
    pub(crate) trampolines: Vec<u64>,
}

impl Unwind {
    pub(crate) fn read(image: &Image<'_>) -> Unwind {
        let mut unwind = Unwind::default();
        let Some((address, data)) = image.eh_frame() else {
            return unwind;
        };
        let endian = image.endian();
        let mut table = gimli::EhFrame::new(&data, endian);
        table.set_address_size(if image.file.is_64() { 8 } else { 4 });
        let text = image.code.first().map_or(0, |(r, _)| r.start);
        let bases = gimli::BaseAddresses::default().set_eh_frame(address).set_text(text);
        let mut cies = HashMap::new();
        let mut entries = table.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let fde = partial.parse(|section, bases, offset| {
                if let Some(cie) = cies.get(&offset.0) {
                    return Ok(gimli::CommonInformationEntry::clone(cie));
                }
                let cie = section.cie_from_offset(bases, offset)?;
                cies.insert(offset.0, cie.clone());
                Ok(cie)
            });
            if let Ok(fde) = fde {
                unwind.add(image, &fde);
            }
        }
        unwind.sort();
        unwind
    }

    fn add<R: gimli::Reader>(&mut self, image: &Image<'_>, fde: &gimli::FrameDescriptionEntry<R>) {
        let start = fde.initial_address();
        let Some((section, _)) = image.code_at(start) else {
            return;
        };
        let end = start.saturating_add(fde.len()).min(section.end);
        if end <= start {
            return;
        }
        self.ranges.push(start..end);
        self.trampolines.extend(fde.is_signal_trampoline().then_some(start));
        // A pointer to the pointer is allowed, but no compiler writes it.
        if let Some(gimli::Pointer::Direct(table)) = fde.lsda() {
            self.handlers.push(Handler { start, end, table });
        }
    }

    /// Adds procedures that nothing names and no entry describes; they overlap with no entry.
    pub(crate) fn add_unnamed(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        self.ranges.extend(ranges);
        self.ranges.sort_by_key(|r| r.start);
    }

    fn sort(&mut self) {
        self.ranges.sort_by_key(|r| (r.start, r.end));
        self.ranges.dedup_by(|next, kept| {
            next.start = next.start.max(kept.end);
            next.start >= next.end
        });
        self.handlers.sort_by_key(|h| (h.start, h.end, h.table));
        self.handlers.dedup_by(|next, kept| next.start < kept.end);
    }
}
