//! The words of memory that a walk has read, in the order in which it read them.
//!
//! A walk is a function of its first registers, the load map and these words: one that starts at
//! the same registers and would read the same values takes the same way (see `logical::cache`).
//!
//! Async-signal-safe after [`ReadLog::new`].

use crate::memory::FixedArray;

/// Most words of a walk that are kept.
const MAX_WORDS: usize = 1 << 18;

/// Of a [`Word`]'s address, which no address of a program has: it is to be read through the kernel alone.
pub const CHECKED: u64 = 1 << 63;

/// A word and where it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Its address, in a stack that was known; with [`CHECKED`]: elsewhere; 0: something was read in another way, and cannot be
    /// read again like this.
    pub address: u64,
    /// What was there.
    pub value: u64,
}

/// See the module's description.
#[derive(Debug)]
pub struct ReadLog {
    list: FixedArray<Word>,
    is_complete: bool,
}

impl ReadLog {
    /// Reserves the memory. Not async-signal-safe. `None` when the address space is used up.
    pub fn new() -> Option<ReadLog> {
        Some(ReadLog {
            list: FixedArray::new(MAX_WORDS)?,
            is_complete: true,
        })
    }

    /// The longest list there can be.
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

    /// As [`Self::push`], of a word that is to be read through the kernel.
    #[cold]
    pub(super) fn push_checked(&mut self, address: u64, value: u64) {
        self.push(address | CHECKED, value);
    }

    /// The way up to here depends on more than words that can be read again one by one.
    pub(super) fn invalidate(&mut self) {
        self.is_complete = false;
    }

    /// The words; `None` when some that the walk depends on are missing.
    #[inline]
    pub fn get(&self) -> Option<&[Word]> {
        self.is_complete.then(|| self.list.as_slice())
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
