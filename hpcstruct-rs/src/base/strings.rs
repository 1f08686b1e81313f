//! Tables of distinct strings: one that all threads of an analysis share, and its order in a
//! structure file.
//!
//! Invariant: ids of the shared table depend on the order in which threads ask and never reach a
//! file; [`Numbering`] gives the final ones.

use crate::base::parallel;
use hashbrown::HashTable;
use hpc_formats::structure::{SourceLine, StringId};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Hashing of keys that a file may choose: fast, and seeded at random.
pub(crate) type Hasher = foldhash::fast::RandomState;

/// A map with keys of a file.
pub(crate) type Map<K, V> = HashMap<K, V, Hasher>;

/// Parts of a shared table, each with a lock of its own.
const SHARDS: usize = 32;

/// A map that threads share; a value, once there, never changes.
#[derive(Debug)]
pub(crate) struct SharedMap<K, V> {
    hasher: Hasher,
    shards: [Mutex<HashTable<(K, V)>>; SHARDS],
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        SharedMap { hasher: Hasher::default(), shards: std::array::from_fn(|_| Mutex::new(HashTable::new())) }
    }
}

/// A lock whose holder panicked guards a table that is still whole: entries are added by one
/// call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shard_of(hash: u64) -> usize {
    // The maps use the low and the highest bits themselves.
    (hash >> 40) as usize % SHARDS
}

impl<K: Hash + Eq, V: Clone> SharedMap<K, V> {
    /// The value of `key`, computed by `make` on the first request. `make` runs without the
    /// lock; of two threads that compute at once the first one's value stays.
    pub(crate) fn get_or<Q>(&self, key: &Q, make: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let shard = &self.shards[shard_of(hash)];
        let is_it = |known: &(K, V)| known.0.borrow() == key;
        if let Some((_, known)) = lock(shard).find(hash, is_it) {
            return known.clone();
        }
        let made = make();
        let mut shard = lock(shard);
        if let Some((_, known)) = shard.find(hash, is_it) {
            return known.clone();
        }
        let rehash = |known: &(K, V)| self.hasher.hash_one(known.0.borrow());
        shard.insert_unique(hash, (key.to_owned(), made.clone()), rehash);
        made
    }
}

/// Distinct strings, shared by threads.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    hasher: Hasher,
    shards: [Mutex<Shard>; SHARDS],
}

/// Strings lie behind one another, so that most cost no allocation.
#[derive(Debug, Default)]
struct Shard {
    /// Numbers of strings in this shard, by their hash.
    numbers: HashTable<u32>,
    text: String,
    /// Ends of the strings in `text`.
    ends: Vec<usize>,
    hashes: Vec<u64>,
}

impl Shard {
    fn text(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[number]]
    }
}

impl Interner {
    /// The id of `text`, new or known.
    pub(crate) fn id(&self, text: &str) -> StringId {
        let hash = self.hasher.hash_one(text);
        let place = shard_of(hash);
        let mut guard = lock(&self.shards[place]);
        let shard = &mut *guard;
        let is_it = |n: &u32| shard.hashes[*n as usize] == hash && shard.text(*n) == text;
        let number = match shard.numbers.find(hash, is_it) {
            Some(number) => *number,
            None => {
                // A table of four billion strings fits neither the file format nor memory.
                let number = shard.ends.len() as u32;
                shard.text.push_str(text);
                shard.ends.push(shard.text.len());
                shard.hashes.push(hash);
                let hashes = &shard.hashes;
                let rehash = |n: &u32| hashes[*n as usize];
                shard.numbers.insert_unique(hash, number, rehash);
                number
            }
        };
        StringId(number * SHARDS as u32 + place as u32)
    }

    /// Larger than every id so far.
    fn end(&self) -> usize {
        let longest = self.shards.iter().map(|s| lock(s).ends.len()).max();
        longest.unwrap_or(0) * SHARDS
    }

    /// Hands the text of an id of this table to `take`; an id of no table has an empty text.
    pub(crate) fn with<T>(&self, id: StringId, take: impl FnOnce(&str) -> T) -> T {
        let id = id.0 as usize;
        let shard = lock(&self.shards[id % SHARDS]);
        let number = id / SHARDS;
        take(if number < shard.ends.len() { shard.text(number as u32) } else { "" })
    }
}

/// Notes which strings of a shared table a group of procedures uses; reused from group to group.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// By shared id, whether this group has it: the number of the group.
    seen: Vec<u32>,
    group: u32,
    list: Vec<StringId>,
}

impl Uses {
    pub(crate) fn add(&mut self, id: StringId) {
        let at = id.0 as usize;
        match self.seen.get_mut(at) {
            Some(seen) if *seen == self.group + 1 => return,
            Some(seen) => *seen = self.group + 1,
            None => {
                self.seen.resize((at + 1).max(self.seen.len() * 2), 0);
                self.seen[at] = self.group + 1;
            }
        }
        self.list.push(id);
    }

    /// Notes the file of a line.
    pub(crate) fn add_line(&mut self, line: Option<SourceLine>) {
        line.into_iter().for_each(|l| self.add(l.file));
    }

    /// The strings of the group, in the order of their first use; the next group begins.
    pub(crate) fn take(&mut self) -> Vec<StringId> {
        self.group += 1;
        std::mem::take(&mut self.list)
    }
}

/// Final numbers of strings: in the order of their first use.
#[derive(Debug)]
pub(crate) struct Numbering {
    /// By shared id.
    to: Vec<StringId>,
    pub(crate) texts: Vec<String>,
}

impl Numbering {
    /// Of strings of `table` that are used in this order.
    pub(crate) fn new<'u>(
        table: Interner,
        uses: impl Iterator<Item = &'u [StringId]>,
        threads: usize,
    ) -> Self {
        const NONE: StringId = StringId(u32::MAX);
        let mut to = vec![NONE; table.end()];
        let mut order = Vec::new();
        for id in uses.flatten() {
            if let Some(number @ &mut NONE) = to.get_mut(id.0 as usize) {
                *number = StringId(order.len() as u32);
                order.push(*id);
            }
        }
        // The table is complete: no locks.
        let shards = table.shards.into_iter();
        let shards = shards.map(|s| s.into_inner().unwrap_or_else(PoisonError::into_inner));
        let shards: Vec<Shard> = shards.collect();
        const CHUNK: usize = 1 << 12;
        let texts = parallel::run_in_chunks(order.len(), CHUNK, threads, |n| {
            let id = order[n].0 as usize;
            shards[id % SHARDS].text((id / SHARDS) as u32).to_owned()
        });
        Numbering { to, texts }
    }

    /// The final number of a string that is used.
    pub(crate) fn id(&self, shared: StringId) -> StringId {
        self.to.get(shared.0 as usize).copied().unwrap_or(shared)
    }

    /// A line with the final number of its file.
    pub(crate) fn line(&self, line: Option<SourceLine>) -> Option<SourceLine> {
        line.map(|l| SourceLine { file: self.id(l.file), line: l.line })
    }
}
