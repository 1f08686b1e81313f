//! Numbers for tests that try many inputs: the same in every run.

/// A xorshift generator (Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8(14), 2003).
pub(crate) struct Random(u64);

impl Random {
    /// At its beginning.
    pub(crate) fn new() -> Random {
        Random(0x2545_f491_4f6c_dd1d)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
