//! Reads inlined calls of the usual form: entries of a fixed size.
//!
//! Input: the layout of an abbreviation, then the bytes of entries of it. Invariants: what is read is what
//! [`super::fields`] reads; a layout that this file cannot express has no form here.

use super::fields::{Code, Field, Fields};
use gimli::{DebugInfoOffset, RawRangeListsOffset, UnitOffset};

/// Bytes that are looked at.
const SPAN: usize = 64;

/// Where the parts of a call are.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct CallForm {
    /// Otherwise look at the shape.
    is_known: bool,
    pub(super) has_children: bool,
    /// Whether what is called is described in the same unit, and otherwise in one of the same file.
    is_near: bool,
    /// Whether the code is a list of ranges.
    is_list: bool,
    /// Whether the place of the call is stated.
    has_place: bool,
    /// Bytes of all attributes.
    size: u16,
    origin: Number,
    /// The first address, or where the list is.
    code: Number,
    /// Bytes of code, where that is no list.
    length: Number,
    file: Number,
    line: Number,
}

/// Where a little-endian number is.
#[derive(Clone, Copy, Default, Debug)]
struct Number {
    offset: u8,
    /// Bits of eight bytes that are not of the number.
    unused: u8,
}

/// What a call says.
pub(super) struct Call<'d> {
    /// Where the entry is that describes what is called: in the unit, or else in the section.
    pub(super) origin: Result<UnitOffset<usize>, DebugInfoOffset<usize>>,
    /// Where the code is.
    pub(super) code: Code<'d>,
    /// File index and line of the call.
    pub(super) place: Option<(u32, u32)>,
    /// Where the entry ends.
    pub(super) end: usize,
}

impl Number {
    fn of(fields: &Fields, field: Field) -> Option<Number> {
        let (offset, size) = fields.place(field)?;
        let offset = u8::try_from(offset).ok()?;
        let unused = 64 - 8 * size;
        (usize::from(offset) + 8 <= SPAN).then_some(Number { offset, unused })
    }

    /// The number in the bytes of an entry and what follows.
    #[inline(always)]
    fn read(self, bytes: &[u8; SPAN]) -> u64 {
        // All that is read is within: see `of`.
        let at = usize::from(self.offset) % (SPAN - 7);
        let wide = bytes[at..]
            .first_chunk()
            .map_or(0, |c| u64::from_le_bytes(*c));
        wide << self.unused >> self.unused
    }
}

impl CallForm {
    /// The form of entries with these fields; `None` where it is not the usual one.
    pub(super) fn new(fields: &Fields, has_children: bool) -> Option<CallForm> {
        let is_list = fields.has_list();
        let is_near = fields.is_near();
        if !(is_near || fields.is_in_file()) || !(is_list || fields.has_range()) {
            return None;
        }
        let number = |field| Number::of(fields, field);
        let has_place = fields.has(Field::CallFile);
        // A place has both.
        if has_place != fields.has(Field::CallLine) {
            return None;
        }
        let of_place = |field| match has_place {
            true => number(field),
            false => Some(Number::default()),
        };
        Some(CallForm {
            is_known: true,
            has_children,
            is_near,
            is_list,
            has_place,
            size: fields.size()?,
            origin: number(Field::Origin)?,
            code: number(if is_list { Field::Ranges } else { Field::Low })?,
            length: match is_list {
                true => Number::default(),
                false => number(Field::High)?,
            },
            file: of_place(Field::CallFile)?,
            line: of_place(Field::CallLine)?,
        })
    }

    /// The call whose attributes begin at `at`; `None` = look at the shape.
    #[inline(always)]
    pub(super) fn read<'d>(&self, data: &[u8], at: usize) -> Option<Call<'d>> {
        if !self.is_known {
            return None;
        }
        // Mostly there is more behind the entry.
        let bytes = data.get(at..)?.first_chunk()?;
        let end = at + usize::from(self.size);
        if end > data.len() {
            return None;
        }
        let offset = |number: u64| usize::try_from(number).ok();
        let code = self.code.read(bytes);
        let code = if self.is_list {
            Code::List(RawRangeListsOffset(offset(code)?))
        } else {
            Code::Range(code, code.checked_add(self.length.read(bytes))?)
        };
        let place = if self.has_place {
            let small = |number: Number| u32::try_from(number.read(bytes)).ok();
            Some((small(self.file)?, small(self.line)?))
        } else {
            None
        };
        let origin = offset(self.origin.read(bytes))?;
        Some(Call {
            origin: match self.is_near {
                true => Ok(UnitOffset(origin)),
                false => Err(DebugInfoOffset(origin)),
            },
            code,
            place,
            end,
        })
    }
}
