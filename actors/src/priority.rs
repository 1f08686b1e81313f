//! How urgent a message is.

/// The urgency of a message: the worker that is free next handles the most urgent message of all, of equally
/// urgent ones the oldest. Levels are -32 to 31; usual messages have 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i8);

impl Priority {
    const LEAST: i32 = -32;
    /// The number of levels.
    pub(crate) const LEVELS: usize = 64;

    /// The priority of this level; what is beyond the least or greatest level counts as that.
    pub fn new(level: i32) -> Self {
        Priority(level.clamp(Self::LEAST, Self::LEAST + Self::LEVELS as i32 - 1) as i8)
    }

    /// From 0.
    #[inline]
    pub(crate) fn index(self) -> usize {
        (i32::from(self.0) - Self::LEAST) as usize
    }
}
