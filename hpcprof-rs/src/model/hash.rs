//! Hash tables with a fast, fixed hash function. Their order is never used for output.
//!
//! Look-ups of small integer keys are most of the merge's time.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::{BuildHasher as _, Hash};

pub type FastMap<K, V> = std::collections::HashMap<K, V, FixedState>;
pub type FastSet<K> = std::collections::HashSet<K, FixedState>;
/// A set whose elements have numbers, in the order in which they were added.
pub type NumberedSet<K> = indexmap::IndexSet<K, FixedState>;
/// A map whose entries have numbers, in the order in which they were added.
pub type NumberedMap<K, V> = indexmap::IndexMap<K, V, FixedState>;

/// A set of small keys that have numbers, in the order in which they were added. It keeps no hashes, so it
/// takes half the memory of a [`NumberedSet`].
#[derive(Debug, Default)]
pub struct DenseSet<K> {
    numbers: HashTable<u32>,
    keys: Vec<K>,
}

fn hash(key: &impl Hash) -> u64 {
    FixedState::default().hash_one(key)
}

impl<K: Copy + Eq + Hash> DenseSet<K> {
    /// The number of a key, which is added if absent.
    pub fn insert(&mut self, key: K) -> u32 {
        let DenseSet { numbers, keys } = self;
        let is_it = |number: &u32| keys[*number as usize] == key;
        let of = |number: &u32| hash(&keys[*number as usize]);
        let entry = numbers.entry(hash(&key), is_it, of);
        let add = || {
            keys.push(key);
            keys.len() as u32 - 1
        };
        *entry.or_insert_with(add).get()
    }

    pub fn find(&self, key: &K) -> Option<u32> {
        let is_it = |number: &u32| self.keys[*number as usize] == *key;
        self.numbers.find(hash(key), is_it).copied()
    }

    /// All keys, by number.
    pub fn keys(&self) -> &[K] {
        &self.keys
    }
}
