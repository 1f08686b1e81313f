//! A window on memory of any kind, copied by the kernel, which fails instead of faulting.
//!
//! Async-signal-safe.

use crate::memory::PAGE;
use crate::system;

/// The last copy, of at most N bytes; one of more than a page begins with the page.
pub(crate) struct Window<const N: usize> {
    bytes: [u8; N],
    start: u64,
    len: usize,
}

impl<const N: usize> Window<N> {
    pub(crate) const fn new() -> Window<N> {
        Window { bytes: [0; N], start: 0, len: 0 }
    }

    /// Empties the window, because memory may have changed.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.len = 0;
    }

    /// The bytes from an address on, `least` of them if so many are readable.
    pub(super) fn at(&mut self, address: u64, least: usize) -> Option<&[u8]> {
        let mut from = address.wrapping_sub(self.start) as usize;
        if from >= self.len || (self.len == N && from + least > N) {
            // A page can be read as a whole or not at all.
            from = if N > PAGE { address as usize % PAGE } else { 0 };
            self.start = address - from as u64;
            self.len = system::copy(self.start, &mut self.bytes);
        }
        self.bytes.get(from..self.len).filter(|bytes| !bytes.is_empty())
    }

    /// The word at an address; `None` when it is not readable.
    #[cold]
    #[inline(never)]
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        let bytes = self.at(address, size_of::<u64>())?;
        bytes.first_chunk().map(|word| u64::from_le_bytes(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn mapped_words_are_read_and_unmapped_ones_refused() {
        let words: Box<[AtomicU64]> = (0..100).map(AtomicU64::new).collect();
        let address = |i: usize| ptr::from_ref(&words[i]) as u64;
        let mut window = Window::<256>::new();
        for i in [10, 11, 9, 60, 99, 0] {
            assert_eq!(window.word(address(i)), Some(i as u64));
        }
        for nowhere in [0, 8, 0x10_0000, 1 << 47, 1 << 63, !0 - 8, !0] {
            assert_eq!(window.word(nowhere), None, "{nowhere:#x}");
        }
        assert_eq!(window.word(address(5)), Some(5));
        words[5].store(1, Ordering::Relaxed);
        window.forget();
        assert_eq!(window.word(address(5)), Some(1));
    }
}
