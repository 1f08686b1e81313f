//! One pass over a unit's entries: procedures with code, their trees of inlined scopes, and the
//! namespaces around each procedure.
//!
//! Invariants: a scope's parent comes before it; lexical blocks are transparent; an entry that
//! cannot be read ends the pass, and what came before it is kept.

use super::calls::CallForm;
use super::describe::describe;
use super::entry::{Attributes, Entries};
use super::fields::{Code, Field, Fields};
use super::shapes::{Interest, KnownShapes, Shapes};
use super::skip;
use super::{Debug, EntryRef, Reader};
use crate::wanted::Wanted;
use gimli::{AttributeValue, UnitOffset};
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

/// An inlined call. There are many: its numbers are small.
#[derive(Debug)]
pub(crate) struct ScopeDie {
    /// Its procedure, an index into [`Walked::functions`].
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

/// Most scopes, and ranges of scopes, that one unit may have. Real units stay far below; a hostile one could let
/// many scopes share one long list.
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
    /// In this attribute.
    Stated(AttributeValue<Reader<'d>>),
    /// It is the name of the procedure of this entry.
    Procedure(EntryRef),
}

/// A unit's procedures.
#[derive(Debug, Default)]
pub(crate) struct Walked<'d> {
    /// The unit that was walked.
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
        self.covered.clear();
        self.damage = None;
    }

    /// The code of a scope.
    pub(crate) fn ranges_of(&self, scope: &ScopeDie) -> &[Range<u64>] {
        &self.ranges[scope.ranges.start as usize..scope.ranges.end as usize]
    }

    /// Names around the procedure entry at `offset`, outermost first.
    pub(crate) fn path_of(
        &self,
        debug: &Debug<'d>,
        offset: gimli::UnitOffset<usize>,
    ) -> Vec<&'d str> {
        let found = self.context_of.binary_search_by_key(&offset.0, |c| c.0);
        let mut next = found.ok().map(|i| self.context_of[i].1);
        let mut path = Vec::new();
        while let Some(context) = next {
            let Context { parent, name } = &self.contexts[context];
            path.extend(match name {
                ContextName::Stated(name) => debug.text(self.unit, *name),
                ContextName::Procedure(entry) => {
                    let name = describe(debug, None, *entry).name;
                    name.and_then(|name| name.get(debug))
                }
            });
            next = *parent;
        }
        path.reverse();
        path
    }
}

/// What the entries around the current one are.
#[derive(Clone, Copy)]
enum Around {
    Context(usize),
    /// A context that nobody asked for yet: where its attributes begin, and its shape.
    Unread(usize, usize),
    /// One without a name, which names nothing.
    Nameless,
    /// A procedure whose scopes are wanted.
    Function(u32),
    Scope(u32),
    /// A procedure whose scopes are not wanted: where its entry is.
    Skipped(UnitOffset<usize>),
}

/// Walks unit `index`, keeping the procedures that hold wanted addresses and begin where `begins` is true: of
/// those that the linker dropped the entries are left. `out` is what an earlier walk found.
pub(crate) fn walk<'d>(
    debug: &Debug<'d>,
    index: u32,
    wanted: &Wanted,
    begins: &dyn Fn(u64) -> bool,
    known: &mut KnownShapes,
    out: &mut Walked<'d>,
) {
    out.clear(index);
    let entries = match Entries::new(debug, index) {
        Ok(Some(entries)) => entries,
        Ok(None) => return,
        Err(error) => return out.damage = Some(damage(&error)),
    };
    let shapes = known.of(debug, index, entries.unit);
    let mut walker = Walker {
        entries,
        wanted,
        begins,
        stack: Vec::new(),
        out,
    };
    if let Err(error) = walker.run(shapes) {
        walker.out.damage = Some(damage(&error));
    }
}

fn damage(error: &gimli::Error) -> String {
    format!("damaged debug information: {error}")
}

