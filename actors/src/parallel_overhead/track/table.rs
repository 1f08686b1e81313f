//! What a worker has recorded: one entry for each part of a task that ends with a message or with the task.
//!
//! The entries of all workers are the program activity graph. A worker appends to its own table, everybody
//! may read: an entry is complete before a reference to it leaves the worker. A table is a ring: when it is
//! full, the oldest entries are overwritten, and who follows a reference to one learns so.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The longest chain of activity up to a point: what a message carries. 16 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// Nanoseconds of activity.
    pub(crate) length: u64,
    /// Its last part.
    pub(crate) from: Reference,
}

impl Path {
    /// The longer one first.
    #[inline]
    pub(crate) fn order(self, other: Path) -> (Path, Path) {
        if other.length > self.length {
            (other, self)
        } else {
            (self, other)
        }
    }
}

/// An entry of some worker's table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reference(u64);

const INDEX_BITS: u32 = 48;

impl Reference {
    /// The worker and the entry's number; `None`: where nothing is recorded.
    #[inline]
    pub(crate) fn place(self) -> Option<(usize, u64)> {
        let worker = (self.0 >> INDEX_BITS).checked_sub(1)? as usize;
        Some((worker, self.0 & ((1 << INDEX_BITS) - 1)))
    }
}

/// Whose activity it is: an actor and an entry method; see `names`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct What {
    pub(crate) actor: u64,
    pub(crate) entry: u32,
}

/// What a part depends on by [`Part::before`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Link {
    /// The part before it of the same task.
    #[default]
    Same,
    /// The message that its task handles.
    Message,
    /// The task that its actor ran before.
    Actor,
    /// A path that was merged in the middle of the task.
    Merge,
}

const LINKS: [Link; 4] = [Link::Same, Link::Message, Link::Actor, Link::Merge];

/// A part of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Length of the longest path that ends with it.
    pub(crate) length: u64,
    /// Its own activity.
    pub(crate) time: u64,
    /// The last part of the longest path before it.
    pub(crate) before: Reference,
    /// That of a shorter path which it also depends on.
    pub(crate) other: Reference,
    pub(crate) what: What,
    pub(crate) link: Link,
}

impl Part {
    #[inline]
    fn words(&self) -> [u64; 6] {
        let (What { actor, entry }, link) = (self.what, self.link as u64);
        let last = u64::from(entry) | link << 32;
        let Part { length, time, .. } = *self;
        [length, time, self.before.0, self.other.0, actor, last]
    }

    fn from_words([length, time, before, other, actor, last]: [u64; 6]) -> Self {
        let entry = last as u32;
        Part {
            length,
            time,
            before: Reference(before),
            other: Reference(other),
            what: What { actor, entry },
            link: LINKS[(last >> 32) as usize % LINKS.len()],
        }
    }
}

type Words = [AtomicU64; 6];
const CHUNK: usize = 1 << 10;

/// One worker's table.
pub(crate) struct Table {
    worker: usize,
    chunks: Box<[OnceLock<Box<[Words]>>]>,
    /// Entries so far, also those overwritten.
    next: AtomicU64,
    /// All activity.
    pub(crate) work: AtomicU64,
    /// Messages handled.
    pub(crate) messages: AtomicU64,
    /// Readings of the clock that had to ask the system.
    pub(crate) resyncs: AtomicU64,
    /// The longest path that ends with a task.
    longest: [AtomicU64; 2],
}

impl Table {
    /// A table for so many parts, rounded up to a power of two.
    pub(crate) fn new(worker: usize, capacity: usize) -> Self {
        let chunks = 0..capacity.div_ceil(CHUNK).next_power_of_two();
        Table {
            worker,
            chunks: chunks.map(|_| OnceLock::new()).collect(),
            next: AtomicU64::new(0),
            work: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            resyncs: AtomicU64::new(0),
            longest: Default::default(),
        }
    }

