//! What the walk needs to know of abbreviations, worked out once for all units that share them.
//!
//! Input: the abbreviations of a unit. Invariants: a shape is that of its abbreviation in every unit
//! that is looked up under one key; memory is bounded by forgetting.

use super::fields::{Fields, Values};
use super::skip::{self, Skip};
use super::{Debug, EntryRef, Reader};
use crate::strings::Map;
use gimli::{DwTag, Unit, UnitOffset};

/// What the walk does with entries of one abbreviation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Interest {
    Function,
    Inlined,
    Context,
    Nothing,
}

/// An abbreviation as the walk sees it.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) interest: Interest,
    pub(super) has_children: bool,
    pub(super) skip: Skip,
    /// How to read what is of interest, where that has a simple form.
    pub(super) fields: Option<Fields>,
}

/// How to step over the entries of an abbreviation: `before` bytes, perhaps a block with its length,
/// and `after` bytes. What ends a list of children is stepped over in the same way.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Plan {
    before: u16,
    after: u16,
    /// The bits of the length of the block; none where there is no block.
    length: u8,
    /// How much deeper the next entry is.
    pub(super) step: i8,
    /// Otherwise they are of interest, or not so simple: look at the shape.
    is_known: bool,
}

impl Plan {
    /// Of what ends a list of children.
    const END: Plan = Plan {
        before: 0,
        after: 0,
        length: 0,
        step: -1,
        is_known: true,
    };

    fn new(skip: &Skip, has_children: bool) -> Option<Plan> {
        use super::skip::Step::{Bytes, LebBlock};
        let (before, block, after) = match skip {
            Skip::Fixed(size) => (*size, false, 0),
            Skip::Steps(steps) => match *steps.as_slice() {
                [LebBlock] => (0, true, 0),
                [LebBlock, Bytes(after)] => (0, true, after),
                [Bytes(before), LebBlock] => (before, true, 0),
                [Bytes(before), LebBlock, Bytes(after)] => (before, true, after),
                _ => return None,
            },
        };
        Some(Plan {
            before: u16::try_from(before).ok()?,
            after: u16::try_from(after + usize::from(block)).ok()?,
            length: if block { u8::MAX } else { 0 },
            step: i8::from(has_children),
            is_known: true,
        })
    }

    /// The position after the attributes that begin at `at`; `None` = look at the shape. Free of
    /// branches but for one: what comes next is hard to guess.
    #[inline(always)]
    pub(super) fn end(&self, data: &[u8], at: usize) -> Option<usize> {
        let at = at + usize::from(self.before);
        let length = data.get(at).copied().unwrap_or(0) & self.length;
        let end = at + usize::from(length) + usize::from(self.after);
        // The length of an expression is mostly one byte.
        (self.is_known & (length < 0x80) & (end <= data.len())).then_some(end)
    }
}

/// Abbreviation codes from here on are looked up each time; compilers number from 1.
const MAX_SHAPES: usize = 1 << 14;

/// The shapes of the abbreviations of a unit.
#[derive(Debug)]
pub(crate) struct Shapes {
    /// By abbreviation code, those met so far. Code 0 has none.
    full: Vec<Option<Shape>>,
    plans: Vec<Plan>,
}

/// The shapes of earlier units: those of one program share abbreviations.
#[derive(Debug, Default)]
pub(crate) struct KnownShapes {
    tables: Map<Key, Shapes>,
}

/// File, place of the abbreviations, and what the sizes of forms depend on.
type Key = (u32, usize, gimli::Encoding);

impl Shapes {
    /// How to step over the entries of an abbreviation.
    #[inline(always)]
    pub(super) fn plan(&self, code: u64) -> Option<&Plan> {
        usize::try_from(code).ok().and_then(|c| self.plans.get(c))
    }

