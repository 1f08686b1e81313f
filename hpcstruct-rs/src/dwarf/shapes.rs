//! What the walk needs to know of abbreviations, worked out once for all units that share them.
//!
//! Input: the abbreviations of a unit. Invariants: a shape is that of its abbreviation in every unit
//! that is looked up under one key; memory is bounded by forgetting.

use super::fields::Fields;
use super::skip::Skip;
use super::{Debug, Reader};
use crate::strings::Map;
use gimli::{DwTag, Unit};

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

/// The same in brief, for entries that are only stepped over.
#[derive(Clone, Copy, Default, Debug)]
struct Plan {
    /// Bytes of its attributes, and one; 0 = look at the shape.
    size_and_one: u32,
    has_children: bool,
}

/// Abbreviation codes from here on are looked up each time; compilers number from 1.
const MAX_SHAPES: usize = 1 << 14;

/// The shapes of the abbreviations of a unit.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    /// By abbreviation code, those met so far.
    full: Vec<Option<Shape>>,
    plans: Vec<Plan>,
}

/// The shapes of earlier units: those of one program share abbreviations.
#[derive(Debug, Default)]
pub(crate) struct KnownShapes {
    /// By file, place of the abbreviations, and what the sizes of forms depend on.
    tables: Map<(u32, usize, gimli::Encoding), Shapes>,
}

impl Shapes {
    /// The size of the attributes of entries that are only stepped over, where it is fixed, and
    /// whether the entries have children.
    #[inline]
    pub(super) fn step_over(&self, code: u64) -> Option<(usize, bool)> {
        let plan = self.plans.get(usize::try_from(code).ok()?)?;
        let size = plan.size_and_one.checked_sub(1)?;
        Some((size as usize, plan.has_children))
    }

    /// The shape at an index.
    pub(super) fn get(&self, index: usize) -> Option<&Shape> {
        self.full.get(index)?.as_ref()
    }

    /// The index of the shape of abbreviation `code`, made when it is new.
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
        let abbreviation = unit.abbreviations.get(code);
        let abbreviation = abbreviation.ok_or(gimli::Error::UnknownAbbreviation(code))?;
        let interest = interest(abbreviation.tag());
        let has_children = abbreviation.has_children();
        let skip = Skip::new(abbreviation, &unit.header);
        let is_stepped_over =
            interest == Interest::Nothing || interest == Interest::Context && !has_children;
        let size = match skip {
            Skip::Fixed(size) if is_stepped_over && index < MAX_SHAPES => u32::try_from(size).ok(),
            _ => None,
        };
        if self.full.len() <= index {
            self.full.resize_with(index + 1, || None);
            self.plans.resize(index + 1, Plan::default());
        }
        self.plans[index] = Plan {
            size_and_one: size.and_then(|s| s.checked_add(1)).unwrap_or(0),
            has_children,
        };
        self.full[index] = Some(Shape {
            interest,
            has_children,
            skip,
            fields: match interest {
                Interest::Nothing => None,
                _ => Fields::new(abbreviation, &unit.header, little_endian),
            },
        });
        Ok(index)
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
        const MOST: usize = 1 << 16;
        if self.tables.values().map(|t| t.full.len()).sum::<usize>() > MOST {
            self.tables.clear();
        }
        let file = debug
            .places
            .get(index as usize)
            .map_or(u32::MAX, |p| p.file);
        let abbreviations = unit.header.debug_abbrev_offset().0;
        let key = (file, abbreviations, unit.encoding());
        self.tables.entry(key).or_default()
    }
}

fn interest(tag: DwTag) -> Interest {
    match tag {
        gimli::DW_TAG_subprogram => Interest::Function,
        gimli::DW_TAG_inlined_subroutine => Interest::Inlined,
        gimli::DW_TAG_namespace
        | gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type
        | gimli::DW_TAG_enumeration_type => Interest::Context,
        _ => Interest::Nothing,
    }
}
