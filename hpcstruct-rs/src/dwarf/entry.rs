//! What an entry says of its code and of the call that it stands for.
//!
//! Input: the bytes of a unit. Usual forms are read by [`super::fields`]; whatever is unusual or
//! damaged goes to gimli. Invariant: both ways give the same.

use super::calls::Call;
use super::fields::{Code, Field, Values};
use super::ranges;
use super::{Debug, EntryRef, Reader};
use gimli::{
    AttributeValue, Dwarf, RangeListsOffset, RawRangeListsOffset, Section as _, Unit, UnitOffset,
};
use std::ops::Range;

/// The attributes that matter to the walk.
#[derive(Debug, Default)]
pub(super) struct Attributes<'d> {
    /// Its name, not looked up yet.
    pub(super) name: Option<AttributeValue<Reader<'d>>>,
    /// Where its code is.
    pub(super) code: Code<'d>,
    /// The entry that describes it.
    pub(super) origin: Option<EntryRef>,
    /// File index and line of the call.
    pub(super) call: Option<(u32, u32)>,
}

/// The entries of a unit.
pub(super) struct Entries<'a, 'd> {
    pub(super) debug: &'a Debug<'d>,
    pub(super) unit: &'a Unit<Reader<'d>>,
    /// The unit's number.
    pub(super) index: u32,
    /// The bytes of the entries.
    pub(super) data: &'d [u8],
    /// Their offset in the unit.
    pub(super) base: usize,
    dwarf: &'a Dwarf<Reader<'d>>,
    /// The section of ranges, where these have a simple form.
    plain_ranges: Option<&'d [u8]>,
}

impl<'a, 'd> Entries<'a, 'd> {
    /// Of unit `index`; `None` when there is none.
    pub(super) fn new(debug: &'a Debug<'d>, index: u32) -> gimli::Result<Option<Self>> {
        let (Some(unit), Some(dwarf)) = (debug.units.get(index as usize), debug.dwarf(index))
        else {
            return Ok(None);
        };
        let base = unit.header.header_size();
        let is_plain = debug.little_endian
            && unit.encoding().version < 5
            && unit.encoding().address_size == 8
            && dwarf.file_type == gimli::DwarfFileType::Main;
        let is_empty = unit.header.length_including_self() == base;
        Ok(Some(Entries {
            debug,
            unit,
            index,
            data: match is_empty {
                true => &[],
                false => unit.header.range_from(UnitOffset(base)..)?.slice(),
            },
            base,
            dwarf,
            plain_ranges: is_plain.then(|| dwarf.ranges.debug_ranges().reader().slice()),
        }))
    }

    /// What values of a simple form say.
    pub(super) fn simple(&self, values: &Values<'_>) -> Attributes<'d> {
        Attributes {
            name: values.text(Field::Name),
            code: values.code(),
            origin: self.origin(values),
            call: Self::call(values),
        }
    }

    /// The entry that describes one with these values.
    #[inline]
    pub(super) fn origin(&self, values: &Values<'_>) -> Option<EntryRef> {
        if let Some(offset) = values.origin_in_unit() {
            let unit = self.index;
            return Some(EntryRef { unit, offset });
        }
        let origin = values.entry(Field::Origin)?;
        self.debug.reference(self.index, origin)
    }

    /// The entry that describes what is called.
    #[inline]
    pub(super) fn origin_of(&self, call: &Call<'_>) -> Option<EntryRef> {
        let unit = self.index;
        match call.origin {
            Ok(offset) => Some(EntryRef { unit, offset }),
            Err(offset) => {
                let value = AttributeValue::DebugInfoRef(offset);
                self.debug.reference(unit, value)
            }
        }
    }

    /// File index and line of the call.
    #[inline]
    pub(super) fn call(values: &Values<'_>) -> Option<(u32, u32)> {
        let file = values.small(Field::CallFile)?;
        Some((file, values.small(Field::CallLine).unwrap_or(0)))
    }

    /// What the entry at an offset of the unit says, in the general way, and where it ends in the
    /// data.
    pub(super) fn general(
        &self,
        offset: UnitOffset<usize>,
    ) -> gimli::Result<(Attributes<'d>, usize)> {
        let mut entries = self.unit.entries_raw(Some(offset))?;
        let mut out = Attributes::default();
        let Some(abbreviation) = entries.read_abbreviation()? else {
            return Ok((out, entries.next_offset().0 - self.base));
        };
        let (mut low, mut high, mut ranges) = (None, None, None);
        let (mut file, mut line) = (None, None);
        let small = |value: AttributeValue<Reader<'d>>| u32::try_from(value.udata_value()?).ok();
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            // Raw values: what the name makes of a form matters for `DW_AT_ranges` alone.
            let raw = || attribute.raw_value();
            match attribute.name() {
                gimli::DW_AT_name => out.name = Some(raw()),
                gimli::DW_AT_low_pc => low = Some(raw()),
                gimli::DW_AT_high_pc => high = Some(raw()),
                gimli::DW_AT_ranges => ranges = Some(attribute.value()),
                gimli::DW_AT_abstract_origin => {
                    out.origin = self.debug.reference(self.index, raw());
                }
                gimli::DW_AT_call_file => file = small(raw()),
                gimli::DW_AT_call_line => line = small(raw()),
                _ => {}
            }
        }
        out.code = Code::Stated { low, high, ranges };
        out.call = file.map(|file| (file, line.unwrap_or(0)));
        Ok((out, entries.next_offset().0 - self.base))
    }

