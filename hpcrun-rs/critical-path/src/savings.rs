//! What a path knows of procedures: their time on it, and what zeroing each of them saves.
//!
//! One duty: keep both exact for all procedures at once. Hollingsworth carries the longest path without a
//! selected procedure. Here the *saving* is carried: by how much that path is shorter than the longest one.
//! Time under a procedure then changes the saving of that procedure alone. At a merge of a path of length `a`
//! with one of length `b <= a`, the path without the procedure is the longer of `a - saving_a` and
//! `b - saving_b`, so
//!
//! ```text
//! saving = min(saving_a, a - b + saving_b)
//! ```
//!
//! which is 0 if the procedure does not occur on the longer path. So only procedures on the path need an
//! entry. The same holds if a procedure takes a part of its time, with the saving of that. Their keys are
//! those of messages: a mark of the program is known by a hash of its name, with [`MARK`](hpcrun_abi::MARK),
//! a function by a number below that.

use hpc_formats::critical_path::PARTS;
use hpcrun_abi::Saving;

/// A procedure that [`Tracker::procedure`](crate::Tracker::procedure) has numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Procedure(pub(crate) u32);

/// Procedures that a list has at most; time of further ones is known as that of the path.
const MOST: usize = 1 << 12;

/// Of one procedure, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Times {
    /// Its time on the path.
    pub(crate) on_path: u64,
    /// The path's length less the longest path without the procedure's time.
    pub(crate) saving: u64,
    /// The same if it only takes less time, in [`PARTS`] of a nanosecond: what is asked for adds up exactly.
    pub(crate) faster: u64,
}

impl Times {
    /// A time on the path of which nothing runs beside it, and so many [`PARTS`] of which would be saved.
    pub(crate) fn of(time: u64, saved: u32) -> Times {
        Times { on_path: time, saving: time, faster: time.saturating_mul(saved.into()) }
    }

    /// What is saved if it takes less time, in nanoseconds.
    pub(crate) fn saved_if_faster(self) -> u64 {
        self.faster / u64::from(PARTS)
    }
}

/// Of the procedures with an entry, by their keys.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Savings(Vec<(u64, Times)>);

impl Clone for Savings {
    fn clone(&self) -> Self {
        Savings(self.0.clone())
    }

    #[inline]
    fn clone_from(&mut self, other: &Self) {
        if !(self.is_empty() && other.is_empty()) {
            self.0.clone_from(&other.0);
        }
    }
}

impl Savings {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The path becomes longer by `time` under the procedure.
    #[inline]
    pub(crate) fn add(&mut self, key: u64, times: Times) {
        self.append([(key, times)], u64::MAX);
    }

    /// The path becomes longer, up to this length, by times of procedures, which are in order.
    #[inline]
    pub(crate) fn append(&mut self, other: impl IntoIterator<Item = (u64, Times)>, length: u64) {
        let mut at = 0;
        for (key, new) in other {
            at += self.0[at..].partition_point(|known| known.0 < key);
            if self.0.get(at).is_none_or(|known| known.0 != key) {
                if self.0.len() >= MOST {
                    continue;
                }
                self.0.insert(at, (key, Times::default()));
            }
            let times = &mut self.0[at].1;
            times.on_path += new.on_path;
            times.saving = (times.saving + new.saving).min(length);
            times.faster = times.faster.saturating_add(new.faster).min(parts(length));
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, Times)> {
        self.0.iter().copied()
    }

    /// Merges those of a path that is shorter by `gap`.
    #[inline]
    pub(crate) fn merge(&mut self, shorter: &Savings, gap: u64) {
        let mut least = least(&shorter.0, gap);
        self.0.iter_mut().for_each(|known| (known.1.saving, known.1.faster) = least(known));
    }

    /// Whether a merge with such a path changes something.
    pub(crate) fn are_changed_by(&self, shorter: &Savings, gap: u64) -> bool {
        let mut least = least(&shorter.0, gap);
        self.0.iter().any(|known| least(known) != (known.1.saving, known.1.faster))
    }

    /// Makes these those of a message.
    pub(crate) fn receive(&mut self, savings: &[Saving]) {
        let entry = |new: &Saving| (new.procedure, Times { saving: new.time, ..Times::default() });
        self.0.clear();
        self.0.extend(savings.iter().map(entry));
        self.0.sort_unstable_by_key(|known| known.0);
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The largest saving.
    pub(crate) fn most(&self) -> u64 {
        self.0.iter().map(|known| known.1.saving).max().unwrap_or(0)
    }

    pub(crate) fn get(&self, key: u64) -> Times {
        let found = self.0.binary_search_by_key(&key, |known| known.0);
        found.map_or(Times::default(), |at| self.0[at].1)
    }

    /// For messages, what zeroing saves, if it does.
    #[inline]
    pub(crate) fn send(&self) -> impl Iterator<Item = Saving> {
        let savings = self.0.iter().filter(|known| known.1.saving > 0);
        savings.map(|(key, times)| Saving { procedure: *key, time: times.saving })
    }
}

fn parts(time: u64) -> u64 {
    time.saturating_mul(PARTS.into())
}

/// The savings after a merge with a path that is shorter by `gap`, of procedures in order.
#[inline]
fn least(shorter: &[(u64, Times)], gap: u64) -> impl FnMut(&(u64, Times)) -> (u64, u64) {
    let mut next = 0;
    move |(key, times)| {
        // Mostly both have the same procedures.
        if shorter.get(next).is_some_and(|known| known.0 < *key) {
            next += shorter[next..].partition_point(|known| known.0 < *key);
        }
        let theirs = shorter.get(next).filter(|known| known.0 == *key);
        next += usize::from(theirs.is_some());
        let theirs = theirs.map_or(Times::default(), |known| known.1);
        let faster = parts(gap).saturating_add(theirs.faster);
        (times.saving.min(gap + theirs.saving), times.faster.min(faster))
    }
}
