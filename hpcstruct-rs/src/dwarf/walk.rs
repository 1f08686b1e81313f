//! One pass over a unit's entries: procedures with code, their trees of inlined scopes, and the
//! namespaces around each procedure.
//!
//! Invariants: a scope's parent comes before it; lexical blocks are transparent; an entry that
//! cannot be read ends the pass, and what came before it is kept.

use super::fields::{Field, Fields, Values};
use super::ranges;
use super::shapes::{Interest, KnownShapes, Shapes};
use super::skip;
use super::{Debug, EntryRef, Reader};
use crate::wanted::Wanted;
use gimli::{AttributeValue, Dwarf, EntriesRaw, Section as _, Unit, UnitOffset};
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

/// What surrounds procedures: a namespace or a type.
#[derive(Debug)]
pub(crate) struct Context<'d> {
    /// Index of the next outer one.
    pub(crate) parent: Option<usize>,
    /// Its name, not looked up yet.
    name: AttributeValue<Reader<'d>>,
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
            path.extend(debug.text(self.unit, *name));
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
    /// A procedure whose scopes are wanted.
    Function(u32),
    Scope(u32),
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

/// Walks unit `index`, keeping the procedures that hold wanted addresses; `out` is what an earlier
/// walk found.
pub(crate) fn walk<'d>(
    debug: &Debug<'d>,
    index: u32,
    wanted: &Wanted,
    known: &mut KnownShapes,
    out: &mut Walked<'d>,
) {
    out.clear(index);
    let (Some(unit), Some(dwarf)) = (debug.units.get(index as usize), debug.dwarf(index)) else {
        return;
    };
    let plain = debug.little_endian
        && unit.encoding().version < 5
        && unit.encoding().address_size == 8
        && dwarf.file_type == gimli::DwarfFileType::Main;
    let mut walker = Walker {
        debug,
        dwarf,
        unit,
        index,
        wanted,
        plain_ranges: plain.then(|| dwarf.ranges.debug_ranges().reader().slice()),
        stack: Vec::new(),
        shapes: known.of(debug, index, unit),
        out,
    };
    if let Err(error) = walker.run() {
        walker.out.damage = Some(format!("damaged debug information: {error}"));
    }
}

struct Walker<'a, 'd> {
    debug: &'a Debug<'d>,
    dwarf: &'a Dwarf<Reader<'d>>,
    unit: &'a Unit<Reader<'d>>,
    index: u32,
    wanted: &'a Wanted,
    /// The section of ranges, where these have a simple form.
    plain_ranges: Option<&'d [u8]>,
    /// Depth of each open entry that matters.
    stack: Vec<(isize, Around)>,
    shapes: &'a mut Shapes,
    out: &'a mut Walked<'d>,
}

