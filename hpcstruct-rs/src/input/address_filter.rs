//! Which addresses are wanted: all, or the sampled ones.

use std::ops::Range;

/// Procedures that hold one of these addresses, sorted; `None`: every procedure.
#[derive(Clone, Debug)]
pub(crate) struct AddressFilter(Option<Vec<u64>>);

impl AddressFilter {
    /// From a list in any order; `None` is all.
    pub(crate) fn new(addresses: Option<&[u64]>) -> AddressFilter {
        let mut addresses = addresses.map(<[u64]>::to_vec);
        if let Some(list) = &mut addresses {
            list.sort_unstable();
            list.dedup();
        }
        AddressFilter(addresses)
    }

    /// Whether any wanted address lies in `range`.
    pub(crate) fn hits(&self, range: &Range<u64>) -> bool {
        self.is_all() || !self.addresses_in(range).is_empty()
    }

    /// The wanted addresses in `range`; none when all are wanted.
    pub(crate) fn addresses_in(&self, range: &Range<u64>) -> &[u64] {
        let list = self.0.as_deref().unwrap_or(&[]);
        let rest = &list[list.partition_point(|a| *a < range.start)..];
        &rest[..rest.partition_point(|a| *a < range.end)]
    }

    /// Whether every procedure is wanted.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_none()
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
