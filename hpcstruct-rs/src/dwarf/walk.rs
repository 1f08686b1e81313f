//! One pass over a unit's entries: procedures with code, their trees of inlined scopes, and the
//! namespaces around each procedure.
//!
//! Invariants: a scope's parent comes before it; lexical blocks are transparent; an entry that
//! cannot be read ends the pass, and what came before it is kept.

use super::attributes::{Attributes, UnitRef};
use super::die_names::describe;
use super::{Debug, EntryRef, Reader};
use crate::input::address_filter::AddressFilter;
use gimli::{AttributeValue, DwTag, UnitOffset};
use std::ops::Range;

/// A procedure with code.
#[derive(Debug)]
pub(crate) struct FunctionDie {
    pub(crate) entry: EntryRef,
    /// Its code, one range or several (hot and cold part), as stated.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Its scopes in [`Walked::scopes`]; a nested procedure's may lie between them.
    pub(crate) scopes: Range<usize>,
}

/// An inlined call. Its fields are small, as there are many.
#[derive(Debug)]
pub(crate) struct ScopeDie {
    pub(crate) function: u32,
    /// Enclosing scope, an index into [`Walked::scopes`].
    pub(crate) parent: Option<u32>,
    /// Number of scopes around it.
    pub(crate) depth: u32,
    /// The entry that describes the inlined procedure.
    pub(crate) origin: Option<EntryRef>,
    /// Its code, in [`Walked::ranges`].
    pub(crate) ranges: Range<u32>,
    /// File index and line of the call.
    pub(crate) call: Option<(u32, u32)>,
}

/// Most scopes, and ranges of scopes, of one unit. Real units stay far below; in a hostile one many
/// scopes could share one long list.
const MAX_RANGES: usize = 1 << 24;

/// Deepest nesting of entries that is followed; real inlining stays below a few hundred.
const MAX_NESTING: usize = 4096;

/// What surrounds procedures: a namespace, a module, a type, or a procedure that they are nested in.
#[derive(Debug)]
pub(crate) struct Context<'d> {
    /// Index of the next outer one.
    pub(crate) parent: Option<usize>,
    /// Its name, not looked up yet.
    name: ContextName<'d>,
}

/// Where the name of a context is.
#[derive(Debug)]
enum ContextName<'d> {
    Stated(AttributeValue<Reader<'d>>),
    /// It is the name of the procedure of this entry.
    Procedure(EntryRef),
}

#[derive(Debug, Default)]
pub(crate) struct Walked<'d> {
    unit: u32,
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
    /// Offset of every procedure entry that lies directly in a type without a name, ascending.
    unnamed: Vec<usize>,
    /// All procedures' ranges, wanted or not.
    pub(crate) covered: Vec<Range<u64>>,
    /// What could not be read.
    pub(crate) damage: Option<String>,
}

impl<'d> Walked<'d> {
    /// Nothing of unit `unit` yet.
    fn clear(&mut self, unit: u32) {
        self.unit = unit;
        self.functions.clear();
        self.scopes.clear();
        self.ranges.clear();
        self.contexts.clear();
        self.context_of.clear();
        self.unnamed.clear();
        self.covered.clear();
        self.damage = None;
    }

    fn add_context(&mut self, parent: Option<usize>, name: ContextName<'d>) -> usize {
        self.contexts.push(Context { parent, name });
        self.contexts.len() - 1
    }

    pub(crate) fn ranges_of(&self, scope: &ScopeDie) -> &[Range<u64>] {
        &self.ranges[scope.ranges.start as usize..scope.ranges.end as usize]
    }

    /// Whether the procedure entry at `offset` lies directly in a type without a name.
    pub(crate) fn is_in_unnamed(&self, offset: UnitOffset<usize>) -> bool {
        self.unnamed.binary_search(&offset.0).is_ok()
    }

    /// Names around the procedure entry at `offset`, outermost first.
    pub(crate) fn path_of(&self, debug: &Debug<'d>, offset: gimli::UnitOffset<usize>) -> Vec<&'d str> {
        let found = self.context_of.binary_search_by_key(&offset.0, |c| c.0);
        let mut next = found.ok().map(|i| self.context_of[i].1);
        let mut path = Vec::new();
        while let Some(context) = next {
            let Context { parent, name } = &self.contexts[context];
            path.extend(match name {
                ContextName::Stated(name) => debug.text(self.unit, *name),
                ContextName::Procedure(entry) => {
                    let name = describe(debug, *entry).name;
                    name.and_then(|name| name.get(debug))
                }
            });
            next = *parent;
        }
        path.reverse();
        path
    }
}

/// An entry around the current one.
#[derive(Clone, Copy)]
enum Around<'d> {
    /// A namespace or a type: its name, and its index in [`Walked::contexts`] once it is needed.
    Context(Option<AttributeValue<Reader<'d>>>, Option<usize>),
    /// A procedure whose scopes are wanted.
    Function(u32),
    Scope(u32),
    /// A procedure whose scopes are not wanted: where its entry is.
    Skipped(UnitOffset<usize>),
}

/// Walks unit `index`.
///
/// Keeps the procedures that hold wanted addresses and begin where `begins` holds: the linker
/// leaves the entries of procedures that it drops. `out` is overwritten.
pub(crate) fn walk<'d>(
    debug: &Debug<'d>,
    index: u32,
    wanted: &AddressFilter,
    begins: &dyn Fn(u64) -> bool,
    out: &mut Walked<'d>,
) {
    out.clear(index);
    let Some(unit) = UnitRef::new(debug, index) else {
        return;
    };
    let mut walker = Walker { unit, wanted, begins, stack: Vec::new(), out };
    if let Err(error) = walker.run() {
        walker.out.damage = Some(format!("damaged debug information: {error}"));
    }
}

