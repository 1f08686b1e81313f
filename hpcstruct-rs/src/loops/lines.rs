//! The source line that names a loop.
//!
//! A loop is named in the innermost scope around it whose code is not the system's. Code without a
//! line is ignored. The line is the first that exists:
//! 1. the call, where that scope inlines the system's code that loops;
//! 2. the first line of the body, if it is smaller than the next;
//! 3. the smallest line of the branches that leave or repeat the loop;
//! 4. any line of the loop.

use super::nesting::{LoopPlace, Nesting, Part, common};
use crate::base::strings::Map;
use hpc_formats::structure::{Origin, SourceLine};

pub(super) fn names(nesting: &Nesting<'_>) -> Vec<(LoopPlace, Origin)> {
    let count = nesting.loops.loops.len();
    let branches: Vec<_> = (0..count).map(|i| nesting.line_of_branches(i)).collect();
    let mut headers: Vec<_> = (0..count).map(|i| nesting.line_of_header(i)).collect();
    nesting.keep_lines_of_bodies(&branches, &mut headers);
    let name = |(i, found): (usize, &crate::code::Loop)| {
        let mut level = nesting.levels[i];
        // The call that inlines the system's code.
        let mut site = None;
        let mut origin = nesting.body.origin_of(level);
        while let (Origin::System, Some(scope)) = (origin, level) {
            site = nesting.body.scope(scope).site;
            level = nesting.body.scope(scope).parent;
            origin = nesting.body.origin_of(level);
        }
        let own = headers[i].or(branches[i]).or_else(|| nesting.any_line(i));
        // A loop of the system in the system's procedure is the system's.
        let site = site.filter(|site| origin != Origin::System && site.line != 0);
        let place = site.or(own);
        (place.ok_or(found.header), origin)
    };
    nesting.loops.loops.iter().enumerate().map(name).collect()
}

impl Nesting<'_> {
    /// Keeps a header's line if it is smaller than that of the branches and no code outside of the loop
    /// has it: then it is the first line of the body. Otherwise it may belong to code that the compiler
    /// moved there.
    fn keep_lines_of_bodies(&self, branches: &[Option<SourceLine>], headers: &mut [Option<SourceLine>]) {
        // The innermost loop around all code of the line; none yet at first.
        let mut around: Map<(Option<u32>, SourceLine), Option<Option<u32>>> = Map::default();
        for (i, header) in headers.iter_mut().enumerate() {
            if let (Some(line), Some(branch)) = (*header, branches[i]) {
                if line.file == branch.file && line.line < branch.line {
                    around.insert((self.levels[i], line), None);
                } else {
                    *header = None;
                }
            }
        }
        if around.is_empty() {
            return;
        }
        for part in &self.parts {
            let piece = &self.body.pieces[part.piece as usize];
            let Some(line) = piece.line() else { continue };
            if let Some(known) = around.get_mut(&(piece.scope(), line)) {
                *known = Some(match *known {
                    None => part.inner,
                    Some(other) => self.common_loop(other, part.inner),
                });
            }
        }
        for (i, header) in headers.iter_mut().enumerate() {
            let key = header.map(|line| (self.levels[i], line));
            if let Some(Some(found)) = key.and_then(|k| around.get(&k)) {
                if self.common_loop(*found, Some(i as u32)) != Some(i as u32) {
                    *header = branches[i];
                }
            }
        }
    }

    /// The innermost loop around both.
    fn common_loop(&self, a: Option<u32>, b: Option<u32>) -> Option<u32> {
        common(a, b, |found| self.loops.loops[found as usize].parent)
    }

    /// The smallest line of the branches that leave or repeat a loop, as its level sees them.
    fn line_of_branches(&self, index: usize) -> Option<SourceLine> {
        let branches = self.loops.controls_of(&self.loops.loops[index]).iter();
        let mut lines =
            branches.filter_map(|a| self.line_in(self.levels[index], self.parts_from(*a).next()?));
        let first = lines.next()?;
        // Lines of one file can be compared.
        let others = lines.filter(|l| l.file == first.file);
        Some(others.fold(first, |a, b| if b.line < a.line { b } else { a }))
    }

    fn line_of_header(&self, index: usize) -> Option<SourceLine> {
        let found = &self.loops.loops[index];
        self.parts_from(found.header)
            .take_while(|p| p.inner == Some(index as u32))
            .find_map(|p| self.line_in(self.levels[index], p))
    }

    /// Any line of a loop whose header and branches have none.
    fn any_line(&self, index: usize) -> Option<SourceLine> {
        if !self.has_lines {
            return None;
        }
        let found = &self.loops.loops[index];
        const PARTS: usize = 1024;
        let inside = self.parts_from(found.header).take(PARTS);
        inside.filter(|p| p.inner == Some(index as u32)).find_map(|p| self.line_in(self.levels[index], p))
    }

    /// The line of code as the scope `level` sees it: its own, or that of the call into which the
    /// code was inlined.
    fn line_in(&self, level: Option<u32>, part: &Part) -> Option<SourceLine> {
        let piece = &self.body.pieces[part.piece as usize];
        let mut line = piece.line();
        let mut at = piece.scope();
        while at > level {
            let scope = self.body.scope(at?);
            line = scope.site;
            at = scope.parent;
        }
        // A call that the compiler put together from several has no line.
        line.filter(|line| at == level && line.line != 0)
    }
}
