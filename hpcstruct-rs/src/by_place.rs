//! Values by the places of names in the debug information, shared by threads without locks: the units
//! of a program name the same procedures again and again.
//!
//! Input: places, and what computes a value, which is the same for a place in whatever thread. Invariant: a
//! value, once there, never changes. What finds no room here is in a map with locks.

use crate::strings::{Hasher, SharedMap};
use std::hash::BuildHasher as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Values that get their room at once.
const CHUNK: usize = 1 << 10;

/// A map from places to values.
#[derive(Debug)]
pub(crate) struct ByPlace<V> {
    /// At least twice as many as values, so that a search ends. In the upper half the place plus one, in the
    /// lower the number of the value; 0 = free.
    slots: Vec<AtomicU64>,
    /// Odd, and different in every run: a file cannot choose places that collide.
    factor: u64,
    /// Values by number.
    chunks: Vec<OnceLock<Vec<OnceLock<V>>>>,
    /// Numbers that were given away.
    count: AtomicUsize,
    others: SharedMap<usize, V>,
}

impl<V: Copy> ByPlace<V> {
    /// With room for about so many places.
    pub(crate) fn with_room(places: usize) -> Self {
        /// Whatever the file, slots take 16 MiB at most.
        const MOST: usize = 1 << 10;
        let chunks = places.div_ceil(CHUNK).clamp(1, MOST);
        let slots = (2 * chunks * CHUNK).next_power_of_two();
        ByPlace {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            factor: Hasher::default().hash_one(0) | 1,
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
            count: AtomicUsize::new(0),
            others: SharedMap::default(),
        }
    }

    /// The value of `place`, computed by `make` when nobody asked before; two threads may compute it at once.
    #[inline]
    pub(crate) fn get_or(&self, place: usize, make: impl FnOnce() -> V) -> V {
        let key = u32::try_from(place).ok().and_then(|p| p.checked_add(1));
        let Some(key) = key else {
            return self.others.get_or(&place, make);
        };
        let free = match self.find(key, self.first(key)) {
            Ok(value) => return value,
            Err(free) => free,
        };
        // Relaxed: the counter hands out numbers and publishes nothing.
        if self.count.load(Ordering::Relaxed) >= self.chunks.len() * CHUNK {
            return self.others.get_or(&place, make);
        }
        let made = make();
        self.insert(key, made, free)
    }

    /// Where the search for a place begins.
    fn first(&self, key: u32) -> usize {
        (u64::from(key).wrapping_mul(self.factor) >> 32) as usize & (self.slots.len() - 1)
    }

    fn next(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// The value of a place, or the free slot where the search for it ended, which begins at `at`.
    #[inline]
    fn find(&self, key: u32, mut at: usize) -> Result<V, usize> {
        loop {
            // Acquire: a value is in its place before its slot is filled.
            let slot = self.slots[at].load(Ordering::Acquire);
            if (slot >> 32) as u32 == key {
                if let Some(value) = self.value(slot as u32 as usize) {
                    return Ok(value);
                }
            } else if slot == 0 {
                return Err(at);
            }
            at = self.next(at);
        }
    }

    /// Puts a value where the search for its place ended, or behind it, unless another thread did.
    fn insert(&self, key: u32, value: V, mut free: usize) -> V {
        let Some(number) = self.keep(value) else {
            // The last numbers were given to others meanwhile.
            return self.others.get_or(&(key as usize - 1), || value);
        };
        let filled = u64::from(key) << 32 | number;
        loop {
            let slot = &self.slots[free];
            // Release: see `find`.
            match slot.compare_exchange(0, filled, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return value,
                Err(_) => match self.find(key, free) {
                    Ok(first) => return first,
                    Err(next) => free = next,
                },
            }
        }
    }

    /// Keeps a value under a new number; `None` when there is no room.
    fn keep(&self, value: V) -> Option<u64> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let chunk = self.chunks.get(number / CHUNK)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        // Nobody else has this number.
        chunk.get(number % CHUNK)?.set(value).ok()?;
        Some(number as u64)
    }

    fn value(&self, number: usize) -> Option<V> {
        let chunk = self.chunks.get(number / CHUNK)?.get()?;
        chunk.get(number % CHUNK)?.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_again_in_whatever_thread() {
        // More places than there is room for, and some that are too far.
        let places = |i: usize| {
            if i % 9 == 0 {
                i << 40 | 7
            } else {
                i % 2500 * 24
            }
        };
        for rooms in [0, 2000, 9000] {
            let map = ByPlace::with_room(rooms);
            let all =
                || (0..6000).all(|i| map.get_or(places(i), || places(i) * 10) == places(i) * 10);
            let (here, there) = std::thread::scope(|scope| {
                let other = scope.spawn(all);
                (all(), other.join().expect("no panic"))
            });
            assert!(here && there);
            for i in 0..6000 {
                let known = map.get_or(places(i), || panic!("place {} is forgotten", places(i)));
                assert_eq!(known, places(i) * 10);
            }
        }
    }
}