    /// Where the entry at an offset of the unit ends in the data.
    pub(super) fn step_over(&self, offset: UnitOffset<usize>) -> gimli::Result<usize> {
        let mut entries = self.unit.entries_raw(Some(offset))?;
        if let Some(abbreviation) = entries.read_abbreviation()? {
            entries.skip_attributes(abbreviation.attributes())?;
        }
        Ok(entries.next_offset().0 - self.base)
    }

    /// The ranges of code that an entry states.
    #[inline]
    pub(super) fn ranges(
        &self,
        code: &Code<'d>,
        mut emit: impl FnMut(Range<u64>),
    ) -> gimli::Result<()> {
        let (low, high) = match *code {
            Code::None => return Ok(()),
            Code::Range(low, high) => (low, Some(high)),
            Code::List(offset) => return self.list(offset, emit),
            Code::Stated { low, high, ranges } => {
                let low = self.address(low)?;
                if let Some(value) = ranges {
                    return self.stated_ranges(value, emit);
                }
                let Some(low) = low else {
                    return Ok(());
                };
                (low, self.end(low, high)?)
            }
        };
        if let Some(high) = high.filter(|high| *high > low) {
            emit(low..high);
        }
        Ok(())
    }

    fn address(&self, value: Option<AttributeValue<Reader<'d>>>) -> gimli::Result<Option<u64>> {
        match value {
            Some(value) => self.dwarf.attr_address(self.unit, value),
            None => Ok(None),
        }
    }

    /// An end address, stated as such or as a size.
    fn end(
        &self,
        low: u64,
        high: Option<AttributeValue<Reader<'d>>>,
    ) -> gimli::Result<Option<u64>> {
        let size = |value: AttributeValue<Reader<'d>>| low.checked_add(value.udata_value()?);
        Ok(match high {
            Some(value @ AttributeValue::Udata(_)) => size(value),
            Some(value) => self
                .dwarf
                .attr_address(self.unit, value)?
                .or_else(|| size(value)),
            None => None,
        })
    }

    fn stated_ranges(
        &self,
        value: AttributeValue<Reader<'d>>,
        mut emit: impl FnMut(Range<u64>),
    ) -> gimli::Result<()> {
        if let AttributeValue::RangeListsRef(offset) = value {
            return self.list(offset, emit);
        }
        if let Some(offset) = self.dwarf.attr_ranges_offset(self.unit, value)? {
            self.general_list(offset, &mut emit)?;
        }
        Ok(())
    }

    fn list(
        &self,
        offset: RawRangeListsOffset,
        mut emit: impl FnMut(Range<u64>),
    ) -> gimli::Result<()> {
        if let Some(section) = self.plain_ranges {
            let base = self.unit.low_pc;
            if ranges::read(section, offset.0, base, &mut emit).is_some() {
                return Ok(());
            }
        }
        let is_told = self.plain_ranges.is_some();
        let offset = self.dwarf.ranges_offset_from_raw(self.unit, offset);
        // What there is has been told; what is wrong gimli knows.
        self.general_list(offset, &mut |range| {
            if !is_told {
                emit(range);
            }
        })
    }

