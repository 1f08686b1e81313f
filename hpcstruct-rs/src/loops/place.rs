//! The tree of scopes of one procedure with its loops, and its spans cut at the loops' borders.
//!
//! A loop lies in the innermost scope that all its code has in common: the longest common prefix of
//! the chains of inlined scopes. An irreducible loop on the same line as the loop around it is merged
//! with that loop. Only scopes with code are kept, in the order of their first code. Invariants: the
//! pieces keep their sum and order; parents come before children.

use super::lines;
use crate::base::strings::Map;
use crate::code::ProcedureLoops;
use crate::unit_analysis::{InlinedScope, Piece};
use hpc_formats::structure::{Origin, SourceLine};

/// A procedure without loops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'a> {
    pub(crate) origin: Origin,
    /// Its scopes, parents before children.
    pub(crate) scopes: &'a [InlinedScope],
    /// Its code, by address.
    pub(crate) pieces: &'a [Piece],
}

impl Body<'_> {
    /// The origin of a scope, or of the procedure itself.
    pub(super) fn origin_of(&self, scope: Option<u32>) -> Origin {
        scope.map_or(self.origin, |s| self.scope(s).origin)
    }

    pub(super) fn scope(&self, scope: u32) -> &InlinedScope {
        &self.scopes[scope as usize]
    }
}

/// The place of a loop in the source, or the address of its header where none is known.
pub(crate) type LoopPlace = Result<SourceLine, u64>;

/// A scope in its new place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// An inlined scope, an index into [`Body::scopes`].
    Inlined(u32),
    /// A loop.
    Loop(LoopPlace, Origin),
}

/// The new scopes and pieces; reused from procedure to procedure.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// Each with the one around it; parents come before children.
    pub(crate) scopes: Vec<(Option<u32>, Item)>,
    /// Their scopes are indices into `scopes`.
    pub(crate) pieces: Vec<Piece>,
    /// New numbers of inlined scopes that lie in no loop, plus one; 0 = none yet.
    plain: Vec<u32>,
    /// New numbers of scopes within loops.
    within: Map<(Option<u32>, u32), u32>,
    path: Vec<((Option<u32>, u32), Item)>,
}

/// A part of a piece in one innermost loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Index of its piece.
    pub(super) piece: u32,
    /// Its innermost loop.
    pub(super) inner: Option<u32>,
}

/// Where the code of the loops of a procedure lies.
#[derive(Debug)]
pub(super) struct Nesting<'a> {
    pub(super) body: Body<'a>,
    pub(super) loops: &'a ProcedureLoops,
    /// By address.
    pub(super) parts: Vec<Part>,
    /// Whether any code has a line.
    pub(super) has_lines: bool,
    /// Scope that each loop lies in; `None` = directly in the procedure.
    homes: Vec<Option<u32>>,
    /// As `homes`, by code with lines only: the scope whose line names the loop.
    pub(super) levels: Vec<Option<u32>>,
}

impl Placed {
    /// Without loops: scopes are numbered anew.
    pub(crate) fn plain(&mut self, body: Body<'_>) {
        self.clear(body);
        for piece in body.pieces {
            let scope = piece.scope().map(|s| self.number(body, s));
            self.pieces.push(piece.in_scope(scope));
        }
    }

    /// Places with loops. Neighbours that `is_same` finds equal become one piece.
    pub(crate) fn with_loops(
        &mut self,
        body: Body<'_>,
        loops: &ProcedureLoops,
        is_same: impl Fn(&Piece, &Piece) -> bool,
    ) {
        self.clear(body);
        let nesting = Nesting::new(body, loops);
        let names = lines::names(&nesting);
        let shown = shown(loops, &names);
        self.within.clear();
        // Many neighbours lie in one place.
        let mut last = None;
        for part in &nesting.parts {
            let old = &body.pieces[part.piece as usize];
            let place = (old.scope(), part.inner);
            let scope = match (last, part.inner) {
                (Some((known, scope)), _) if known == place => scope,
                (_, None) => old.scope().map(|s| self.number(body, s)),
                (_, Some(inner)) => {
                    let at = (old.scope(), Some(shown[inner as usize]));
                    self.number_within(&nesting, &names, &shown, at)
                }
            };
            last = Some((place, scope));
            let mut new = old.in_scope(scope);
            (new.start, new.end) = (part.start, part.end);
            match self.pieces.last_mut() {
                Some(last) if last.end == new.start && is_same(last, &new) => last.end = new.end,
                _ => self.pieces.push(new),
            }
        }
    }

    fn clear(&mut self, body: Body<'_>) {
        self.scopes.clear();
        self.pieces.clear();
        self.plain.clear();
        self.plain.resize(body.scopes.len(), 0);
    }

    /// The new number of an inlined scope outside of loops.
    fn number(&mut self, body: Body<'_>, scope: u32) -> u32 {
        let known = self.plain[scope as usize];
        if known > 0 {
            return known - 1;
        }
        // Chains are short, and their outer parts mostly known.
        let mut unknown = vec![scope];
        let mut outer = body.scope(scope).parent;
        while let Some(scope) = outer.filter(|s| self.plain[*s as usize] == 0) {
            unknown.push(scope);
            outer = body.scope(scope).parent;
        }
        let mut parent = outer.map(|s| self.plain[s as usize] - 1);
        for scope in unknown.into_iter().rev() {
            self.scopes.push((parent, Item::Inlined(scope)));
            self.plain[scope as usize] = self.scopes.len() as u32;
            parent = Some(self.scopes.len() as u32 - 1);
        }
        self.scopes.len() as u32 - 1
    }

