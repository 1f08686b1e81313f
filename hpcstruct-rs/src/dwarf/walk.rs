//! One pass over a unit's entries: procedures with code, their trees of inlined scopes, and the
//! namespaces around each procedure.
//!
//! Invariants: a scope's parent comes before it; lexical blocks are transparent; an entry that
//! cannot be read ends the pass, and what came before it is kept.

use super::{Debug, EntryRef, Reader};
use crate::wanted::Wanted;
use gimli::{AttributeValue, DwTag, EntriesRaw, Unit};
use std::ops::Range;

/// A procedure with code.
#[derive(Debug)]
pub(crate) struct FunctionDie {
    /// Its entry.
    pub(crate) entry: EntryRef,
    /// Its code, one range or several (hot and cold part), as stated.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Its scopes in [`Walked::scopes`]; a nested procedure's may lie between them.
    pub(crate) scopes: Range<usize>,
}

/// An inlined call.
#[derive(Debug)]
pub(crate) struct ScopeDie {
    /// Its procedure, an index into [`Walked::functions`].
    pub(crate) function: usize,
    /// Enclosing scope, an index into [`Walked::scopes`].
    pub(crate) parent: Option<usize>,
    /// Number of scopes around it.
    pub(crate) depth: u32,
    /// The entry that describes the inlined procedure.
    pub(crate) origin: Option<EntryRef>,
    /// Its code, in [`Walked::ranges`].
    pub(crate) ranges: Range<usize>,
    /// File index and line of the call.
    pub(crate) call: Option<(u64, u32)>,
}

/// Most scope ranges that one unit may have. Real units stay far below; a hostile one could let
/// many scopes share one long list.
const MAX_RANGES: usize = 1 << 24;

/// Deepest nesting of entries that is followed; real inlining stays below a few hundred.
const MAX_NESTING: usize = 4096;

/// What surrounds procedures: a namespace or a type.
#[derive(Debug)]
pub(crate) struct Context<'d> {
    /// Index of the next outer one.
    pub(crate) parent: Option<usize>,
    /// Its name.
    pub(crate) name: &'d str,
}

/// A unit's procedures.
#[derive(Debug, Default)]
pub(crate) struct Walked<'d> {
    /// Procedures with wanted code.
    pub(crate) functions: Vec<FunctionDie>,
    /// Their inlined scopes.
    pub(crate) scopes: Vec<ScopeDie>,
    /// Ranges of scopes.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Namespaces and types.
    pub(crate) contexts: Vec<Context<'d>>,
    /// Offset of every procedure entry that lies in a context, ascending, with the context.
    pub(crate) context_of: Vec<(usize, usize)>,
    /// All procedures' ranges, wanted or not.
    pub(crate) covered: Vec<Range<u64>>,
    /// What could not be read.
    pub(crate) damage: Option<String>,
}

impl<'d> Walked<'d> {
    /// Names around the procedure entry at `offset`, outermost first.
    pub(crate) fn path_of(&self, offset: gimli::UnitOffset<usize>) -> Vec<&'d str> {
        let found = self.context_of.binary_search_by_key(&offset.0, |c| c.0);
        let mut next = found.ok().map(|i| self.context_of[i].1);
        let mut path = Vec::new();
        while let Some(context) = next {
            path.push(self.contexts[context].name);
            next = self.contexts[context].parent;
        }
        path.reverse();
        path
    }
}

/// What the entries around the current one are.
#[derive(Clone, Copy)]
enum Around {
    Context(usize),
    /// A procedure whose scopes are wanted.
    Function(usize),
    Scope(usize),
    /// A procedure whose scopes are not wanted.
    Skipped,
}

/// The attributes that matter here.
#[derive(Default)]
struct Attributes<'d> {
    name: Option<AttributeValue<Reader<'d>>>,
    low: Option<u64>,
    high: Option<AttributeValue<Reader<'d>>>,
    ranges: Option<AttributeValue<Reader<'d>>>,
    origin: Option<AttributeValue<Reader<'d>>>,
    call_file: Option<u64>,
    call_line: Option<u32>,
}

/// Walks unit `index`, keeping the procedures that hold wanted addresses.
pub(crate) fn walk<'d>(debug: &Debug<'d>, index: u32, wanted: &Wanted) -> Walked<'d> {
    let mut out = Walked::default();
    let Some(unit) = debug.units.get(index as usize) else {
        return out;
    };
    let mut walker = Walker {
        debug,
        unit,
        index,
        wanted,
        stack: Vec::new(),
        out: &mut out,
    };
    if let Err(error) = walker.run() {
        out.damage = Some(format!("damaged debug information: {error}"));
    }
    out
}

struct Walker<'a, 'd> {
    debug: &'a Debug<'d>,
    unit: &'a Unit<Reader<'d>>,
    index: u32,
    wanted: &'a Wanted,
    /// Depth of each open entry that matters.
    stack: Vec<(isize, Around)>,
    out: &'a mut Walked<'d>,
}

