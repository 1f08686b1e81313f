//! Lock waiting: who waits for which lock, and for how long the lock's holder has made them wait.
//!
//! A thread that blocks on a lock is counted in the lock's entry. A thread that releases the lock takes the
//! waiting so far, of all waiters, and charges its own context with it (Tallent, Mellor-Crummey and
//! Porterfield, *Analyzing Lock Contention in Multithreaded Applications*, PPoPP 2010, shift blame likewise,
//! by samples). Waiting is measured by the monotonic clock, so its sum is exact:
//!
//! | waiting | goes to |
//! |---|---|
//! | up to a release | the context that releases |
//! | from the last release until a waiter has the lock | nobody: the lock was free |
//! | for a lock that is never released, or whose release was not seen | nobody |
//! | of threads without a state, or beyond the table's limits | nobody |
//!
//! What goes to nobody is [`unknown_ns`]. Several readers may hold a read-write lock: the first one that
//! releases it takes the waiting so far.
//!
//! Entries are never given up, so an address keeps its entry. Async-signal-safe.

use crate::image;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Locks that threads can have waited for.
const ENTRIES: usize = 1 << 14;
/// Entries that are searched for an address.
const PROBES: usize = 32;
/// Bits of the number of waiters in an entry's state.
const COUNT_BITS: u32 = 12;
const MOST_WAITERS: u64 = (1 << COUNT_BITS) - 1;

static TABLE: [Entry; ENTRIES] = [const { Entry::new() }; ENTRIES];

/// A lock that some thread has waited for.
struct Entry {
    /// Its address; 0: the entry is free.
    lock: AtomicUsize,
    /// Its waiters and their waiting.
    state: AtomicU64,
    /// A lock whose waiters are woken by a wake of the futex at this entry's address; 0: none is known.
    wakes: AtomicUsize,
}

/// n waiters since times whose sum is S. At a time t, they have waited for n t - S nanoseconds. S is a number
/// of 52 bits and may wrap, so waiting that nobody takes is known up to 26 days. Waiting of a thread that
/// waits no longer remains as a smaller S.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State(u64);

impl State {
    fn waiters(self) -> u64 {
        self.0 & MOST_WAITERS
    }

    fn new(waiters: u64, sum: u64) -> State {
        State(sum << COUNT_BITS | waiters)
    }

    fn sum(self) -> u64 {
        self.0 >> COUNT_BITS
    }

    /// The waiting up to `now` that nobody has taken. If the clocks of two processors differ a little, it may
    /// seem to be less than nothing.
    fn waited(self, now: u64) -> u64 {
        let difference = self.waiters().wrapping_mul(now).wrapping_sub(self.sum());
        let signed = (difference << COUNT_BITS) as i64 >> COUNT_BITS;
        signed.max(0) as u64
    }

    /// One more waiter from `now` on; `None` if there is no room for it.
    fn joined(self, now: u64) -> Option<State> {
        let waiters = self.waiters();
        (waiters < MOST_WAITERS).then(|| State::new(waiters + 1, self.sum().wrapping_add(now)))
    }

    /// All waiting up to `now` is taken.
    fn taken(self, now: u64) -> State {
        State::new(self.waiters(), self.waiters().wrapping_mul(now))
    }

    /// One waiter less from `now` on.
    fn left(self, now: u64) -> State {
        match self.waiters() {
            0 => self,
            n => State::new(n - 1, self.sum().wrapping_sub(now)),
        }
    }
}

impl Entry {
    const fn new() -> Entry {
        Entry { lock: AtomicUsize::new(0), state: AtomicU64::new(0), wakes: AtomicUsize::new(0) }
    }

    /// Replaces the state, and returns the one before; `None` if `change` does not want to.
    fn change(&self, change: impl Fn(State) -> Option<State>) -> Option<State> {
        let update = |state| change(State(state)).map(|state| state.0);
        // Acquire and release: who finds a waiter's count also finds the entry's lock.
        let changed = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        changed.ok().map(State)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The thread has the lock, or found it free.
    Acquired,
    /// Others have it.
    Held,
    /// The wait was for something else than a lock.
    NoLock,
}

#[derive(Clone, Copy)]
pub struct Wait {
    entry: &'static Entry,
    since: u64,
    /// That of a futex of the thread's own, by which others wake it.
    own: Option<&'static Entry>,
}

impl PartialEq for Wait {
    fn eq(&self, other: &Wait) -> bool {
        std::ptr::eq(self.entry, other.entry) && self.since == other.since
    }
}

impl Wait {
    /// Begins a wait for the lock at an address, which is not 0. `None` if there is no room for it.
    pub fn begin(lock: usize) -> Option<Wait> {
        let entry = claim(lock)?;
        let since = image::now();
        entry.change(|state| state.joined(since))?;
        Some(Wait { entry, since, own: None })
    }

    /// As [`Wait::begin`]; a wake of `futex` is a release of the lock, and if the futex is the thread's `own`
    /// only until the end of the wait.
    pub fn begin_on(lock: usize, futex: usize, own: bool) -> Option<Wait> {
        let woken_by = claim(futex)?;
        woken_by.wakes.store(lock, Ordering::Release);
        let own = own.then_some(woken_by);
        Some(Wait { own, ..Wait::begin(lock)? })
    }

