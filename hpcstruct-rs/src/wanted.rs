//! Which addresses are wanted: all, or the sampled ones.

use std::ops::Range;

/// The wanted addresses.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// Every procedure.
    All,
    /// Procedures that hold one of these addresses; sorted.
    Addresses(Vec<u64>),
}

impl Wanted {
    /// From a list in any order; `None` is all.
    pub(crate) fn new(addresses: Option<&[u64]>) -> Wanted {
        match addresses {
            None => Wanted::All,
            Some(list) => {
                let mut list = list.to_vec();
                list.sort_unstable();
                list.dedup();
                Wanted::Addresses(list)
            }
        }
    }

    /// Whether any wanted address lies in `range`.
    pub(crate) fn hits(&self, range: &Range<u64>) -> bool {
        match self {
            Wanted::All => true,
            Wanted::Addresses(list) => list
                .get(list.partition_point(|a| *a < range.start))
                .is_some_and(|a| *a < range.end),
        }
    }

    /// The wanted addresses in `range`; none when all are wanted.
    pub(crate) fn addresses_in(&self, range: &Range<u64>) -> &[u64] {
        let Wanted::Addresses(list) = self else {
            return &[];
        };
        let first = list.partition_point(|a| *a < range.start);
        let end = list.partition_point(|a| *a < range.end);
        list.get(first..end).unwrap_or(&[])
    }

    /// Whether this is [`Wanted::All`].
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Wanted::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_ranges() {
        let wanted = Wanted::new(Some(&[30, 10, 10]));
        assert!(wanted.hits(&(10..11)) && wanted.hits(&(0..11)) && wanted.hits(&(11..31)));
        assert!(!wanted.hits(&(0..10)) && !wanted.hits(&(11..30)) && !wanted.hits(&(31..99)));
        assert_eq!(wanted.addresses_in(&(10..30)), [10]);
        assert_eq!(wanted.addresses_in(&(11..31)), [30]);
        assert!(wanted.addresses_in(&(31..u64::MAX)).is_empty());
        assert!(Wanted::new(None).hits(&(0..1)));
        assert!(!Wanted::new(Some(&[])).hits(&(0..u64::MAX)));
    }
}
