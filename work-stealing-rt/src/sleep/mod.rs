//! Who sleeps, who searches, and who must be woken.
//!
//! A worker that finds no task sleeps in the kernel. No worker stays asleep while there is a task that it
//! could take and no other worker looks for it. `README.md` beside this file has the protocol and its proof
//! sketch; the loom models check it.
//!
//! Input: announcements of new work ([`Sleep::notify`]) and of events ([`Sleep::wake`]).

use crossbeam_utils::CachePadded;

use crate::latch::Latch;
use crate::primitives::{AtomicU64, Futex, Ordering, fence};

/// One sleeper in the packed counts.
const SLEEPER: u64 = 1;
/// One searcher in the packed counts.
const SEARCHER: u64 = 1 << 32;

#[inline(always)]
fn sleepers(counts: u64) -> u64 {
    counts & (SEARCHER - 1)
}

#[inline(always)]
fn searchers(counts: u64) -> u64 {
    counts >> 32
}

/// The worker runs.
const AWAKE: u32 = 0;
/// The worker sleeps or is about to; anyone may claim it.
const PARKED: u32 = 1;
/// A waker has claimed the worker and is counting it among the searchers.
const CLAIMED: u32 = 2;

/// The sleep state of a pool's workers.
#[derive(Debug)]
pub(crate) struct Sleep {
    /// Sleepers (low half) and woken workers that have not found anything yet (high half).
    counts: CachePadded<AtomicU64>,
    parkers: Box<[CachePadded<Futex>]>,
}

impl Sleep {
    pub(crate) fn new(workers: usize) -> Self {
        Sleep {
            counts: CachePadded::new(AtomicU64::new(0)),
            parkers: (0..workers).map(|_| CachePadded::new(Futex::new(AWAKE))).collect(),
        }
    }

    /// The number of workers that neither sleep nor are about to, approximately.
    #[inline(always)]
    pub(crate) fn awake(&self) -> usize {
        let sleepers = sleepers(self.counts.load(Ordering::Relaxed)) as usize;
        self.parkers.len().saturating_sub(sleepers)
    }

    /// Work was made available just before: wakes a worker if some sleep and none searches.
    #[inline(always)]
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        self.wake_if_unattended();
    }

    /// As [`Sleep::notify`], for work that was made available by a sequentially consistent
    /// read-modify-write. The loads that follow are sequentially consistent too, so no fence is needed
    /// (`README.md`).
    #[inline(always)]
    pub(crate) fn notify_after_rmw(&self) {
        // loom takes such accesses for weaker ones.
        if cfg!(loom) {
            fence(Ordering::SeqCst);
        }
        self.wake_if_unattended();
    }

    /// Work that only worker `index` may take was made available just before: wakes it if it
    /// sleeps.
    #[inline(always)]
    pub(crate) fn notify_one(&self, index: usize) {
        fence(Ordering::SeqCst);
        self.wake(index);
    }

    #[inline(always)]
    fn wake_if_unattended(&self) {
        let counts = self.counts.load(Ordering::SeqCst);
        if sleepers(counts) != 0 && searchers(counts) == 0 {
            self.wake_any();
        }
    }

    /// A worker has stopped searching because it found something. The last one to stop sends another
    /// in its place if there is more: `is_more` looks at all places where work can be available.
    #[inline(always)]
    pub(crate) fn stop_searching(&self, is_more: impl FnOnce() -> bool) {
        let before = self.counts.fetch_sub(SEARCHER, Ordering::SeqCst);
        if searchers(before) == 1 && sleepers(before) != 0 {
            fence(Ordering::SeqCst);
            if is_more() {
                self.wake_any();
            }
        }
    }

    /// Wakes worker `index` if it sleeps.
    #[inline(always)]
    pub(crate) fn wake(&self, index: usize) -> bool {
        let parker = &self.parkers[index];
        let claim = parker.word().compare_exchange(PARKED, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
        if claim.is_ok() {
            self.counts.fetch_add(SEARCHER - SLEEPER, Ordering::SeqCst);
            // What was available when the counts were last seen is visible to the woken worker.
            fence(Ordering::SeqCst);
            parker.word().store(AWAKE, Ordering::Release);
            parker.waker().wake();
        }
        claim.is_ok()
    }

    #[inline(always)]
    fn wake_any(&self) {
        for index in 0..self.parkers.len() {
            if self.parkers[index].word().load(Ordering::SeqCst) == PARKED && self.wake(index) {
                return;
            }
        }
    }

    /// Worker `index` sleeps until it is woken, unless `latch` is set or `look` finds something
    /// after the announcement; returns what `look` found. In any case the worker counts as a
    /// searcher afterwards; `searching` says whether it does already.
    #[inline(always)]
    pub(crate) fn park<T>(
        &self,
        index: usize,
        searching: bool,
        latch: &Latch,
        look: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let parker = &self.parkers[index];
        let word = parker.word();
        let leaving = if searching { SEARCHER } else { 0 };
        self.counts.fetch_add(SLEEPER.wrapping_sub(leaving), Ordering::SeqCst);
        word.store(PARKED, Ordering::Release);
        fence(Ordering::SeqCst);
        let asleep = latch.announce_sleep();
        let found = if asleep { look() } else { None };
        let retract = !asleep || found.is_some();
        if retract && word.compare_exchange(PARKED, AWAKE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.counts.fetch_add(SEARCHER - SLEEPER, Ordering::SeqCst);
            return found;
        }
        loop {
            match word.load(Ordering::Acquire) {
                AWAKE => return found,
                state => parker.wait(state),
            }
        }
    }
}
