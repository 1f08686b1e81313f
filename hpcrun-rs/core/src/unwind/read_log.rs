//! Read log: the words of memory that an unwind has read, in order.
//!
//! An unwind is a function of its initial registers, the load map and these words. An unwind that starts with
//! the same registers and reads the same values therefore finds the same frames (see
//! `logical::backtrace_cache`).
//!
//! Async-signal-safe after [`ReadLog::new`].

use crate::memory::FixedArray;

const MAX_WORDS: usize = 1 << 22;

/// A flag in [`Word::address`]: the word must be re-read through the kernel. No user address has this bit.
pub const CHECKED: u64 = 1 << 63;

/// A word of memory and its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// An address in a known stack; with [`CHECKED`], an address elsewhere; 0 for a read that cannot be
    /// repeated.
    pub address: u64,
    pub value: u64,
}

pub struct ReadLog {
    list: FixedArray<Word>,
    is_complete: bool,
}

impl ReadLog {
    /// Reserves the memory. Not async-signal-safe. `None` when the address space is used up.
    pub fn new() -> Option<ReadLog> {
        Some(ReadLog { list: FixedArray::in_heap(MAX_WORDS)?, is_complete: true })
    }

    pub const MAX: usize = MAX_WORDS;

    #[inline]
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.is_complete = true;
    }

    #[inline]
    pub(super) fn push(&mut self, address: u64, value: u64) {
        if !self.list.push(Word { address, value }) {
            self.is_complete = false;
        }
    }

    /// Like [`Self::push`], for a word that must be re-read through the kernel.
    #[cold]
    pub(super) fn push_checked(&mut self, address: u64, value: u64) {
        self.push(address | CHECKED, value);
    }

    /// Marks the log as incomplete: the unwind depends on more than these words.
    pub(super) fn invalidate(&mut self) {
        self.is_complete = false;
    }

    /// The words; `None` when the log is incomplete.
    #[inline]
    pub fn get(&self) -> Option<&[Word]> {
        self.is_complete.then(|| self.list.as_slice())
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
