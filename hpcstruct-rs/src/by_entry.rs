//! A map from the entries of one unit to values, found by their places rather than by hashing.
//!
//! Invariant: an entry has the value that was set last for it. Entries of other units, and the few that
//! share a slot with another one, are in a map beside.

use crate::dwarf::EntryRef;
use crate::strings::Map;

/// Bytes of a unit that share a slot: most entries of procedures are larger.
const BYTES: usize = 16;

/// Values by entries; the room is reused from unit to unit.
#[derive(Debug)]
pub(crate) struct ByEntry<V> {
    unit: u32,
    /// By place in the unit: the number of a value in `values`, from 1; 0 = none.
    slots: Vec<u32>,
    /// Offsets of entries, and their values.
    values: Vec<(usize, V)>,
    others: Map<EntryRef, V>,
}

impl<V> Default for ByEntry<V> {
    fn default() -> Self {
        ByEntry {
            unit: u32::MAX,
            slots: Vec::new(),
            values: Vec::new(),
            others: Map::default(),
        }
    }
}

impl<V: Copy> ByEntry<V> {
    /// Empties it; most entries to come are of unit `unit`, which has so many bytes.
    pub(crate) fn begin(&mut self, unit: u32, bytes: usize) {
        self.unit = unit;
        self.slots.clear();
        self.slots.resize(bytes / BYTES + 1, 0);
        self.values.clear();
        self.others.clear();
    }

    /// The value of an entry.
    #[inline]
    pub(crate) fn get(&self, entry: EntryRef) -> Option<V> {
        if entry.unit == self.unit {
            let slot = self.slots.get(entry.offset.0 / BYTES).copied();
            match slot.and_then(|number| self.values.get((number as usize).wrapping_sub(1))) {
                Some((offset, value)) if *offset == entry.offset.0 => return Some(*value),
                // The slot is another one's, or there is none for it.
                Some(_) => {}
                None if slot.is_some() => return None,
                None => {}
            }
        }
        self.others.get(&entry).copied()
    }

    /// Sets the value of an entry.
    pub(crate) fn set(&mut self, entry: EntryRef, value: V) {
        if entry.unit == self.unit {
            if let Some(slot) = self.slots.get_mut(entry.offset.0 / BYTES) {
                match self.values.get_mut((*slot as usize).wrapping_sub(1)) {
                    None => {
                        self.values.push((entry.offset.0, value));
                        // A unit has fewer entries than bytes, which are counted in 32 bits or, in a
                        // hostile file, do not fit memory.
                        *slot = self.values.len() as u32;
                        return;
                    }
                    Some((offset, known)) if *offset == entry.offset.0 => {
                        *known = value;
                        return;
                    }
                    Some(_) => {}
                }
            }
        }
        self.others.insert(entry, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use gimli::UnitOffset;
    use std::collections::HashMap;

    #[test]
    fn it_is_a_map() {
        let mut found = ByEntry::default();
        let mut source = Random::new();
        for unit in 0..20 {
            let bytes = source.below(400) as usize;
            found.begin(unit, bytes);
            let mut expected = HashMap::new();
            for turn in 0..300 {
                // At times beyond the unit, at times of another one.
                let entry = EntryRef {
                    unit: if source.below(10) == 0 {
                        unit + 1
                    } else {
                        unit
                    },
                    offset: UnitOffset(source.below(bytes as u64 + 50) as usize),
                };
                assert_eq!(found.get(entry), expected.get(&entry).copied());
                if source.below(3) > 0 {
                    found.set(entry, turn);
                    expected.insert(entry, turn);
                }
            }
            assert!(
                expected
                    .iter()
                    .all(|(entry, value)| found.get(*entry) == Some(*value))
            );
        }
    }
}
