//! Procedure bounds and names without debug information: the symbol tables.
//!
//! Input: an image (and its separate debug file, whose symbol table is richer). Invariants: the
//! result is sorted by address, one symbol per address, none empty, all within executable ranges.

pub(crate) mod go_table;
pub(crate) mod unwind_table;

use crate::input::image::Image;
use go_table::GoFunction;
use object::{Object, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::ops::Range;

/// What says where a symbol's code ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bounds {
    /// Its size.
    Stated,
    /// Nothing in the symbol table.
    Open,
    /// Nothing, and nothing says either that it names a procedure: it has no type and is local, as
    /// labels in assembly are.
    Label,
}

/// A named range of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol<'d> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) name: &'d [u8],
    pub(crate) bounds: Bounds,
}

impl<'d> Symbol<'d> {
    /// The name as text; bytes that are none are replaced.
    pub(crate) fn text(&self) -> Cow<'d, str> {
        // Nearly all are text, which this finds out in less time.
        match std::str::from_utf8(self.name) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(self.name),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Symbols<'d> {
    /// Sorted by start; ends may reach into the next symbol's range, as the file states them.
    pub(crate) sorted: Vec<Symbol<'d>>,
    /// Whether there is a full table, not only the dynamic one.
    pub(crate) has_symtab: bool,
}

impl<'d> Symbols<'d> {
    /// The symbol that starts exactly at `address`.
    pub(crate) fn starting_at(&self, address: u64) -> Option<&Symbol<'d>> {
        let i = self.sorted.binary_search_by_key(&address, |s| s.start).ok()?;
        Some(&self.sorted[i])
    }
}

/// A symbol before the choice among aliases and before its end is known.
struct Candidate<'d> {
    start: u64,
    size: u64,
    /// Without a type, and local; and so are all its aliases.
    is_label: bool,
    /// Smaller is the better name for one address: a function's, with few leading underscores,
    /// bound globally, without a version, short.
    rank: (bool, usize, u8, bool, usize),
    name: &'d [u8],
}

/// The function symbols of some images, aliases included.
pub(crate) struct Candidates<'d> {
    list: Vec<Candidate<'d>>,
    has_symtab: bool,
}

/// Collects function symbols of `images` (the module, then its separate debug file).
pub(crate) fn candidates<'d>(images: &[&'d Image<'d>]) -> Candidates<'d> {
    let mut found = Candidates { list: Vec::new(), has_symtab: false };
    let Some(code) = images.first() else {
        return found;
    };
    let list = &mut found.list;
    for image in images {
        let before = list.len();
        list.extend(image.file.symbols().filter_map(|s| candidate(code, &s)));
        found.has_symtab |= list.len() > before;
        let dynamic = image.file.dynamic_symbols();
        list.extend(dynamic.filter_map(|s| candidate(code, &s)));
    }
    list.sort_by(|a, b| (a.start, &a.rank, a.name).cmp(&(b.start, &b.rank, b.name)));
    // The best name wins the address; the size may come from any alias.
    list.dedup_by(|alias, kept| {
        let same = alias.start == kept.start;
        if same {
            kept.is_label &= alias.is_label;
            if kept.size == 0 {
                kept.size = alias.size;
            }
        }
        same
    });
    found
}

impl<'d> Candidates<'d> {
    /// With Go's functions, where no symbol table has them.
    pub(crate) fn with_go(mut self, functions: impl Iterator<Item = GoFunction<'d>>) -> Self {
        let add = |f: GoFunction<'d>| Candidate {
            start: f.range.start,
            size: f.range.end.saturating_sub(f.range.start),
            is_label: false,
            rank: (false, 0, 0, false, f.name.len()),
            name: f.name,
        };
        if !self.has_symtab {
            self.list.extend(functions.map(add));
            self.list.sort_by_key(|c| c.start);
            self.list.dedup_by_key(|c| c.start);
        }
        self
    }

    /// The symbols of the code of `image`, with their ends.
    pub(crate) fn choose(&self, image: &Image<'_>, unwind: &[Range<u64>]) -> Symbols<'d> {
        Symbols { sorted: with_ends(image, &self.list, unwind), has_symtab: self.has_symtab }
    }
}

fn candidate<'d, 'f>(code: &Image<'_>, symbol: &object::Symbol<'d, 'f>) -> Option<Candidate<'d>> {
    if symbol.is_undefined() || code.code_at(symbol.address()).is_none() {
        return None;
    }
    let is_function = symbol.kind() == SymbolKind::Text;
    if !is_function && symbol.kind() != SymbolKind::Unknown {
        return None;
    }
    let name = symbol.name_bytes().ok()?;
    // Assembler-local labels and mapping symbols name no procedure.
    if name.is_empty() || name.starts_with(b".L") || name.starts_with(b"$") {
        return None;
    }
    let binding = if symbol.is_weak() {
        1
    } else if symbol.is_global() {
        0
    } else {
        2
    };
    let underscores = name.iter().take_while(|b| **b == b'_').count();
    // A mangled name starts with underscores by construction.
    let mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
    Some(Candidate {
        start: symbol.address(),
        size: symbol.size(),
        is_label: !is_function && binding == 2,
        rank: (
            !is_function,
            if mangled { 0 } else { underscores },
            binding,
            name.contains(&b'@'),
            name.len(),
        ),
        name,
    })
}

/// A symbol without a size ends with its unwind entry, at the next symbol that is no label, or with its
/// section, until its code tells more.
fn with_ends<'d>(code: &Image<'_>, candidates: &[Candidate<'d>], unwind: &[Range<u64>]) -> Vec<Symbol<'d>> {
    let mut symbols = Vec::with_capacity(candidates.len());
    let mut next = u64::MAX;
    for c in candidates.iter().rev() {
        let before = if c.is_label { next } else { c.start };
        let next = std::mem::replace(&mut next, before);
        let Some((section, _)) = code.code_at(c.start) else {
            continue;
        };
        let stated = c.start.checked_add(c.size).filter(|e| *e > c.start);
        let end = stated.unwrap_or_else(|| {
            let entry = unwind
                .get(unwind.partition_point(|r| r.end <= c.start))
                .filter(|r| r.contains(&c.start))
                .map_or(u64::MAX, |r| r.end);
            next.min(entry)
        });
        let end = end.min(section.end);
        if end > c.start {
            let bounds = match (stated, c.is_label) {
                (Some(_), _) => Bounds::Stated,
                (None, false) => Bounds::Open,
                (None, true) => Bounds::Label,
            };
            symbols.push(Symbol { start: c.start, end, name: c.name, bounds });
        }
    }
    symbols.reverse();
    symbols
}
