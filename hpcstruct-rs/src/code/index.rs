//! From an address to the procedure that holds it, in constant time for usual code.
//!
//! Input: procedures whose ranges do not overlap. The space of addresses is cut into buckets that
//! know the first range to look at.

use super::unit::Layout;

/// The index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Sorted.
    parts: Vec<Part>,
    /// For each bucket the first part that ends after the bucket's first address.
    buckets: Vec<u32>,
    /// First address.
    base: u64,
    /// Shift from an offset to its bucket.
    shift: u32,
}

/// A range of a procedure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Part {
    start: u64,
    end: u64,
    procedure: u32,
    /// Whether the procedure is entered at its start.
    is_entered: bool,
}

impl Index {
    /// Over the ranges of all procedures.
    pub(crate) fn new(units: &[Layout]) -> Index {
        let mut parts: Vec<Part> = Vec::with_capacity(units.len());
        for (unit, procedure) in units.iter().zip(0..) {
            parts.extend(unit.ranges.iter().map(|r| Part {
                start: r.start,
                end: r.end,
                procedure,
                is_entered: r.start == unit.entry_address(),
            }));
        }
        // Mostly sorted already, which this sort makes use of.
        parts.sort();
        let base = parts.first().map_or(0, |p| p.start);
        let extent = parts.last().map_or(0, |p| p.end) - base;
        // About four buckets for each part.
        let most = (4 * parts.len() as u64).max(1);
        let mut shift = 0;
        while shift < 63 && extent >> shift > most {
            shift += 1;
        }
        let count = (extent >> shift) as usize + 1;
        let mut buckets = Vec::with_capacity(count);
        let mut part = 0;
        for bucket in 0..count as u64 {
            let start = base + (bucket << shift);
            while parts.get(part).is_some_and(|p| p.end <= start) {
                part += 1;
            }
            buckets.push(part as u32);
        }
        Index {
            parts,
            buckets,
            base,
            shift,
        }
    }

    /// The procedure that is entered at `address`.
    pub(crate) fn entered_at(&self, address: u64) -> Option<u32> {
        let bucket = address.checked_sub(self.base)? >> self.shift;
        let from = *self.buckets.get(usize::try_from(bucket).ok()?)? as usize;
        let parts = &self.parts[from..];
        // Mostly the first or second; hostile inputs may have very many.
        let mut near = parts.iter().take(8);
        let part = match near.find(|p| p.end > address) {
            Some(part) => part,
            None => parts.get(parts.partition_point(|p| p.end <= address))?,
        };
        (part.start == address && part.is_entered).then_some(part.procedure)
    }
}
