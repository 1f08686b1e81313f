//! Finds a node by the hash of its path: an open-addressed table of hashes and record indices. It holds only
//! nodes that do not directly follow their parents; `tree` finds the others without it.
//!
//! A slot holds hash and index, so a search reads a record only if its hash matches, and growing the table
//! reads none. A hash does not depend on the position of a record, so the slots of all notes of a path can be
//! prefetched at once. After a signal the caches are cold, so this saves most of the time.
//!
//! Invariant: at least one slot is empty, so every search ends. Async-signal-safe.

use crate::arch::prefetch;
use crate::memory;
use std::ptr::NonNull;

/// Initial number of slots; a power of two.
const FIRST_SLOTS: usize = 1 << 11;

pub(super) struct Index {
    /// Hash in the upper half, record index in the lower half; 0 if empty (record 0, the root, is never in
    /// the table).
    slots: NonNull<u64>,
    mask: usize,
    used: usize,
}

/// An empty slot, where a missing record can be put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Vacant(usize);

impl Index {
    pub(super) fn map() -> Option<Index> {
        Some(Index::of(memory::map_anonymous(FIRST_SLOTS * 8)?, FIRST_SLOTS))
    }

    /// The table in a zeroed mapping of so many slots.
    fn of(mapping: NonNull<u8>, slots: usize) -> Index {
        Index { slots: mapping.cast(), mask: slots - 1, used: 0 }
    }

    #[inline]
    fn get(&self, slot: usize) -> (u32, u32) {
        // SAFETY: the mask keeps the index below the `mask + 1` slots of the mapping; any bits are a valid
        // slot.
        let value = unsafe { self.slots.add(slot & self.mask).read() };
        ((value >> 32) as u32, value as u32)
    }

    #[inline]
    fn set(&mut self, slot: usize, hash: u32, record: u32) {
        let value = u64::from(hash) << 32 | u64::from(record);
        // SAFETY: as in `get`; the table owns the mapping.
        unsafe { self.slots.add(slot & self.mask).write(value) };
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        // SAFETY: within the mapping, as in `get`.
        let slot = unsafe { self.slots.add(hash as usize & self.mask) };
        prefetch(slot.as_ptr().cast());
    }

    /// The record in the first slot of a hash, if the hash matches.
    #[inline]
    pub(super) fn likely(&self, hash: u32) -> Option<u32> {
        let (other, record) = self.get(hash as usize);
        (other == hash && record != 0).then_some(record)
    }

    /// Finds the record with this hash for which `is_it` holds, or the slot for it.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Result<u32, Vacant> {
        let mut slot = hash as usize;
        loop {
            let (other, record) = self.get(slot);
            if record == 0 {
                return Err(Vacant(slot));
            }
            if other == hash && is_it(record) {
                return Ok(record);
            }
            slot += 1;
        }
    }

    /// Whether the table is empty; its memory need not be touched then.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether there is no room for another record: the table is full and could not grow.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.used >= self.mask
    }

    /// Puts a record (not 0) into the slot that [`Index::find`] has just returned for its hash. There must be
    /// room.
    #[inline]
    pub(super) fn put(&mut self, vacant: Vacant, hash: u32, record: u32) {
        debug_assert!(record != 0 && !self.is_full());
        self.set(vacant.0, hash, record);
        self.used += 1;
        if self.used > (self.mask + 1) / 8 * 5 {
            self.grow();
        }
    }

    /// Doubles the table. If that fails, the old one is used until it is full.
    #[cold]
    fn grow(&mut self) {
        let slots = (self.mask + 1) * 2;
        let Some(mapping) = memory::map_populated(slots * 8) else {
            return;
        };
        let mut larger = Index::of(mapping, slots);
        for slot in 0..=self.mask {
            let (hash, record) = self.get(slot);
            if record != 0 {
                let mut at = hash as usize;
                while larger.get(at).1 != 0 {
                    at += 1;
                }
                larger.set(at, hash, record);
            }
        }
        larger.used = self.used;
        *self = larger;
    }

    /// Whether the table has never grown.
    pub(super) fn is_small(&self) -> bool {
        self.mask < FIRST_SLOTS
    }

    pub(super) fn clear(&mut self) {
        if self.used > 0 {
            // SAFETY: the mapping has `mask + 1` slots; all bits zero are an empty slot.
            unsafe { self.slots.write_bytes(0, self.mask + 1) };
            self.used = 0;
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // SAFETY: the table owns the mapping, which has this length; nothing else points into it.
        unsafe { memory::unmap(self.slots.cast(), (self.mask + 1) * 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Different hashes that share a slot, and equal hashes.
    #[test]
    fn every_record_is_found_again_whatever_the_hashes() {
        let mut index = Index::map().unwrap();
        let hash_of = |record: u32| match record % 3 {
            0 => 7,
            1 => record.wrapping_mul(0x9e37_79b9),
            _ => record << 20,
        };
        for record in 1..5_000 {
            let vacant = index.find(hash_of(record), |r| r == record).unwrap_err();
            index.put(vacant, hash_of(record), record);
        }
        assert!(index.mask + 1 >= 8_192, "it has grown");
        for record in 1..5_000 {
            assert_eq!(index.find(hash_of(record), |r| r == record), Ok(record));
            assert!(index.find(hash_of(record), |_| false).is_err());
        }
        assert_eq!(index.likely(hash_of(4)), Some(4));
        assert_eq!(index.likely(12_345), None);
    }
}