    pub fn end(self, outcome: Outcome) {
        if let Some(own) = self.own {
            own.wakes.store(0, Ordering::Release);
        }
        let now = image::now();
        let change = |state: State| match outcome {
            Outcome::Acquired => state.taken(now).left(now),
            Outcome::Held => state.left(now),
            Outcome::NoLock => state.left(self.since),
        };
        let before = self.entry.change(|state| Some(change(state)));
        if let (Outcome::Acquired, Some(state)) = (outcome, before) {
            lose(state.waited(now));
        }
    }
}

/// Whether the metric is on. Otherwise no wait may begin.
#[inline]
pub fn enabled() -> bool {
    image::current().is_some_and(|image| image.lock_wait.is_some())
}

/// Whether there is waiting for a lock that its holder can take.
#[inline]
pub fn is_awaited(lock: usize) -> bool {
    find(lock).is_some_and(|entry| entry.state.load(Ordering::Relaxed) != 0)
}

/// The lock that a wake of this futex releases, if others have waited for it; `is_free` tells whether the
/// futex is the word of a lock that nobody holds now.
#[inline]
pub fn released_by_wake(futex: usize, is_free: impl FnOnce() -> bool) -> Option<usize> {
    match find(futex)?.wakes.load(Ordering::Acquire) {
        0 => (is_awaited(futex) && is_free()).then_some(futex),
        lock => is_awaited(lock).then_some(lock),
    }
}

/// Takes the waiting for a lock so far, nanoseconds. Called by its holder before the release.
pub fn take(lock: usize) -> u64 {
    let now = image::now();
    let before = find(lock).and_then(|entry| entry.change(|state| Some(state.taken(now))));
    before.map_or(0, |state| state.waited(now))
}

/// Counts waiting that no context is charged with, nanoseconds.
pub fn lose(nanoseconds: u64) {
    image::count(|counts| &counts.unknown_lock_wait_ns, nanoseconds);
}

/// Waiting until now that no context is charged with, nanoseconds.
pub fn unknown_ns() -> u64 {
    let now = image::now();
    let waits = TABLE.iter().map(|entry| State(entry.state.load(Ordering::Acquire)));
    let left = waits.map(|state| state.waited(now));
    left.fold(image::counted(|counts| &counts.unknown_lock_wait_ns), u64::saturating_add)
}

/// Forgets all waits, in a forked child: its parent's threads do not exist there.
pub fn forget() {
    // Entries in use only: others need not be copied for the child.
    for entry in TABLE.iter().filter(|e| e.lock.load(Ordering::Relaxed) != 0) {
        entry.state.store(0, Ordering::Relaxed);
        entry.wakes.store(0, Ordering::Relaxed);
    }
}

/// The entries in which a lock's may be, from the first.
#[inline]
fn places(lock: usize) -> impl Iterator<Item = &'static Entry> {
    // The golden ratio's multiplicative hash (Knuth, volume 3, section 6.4).
    let hash = (lock as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (hash >> (u64::BITS - ENTRIES.trailing_zeros())) as usize;
    (first..first + PROBES).map(|place| &TABLE[place % ENTRIES])
}

#[inline]
fn find(lock: usize) -> Option<&'static Entry> {
    for entry in places(lock) {
        match entry.lock.load(Ordering::Acquire) {
            0 => return None,
            known if known == lock => return Some(entry),
            _ => {}
        }
    }
    None
}

/// The entry of a lock, a free one if it has none yet.
fn claim(lock: usize) -> Option<&'static Entry> {
    places(lock).find(|entry| {
        let claimed = entry.lock.compare_exchange(0, lock, Ordering::AcqRel, Ordering::Acquire);
        claimed.is_ok() || claimed == Err(lock)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_wrap() {
        let late = (1 << 52) - 10;
        let state = State(0).joined(late).and_then(|s| s.joined(late + 4));
        let state = state.expect("there is room");
        assert_eq!(state.waited(late + 20), 20 + 16);
        assert_eq!(state.taken(late + 20).waited(late + 30), 20);
    }

    #[test]
    fn a_clock_that_is_behind_charges_nothing() {
        let state = State(0).joined(100).expect("there is room");
        assert_eq!(state.waited(90), 0);
        assert_eq!(state.left(90).left(90).waited(200), 0);
    }

    #[test]
    fn the_number_of_waiters_is_limited() {
        let mut state = State(0);
        for _ in 0..MOST_WAITERS {
            state = state.joined(7).expect("there is room");
        }
        assert_eq!(state.joined(7), None);
        assert_eq!(state.waited(8), MOST_WAITERS);
    }

    #[test]
    fn a_wake_of_a_threads_own_futex_releases_its_lock_until_the_wait_is_over() {
        let (lock, futex) = (0x5000, 0x6000);
        let wait = Wait::begin_on(lock, futex, true).expect("there is room");
        assert_eq!(released_by_wake(futex, || false), Some(lock));
        wait.end(Outcome::Acquired);
        assert_eq!(released_by_wake(futex, || true), None);
    }

    #[test]
    fn a_lock_keeps_its_entry_and_a_full_neighbourhood_has_no_room() {
        let place = |lock| std::ptr::from_ref(places(lock).next().expect("a first place"));
        let first = 0x1000_usize;
        let crowd = (first..).step_by(8).filter(|lock| place(*lock) == place(first));
        let crowd: Vec<usize> = crowd.take(PROBES + 1).collect();
        let entries: Vec<_> = crowd.iter().map(|lock| claim(*lock)).collect();
        assert!(entries[PROBES].is_none() && find(crowd[PROBES]).is_none());
        assert_eq!((is_awaited(first), take(first)), (false, 0));
        for (lock, entry) in crowd.iter().zip(entries).take(PROBES) {
            let entry = entry.expect("there was room");
            assert!(find(*lock).is_some_and(|found| std::ptr::eq(found, entry)));
        }
    }
}
