//! What the walk needs to know of abbreviations, worked out once for all units that share them.
//!
//! Input: the abbreviations of a unit. Invariants: a shape is that of its abbreviation in every unit
//! that is looked up under one key; memory is bounded by forgetting.

use super::calls::CallForm;
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

/// How to step over the entries of an abbreviation: `before` bytes, perhaps a block with its length or a number of
/// one byte, and `after` bytes. What ends a list of children is stepped over in the same way. There is one for each step
/// of the walk's inner loop: four bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    before: u8,
    after: u8,
    /// Which bits of the byte between them are looked at: all of a block's length, of a number the one that says that
    /// it goes on.
    middle: u8,
    /// How much deeper the next entry is.
    step: i8,
}

impl Plan {
    /// Bytes of an entry that is stepped over, at most, with its code.
    pub(super) const SPAN: usize = 256;

    /// Most bytes before and after a block.
    const MOST: usize = 63;

    /// Of what ends a list of children.
    const END: Plan = Plan {
        before: 0,
        after: 0,
        middle: 0,
        step: -1,
    };

    /// Of entries of interest, or not so simple ones: look at the shape.
    const NONE: Plan = Plan {
        step: i8::MIN,
        ..Plan::END
    };

    fn new(skip: &Skip, has_children: bool) -> Option<Plan> {
        use super::skip::Step::{Bytes, Leb, LebBlock};
        let (before, middle, after) = match skip {
            Skip::Fixed(size) => (*size, None, 0),
            Skip::Steps(steps) => match *steps.as_slice() {
                [middle] => (0, Some(middle), 0),
                [Bytes(before), middle] => (before, Some(middle), 0),
                [middle, Bytes(after)] => (0, Some(middle), after),
                [Bytes(before), middle, Bytes(after)] => (before, Some(middle), after),
                _ => return None,
            },
        };
        let (middle, after) = match middle {
            None => (0, after),
            Some(LebBlock) => (0xff, after.checked_add(1)?),
            Some(Leb) => (0x80, after.checked_add(1)?),
            Some(_) => return None,
        };
        if before.max(after) > Plan::MOST {
            return None;
        }
        Some(Plan {
            before: u8::try_from(before).ok()?,
            after: u8::try_from(after).ok()?,
            middle,
            step: i8::from(has_children),
        })
    }

    /// The size of the entry that `bytes` begins with, its code of one byte included, and how much deeper the
    /// next one is; `None` = look at the shape. Free of branches but for one: what comes next is hard to guess.
    #[inline(always)]
    pub(super) fn size(self, bytes: &[u8; Plan::SPAN]) -> Option<(usize, isize)> {
        let at = 1 + usize::from(self.before);
        let length = bytes[at] & self.middle;
        let size = at + usize::from(length) + usize::from(self.after);
        // The length of an expression, and a number, is mostly one byte.
        let is_known = (self.step != i8::MIN) & (length < 0x80);
        is_known.then_some((size, isize::from(self.step)))
    }
}

/// The plans of the codes of one byte.
#[derive(Debug)]
pub(super) struct Plans([Plan; 128]);

impl Plans {
    /// The size of the entry that `bytes` begins with: see [`Plan::size`].
    #[inline(always)]
    pub(super) fn size(&self, bytes: &[u8; Plan::SPAN]) -> Option<(usize, isize)> {
        let code = bytes[0];
        // Longer codes have no plan.
        self.0.get(usize::from(code))?.size(bytes)
    }
}

/// Abbreviation codes from here on are looked up each time; compilers number from 1.
const MAX_SHAPES: usize = 1 << 14;

/// The shapes of the abbreviations of a unit.
#[derive(Debug)]
pub(crate) struct Shapes {
    /// By abbreviation code, those met so far. Code 0 has none.
    full: Vec<Option<Shape>>,
    plans: Box<Plans>,
    calls: Vec<CallForm>,
}

/// The shapes of earlier units: those of one program share abbreviations.
#[derive(Debug, Default)]
pub(crate) struct KnownShapes {
    tables: Map<Key, Shapes>,
}

/// File, place of the abbreviations, and what the sizes of forms depend on.
type Key = (u32, usize, gimli::Encoding);

impl Shapes {
    /// Of no abbreviation yet.
    fn new() -> Self {
        let mut plans = [Plan::NONE; 128];
        plans[0] = Plan::END;
        Shapes {
            full: vec![None],
            plans: Box::new(Plans(plans)),
            calls: vec![CallForm::default()],
        }
    }

    /// How to step over entries.
    #[inline(always)]
    pub(super) fn plans(&self) -> &Plans {
        &self.plans
    }

    /// How to read the inlined calls of an abbreviation.
    #[inline(always)]
    pub(super) fn call(&self, code: u64) -> Option<CallForm> {
        usize::try_from(code)
            .ok()
            .and_then(|c| self.calls.get(c).copied())
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
            self.calls.resize(index + 1, CallForm::default());
        }
        if let Some(place) = self.plans.0.get_mut(index).filter(|_| is_stepped_over) {
            *place = Plan::new(&skip, has_children).unwrap_or(Plan::NONE);
        }
        let fields = match interest {
            Interest::Nothing => None,
            _ => Fields::new(abbreviation, &unit.header, little_endian),
        };
        if interest == Interest::Inlined && index < MAX_SHAPES {
            let call = fields.as_ref().and_then(|f| CallForm::new(f, has_children));
            self.calls[index] = call.unwrap_or_default();
        }
        self.full[index] = Some(Shape {
            interest,
            has_children,
            skip,
            fields,
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
        const MOST: usize = 1 << 14;
        if self.tables.values().map(|t| t.full.len()).sum::<usize>() > MOST {
            self.tables.clear();
        }
        self.tables
            .entry(Self::key(debug, index, unit))
            .or_insert_with(Shapes::new)
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