impl<'d> Walker<'_, 'd> {
    fn run(&mut self) -> gimli::Result<()> {
        let unit = self.unit;
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            while self.stack.last().is_some_and(|(d, _)| *d >= depth) {
                self.stack.pop();
            }
            if self.stack.len() > MAX_NESTING {
                return Err(gimli::Error::UnsupportedOffset);
            }
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    let attributes = self.attributes(&mut entries, abbreviation.attributes())?;
                    self.function(depth, offset, &attributes)?;
                }
                gimli::DW_TAG_inlined_subroutine => {
                    let open = self.stack.last().map(|(_, around)| *around);
                    match open {
                        Some(Around::Function(_) | Around::Scope(_)) => {
                            let attributes =
                                self.attributes(&mut entries, abbreviation.attributes())?;
                            self.scope(depth, &attributes)?;
                        }
                        _ => entries.skip_attributes(abbreviation.attributes())?,
                    }
                }
                tag if is_context(tag) && abbreviation.has_children() => {
                    let attributes = self.attributes(&mut entries, abbreviation.attributes())?;
                    self.context(depth, &attributes);
                }
                _ => entries.skip_attributes(abbreviation.attributes())?,
            }
        }
        Ok(())
    }

    fn attributes(
        &self,
        entries: &mut EntriesRaw<'_, '_, Reader<'d>>,
        specifications: &[gimli::AttributeSpecification],
    ) -> gimli::Result<Attributes<'d>> {
        let mut out = Attributes::default();
        for specification in specifications {
            let attribute = entries.read_attribute(*specification)?;
            let value = || attribute.value();
            match attribute.name() {
                gimli::DW_AT_name => out.name = Some(value()),
                gimli::DW_AT_low_pc => {
                    out.low = self.debug.dwarf.attr_address(self.unit, value())?;
                }
                gimli::DW_AT_high_pc => out.high = Some(value()),
                gimli::DW_AT_ranges => out.ranges = Some(value()),
                gimli::DW_AT_abstract_origin => out.origin = Some(value()),
                gimli::DW_AT_call_file => {
                    out.call_file = match value() {
                        AttributeValue::FileIndex(i) => Some(i),
                        other => other.udata_value(),
                    };
                }
                gimli::DW_AT_call_line => {
                    let line = value().udata_value();
                    out.call_line = line.and_then(|l| u32::try_from(l).ok());
                }
                _ => {}
            }
        }
        Ok(out)
    }

    fn function(
        &mut self,
        depth: isize,
        offset: gimli::UnitOffset<usize>,
        attributes: &Attributes<'d>,
    ) -> gimli::Result<()> {
        if let Some(context) = self.innermost_context() {
            self.out.context_of.push((offset.0, context));
        }
        let mut ranges = Vec::new();
        self.ranges_of(attributes, |r| ranges.push(r))?;
        if ranges.is_empty() {
            // A declaration or an abstract instance: nothing below it has code.
            self.stack.push((depth, Around::Skipped));
            return Ok(());
        }
        self.out.covered.extend(ranges.iter().cloned());
        if !ranges.iter().any(|r| self.wanted.hits(r)) {
            self.stack.push((depth, Around::Skipped));
            return Ok(());
        }
        let here = self.out.scopes.len();
        self.stack
            .push((depth, Around::Function(self.out.functions.len())));
        self.out.functions.push(FunctionDie {
            entry: EntryRef {
                unit: self.index,
                offset,
            },
            ranges,
            scopes: here..here,
        });
        Ok(())
    }

    fn scope(&mut self, depth: isize, attributes: &Attributes<'d>) -> gimli::Result<()> {
        let (parent, function) = match self.stack.last() {
            Some((_, Around::Scope(parent))) => (Some(*parent), self.out.scopes[*parent].function),
            Some((_, Around::Function(function))) => (None, *function),
            _ => return Ok(()),
        };
        let first = self.out.ranges.len();
        if first > MAX_RANGES {
            return Err(gimli::Error::InvalidAddressRange);
        }
        let mut ranges = std::mem::take(&mut self.out.ranges);
        let read = self.ranges_of(attributes, |r| ranges.push(r));
        self.out.ranges = ranges;
        read?;
        let id = self.out.scopes.len();
        let nesting = parent.map_or(0, |p| self.out.scopes[p].depth + 1);
        self.out.scopes.push(ScopeDie {
            function,
            parent,
            depth: nesting,
            origin: attributes
                .origin
                .and_then(|value| self.debug.reference(self.index, value)),
            ranges: first..self.out.ranges.len(),
            call: attributes
                .call_file
                .map(|file| (file, attributes.call_line.unwrap_or(0))),
        });
        self.out.functions[function].scopes.end = id + 1;
        self.stack.push((depth, Around::Scope(id)));
        Ok(())
    }

    fn context(&mut self, depth: isize, attributes: &Attributes<'d>) {
        let name = attributes
            .name
            .and_then(|value| self.debug.text(self.unit, value));
        if let Some(name) = name {
            let parent = self.innermost_context();
            self.stack
                .push((depth, Around::Context(self.out.contexts.len())));
            self.out.contexts.push(Context { parent, name });
        }
    }

    fn innermost_context(&self) -> Option<usize> {
        self.stack
            .iter()
            .rev()
            .find_map(|(_, around)| match around {
                Around::Context(c) => Some(*c),
                _ => None,
            })
    }

    fn ranges_of(
        &self,
        attributes: &Attributes<'d>,
        mut emit: impl FnMut(Range<u64>),
    ) -> gimli::Result<()> {
        if let Some(value) = attributes.ranges {
            if let Some(offset) = self.debug.dwarf.attr_ranges_offset(self.unit, value)? {
                let mut iter = self.debug.dwarf.ranges(self.unit, offset)?;
                while let Some(range) = iter.next()? {
                    if range.begin < range.end {
                        emit(range.begin..range.end);
                    }
                }
            }
            return Ok(());
        }
        let Some(low) = attributes.low else {
            return Ok(());
        };
        let high = match attributes.high {
            Some(AttributeValue::Udata(size)) => low.checked_add(size),
            Some(value) => match self.debug.dwarf.attr_address(self.unit, value)? {
                Some(address) => Some(address),
                None => value.udata_value().and_then(|size| low.checked_add(size)),
            },
            None => None,
        };
        if let Some(high) = high.filter(|high| *high > low) {
            emit(low..high);
        }
        Ok(())
    }
}

fn is_context(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
    )
}