impl<'d> Walker<'_, 'd> {
    fn run(&mut self) -> gimli::Result<()> {
        let base = self.unit.header.header_size();
        if self.unit.header.length_including_self() == base {
            return Ok(());
        }
        let data = self.unit.header.range_from(UnitOffset(base)..)?.slice();
        let mut at = 0;
        let mut depth = 0isize;
        while at < data.len() {
            let (code, after_code) = skip::leb(data, at).ok_or(gimli::Error::BadUnsignedLeb128)?;
            if code == 0 {
                depth -= 1;
                at = after_code;
                while self.stack.last().is_some_and(|(d, _)| *d >= depth) {
                    self.stack.pop();
                }
                continue;
            }
            // Most entries are of this kind.
            if let Some((size, has_children)) = self.shapes.step_over(code) {
                let end = after_code + size;
                if end <= data.len() {
                    depth += isize::from(has_children);
                    at = end;
                    continue;
                }
            }
            at = self.next_entry(data, (at, after_code), base, &mut depth, code)?;
        }
        Ok(())
    }

    /// Reads the entry of abbreviation `code` that begins at `places.0` and whose attributes begin
    /// at `places.1`; returns where the next one begins.
    fn next_entry(
        &mut self,
        data: &[u8],
        places: (usize, usize),
        base: usize,
        depth: &mut isize,
        code: u64,
    ) -> gimli::Result<usize> {
        let (at, after_code) = places;
        let offset = UnitOffset(base + at);
        let index = self
            .shapes
            .index(code, self.unit, self.debug.little_endian)?;
        let shape = self.shapes.get(index);
        let shape = shape.ok_or(gimli::Error::UnknownAbbreviation(code))?;
        let (interest, has_children) = (shape.interest, shape.has_children);
        let here = *depth;
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
                self.function_without_code(here, offset);
            }
            end
        } else if interest == Interest::Context && fields.is_some() {
            let has_name = fields.is_some_and(Fields::has_name);
            let end = shape.skip.end(data, after_code);
            if end.is_some() && has_name {
                self.stack.push((here, Around::Unread(after_code, index)));
            }
            end
        } else {
            match fields.and_then(|fields| fields.read(data, after_code)) {
                Some(values) => {
                    let end = values.end;
                    let attributes = self.simple_attributes(&values)?;
                    self.take(offset, here, interest, &attributes)?;
                    Some(end)
                }
                None => None,
            }
        };
        let end = match end {
            Some(end) => end,
            None => self.entry(offset, here, interest, wants)? - base,
        };
        // Nothing lies in it.
        if !has_children {
            while self.stack.last().is_some_and(|(d, _)| *d >= here) {
                self.stack.pop();
            }
        }
        Ok(end)
    }

    fn simple_attributes(&self, values: &Values<'_>) -> gimli::Result<Attributes<'d>> {
        let low = match values.low() {
            Some(value) => self.dwarf.attr_address(self.unit, value)?,
            None => None,
        };
        let line = values.number(Field::CallLine);
        Ok(Attributes {
            name: values.name(),
            low,
            high: values.high(),
            ranges: values.ranges(),
            origin: values.origin(),
            call_file: values.number(Field::CallFile),
            call_line: line.and_then(|l| u32::try_from(l).ok()),
        })
    }

    /// Reads the entry at `offset` in the general way, or only steps over it; returns the offset
    /// after it.
    fn entry(
        &mut self,
        offset: UnitOffset<usize>,
        depth: isize,
        interest: Interest,
        wants: bool,
    ) -> gimli::Result<usize> {
        let mut entries = self.unit.entries_raw(Some(offset))?;
        let Some(abbreviation) = entries.read_abbreviation()? else {
            return Ok(entries.next_offset().0);
        };
        if !wants {
            entries.skip_attributes(abbreviation.attributes())?;
            return Ok(entries.next_offset().0);
        }
        let attributes = self.attributes(&mut entries, abbreviation.attributes())?;
        self.take(offset, depth, interest, &attributes)?;
        Ok(entries.next_offset().0)
    }

    fn take(
        &mut self,
        offset: UnitOffset<usize>,
        depth: isize,
        interest: Interest,
        attributes: &Attributes<'d>,
    ) -> gimli::Result<()> {
        match interest {
            Interest::Function => self.function(depth, offset, attributes),
            Interest::Inlined => self.scope(depth, attributes),
            Interest::Context => {
                self.context(depth, attributes);
                Ok(())
            }
            Interest::Nothing => Ok(()),
        }
    }

    /// A declaration or an abstract instance: nothing below it has code.
    fn function_without_code(&mut self, depth: isize, offset: UnitOffset<usize>) {
        if let Some(context) = self.innermost_context() {
            self.out.context_of.push((offset.0, context));
        }
        self.stack.push((depth, Around::Skipped));
    }

    fn attributes(
        &self,
        entries: &mut EntriesRaw<'_, '_, Reader<'d>>,
        specifications: &[gimli::AttributeSpecification],
    ) -> gimli::Result<Attributes<'d>> {
        let mut out = Attributes::default();
        for specification in specifications {
            let attribute = entries.read_attribute(*specification)?;
            // Raw values: what the name makes of a form matters for `DW_AT_ranges` alone.
            let raw = || attribute.raw_value();
            match attribute.name() {
                gimli::DW_AT_name => out.name = Some(raw()),
                gimli::DW_AT_low_pc => {
                    out.low = self.dwarf.attr_address(self.unit, raw())?;
                }
                gimli::DW_AT_high_pc => out.high = Some(raw()),
                gimli::DW_AT_ranges => out.ranges = Some(attribute.value()),
                gimli::DW_AT_abstract_origin => out.origin = Some(raw()),
                gimli::DW_AT_call_file => out.call_file = raw().udata_value(),
                gimli::DW_AT_call_line => {
                    let line = raw().udata_value();
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
        let mut ranges = Vec::new();
        self.ranges_of(attributes, |r| ranges.push(r))?;
        if ranges.is_empty() {
            self.function_without_code(depth, offset);
            return Ok(());
        }
        if let Some(context) = self.innermost_context() {
            self.out.context_of.push((offset.0, context));
        }
        self.out.covered.extend(ranges.iter().cloned());
        if !ranges.iter().any(|r| self.wanted.hits(r)) {
            self.stack.push((depth, Around::Skipped));
            return Ok(());
        }
        let here = self.out.scopes.len();
        self.stack
            .push((depth, Around::Function(self.out.functions.len() as u32)));
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
            Some((_, Around::Scope(parent))) => {
                (Some(*parent), self.out.scopes[*parent as usize].function)
            }
            Some((_, Around::Function(function))) => (None, *function),
            _ => return Ok(()),
        };
        let first = self.out.ranges.len();
        if first > MAX_RANGES || self.out.scopes.len() > MAX_RANGES {
            return Err(gimli::Error::InvalidAddressRange);
        }
        let mut ranges = std::mem::take(&mut self.out.ranges);
        let read = self.ranges_of(attributes, |r| ranges.push(r));
        self.out.ranges = ranges;
        read?;
        let id = self.out.scopes.len();
        let nesting = parent.map_or(0, |p| self.out.scopes[p as usize].depth + 1);
        self.out.scopes.push(ScopeDie {
            function,
            parent,
            depth: nesting,
            origin: attributes
                .origin
                .and_then(|value| self.debug.reference(self.index, value)),
            ranges: first as u32..self.out.ranges.len() as u32,
            call: attributes.call_file.and_then(|file| {
                Some((u32::try_from(file).ok()?, attributes.call_line.unwrap_or(0)))
            }),
        });
        self.out.functions[function as usize].scopes.end = id + 1;
        self.stack.push((depth, Around::Scope(id as u32)));
        Ok(())
    }

    fn context(&mut self, depth: isize, attributes: &Attributes<'d>) {
        if let Some(name) = attributes.name {
            let parent = self.innermost_context();
            self.stack
                .push((depth, Around::Context(self.out.contexts.len())));
            self.out.contexts.push(Context { parent, name });
        }
    }

    /// The nearest context around the current entry; those that were not read yet are read now.
    fn innermost_context(&mut self) -> Option<usize> {
        let is_context = |(_, around): &(isize, Around)| {
            matches!(around, Around::Context(_) | Around::Unread(..))
        };
        let nearest = self.stack.iter().rposition(is_context)?;
        if let Around::Context(known) = self.stack[nearest].1 {
            return Some(known);
        }
        let base = self.unit.header.header_size();
        let data = self.unit.header.range_from(UnitOffset(base)..).ok()?;
        let mut parent = None;
        for (_, around) in &mut self.stack[..=nearest] {
            match *around {
                Around::Context(known) => parent = Some(known),
                Around::Unread(at, shape) => {
                    let shape = self.shapes.get(shape);
                    let fields = shape.and_then(|s| s.fields.as_ref());
                    let values = fields.and_then(|f| f.read(data.slice(), at));
                    if let Some(name) = values.and_then(|v| v.name()) {
                        let number = self.out.contexts.len();
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

    fn ranges_of(
        &self,
        attributes: &Attributes<'d>,
        mut emit: impl FnMut(Range<u64>),
    ) -> gimli::Result<()> {
        if let Some(value) = attributes.ranges {
            if let (Some(section), AttributeValue::RangeListsRef(offset)) =
                (self.plain_ranges, &value)
            {
                let base = self.unit.low_pc;
                if ranges::read(section, offset.0, base, &mut emit).is_some() {
                    return Ok(());
                }
                // What there is has been told; what is wrong gimli knows.
                let offset = self.dwarf.ranges_offset_from_raw(self.unit, *offset);
                let mut iter = self.dwarf.ranges(self.unit, offset)?;
                while iter.next()?.is_some() {}
                return Ok(());
            }
            if let Some(offset) = self.dwarf.attr_ranges_offset(self.unit, value)? {
                let mut iter = self.dwarf.ranges(self.unit, offset)?;
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
            Some(value) => match self.dwarf.attr_address(self.unit, value)? {
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
