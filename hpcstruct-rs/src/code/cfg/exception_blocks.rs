//! Blocks that only exceptions reach, and the handler that each belongs to.
//!
//! A block belongs to a handler when every path to it passes that handler's landing pad last.
//! Compilers merge call sites across a handler's own calls if those do not throw. Its table then
//! seems to say that the handler lands on itself, which never happens.

use super::loop_forest::{Csr, NONE};

/// Belongs to several handlers.
const SEVERAL: u32 = NONE - 1;

/// The result, and the buffers to compute it.
#[derive(Debug, Default)]
pub(crate) struct ExceptionBlocks {
    /// Landing pads, as bits.
    pads: Vec<u64>,
    /// Blocks that are reached without an exception, as bits.
    ordinary: Vec<u64>,
    /// The pad of each other block; [`NONE`] where nothing leads to it.
    of: Vec<u32>,
    stack: Vec<u32>,
}

impl ExceptionBlocks {
    /// Whether a block is reached without an exception.
    pub(crate) fn ordinary(&self, block: u32) -> bool {
        has(&self.ordinary, block)
    }

    /// Whether a block belongs to the handler with this landing pad alone.
    pub(crate) fn is_of(&self, block: u32, pad: u32) -> bool {
        !self.ordinary(block) && self.of[block as usize] == pad
    }

    /// Computes it for a graph that is entered at `roots`; `landings` are the edges to landing pads.
    pub(crate) fn find(&mut self, graph: Csr<'_>, roots: &[u32], landings: &[(u32, u32)]) {
        let count = graph.first.len().saturating_sub(1);
        let words = count.div_ceil(64);
        for bits in [&mut self.pads, &mut self.ordinary] {
            bits.clear();
            bits.resize(words, 0);
        }
        for (_, pad) in landings {
            add(&mut self.pads, *pad);
        }
        self.stack.clear();
        self.stack.extend(roots);
        while let Some(block) = self.stack.pop() {
            if !has(&self.pads, block) && !has(&self.ordinary, block) {
                add(&mut self.ordinary, block);
                self.stack.extend(graph.of(block));
            }
        }
        self.of.clear();
        self.of.resize(count, NONE);
        for (_, pad) in landings {
            if self.of[*pad as usize] == NONE {
                self.of[*pad as usize] = *pad;
                self.stack.push(*pad);
            }
        }
        // Every block is pushed twice at most: with its first pad, and when there are several.
        while let Some(block) = self.stack.pop() {
            let pad = self.of[block as usize];
            for to in graph.of(block) {
                let known = self.of[*to as usize];
                if has(&self.pads, *to) || self.ordinary(*to) || known == pad || known == SEVERAL {
                    continue;
                }
                self.of[*to as usize] = if known == NONE { pad } else { SEVERAL };
                self.stack.push(*to);
            }
        }
    }
}

fn has(bits: &[u64], i: u32) -> bool {
    bits[i as usize / 64] >> (i % 64) & 1 == 1
}

fn add(bits: &mut [u64], i: u32) {
    bits[i as usize / 64] |= 1 << (i % 64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_belong_to_the_handler_that_leads_to_them() {
        // 0 -> 1 -> 2; 0 lands on 3, 1 lands on 4; 3 -> 5 -> 7, 4 -> 6 -> 7; 7 -> 1; 8 is dead.
        let first = [0, 2, 4, 4, 5, 6, 7, 8, 9, 9];
        let successors = [1, 3, 2, 4, 5, 6, 7, 7, 1];
        let rows = Csr { first: &first, successors: &successors };
        let mut handlers = ExceptionBlocks::default();
        handlers.find(rows, &[0, 8], &[(0, 3), (1, 4)]);
        let ordinary: Vec<u32> = (0..9).filter(|b| handlers.ordinary(*b)).collect();
        assert_eq!(ordinary, [0, 1, 2, 8]);
        assert!(handlers.is_of(3, 3) && handlers.is_of(5, 3) && !handlers.is_of(5, 4));
        assert!(handlers.is_of(6, 4) && !handlers.is_of(7, 3) && !handlers.is_of(7, 4));
        assert!(!handlers.is_of(1, 4));
    }
}
