//! What a worker has recorded: one entry for each part of a task that ends with a message or with the task.
//!
//! The entries of all workers are the program activity graph. A worker appends to its own table, everybody
//! may read: an entry is complete before a reference to it leaves the worker. A table is a ring: when it is
//! full, the oldest entries are overwritten, and who follows a reference to one learns so.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use critical_path::Edge;
use hpcrun_api::Strand;

/// The longest chain of activity up to a point: what a message carries. 16 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// Nanoseconds of activity.
    pub(crate) length: u64,
    /// Its last part.
    pub(crate) from: Reference,
}

/// The end of a task, for whoever depends on it: the longest path to it, and the profiler's.
#[derive(Debug, Default)]
pub(crate) struct Ended(pub(crate) Path, pub(crate) Option<Strand>);

impl Ended {
    /// The same end once more.
    pub(crate) fn share(&self) -> Self {
        Ended(self.0, self.1.as_ref().and_then(Strand::share))
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

/// A part of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// The longest path that it depends on.
    pub(crate) begin: Path,
    /// Its own activity.
    pub(crate) time: u64,
    /// The last part of a shorter path which it also depends on.
    pub(crate) other: Reference,
    pub(crate) what: What,
    /// What it depends on by `begin`: the message that its task handles, the task that its actor ran before
    /// (a lock), or a path that was merged (a join). `None`: the part before it of the same task.
    pub(crate) edge: Option<Edge>,
}

impl Part {
    /// Whether it is the first of its task.
    pub(crate) fn is_first(&self) -> bool {
        matches!(self.edge, Some(Edge::Message | Edge::Lock))
    }

    /// The length of the longest path that ends with it.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        self.begin.length + self.time
    }
}

type Words = [AtomicU64; 6];
const CHUNK: usize = 1 << 10;
type Chunk = Box<[Words; CHUNK]>;

/// One worker's table, and its sums, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Table {
    /// The reference to its first entry.
    first: u64,
    chunks: Box<[OnceLock<Chunk>]>,
    /// Entries so far, also those overwritten.
    next: AtomicU64,
    /// All activity.
    pub(crate) work: AtomicU64,
    /// Messages handled.
    pub(crate) messages: AtomicU64,
    /// Readings of the clock that had to ask the system.
    pub(crate) resyncs: AtomicU64,
}

impl Table {
    /// A table for so many parts, rounded up to a power of two.
    pub(crate) fn new(worker: usize, capacity: usize) -> Self {
        let chunks = 0..capacity.div_ceil(CHUNK).next_power_of_two();
        Table {
            first: (worker as u64 + 1) << INDEX_BITS,
            chunks: chunks.map(|_| OnceLock::new()).collect(),
            ..Table::default()
        }
    }

    fn capacity(&self) -> u64 {
        (self.chunks.len() * CHUNK) as u64
    }

    /// Entries so far.
    pub(crate) fn len(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Appends; only the table's worker may. Returns the longest path that ends with the part.
    #[inline]
    pub(crate) fn push(&self, part: &Part) -> Path {
        let index = self.next.load(Ordering::Relaxed);
        // A reader of the overwritten entry that sees one of these stores also sees `next` beyond it.
        fence(Ordering::Release);
        let (begin, time, last) = (part.begin, part.time, u64::from(part.what.entry));
        let (actor, last) = (part.what.actor, last | number(part.edge) << 32);
        let words = [begin.length, begin.from.0, time, part.other.0, actor, last];
        for (word, value) in self.slot(index).iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.next.store(index + 1, Ordering::Release);
        add(&self.work, time);
        Path { length: part.length(), from: Reference(self.first | index) }
    }

    /// The entry with this number, which has been appended; `None` if it is overwritten.
    fn get(&self, index: u64) -> Option<Part> {
        let slot = self.slot(index);
        let words: [u64; 6] = std::array::from_fn(|n| slot[n].load(Ordering::Relaxed));
        let [length, from, time, other, actor, last] = words;
        fence(Ordering::Acquire);
        // The slot is written again as entry `index + capacity`, once that is the next one.
        let is_there = index + self.capacity() > self.next.load(Ordering::Relaxed);
        let (from, other, entry) = (Reference(from), Reference(other), last as u32);
        is_there.then_some(Part {
            begin: Path { length, from },
            time,
            other,
            what: What { actor, entry },
            edge: Edge::from_number((last >> 32) as u32),
        })
    }

    /// The entries from this number on that are still there, and the number of the first of them.
    pub(crate) fn since(&self, first: u64) -> (u64, Vec<Part>) {
        let (len, mut parts) = (self.len(), Vec::new());
        for index in first.max((len + 1).saturating_sub(self.capacity()))..len {
            match self.get(index) {
                Some(part) => parts.push(part),
                None => parts.clear(),
            }
        }
        (len - parts.len() as u64, parts)
    }

    #[inline]
    fn slot(&self, index: u64) -> &Words {
        let (chunk, place) = (index as usize / CHUNK, index as usize % CHUNK);
        // As many as a power of two.
        let chunk = &self.chunks[chunk & (self.chunks.len() - 1)];
        &chunk.get_or_init(new_chunk)[place]
    }
}

/// As it is recorded.
#[inline]
fn number(edge: Option<Edge>) -> u64 {
    edge.map_or(u64::from(u8::MAX), |edge| edge as u64)
}

#[cold]
fn new_chunk() -> Chunk {
    let words: Box<[Words]> = (0..CHUNK).map(|_| Words::default()).collect();
    words.try_into().expect("so many")
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
        let (length, time, from, actor, entry) = (n, n, Reference(n), n, n as u32 % 1000);
        Part {
            begin: Path { length, from },
            time,
            other: from,
            what: What { actor, entry },
            edge: Edge::from_number(n as u32 % 11),
        }
    }

    /// A reader beside the writer gets the newest entries, whole ones.
    #[test]
    fn an_overwritten_entry_is_never_mixed_with_another() {
        const ALL: u64 = 300_000;
        let table = Table::new(5, 1);
        std::thread::scope(|scope| {
            let push = |n| assert_eq!(table.push(&part(n)).from.place(), Some((5, n)));
            scope.spawn(move || (0..ALL).for_each(push));
            while table.len() < ALL {
                let (first, parts) = table.since(0);
                assert!((first..).zip(parts).all(|(n, found)| found == part(n)));
            }
        });
        let (first, parts) = table.since(0);
        assert_eq!((first + parts.len() as u64, parts.len()), (ALL, CHUNK - 1));
        assert_eq!(table.work.load(Ordering::Relaxed), (0..ALL).sum::<u64>());
    }
}