    /// The shape at an index.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&Shape> {
        self.full.get(index)?.as_ref()
    }

    /// The index of the shape of abbreviation `code`, made when it is new.
    #[inline]
    pub(super) fn index(
        &mut self,
        code: u64,
        unit: &Unit<Reader<'_>>,
        little_endian: bool,
    ) -> gimli::Result<usize> {
        // Codes beyond the table share its last place, one at a time.
        let index = usize::try_from(code).map_or(MAX_SHAPES, |c| c.min(MAX_SHAPES));
        if index < MAX_SHAPES && self.get(index).is_some() {
            return Ok(index);
        }
        self.add(index, code, unit, little_endian)?;
        Ok(index)
    }

    fn add(
        &mut self,
        index: usize,
        code: u64,
        unit: &Unit<Reader<'_>>,
        little_endian: bool,
    ) -> gimli::Result<()> {
        let abbreviation = unit.abbreviations.get(code);
        let abbreviation = abbreviation.ok_or(gimli::Error::UnknownAbbreviation(code))?;
        let interest = interest(abbreviation.tag());
        let has_children = abbreviation.has_children();
        let skip = Skip::new(abbreviation, &unit.header);
        let is_stepped_over =
            interest == Interest::Nothing || interest == Interest::Context && !has_children;
        if self.full.len() <= index {
            self.full.resize_with(index + 1, || None);
            self.plans.resize(index + 1, Plan::default());
        }
        if is_stepped_over && index < MAX_SHAPES {
            self.plans[index] = Plan::new(&skip, has_children).unwrap_or_default();
        }
        self.full[index] = Some(Shape {
            interest,
            has_children,
            skip,
            fields: match interest {
                Interest::Nothing => None,
                _ => Fields::new(abbreviation, &unit.header, little_endian),
            },
        });
        Ok(())
    }
}

impl KnownShapes {
    /// Those of unit `index`.
    pub(super) fn of(
        &mut self,
        debug: &Debug<'_>,
        index: u32,
        unit: &Unit<Reader<'_>>,
    ) -> &mut Shapes {
        /// More are forgotten.
        const MOST: usize = 1 << 12;
        if self.tables.values().map(|t| t.full.len()).sum::<usize>() > MOST {
            self.tables.clear();
        }
        self.tables
            .entry(Self::key(debug, index, unit))
            .or_insert_with(|| Shapes {
                full: vec![None],
                plans: vec![Plan::END],
            })
    }

    /// Those of unit `index`, when it was the last one to be walked.
    pub(crate) fn walked<'d>(&self, debug: &Debug<'d>, index: u32) -> Option<UnitShapes<'_, 'd>> {
        let unit = debug.units.get(index as usize)?;
        let base = unit.header.header_size();
        Some(UnitShapes {
            shapes: self.tables.get(&Self::key(debug, index, unit))?,
            unit: index,
            data: unit.header.range_from(UnitOffset(base)..).ok()?.slice(),
            base,
        })
    }

    fn key(debug: &Debug<'_>, index: u32, unit: &Unit<Reader<'_>>) -> Key {
        let place = debug.places.get(index as usize);
        let file = place.map_or(u32::MAX, |p| p.file);
        (file, unit.header.debug_abbrev_offset().0, unit.encoding())
    }
}

/// The shapes of a unit that was walked, and its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitShapes<'a, 'd> {
    shapes: &'a Shapes,
    unit: u32,
    /// The bytes of the entries.
    data: &'d [u8],
    /// Their offset in the unit.
    base: usize,
}

impl<'a, 'd: 'a> UnitShapes<'a, 'd> {
    /// The values of an entry, if it is one of this unit's and of a simple form.
    pub(super) fn values(&self, entry: EntryRef) -> Option<Values<'a>> {
        if entry.unit != self.unit {
            return None;
        }
        let at = entry.offset.0.checked_sub(self.base)?;
        let (code, at) = skip::leb(self.data, at)?;
        let index = usize::try_from(code).ok().filter(|c| *c < MAX_SHAPES)?;
        self.shapes.get(index)?.fields.as_ref()?.read(self.data, at)
    }
}

fn interest(tag: DwTag) -> Interest {
    match tag {
        gimli::DW_TAG_subprogram => Interest::Function,
        gimli::DW_TAG_inlined_subroutine => Interest::Inlined,
        gimli::DW_TAG_namespace
        | gimli::DW_TAG_module
        | gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type
        | gimli::DW_TAG_enumeration_type => Interest::Context,
        _ => Interest::Nothing,
    }
}
