//! The control flow graph of one procedure, in flat arrays that are reused.
//!
//! Input: its [`Code`], and which procedures never return. Blocks are numbered by address and
//! cover every byte. Leaders are a bit set over the procedure's bytes: nothing is sorted, and the
//! block of an offset is a rank query.

use super::exception_blocks::ExceptionBlocks;
use super::loop_forest::Csr;
use crate::code::disasm::procedure_code::{Code, Kind, Layout, Step};

#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// First offset of each block, ascending.
    pub(crate) starts: Vec<u32>,
    /// Offset of the instruction that ends each block by a transfer; `u32::MAX` where it just
    /// runs into the next.
    pub(crate) branches: Vec<u32>,
    /// Index of each block's first successor, and one more at the end.
    pub(crate) first: Vec<u32>,
    pub(crate) successors: Vec<u32>,
    /// Blocks where the search for loops begins, in this order.
    pub(crate) roots: Vec<u32>,
    /// Leaders as bits, and the number of them before each word.
    bits: Vec<u64>,
    ranks: Vec<u32>,
    /// Blocks that an edge leads to, as bits.
    reached: Vec<u64>,
    /// Blocks that are padding, ascending.
    padding: Vec<u32>,
    /// Blocks with calls that may throw, and where that lands; ascending.
    landings: Vec<(u32, u32)>,
    handlers: ExceptionBlocks,
    /// Whether there are blocks that only exceptions lead to.
    pub(crate) has_exceptional: bool,
    /// Blocks behind a call that never returns, ascending.
    dead: Vec<u32>,
    /// Blocks that end with a jump whose targets are not known.
    unresolved: Vec<u32>,
}

impl Graph {
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn successors(&self, block: u32) -> &[u32] {
        let i = block as usize;
        &self.successors[self.first[i] as usize..self.first[i + 1] as usize]
    }

    /// Builds the graph of a procedure. `never` tells which procedures never return. Edges from
    /// handlers to themselves are in it until [`Graph::remove_own_landings`].
    pub(crate) fn build(&mut self, layout: &Layout, code: Code<'_>, never: &[bool]) {
        self.mark_leaders(layout, code, never);
        self.number_blocks(layout);
        self.connect(layout, code, never);
        self.choose_roots(layout);
        self.has_exceptional = !self.landings.is_empty();
    }