struct Walker<'a, 'd> {
    entries: Entries<'a, 'd>,
    wanted: &'a Wanted,
    begins: &'a dyn Fn(u64) -> bool,
    /// Depth of each open entry that matters.
    stack: Vec<(isize, Around)>,
    out: &'a mut Walked<'d>,
}

/// An entry that is looked at.
#[derive(Clone, Copy)]
struct Here {
    offset: UnitOffset<usize>,
    /// Entries around it.
    depth: isize,
    interest: Interest,
}

impl<'d> Walker<'_, 'd> {
    fn run(&mut self, shapes: &mut Shapes) -> gimli::Result<()> {
        let data = self.entries.data;
        let mut at = 0;
        let mut depth = 0isize;
        // Since the last entry that was looked at.
        let mut least_depth = isize::MAX;
        loop {
            // Most entries are only stepped over.
            let plans = shapes.plans();
            while let Some(bytes) = data.get(at..).and_then(|rest| rest.first_chunk()) {
                let Some((size, step)) = plans.size(bytes) else {
                    break;
                };
                depth += step;
                least_depth = least_depth.min(depth);
                at += size;
            }
            let Some(first) = data.get(at) else {
                return Ok(());
            };
            let (code, after_code) = match first {
                0..0x80 => (u64::from(*first), at + 1),
                _ => skip::leb(data, at).ok_or(gimli::Error::BadUnsignedLeb128)?,
            };
            if code == 0 {
                depth -= 1;
                least_depth = least_depth.min(depth);
                at = after_code;
                continue;
            }
            self.close(least_depth);
            least_depth = isize::MAX;
            if let Some(form) = shapes.call(code) {
                if let Some(end) = self.usual_call(&form, after_code, depth)? {
                    depth += isize::from(form.has_children);
                    at = end;
                    continue;
                }
            }
            at = self.next_entry((at, after_code), shapes, &mut depth, code)?;
        }
    }

    /// Takes an inlined call of the usual form, whose attributes begin at `at`; returns where it ends,
    /// `None` = look at the shape.
    #[inline]
    fn usual_call(
        &mut self,
        form: &CallForm,
        at: usize,
        depth: isize,
    ) -> gimli::Result<Option<usize>> {
        let Some(call) = form.read(self.entries.data, at) else {
            return Ok(None);
        };
        // Of what is nested too deeply the shape knows.
        if self.stack.len() > MAX_NESTING {
            return Ok(None);
        }
        let origin = self.entries.origin_of(&call);
        if let Some(id) = self.scope(&call.code, origin, call.place)? {
            // Otherwise nothing lies in it.
            if form.has_children {
                self.stack.push((depth, Around::Scope(id)));
            }
        }
        Ok(Some(call.end))
    }

    /// The entries at this depth have ended.
    #[inline]
    fn close(&mut self, depth: isize) {
        while self.stack.last().is_some_and(|(d, _)| *d >= depth) {
            self.stack.pop();
        }
    }

    /// Reads the entry of abbreviation `code` that begins at `places.0` and whose attributes begin
    /// at `places.1`; returns where the next one begins.
    fn next_entry(
        &mut self,
        places: (usize, usize),
        shapes: &mut Shapes,
        depth: &mut isize,
        code: u64,
    ) -> gimli::Result<usize> {
        let data = self.entries.data;
        let (at, after_code) = places;
        let little_endian = self.entries.debug.little_endian;
        let index = shapes.index(code, self.entries.unit, little_endian)?;
        let shapes: &Shapes = shapes;
        let shape = shapes.get(index);
        let shape = shape.ok_or(gimli::Error::UnknownAbbreviation(code))?;
        let (interest, has_children) = (shape.interest, shape.has_children);
        let here = Here {
            offset: UnitOffset(self.entries.base + at),
            depth: *depth,
            interest,
        };
        *depth += isize::from(has_children);
        if self.stack.len() > MAX_NESTING {
            return Err(gimli::Error::UnsupportedOffset);
        }
        let wants = match interest {
            Interest::Function => true,
            Interest::Inlined => matches!(
                self.stack.last(),
                Some((_, Around::Function(_) | Around::Scope(_)))
            ),
            Interest::Context => has_children,
            Interest::Nothing => false,
        };
        let fields = shape.fields.as_ref();
        let end = if !wants {
            shape.skip.end(data, after_code)
        } else if interest == Interest::Function && fields.is_some_and(|f| !f.may_have_code()) {
            let end = shape.skip.end(data, after_code);
            if end.is_some() {
                self.function_without_code(here, shapes);
            }
            end
        } else if let (Interest::Context, Some(fields)) = (interest, fields) {
            let end = shape.skip.end(data, after_code);
            if end.is_some() {
                let around = if fields.has(Field::Name) {
                    Around::Unread(after_code, index)
                } else {
                    Around::Nameless
                };
                self.stack.push((here.depth, around));
            }
            end
        } else {
            self.take_simple(here, fields, after_code, shapes)?
        };
        let end = match end {
            Some(end) => end,
            None if wants => {
                let (attributes, end) = self.entries.general(here.offset)?;
                self.take(here, &attributes, shapes)?;
                end
            }
            None => self.entries.step_over(here.offset)?,
        };
        // Nothing lies in it.
        if !has_children {
            self.close(here.depth);
        }
        Ok(end)
    }

    /// Takes an entry of a simple form, whose attributes begin at `at`; returns where it ends.
    fn take_simple(
        &mut self,
        here: Here,
        fields: Option<&Fields>,
        at: usize,
        shapes: &Shapes,
    ) -> gimli::Result<Option<usize>> {
        let Some(values) = fields.and_then(|fields| fields.read(self.entries.data, at)) else {
            return Ok(None);
        };
        match here.interest {
            // There are many of these two.
            Interest::Inlined => {
                let origin = self.entries.origin(&values);
                let call = Entries::call(&values);
                self.open_scope(here.depth, &values.code(), origin, call)?;
            }
            Interest::Function => self.function(here, &values.code(), shapes)?,
            Interest::Context | Interest::Nothing => {
                self.take(here, &self.entries.simple(&values), shapes)?;
            }
        }
        Ok(Some(values.end))
    }

    fn take(
        &mut self,
        here: Here,
        attributes: &Attributes<'d>,
        shapes: &Shapes,
    ) -> gimli::Result<()> {
        match here.interest {
            Interest::Function => self.function(here, &attributes.code, shapes),
            Interest::Inlined => {
                let Attributes {
                    code, origin, call, ..
                } = attributes;
                self.open_scope(here.depth, code, *origin, *call)
            }
            Interest::Context => {
                self.context(here.depth, attributes, shapes);
                Ok(())
            }
            Interest::Nothing => Ok(()),
        }
    }

    /// A declaration or an abstract instance: nothing below it has code.
    fn function_without_code(&mut self, here: Here, shapes: &Shapes) {
        if let Some(context) = self.context_of_procedure(shapes) {
            self.out.context_of.push((here.offset.0, context));
        }
        self.stack.push((here.depth, Around::Skipped(here.offset)));
    }

    fn function(&mut self, here: Here, code: &Code<'d>, shapes: &Shapes) -> gimli::Result<()> {
        let mut ranges = Vec::new();
        self.entries.ranges(code, |r| ranges.push(r))?;
        if ranges.is_empty() {
            self.function_without_code(here, shapes);
            return Ok(());
        }
        if let Some(context) = self.context_of_procedure(shapes) {
            self.out.context_of.push((here.offset.0, context));
        }
        self.out.covered.extend(ranges.iter().cloned());
        let is_wanted = |r: &Range<u64>| self.wanted.hits(r);
        let has_code = |r: &Range<u64>| (self.begins)(r.start);
        if !ranges.iter().any(is_wanted) || !ranges.iter().any(has_code) {
            self.stack.push((here.depth, Around::Skipped(here.offset)));
            return Ok(());
        }
        let first = self.out.scopes.len();
        let around = Around::Function(self.out.functions.len() as u32);
        self.stack.push((here.depth, around));
        self.out.functions.push(FunctionDie {
            entry: EntryRef {
                unit: self.entries.index,
                offset: here.offset,
            },
            ranges,
            scopes: first..first,
        });
        Ok(())
    }

    /// As [`Self::scope`]; what follows lies in it.
    fn open_scope(
        &mut self,
        depth: isize,
        code: &Code<'d>,
        origin: Option<EntryRef>,
        call: Option<(u32, u32)>,
    ) -> gimli::Result<()> {
        if let Some(id) = self.scope(code, origin, call)? {
            self.stack.push((depth, Around::Scope(id)));
        }
        Ok(())
    }

    /// An inlined call: its code, the entry that describes what is called, and where the call is. Returns its
    /// number, or `None` where nobody wants it.
    #[inline]
    fn scope(
        &mut self,
        code: &Code<'d>,
        origin: Option<EntryRef>,
        call: Option<(u32, u32)>,
    ) -> gimli::Result<Option<u32>> {
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
        if first > MAX_RANGES || out.scopes.len() > MAX_RANGES {
            return Err(gimli::Error::InvalidAddressRange);
        }
        let ranges = &mut out.ranges;
        self.entries.ranges(code, |r| ranges.push(r))?;
        let id = out.scopes.len();
        out.scopes.push(ScopeDie {
            function,
            parent,
            depth: nesting,
            origin,
            ranges: first as u32..out.ranges.len() as u32,
            call,
        });
        out.functions[function as usize].scopes.end = id + 1;
        Ok(Some(id as u32))
    }

    fn context(&mut self, depth: isize, attributes: &Attributes<'d>, shapes: &Shapes) {
        let Some(name) = attributes.name else {
            self.stack.push((depth, Around::Nameless));
            return;
        };
        let parent = self.innermost_context(shapes);
        self.stack
            .push((depth, Around::Context(self.out.contexts.len())));
        let name = ContextName::Stated(name);
        self.out.contexts.push(Context { parent, name });
    }

    /// What surrounds the current entry, which is a procedure's: where that is a procedure, it is nested in it.
    fn context_of_procedure(&mut self, shapes: &Shapes) -> Option<usize> {
        let offset = match self.stack.last() {
            Some((_, Around::Function(outer))) => self.out.functions[*outer as usize].entry.offset,
            Some((_, Around::Skipped(offset))) => *offset,
            _ => return self.innermost_context(shapes),
        };
        let around = &self.out.context_of;
        let found = around.binary_search_by_key(&offset.0, |c| c.0);
        let parent = found.ok().map(|i| around[i].1);
        let name = ContextName::Procedure(EntryRef {
            unit: self.entries.index,
            offset,
        });
        self.out.contexts.push(Context { parent, name });
        Some(self.out.contexts.len() - 1)
    }

    /// The nearest context around the current entry; those that were not read yet are read now.
    fn innermost_context(&mut self, shapes: &Shapes) -> Option<usize> {
        let is_context = |(_, around): &(isize, Around)| {
            matches!(around, Around::Context(_) | Around::Unread(..))
        };
        let nearest = self.stack.iter().rposition(is_context)?;
        if let Around::Context(known) = self.stack[nearest].1 {
            return Some(known);
        }
        let mut parent = None;
        for (_, around) in &mut self.stack[..=nearest] {
            match *around {
                Around::Context(known) => parent = Some(known),
                Around::Unread(at, shape) => {
                    let fields = shapes.get(shape).and_then(|s| s.fields.as_ref());
                    let values = fields.and_then(|f| f.read(self.entries.data, at));
                    if let Some(name) = values.and_then(|v| v.text(Field::Name)) {
                        let number = self.out.contexts.len();
                        let name = ContextName::Stated(name);
                        self.out.contexts.push(Context { parent, name });
                        *around = Around::Context(number);
                        parent = Some(number);
                    }
                }
                _ => {}
            }
        }
        parent
    }
}