    /// The number of the scope `at.0` within the loop `at.1`. The loop's home is that scope or around it.
    fn number_within(
        &mut self,
        nesting: &Nesting<'_>,
        names: &[(LoopPlace, Origin)],
        shown: &[u32],
        mut at: (Option<u32>, Option<u32>),
    ) -> Option<u32> {
        let mut path = std::mem::take(&mut self.path);
        let mut parent = loop {
            let (scope, Some(inner)) = at else {
                break at.0.map(|s| self.number(nesting.body, s));
            };
            if let Some(number) = self.within.get(&(scope, inner)).copied() {
                break Some(number);
            }
            match scope {
                scope if scope == nesting.homes[inner as usize] => {
                    let (place, origin) = names[inner as usize];
                    path.push(((scope, inner), Item::Loop(place, origin)));
                    let around = nesting.loops.loops[inner as usize].parent;
                    at.1 = around.map(|p| shown[p as usize]);
                }
                Some(s) => {
                    path.push(((scope, inner), Item::Inlined(s)));
                    at.0 = nesting.body.scope(s).parent;
                }
                // Unreachable: a home is around what is within.
                None => at.1 = None,
            }
        };
        for (key, item) in path.drain(..).rev() {
            let number = self.scopes.len() as u32;
            self.scopes.push((parent, item));
            self.within.insert(key, number);
            parent = Some(number);
        }
        self.path = path;
        parent
    }
}

/// The loop that each loop is shown as: itself, or one around it.
fn shown(loops: &ProcedureLoops, names: &[(LoopPlace, Origin)]) -> Vec<u32> {
    let mut shown: Vec<u32> = Vec::with_capacity(loops.loops.len());
    for (i, found) in loops.loops.iter().enumerate() {
        let around = found.parent.filter(|parent| {
            let outer = &loops.loops[*parent as usize];
            let same = names[i].0 == names[*parent as usize].0;
            same && (found.irreducible || outer.irreducible)
        });
        shown.push(around.map_or(i as u32, |parent| shown[parent as usize]));
    }
    shown
}

impl<'a> Nesting<'a> {
    fn new(body: Body<'a>, loops: &'a ProcedureLoops) -> Self {
        let mut nesting = Nesting {
            body,
            loops,
            parts: parts(body.pieces, loops),
            has_lines: body.pieces.iter().any(|p| p.line().is_some()),
            homes: Vec::new(),
            levels: Vec::new(),
        };
        nesting.find_homes();
        nesting
    }

    /// The innermost scope around both.
    fn common(&self, a: Option<u32>, b: Option<u32>) -> Option<u32> {
        common(a, b, |scope| self.body.scope(scope).parent)
    }

    /// The innermost scope that the code of each loop has in common: all of it, and that with
    /// lines.
    fn find_homes(&mut self) {
        let count = self.loops.loops.len();
        let mut homes: [Vec<Option<Option<u32>>>; 2] = [vec![None; count], vec![None; count]];
        for part in &self.parts {
            let Some(inner) = part.inner else { continue };
            let piece = &self.body.pieces[part.piece as usize];
            let scope = piece.scope();
            let kinds = if piece.line().is_some() { 0..2 } else { 0..1 };
            for kind in kinds {
                let home = &mut homes[kind][inner as usize];
                *home = Some(home.map_or(scope, |known| self.common(known, scope)));
            }
        }
        for i in (0..count).rev() {
            let Some(parent) = self.loops.loops[i].parent else {
                continue;
            };
            for homes in &mut homes {
                if let Some(own) = homes[i] {
                    let known = homes[parent as usize].unwrap_or(own);
                    homes[parent as usize] = Some(self.common(known, own));
                }
            }
        }
        let [all, lined] = homes;
        self.homes = all.iter().map(|home| home.flatten()).collect();
        let level =
            |(lined, all): (Option<Option<u32>>, &Option<Option<u32>>)| lined.or(*all).flatten();
        self.levels = lined.into_iter().zip(&all).map(level).collect();
    }

    /// The parts from an address on.
    pub(super) fn parts_from(&self, address: u64) -> impl Iterator<Item = &Part> {
        let first = self.parts.partition_point(|p| p.end <= address);
        self.parts[first..].iter()
    }
}

/// The innermost one around both; a parent's number is smaller than its children's.
pub(super) fn common(
    mut a: Option<u32>,
    mut b: Option<u32>,
    parent: impl Fn(u32) -> Option<u32>,
) -> Option<u32> {
    while a != b {
        let inner = if a > b { &mut a } else { &mut b };
        *inner = inner.and_then(&parent);
    }
    a
}

/// Cuts the pieces of a procedure at the borders of loops.
fn parts(pieces: &[Piece], loops: &ProcedureLoops) -> Vec<Part> {
    let mut parts = Vec::with_capacity(pieces.len() + 2 * loops.regions.len());
    let mut regions = loops.regions.iter().peekable();
    for (i, piece) in pieces.iter().enumerate() {
        let Piece { start, end, .. } = *piece;
        let mut at = start;
        while at < end {
            while regions.next_if(|r| r.range.end <= at).is_some() {}
            let (to, inner) = match regions.peek() {
                Some(r) if r.range.start <= at => (r.range.end.min(end), Some(r.inner)),
                Some(r) => (r.range.start.min(end), None),
                None => (end, None),
            };
            parts.push(Part {
                start: at,
                end: to,
                piece: i as u32,
                inner,
            });
            at = to;
        }
    }
    parts
}