    fn general_list(
        &self,
        offset: RangeListsOffset,
        emit: &mut dyn FnMut(Range<u64>),
    ) -> gimli::Result<()> {
        let mut list = self.dwarf.ranges(self.unit, offset)?;
        while let Some(range) = list.next()? {
            if range.begin < range.end {
                emit(range.begin..range.end);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::describe::describe;
    use crate::dwarf::shapes::{Interest, KnownShapes};
    use crate::dwarf::walk::{self, Walked};
    use crate::dwarf::{endian, load};
    use crate::wanted::Wanted;

    fn ranges_of<'d>(entries: &Entries<'_, 'd>, code: &Code<'d>) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        let read = entries.ranges(code, |range| out.push(range));
        read.expect("this program's debug information is whole");
        out
    }

    /// Compares all entries of a unit that the walk looks at; returns how many have a simple form, are
    /// usual calls, and are stepped over by plan.
    fn compare<'d>(entries: &Entries<'_, 'd>, known: &mut KnownShapes) -> gimli::Result<[u32; 3]> {
        let Entries { debug, unit, .. } = entries;
        let (mut simple, mut calls, mut planned) = (0, 0, 0);
        let mut raw = unit.entries_raw(None)?;
        while !raw.is_empty() {
            let offset = raw.next_offset();
            let Some(abbreviation) = raw.read_abbreviation()? else {
                continue;
            };
            let start = raw.next_offset().0 - entries.base;
            raw.skip_attributes(abbreviation.attributes())?;
            let shapes = known.of(debug, entries.index, unit);
            let index = shapes.index(abbreviation.code(), unit, debug.little_endian)?;
            let shape = shapes.get(index).expect("just made");
            let (expected, end) = entries.general(offset)?;
            assert_eq!(end, raw.next_offset().0 - entries.base);
            assert_eq!(shape.skip.end(entries.data, start).unwrap_or(end), end);
            let first = offset.0 - entries.base;
            let bytes = entries.data[first..].first_chunk();
            if let Some((size, step)) = bytes.and_then(|bytes| shapes.plans().size(bytes)) {
                planned += 1;
                assert_eq!((first + size, step), (end, isize::from(shape.has_children)));
            }
            let form = shapes.call(abbreviation.code());
            if let Some(call) = form.and_then(|form| form.read(entries.data, start)) {
                calls += 1;
                assert_eq!(call.end, end);
                let origin = entries.origin_of(&call);
                assert_eq!((origin, call.place), (expected.origin, expected.call));
                let ranges = [&call.code, &expected.code].map(|c| ranges_of(entries, c));
                assert_eq!(ranges[0], ranges[1]);
            }
            let fields = shape.fields.as_ref();
            let Some(values) = fields.and_then(|f| f.read(entries.data, start)) else {
                continue;
            };
            simple += 1;
            assert_eq!(values.end, end);
            let found = entries.simple(&values);
            assert_eq!(found.name, expected.name);
            assert_eq!((found.origin, found.call), (expected.origin, expected.call));
            // Of other entries nobody asks where their code is.
            if shape.interest != Interest::Context {
                let ranges = [&found.code, &expected.code].map(|c| ranges_of(entries, c));
                assert_eq!(ranges[0], ranges[1]);
            }
        }
        Ok([simple, calls, planned])
    }

    #[test]
    fn simple_forms_say_what_gimli_says() {
        let path = std::env::current_exe().expect("a path");
        let data = std::fs::read(path).expect("readable");
        let file = object::File::parse(&*data).expect("an ELF file");
        let mut notes = Vec::new();
        let sections = load(&[&file], 1, &mut notes);
        let debug = Debug::new(&sections, endian(true), 1, &mut notes);
        assert!(notes.is_empty(), "{notes:?}");
        let mut known = KnownShapes::default();
        let mut walked = Walked::default();
        let mut simple = [0; 3];
        let mut described = 0;
        for unit in debug.compilation_units().step_by(7) {
            let entries = Entries::new(&debug, unit).expect("whole").expect("there");
            let found = compare(&entries, &mut known).expect("whole");
            simple.iter_mut().zip(found).for_each(|(sum, n)| *sum += n);
            walk::walk(
                &debug,
                unit,
                &Wanted::new(None),
                &|_| true,
                &mut known,
                &mut walked,
            );
            let shapes = known.walked(&debug, unit);
            let functions = walked.functions.iter().map(|f| f.entry);
            for entry in functions.chain(walked.scopes.iter().filter_map(|s| s.origin)) {
                let found = describe(&debug, shapes, entry);
                let expected = describe(&debug, None, entry);
                assert_eq!(format!("{found:?}"), format!("{expected:?}"));
                described += 1;
            }
        }
        assert!(
            simple.into_iter().all(|n| n > 1000) && described > 1000,
            "{simple:?}, {described}"
        );
    }
}
