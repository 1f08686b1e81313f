//! The attributes of an entry that the walk needs, and the code ranges that they state.

use super::{Debug, EntryRef, Reader};
use gimli::{AttributeSpecification, AttributeValue, Dwarf, EntriesRaw, RangeListsOffset, Unit};
use std::ops::Range;

/// What one entry states.
#[derive(Debug, Default)]
pub(super) struct Attributes<'d> {
    /// Its name, not looked up yet.
    pub(super) name: Option<AttributeValue<Reader<'d>>>,
    low: Option<u64>,
    /// Bytes of code from `low` on.
    size: Option<u64>,
    end: Option<u64>,
    ranges: Option<RangeListsOffset>,
    /// The entry that describes the inlined procedure.
    pub(super) origin: Option<EntryRef>,
    call_file: Option<u32>,
    call_line: u32,
}

impl Attributes<'_> {
    /// File index and line of the call.
    pub(super) fn call(&self) -> Option<(u32, u32)> {
        Some((self.call_file?, self.call_line))
    }
}

/// A unit whose entries are walked.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitRef<'a, 'd> {
    debug: &'a Debug<'d>,
    pub(super) unit: &'a Unit<Reader<'d>>,
    pub(super) index: u32,
    dwarf: &'a Dwarf<Reader<'d>>,
}

impl<'a, 'd> UnitRef<'a, 'd> {
    /// Unit `index`, if there is one.
    pub(super) fn new(debug: &'a Debug<'d>, index: u32) -> Option<Self> {
        Some(UnitRef { debug, unit: debug.units.get(index as usize)?, index, dwarf: debug.dwarf(index)? })
    }

    /// Reads the attributes of the entry whose abbreviation `entries` has just read.
    #[inline]
    pub(super) fn attributes(
        &self,
        entries: &mut EntriesRaw<'_, '_, Reader<'d>>,
        specifications: &[AttributeSpecification],
    ) -> gimli::Result<Attributes<'d>> {
        let mut out = Attributes::default();
        let small = |value: AttributeValue<Reader<'d>>| u32::try_from(value.udata_value()?).ok();
        for specification in specifications {
            let attribute = entries.read_attribute(*specification)?;
            // Only of `DW_AT_ranges` the attribute's name decides what its form means.
            let raw = || attribute.raw_value();
            match specification.name() {
                gimli::DW_AT_low_pc => out.low = self.dwarf.attr_address(self.unit, raw())?,
                gimli::DW_AT_high_pc => match self.dwarf.attr_address(self.unit, raw())? {
                    Some(end) => out.end = Some(end),
                    None => out.size = raw().udata_value(),
                },
                gimli::DW_AT_ranges => {
                    let list = self.dwarf.attr_ranges_offset(self.unit, attribute.value())?;
                    out.ranges = list;
                }
                gimli::DW_AT_abstract_origin => {
                    out.origin = self.debug.reference(self.index, raw());
                }
                gimli::DW_AT_call_file => out.call_file = small(raw()),
                gimli::DW_AT_call_line => out.call_line = small(raw()).unwrap_or(0),
                gimli::DW_AT_name => out.name = Some(raw()),
                _ => {}
            }
        }
        Ok(out)
    }

    /// Hands the code ranges of an entry to `emit`; empty ones are left out.
    pub(super) fn ranges(
        &self,
        attributes: &Attributes<'d>,
        mut emit: impl FnMut(Range<u64>),
    ) -> gimli::Result<()> {
        if let Some(list) = attributes.ranges {
            let mut list = self.dwarf.ranges(self.unit, list)?;
            while let Some(range) = list.next()? {
                if range.begin < range.end {
                    emit(range.begin..range.end);
                }
            }
        } else if let Some(low) = attributes.low {
            let by_size = || low.checked_add(attributes.size?);
            if let Some(end) = attributes.end.or_else(by_size).filter(|end| *end > low) {
                emit(low..end);
            }
        }
        Ok(())
    }
}
