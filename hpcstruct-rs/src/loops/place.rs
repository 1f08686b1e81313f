//! The tree of scopes of one procedure with its loops, and its spans cut at the loops' borders.
//!
//! An irreducible loop on the same line as the loop around it is merged
//! with that loop. Only scopes with code are kept, in the order of their first code. Invariants: the
//! pieces keep their sum and order; parents come before children.

use super::lines;
use super::nesting::{Body, LoopPlace, Nesting};
use crate::base::strings::Map;
use crate::code::ProcedureLoops;
use crate::unit_analysis::Piece;
use hpc_formats::structure::Origin;

/// A scope in its new place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// An inlined scope, an index into [`Body::scopes`].
    Inlined(u32),
    /// A loop, and whether it only waits.
    Loop(LoopPlace, Origin, bool),
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
                    let found = &nesting.loops.loops[inner as usize];
                    path.push(((scope, inner), Item::Loop(place, origin, found.spins)));
                    at.1 = found.parent.map(|p| shown[p as usize]);
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