    pub(crate) fn edges(&self) -> Csr<'_> {
        Csr { first: &self.first, successors: &self.successors }
    }

    /// Whether a block can be reached without an exception.
    pub(crate) fn is_ordinary(&self, block: u32) -> bool {
        !self.has_exceptional || self.handlers.ordinary(block)
    }

    /// Finds the code that only exceptions reach, and removes edges from a handler to itself; returns
    /// whether there were any.
    pub(crate) fn remove_own_landings(&mut self) -> bool {
        if !self.has_exceptional {
            return false;
        }
        let rows = Csr { first: &self.first, successors: &self.successors };
        self.handlers.find(rows, &self.roots, &self.landings);
        let handlers = &self.handlers;
        self.landings.retain(|(block, pad)| handlers.is_of(*block, *pad));
        if self.landings.is_empty() {
            return false;
        }
        let mut successors = Vec::with_capacity(self.successors.len());
        let mut wrong = self.landings.iter().peekable();
        for block in 0..self.starts.len() {
            let old = self.first[block] as usize..self.first[block + 1] as usize;
            self.first[block] = successors.len() as u32;
            let pad = wrong.next_if(|(b, _)| *b == block as u32).map(|w| w.1);
            let kept = self.successors[old].iter().filter(|s| Some(**s) != pad);
            successors.extend(kept);
        }
        if let Some(last) = self.first.last_mut() {
            *last = successors.len() as u32;
        }
        self.successors = successors;
        true
    }

    fn mark_leaders(&mut self, layout: &Layout, code: Code<'_>, never: &[bool]) {
        let length = layout.len();
        self.bits.clear();
        self.bits.resize((length as usize).div_ceil(64), 0);
        let bits = &mut self.bits;
        let mut lead = |offset: u32| {
            if offset < length {
                bits[offset as usize / 64] |= 1 << (offset % 64);
            }
        };
        layout.offsets().for_each(&mut lead);
        for step in code.steps {
            if !ends_block(step, never) {
                continue;
            }
            lead(step.end);
            if matches!(step.kind, Kind::Jump | Kind::Branch | Kind::Landing) {
                lead(step.target);
            }
        }
        code.targets.iter().for_each(|t| lead(*t));
    }

    fn number_blocks(&mut self, layout: &Layout) {
        self.starts.clear();
        self.ranks.clear();
        for (i, word) in self.bits.iter().enumerate() {
            self.ranks.push(self.starts.len() as u32);
            let mut left = *word;
            while left != 0 {
                self.starts.push(i as u32 * 64 + left.trailing_zeros());
                left &= left - 1;
            }
        }
        debug_assert!(self.starts.first() == Some(&0) || layout.len() == 0);
    }

    /// The block that begins at an offset that is a leader.
    fn block(&self, offset: u32) -> u32 {
        let (word, bit) = (offset as usize / 64, offset % 64);
        let before = self.bits[word] & ((1 << bit) - 1);
        self.ranks[word] + before.count_ones()
    }

    fn connect(&mut self, layout: &Layout, code: Code<'_>, never: &[bool]) {
        let length = layout.len();
        self.branches.clear();
        self.first.clear();
        self.successors.clear();
        self.padding.clear();
        self.dead.clear();
        self.landings.clear();
        self.unresolved.clear();
        let mut steps = code.steps.iter().peekable();
        for i in 0..self.starts.len() {
            self.first.push(self.successors.len() as u32);
            let end = self.starts.get(i + 1).copied().unwrap_or(length);
            let (mut last, mut next) = (None, Some(i as u32 + 1));
            let mut pad = None;
            while let Some(step) = steps.next_if(|s| s.end <= end) {
                match step.kind {
                    Kind::End => next = None,
                    // It is the block's last instruction: a leader follows.
                    Kind::Landing => pad = Some(self.block(step.target)),
                    _ => last = Some(step),
                }
            }
            match last.filter(|s| s.end == end && ends_block(s, never)) {
                Some(step) => {
                    self.branches.push(end.saturating_sub(u32::from(step.length)));
                    self.add_edges(code, step, i as u32, next);
                }
                None => {
                    self.branches.push(u32::MAX);
                    self.successors.extend(next);
                }
            }
            self.landings.extend(pad.map(|p| (i as u32, p)));
            let from = self.first[i] as usize;
            self.successors.extend(pad.filter(|p| !self.successors[from..].contains(p)));
        }
        self.first.push(self.successors.len() as u32);
        // The last block has no fall-through successor: its range ends with a step that says so.
        let count = self.starts.len() as u32;
        debug_assert!(self.successors.iter().all(|s| *s < count));
    }

    fn add_edges(&mut self, code: Code<'_>, step: &Step, block: u32, next: Option<u32>) {
        match step.kind {
            Kind::Jump => self.successors.push(self.block(step.target)),
            Kind::Branch => {
                self.successors.extend(next);
                let target = self.block(step.target);
                if Some(target) != next {
                    self.successors.push(target);
                }
            }
            Kind::TailBranch => self.successors.extend(next),
            Kind::Padding => {
                self.padding.push(block);
                self.successors.extend(next);
            }
            Kind::Table => {
                let range = code.tables[step.target as usize].clone();
                for target in &code.targets[range.start as usize..range.end as usize] {
                    let target = self.block(*target);
                    self.successors.push(target);
                }
            }
            Kind::Indirect => self.unresolved.push(block),
            Kind::Call => self.dead.extend(next),
            Kind::Landing | Kind::TailJump | Kind::Return | Kind::Stop | Kind::End => {}
        }
    }

    /// The entry first, then blocks without predecessors: dead code, and targets of jumps without a known
    /// table. If there are such jumps, these blocks become their successors, so that a dispatch loop is
    /// a loop.
    fn choose_roots(&mut self, layout: &Layout) {
        let entry = self.block(layout.entry_offset());
        self.roots.clear();
        self.roots.push(entry);
        self.reached.clear();
        self.reached.resize(self.len().div_ceil(64), 0);
        for block in &self.successors {
            self.reached[*block as usize / 64] |= 1 << (block % 64);
        }
        let mut padding = self.padding.iter().peekable();
        for block in 0..self.len() as u32 {
            let is_padding = padding.next_if_eq(&&block).is_some();
            let reached = self.reached[block as usize / 64] >> (block % 64) & 1 == 1;
            if !is_padding && !reached && block != entry {
                self.roots.push(block);
            }
        }
        if !self.unresolved.is_empty() && self.roots.len() > 1 {
            self.guess_targets();
        }
    }

    /// Makes every block without predecessors a successor of every jump with unknown targets. Blocks
    /// behind calls that never return are excluded: the compiler expected those calls to return.
    fn guess_targets(&mut self) {
        /// Edges that are added to one procedure at most.
        const MOST: usize = 1 << 20;
        let mut targets = self.roots[1..].to_vec();
        let mut dead = self.dead.iter().peekable();
        targets.retain(|t| {
            while dead.next_if(|d| *d < t).is_some() {}
            dead.peek() != Some(&t)
        });
        if self.unresolved.len().saturating_mul(targets.len()) > MOST {
            return;
        }
        let mut successors = Vec::with_capacity(self.successors.len());
        let mut unresolved = self.unresolved.iter().peekable();
        for block in 0..self.starts.len() {
            let old = self.first[block] as usize..self.first[block + 1] as usize;
            self.first[block] = successors.len() as u32;
            successors.extend_from_slice(&self.successors[old]);
            if unresolved.next_if_eq(&&(block as u32)).is_some() {
                successors.extend_from_slice(&targets);
            }
        }
        if let Some(last) = self.first.last_mut() {
            *last = successors.len() as u32;
        }
        self.successors = successors;
    }
}

/// Whether a step ends its block: all do, except calls that return.
fn ends_block(step: &Step, never: &[bool]) -> bool {
    step.kind != Kind::Call || never.get(step.target as usize).copied().unwrap_or(false)
}
