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
