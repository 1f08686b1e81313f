//! The loops of one procedure: their nesting, their code, the branches that leave or repeat them.
//!
//! Invariant: outer loops come before inner ones; code is sorted by address.

use super::graph::Graph;
use super::loop_forest::{LoopForest, NONE};
use crate::code::disasm::procedure_code::{Code, Layout};
use crate::code::{Loop, ProcedureLoops, Region};

/// Finds loops; its buffers are reused from procedure to procedure.
#[derive(Default)]
pub(crate) struct Finder {
    graph: Graph,
    forest: LoopForest,
    /// Loops and offsets of branches that leave or repeat them.
    controls: Vec<(u32, u32)>,
    /// By loop.
    controlled: Vec<Controlled>,
}

impl Finder {
    /// The loops of a procedure; `never` tells which procedures never return.
    pub(crate) fn find(&mut self, layout: &Layout, code: Code<'_>, never: &[bool]) -> ProcedureLoops {
        let mut out = ProcedureLoops::default();
        if layout.ranges.is_empty() {
            return out;
        }
        out.entry = layout.entry_address();
        if !code.may_loop() {
            return out;
        }
        self.graph.build(layout, code, never);
        // Most graphs have no loop, which is soon known.
        if !self.forest.search(self.graph.edges(), &self.graph.roots) {
            return out;
        }
        if self.graph.remove_own_landings() {
            self.forest.find(self.graph.edges(), &self.graph.roots);
        } else {
            self.forest.find_searched(self.graph.edges());
        }
        out.loops = self
            .forest
            .loops
            .iter()
            .map(|l| Loop {
                header: layout.address(self.graph.starts[l.header as usize]),
                parent: (l.parent != NONE).then_some(l.parent),
                irreducible: l.irreducible,
                spins: false,
                controls: 0..0,
            })
            .collect();
        if out.loops.is_empty() {
            return out;
        }
        self.add_regions(layout, &mut out);
        self.add_controls(layout, &mut out);
        out
    }

    fn add_regions(&self, layout: &Layout, out: &mut ProcedureLoops) {
        for (block, start) in self.graph.starts.iter().enumerate() {
            let inner = self.forest.inner[block];
            if inner == NONE {
                continue;
            }
            let end = self.graph.starts.get(block + 1).copied().unwrap_or(layout.len());
            let start = layout.address(*start);
            let length = u64::from(end - self.graph.starts[block]);
            match out.regions.last_mut() {
                Some(last) if last.range.end == start && last.inner == inner => {
                    last.range.end += length;
                }
                _ => out.regions.push(Region { range: start..start + length, inner }),
            }
        }
    }

    /// Collects branches that leave or repeat loops. Code that only an exception reaches counts only for
    /// loops without other branches: error handling is not how a loop iterates.
    fn add_controls(&mut self, layout: &Layout, out: &mut ProcedureLoops) {
        self.controls.clear();
        self.controlled.clear();
        self.controlled.resize(out.loops.len(), Controlled::default());
        for block in 0..self.graph.len() as u32 {
            if self.may_control(block) && self.graph.is_ordinary(block) {
                self.add_controls_of(block, true);
            }
        }
        if self.graph.has_exceptional {
            for found in &mut self.controlled {
                found.is_closed = found.count > 0;
            }
            for block in 0..self.graph.len() as u32 {
                if self.may_control(block) && !self.graph.is_ordinary(block) {
                    self.add_controls_of(block, false);
                }
            }
        }
        // Loop by loop; those of one loop stay in their order.
        let mut end = 0;
        for (found, known) in out.loops.iter_mut().zip(&mut self.controlled) {
            found.controls = end..end + known.count;
            known.next = end;
            end += known.count;
        }
        out.controls = vec![0; end as usize];
        for (found, branch) in &self.controls {
            let known = &mut self.controlled[*found as usize];
            out.controls[known.next as usize] = layout.address(*branch);
            known.next += 1;
        }
    }

    /// Whether a block lies in a loop and ends with a transfer of control.
    fn may_control(&self, block: u32) -> bool {
        let block = block as usize;
        self.graph.branches[block] != u32::MAX && self.forest.inner[block] != NONE
    }

    /// Adds the branch of one block to the loops that it repeats and, if `leaving`, leaves.
    fn add_controls_of(&mut self, block: u32, leaving: bool) {
        /// Kept for each loop.
        const MOST: u32 = 64;
        /// Loops that one branch may leave.
        const LEVELS: usize = 16;
        let branch = self.graph.branches[block as usize];
        let inner = self.forest.inner[block as usize];
        for to in self.graph.successors(block) {
            let mut around = inner;
            for _ in 0..LEVELS {
                if around == NONE {
                    break;
                }
                let found = self.forest.loops[around as usize];
                let repeats = found.header == *to;
                if !repeats && self.forest.holds(around, *to) {
                    break;
                }
                let known = &mut self.controlled[around as usize];
                let is_new = known.count == 0 || known.last != branch;
                if (repeats || leaving) && !known.is_closed && known.count < MOST && is_new {
                    known.count += 1;
                    known.last = branch;
                    self.controls.push((around, branch));
                }
                if repeats {
                    break;
                }
                around = found.parent;
            }
        }
    }
}

/// The branches of a loop while they are collected.
#[derive(Clone, Copy, Default)]
struct Controlled {
    count: u32,
    /// Offset of the last one.
    last: u32,
    /// Whether no more are wanted.
    is_closed: bool,
    /// Where the next one goes.
    next: u32,
}
