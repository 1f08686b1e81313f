//! How urgent a message is.

/// The urgency of a message: the worker that is free next handles the most urgent message of all, of equally
/// urgent ones the oldest. Levels are -32 to 31; usual messages have 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The number of levels.
    pub(crate) const LEVELS: usize = 64;
    const MIDDLE: i32 = 32;

    /// The priority of this level; what is beyond the least or greatest level counts as that.
    pub fn new(level: i32) -> Self {
        Priority(
            level
                .clamp(-Self::MIDDLE, Self::MIDDLE - 1)
                .wrapping_add(Self::MIDDLE) as u8,
        )
    }

    /// From -32 to 31.
    pub fn level(self) -> i32 {
        i32::from(self.0) - Self::MIDDLE
    }

    /// From 0.
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Default for Priority {
    #[inline]
    fn default() -> Self {
        Priority(Self::MIDDLE as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_kept_within_their_range() {
        assert_eq!(Priority::default(), Priority::new(0));
        for (level, kept) in [(-1000, -32), (-32, -32), (7, 7), (31, 31), (1000, 31)] {
            assert_eq!(Priority::new(level).level(), kept);
        }
        assert!(Priority::new(31).index() < Priority::LEVELS);
        assert!(Priority::new(1) > Priority::default());
    }
}
