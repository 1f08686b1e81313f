//! Where the loops of a procedure lie: its code cut at their borders, and the scope that each lies in.
//!
//! A loop lies in the innermost scope that all its code has in common: the longest common prefix of the
//! chains of inlined scopes.

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
    pub(super) homes: Vec<Option<u32>>,
    /// As `homes`, by code with lines only: the scope whose line names the loop.
    pub(super) levels: Vec<Option<u32>>,
}

impl<'a> Nesting<'a> {
    pub(super) fn new(body: Body<'a>, loops: &'a ProcedureLoops) -> Self {
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
        let level = |(lined, all): (Option<Option<u32>>, &Option<Option<u32>>)| lined.or(*all).flatten();
        self.levels = lined.into_iter().zip(&all).map(level).collect();
    }

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
            parts.push(Part { start: at, end: to, piece: i as u32, inner });
            at = to;
        }
    }
    parts
}
