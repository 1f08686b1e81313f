//! Debug information, one compilation unit at a time.
//!
//! Input: the debug sections of an image or of its separate debug file. [`Debug`] knows all
//! units; [`walk`] finds the procedures and inlined scopes of one, [`describe`] their names,
//! [`lines`] its line table. Invariant: nothing here fails for damaged input; what cannot be read
//! is left out and said in a note.

pub(crate) mod describe;
pub(crate) mod lines;
pub(crate) mod walk;

use crate::image::Image;
use gimli::{Dwarf, DwarfSections, EndianSlice, RunTimeEndian, Unit};
use std::borrow::Cow;
use std::ops::Range;

/// How section bytes are read.
pub(crate) type Reader<'d> = EndianSlice<'d, RunTimeEndian>;

/// Sections, decompressed where needed; owns what [`Debug`] borrows.
pub(crate) type Sections<'d> = DwarfSections<Cow<'d, [u8]>>;

/// Loads the debug sections of `image`; a damaged one counts as absent and adds a note.
pub(crate) fn load<'d>(image: &Image<'d>, notes: &mut Vec<String>) -> Sections<'d> {
    let loaded: Result<_, std::convert::Infallible> = DwarfSections::load(|id| {
        Ok(image.section(id.name()).unwrap_or_else(|what| {
            notes.push(format!("damaged debug information: {what}"));
            Cow::Borrowed(&[])
        }))
    });
    match loaded {
        Ok(sections) => sections,
        Err(never) => match never {},
    }
}

/// All units of the debug information.
#[derive(Debug)]
pub(crate) struct Debug<'d> {
    /// The sections.
    pub(crate) dwarf: Dwarf<Reader<'d>>,
    /// Units in the order of the file.
    pub(crate) units: Vec<Unit<Reader<'d>>>,
    /// Offsets of the units' starts in `.debug_info`, ascending.
    starts: Vec<usize>,
}

/// A debug information entry: index of its unit, offset in the unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct EntryRef {
    /// Index into [`Debug::units`].
    pub(crate) unit: u32,
    /// Offset from the unit's start.
    pub(crate) offset: gimli::UnitOffset<usize>,
}

impl<'d> Debug<'d> {
    /// Reads the headers of all units.
    pub(crate) fn new(
        sections: &'d Sections<'_>,
        little_endian: bool,
        notes: &mut Vec<String>,
    ) -> Self {
        let endian = if little_endian {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        };
        let mut dwarf = sections.borrow(|data| EndianSlice::new(data, endian));
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let mut debug = Debug {
            dwarf,
            units: Vec::new(),
            starts: Vec::new(),
        };
        debug.read_units(notes);
        debug
    }

    fn read_units(&mut self, notes: &mut Vec<String>) {
        let mut headers = self.dwarf.units();
        let mut split = 0;
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(error) => {
                    notes.push(format!("damaged debug information: {error}"));
                    break;
                }
            };
            let Some(start) = header.offset().as_debug_info_offset() else {
                continue;
            };
            match self.dwarf.unit(header) {
                Ok(unit) => {
                    split += usize::from(matches!(unit.dwo_name(), Ok(Some(_))));
                    self.starts.push(start.0);
                    self.units.push(unit);
                }
                Err(error) => notes.push(format!("damaged compilation unit: {error}")),
            }
        }
        if split > 0 {
            notes.push(format!(
                "{split} units keep their debug information in .dwo files, which are not read: inlined code is missing there, build without -gsplit-dwarf"
            ));
        }
    }

    /// The entry that a section offset names.
    pub(crate) fn entry_at(&self, offset: gimli::DebugInfoOffset<usize>) -> Option<EntryRef> {
        let after = self.starts.partition_point(|s| *s <= offset.0);
        let unit = after.checked_sub(1)?;
        let offset = offset.0.checked_sub(self.starts[unit])?;
        Some(EntryRef {
            unit: u32::try_from(unit).ok()?,
            offset: gimli::UnitOffset(offset),
        })
    }

    /// The entry that a reference attribute of unit `unit` names.
    pub(crate) fn reference(
        &self,
        unit: u32,
        value: gimli::AttributeValue<Reader<'d>>,
    ) -> Option<EntryRef> {
        match value {
            gimli::AttributeValue::UnitRef(offset) => Some(EntryRef { unit, offset }),
            gimli::AttributeValue::DebugInfoRef(offset) => self.entry_at(offset),
            _ => None,
        }
    }

    /// The code ranges that a unit states for itself; `None` when it states none.
    pub(crate) fn unit_ranges(&self, unit: u32) -> Option<Vec<Range<u64>>> {
        let unit = self.units.get(unit as usize)?;
        let mut ranges = Vec::new();
        let mut iter = self.dwarf.unit_ranges(unit).ok()?;
        while let Ok(Some(range)) = iter.next() {
            if range.begin < range.end {
                ranges.push(range.begin..range.end);
            }
        }
        (!ranges.is_empty()).then_some(ranges)
    }

    /// A string attribute's text; bytes that are not UTF-8 make it absent.
    pub(crate) fn text(
        &self,
        unit: &Unit<Reader<'d>>,
        value: gimli::AttributeValue<Reader<'d>>,
    ) -> Option<&'d str> {
        let reader = self.dwarf.attr_string(unit, value).ok()?;
        std::str::from_utf8(reader.slice()).ok()
    }
}
