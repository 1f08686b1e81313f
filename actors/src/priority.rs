//! How urgent a message is.

/// The urgency of a message: the worker that is free next handles the most urgent message of all, of equally
/// urgent ones the oldest. Levels are -32 to 31; usual messages have 0.
///
/// ```
/// use work_stealing_actors::Priority;
///
/// assert!(Priority::new(1) > Priority::default());
/// assert_eq!(Priority::new(-1000).level(), -32);
/// ```
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

    /// From -32 to 31.
    pub fn level(self) -> i32 {
        self.0.into()
    }

    /// From 0.
    #[inline]
    pub(crate) fn index(self) -> usize {
        (self.level() - Self::LEAST) as usize
    }
}
