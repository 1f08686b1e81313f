//! Which addresses are wanted: all, or the sampled ones.

use std::ops::Range;

#[derive(Clone, Debug)]
pub(crate) enum AddressFilter {
    /// Every procedure.
    All,
    /// Procedures that hold one of these addresses; sorted.
    Addresses(Vec<u64>),
}

impl AddressFilter {
    /// From a list in any order; `None` is all.
    pub(crate) fn new(addresses: Option<&[u64]>) -> AddressFilter {
        match addresses {
            None => AddressFilter::All,
            Some(list) => {
                let mut list = list.to_vec();
                list.sort_unstable();
                list.dedup();
                AddressFilter::Addresses(list)
            }
        }
    }

    /// Whether any wanted address lies in `range`.
    pub(crate) fn hits(&self, range: &Range<u64>) -> bool {
        match self {
            AddressFilter::All => true,
            AddressFilter::Addresses(list) => {
                list.get(list.partition_point(|a| *a < range.start)).is_some_and(|a| *a < range.end)
            }
        }
    }

    /// The wanted addresses in `range`; none when all are wanted.
    pub(crate) fn addresses_in(&self, range: &Range<u64>) -> &[u64] {
        let AddressFilter::Addresses(list) = self else {
            return &[];
        };
        let first = list.partition_point(|a| *a < range.start);
        let end = list.partition_point(|a| *a < range.end);
        list.get(first..end).unwrap_or(&[])
    }

    /// Whether this is [`AddressFilter::All`].
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, AddressFilter::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_open_ranges() {
        let wanted = AddressFilter::new(Some(&[30, 10, 10]));
        assert!(wanted.hits(&(10..11)) && wanted.hits(&(0..11)) && wanted.hits(&(11..31)));
        assert!(!wanted.hits(&(0..10)) && !wanted.hits(&(11..30)) && !wanted.hits(&(31..99)));
        assert_eq!(wanted.addresses_in(&(10..30)), [10]);
        assert_eq!(wanted.addresses_in(&(11..31)), [30]);
        assert!(wanted.addresses_in(&(31..u64::MAX)).is_empty());
        assert!(AddressFilter::new(None).hits(&(0..1)));
        assert!(!AddressFilter::new(Some(&[])).hits(&(0..u64::MAX)));
    }
}
