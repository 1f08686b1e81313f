//! Numbers by pairs of numbers: a map that is emptied at once, as it is for every procedure.
//!
//! Invariant: a pair has the number that was set for it since the map was last emptied. What it costs to
//! find one does not depend on how many there were before.

use crate::strings::Hasher;
use std::hash::BuildHasher as _;

/// The map; pairs are a scope, if any, and a loop.
#[derive(Debug)]
pub(super) struct Numbers {
    /// None or a power of two, at least twice as many as are used.
    slots: Vec<Slot>,
    used: usize,
    /// Slots of other turns are free.
    turn: u32,
    /// Odd, and different in every run: a file cannot choose pairs that collide.
    factor: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    pair: u64,
    number: u32,
    turn: u32,
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers {
            slots: Vec::new(),
            used: 0,
            turn: 1,
            factor: Hasher::default().hash_one(0) | 1,
        }
    }
}

fn pair(scope: Option<u32>, inner: u32) -> u64 {
    // Scopes are fewer than numbers of 32 bits.
    let scope = scope.map_or(0, |s| u64::from(s) + 1);
    scope << 32 | u64::from(inner)
}

impl Numbers {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.turn = self.turn.wrapping_add(1);
        if self.turn == 0 {
            // Slots of long ago would be of this turn.
            self.slots.fill(Slot::default());
            self.turn = 1;
        }
    }

    /// The number of a scope and a loop.
    #[inline]
    pub(super) fn get(&self, scope: Option<u32>, inner: u32) -> Option<u32> {
        if self.used == 0 {
            return None;
        }
        let slot = &self.slots[self.find(pair(scope, inner))];
        (slot.turn == self.turn).then_some(slot.number)
    }

    /// Sets it.
    pub(super) fn set(&mut self, scope: Option<u32>, inner: u32, number: u32) {
        if 2 * (self.used + 1) > self.slots.len() {
            self.grow();
        }
        let at = self.find(pair(scope, inner));
        self.used += usize::from(self.slots[at].turn != self.turn);
        self.slots[at] = Slot {
            pair: pair(scope, inner),
            number,
            turn: self.turn,
        };
    }

    /// The slot of a pair, or the free one for it; half of the slots are free.
    #[inline]
    fn find(&self, pair: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (pair.wrapping_mul(self.factor) >> 32) as usize & mask;
        while self.slots[at].turn == self.turn && self.slots[at].pair != pair {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        const FIRST: usize = 64;
        let room = vec![Slot::default(); (2 * self.slots.len()).max(FIRST)];
        let before = std::mem::replace(&mut self.slots, room);
        for slot in before.into_iter().filter(|s| s.turn == self.turn) {
            let at = self.find(slot.pair);
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::HashMap;

    #[test]
    fn it_is_a_map() {
        let mut found = Numbers::default();
        let mut source = Random::new();
        for turn in [1, 2, 3, u32::MAX - 1] {
            found.turn = found.turn.max(turn);
            found.clear();
            let mut expected = HashMap::new();
            for number in 0..500 {
                let scope = source.below(40).checked_sub(1).map(|s| s as u32);
                let inner = source.below(20) as u32;
                assert_eq!(
                    found.get(scope, inner),
                    expected.get(&(scope, inner)).copied()
                );
                if source.below(3) > 0 {
                    found.set(scope, inner, number);
                    expected.insert((scope, inner), number);
                }
            }
            assert!(!expected.is_empty());
            for ((scope, inner), number) in expected {
                assert_eq!(found.get(scope, inner), Some(number));
            }
        }
        found.clear();
        assert_eq!((found.turn, found.get(None, 0)), (1, None));
        found.set(None, 0, 7);
        assert_eq!(found.get(None, 0), Some(7));
    }
}