struct Walker<'a, 'd> {
    unit: UnitRef<'a, 'd>,
    wanted: &'a AddressFilter,
    begins: &'a dyn Fn(u64) -> bool,
    /// Open entries that matter, with their depths.
    stack: Vec<(isize, Around<'d>)>,
    out: &'a mut Walked<'d>,
}

impl<'d> Walker<'_, 'd> {
    fn run(&mut self) -> gimli::Result<()> {
        let mut entries = self.unit.unit.entries_raw(None)?;
        while !entries.is_empty() {
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else {
                self.close(entries.next_depth());
                continue;
            };
            let specifications = abbreviation.attributes();
            let has_children = abbreviation.has_children();
            let tag = abbreviation.tag();
            // Most entries describe variables and types without members.
            if !(tag == gimli::DW_TAG_subprogram
                || tag == gimli::DW_TAG_inlined_subroutine
                || has_children && is_context(tag))
            {
                entries.skip_attributes(specifications)?;
                continue;
            }
            let nested = self.stack.len() > MAX_NESTING;
            if nested || self.out.ranges.len().max(self.out.scopes.len()) > MAX_RANGES {
                let what = if nested { "nested inlined calls" } else { "inlined calls" };
                self.out.damage = Some(format!(
                    "a unit with too many {what} to be real: those after {offset:#x} are left out",
                    offset = offset.0
                ));
                return Ok(());
            }
            let attributes = self.unit.attributes(&mut entries, specifications)?;
            let around = match tag {
                gimli::DW_TAG_subprogram => Some(self.function(offset, &attributes)?),
                gimli::DW_TAG_inlined_subroutine => self.scope(&attributes)?.map(Around::Scope),
                _ => Some(Around::Context(attributes.name, None)),
            };
            if has_children {
                self.stack.extend(around.map(|around| (depth, around)));
            }
        }
        Ok(())
    }

    /// Ends the entries at `depth` and below it in the tree.
    fn close(&mut self, depth: isize) {
        while self.stack.last().is_some_and(|(d, _)| *d >= depth) {
            self.stack.pop();
        }
    }

    /// A procedure; one without code is a declaration or an abstract instance.
    fn function(
        &mut self,
        offset: UnitOffset<usize>,
        attributes: &Attributes<'d>,
    ) -> gimli::Result<Around<'d>> {
        let mut ranges = Vec::new();
        self.unit.ranges(attributes, |r| ranges.push(r))?;
        if let Some((_, Around::Context(None, _))) = self.stack.last() {
            self.out.unnamed.push(offset.0);
        }
        if let Some(context) = self.context_of_procedure() {
            self.out.context_of.push((offset.0, context));
        }
        self.out.covered.extend(ranges.iter().cloned());
        let is_wanted = |r: &Range<u64>| self.wanted.hits(r);
        let has_code = |r: &Range<u64>| (self.begins)(r.start);
        if !ranges.iter().any(is_wanted) || !ranges.iter().any(has_code) {
            return Ok(Around::Skipped(offset));
        }
        let first = self.out.scopes.len();
        self.out.functions.push(FunctionDie {
            entry: EntryRef { unit: self.unit.index, offset },
            ranges,
            scopes: first..first,
        });
        Ok(Around::Function(self.out.functions.len() as u32 - 1))
    }

    /// An inlined call; returns its index in [`Walked::scopes`] if its procedure is wanted.
    fn scope(&mut self, attributes: &Attributes<'d>) -> gimli::Result<Option<u32>> {
        let out = &mut *self.out;
        let (parent, function, nesting) = match self.stack.last() {
            Some((_, Around::Scope(parent))) => {
                let around = &out.scopes[*parent as usize];
                (Some(*parent), around.function, around.depth + 1)
            }
            Some((_, Around::Function(function))) => (None, *function, 0),
            _ => return Ok(None),
        };
        let first = out.ranges.len();
        let ranges = &mut out.ranges;
        self.unit.ranges(attributes, |r| ranges.push(r))?;
        let id = out.scopes.len();
        out.scopes.push(ScopeDie {
            function,
            parent,
            depth: nesting,
            origin: attributes.origin,
            ranges: first as u32..out.ranges.len() as u32,
            call: attributes.call(),
        });
        out.functions[function as usize].scopes.end = id + 1;
        Ok(Some(id as u32))
    }

    /// What surrounds the current procedure entry. A procedure around it counts as a context.
    fn context_of_procedure(&mut self) -> Option<usize> {
        let offset = match self.stack.last() {
            Some((_, Around::Function(outer))) => self.out.functions[*outer as usize].entry.offset,
            Some((_, Around::Skipped(offset))) => *offset,
            _ => return self.innermost_context(),
        };
        let around = &self.out.context_of;
        let found = around.binary_search_by_key(&offset.0, |c| c.0);
        let parent = found.ok().map(|i| around[i].1);
        let name = ContextName::Procedure(EntryRef { unit: self.unit.index, offset });
        Some(self.out.add_context(parent, name))
    }

    /// The nearest context around the current entry. Contexts without procedures get no index.
    fn innermost_context(&mut self) -> Option<usize> {
        let mut innermost = None;
        for (_, around) in &mut self.stack {
            if let Around::Context(Some(name), index) = around {
                let add = || self.out.add_context(innermost, ContextName::Stated(*name));
                innermost = Some(*index.get_or_insert_with(add));
            }
        }
        innermost
    }
}

/// Whether entries with this tag qualify the names of procedures in them.
fn is_context(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
    )
}