    fn capacity(&self) -> u64 {
        (self.chunks.len() * CHUNK) as u64
    }

    /// Entries so far.
    pub(crate) fn len(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Appends; only the table's worker may.
    #[inline]
    pub(crate) fn push(&self, part: &Part) -> Reference {
        let index = self.next.load(Ordering::Relaxed);
        // A reader of the overwritten entry that sees one of these stores also sees `next` beyond it.
        fence(Ordering::Release);
        for (word, value) in self.slot(index).iter().zip(&part.words()) {
            word.store(*value, Ordering::Relaxed);
        }
        self.next.store(index + 1, Ordering::Release);
        add(&self.work, part.time);
        Reference((self.worker as u64 + 1) << INDEX_BITS | index)
    }

    /// The entry with this number; `None` if it is overwritten.
    pub(crate) fn get(&self, index: u64) -> Option<Part> {
        if index >= self.len() {
            return None;
        }
        let slot = self.slot(index);
        let words = std::array::from_fn(|n| slot[n].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        // The slot is written again as entry `index + capacity`, once that is the next one.
        let is_there = index + self.capacity() > self.next.load(Ordering::Relaxed);
        is_there.then(|| Part::from_words(words))
    }

    /// The oldest entry that is still there.
    pub(crate) fn oldest(&self) -> u64 {
        (self.len() + 1).saturating_sub(self.capacity())
    }

    #[inline]
    fn slot(&self, index: u64) -> &Words {
        let place = index as usize & (self.chunks.len() * CHUNK - 1);
        let new = || (0..CHUNK).map(|_| Words::default()).collect();
        &self.chunks[place / CHUNK].get_or_init(new)[place % CHUNK]
    }

    /// A task has ended.
    #[inline]
    pub(crate) fn end(&self, path: Path) {
        if path.length >= self.longest[0].load(Ordering::Relaxed) {
            self.longest[1].store(path.from.0, Ordering::Relaxed);
            self.longest[0].store(path.length, Ordering::Relaxed);
        }
    }

    /// The longest path that ends with a task of this worker. While it runs, the reference may be that of the
    /// next one.
    pub(crate) fn longest(&self) -> Path {
        let [length, from] = [0, 1].map(|n| self.longest[n].load(Ordering::Relaxed));
        let from = Reference(from);
        Path { length, from }
    }
}

/// Adds to a sum that only the calling worker changes.
#[inline]
pub(crate) fn add(sum: &AtomicU64, value: u64) {
    let new = sum.load(Ordering::Relaxed).wrapping_add(value);
    sum.store(new, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(n: u64) -> Part {
        Part::from_words([n, n, n, n, n, (n % 1000) | ((n % 4) << 32)])
    }

    #[test]
    fn the_newest_entries_are_there() {
        let table = Table::new(5, CHUNK + 1);
        let capacity = 2 * CHUNK as u64;
        for n in 0..5 * capacity / 2 {
            assert_eq!(table.push(&part(n)).place(), Some((5, n)));
            assert_eq!(table.get(n), Some(part(n)));
        }
        let (oldest, len) = (table.oldest(), table.len());
        assert_eq!(len - oldest, capacity - 1);
        assert!((oldest..len).all(|n| table.get(n) == Some(part(n))));
        assert_eq!((table.get(oldest - 1), table.get(len)), (None, None));
        assert_eq!(table.work.load(Ordering::Relaxed), (0..len).sum::<u64>());
    }

    /// A reader beside the writer gets whole entries, or none.
    #[test]
    fn an_overwritten_entry_is_never_mixed_with_another() {
        let table = Table::new(0, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..300_000).for_each(|n| _ = table.push(&part(n))));
            while table.len() < 300_000 {
                for back in [1, 2, 500, 1020, 1023] {
                    let n = table.len().saturating_sub(back);
                    assert!(table.get(n).is_none_or(|found| found == part(n)));
                }
            }
        });
    }
}
