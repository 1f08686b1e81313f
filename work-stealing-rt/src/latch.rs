//! Latches: one-shot events.
//!
//! A thread that waits for a latch cannot miss its event. A *worker* waits for a [`Latch`]: it steals
//! meanwhile, and `sleep` puts it to sleep. A [`ThreadLatch`] blocks a thread that is not a worker.
//!
//! Pairing: [`Latch::set`] releases, [`Latch::probe`] acquires. The setter's exchange is its last
//! access to the latch: the waiter may free it from that moment on. The `ASLEEP` bit and the
//! `DONE` bit are set by read-modify-writes of one word, so either the waiter sees `DONE` before
//! it sleeps, or the setter sees `ASLEEP` and must wake it.

use crate::primitives::{AtomicUsize, Futex, Ordering};

/// The event has happened.
const DONE: usize = 1;
/// The waiting worker may be asleep.
const ASLEEP: usize = 2;
const FLAGS: usize = DONE | ASLEEP;

/// An event that one worker waits for; its word can carry an address (a multiple of 4).
#[derive(Debug)]
pub(crate) struct Latch(AtomicUsize);

impl Latch {
    pub(crate) fn new() -> Self {
        Latch(AtomicUsize::new(0))
    }

    /// Resets the latch, with `payload`. No other thread knows the latch yet.
    #[inline(always)]
    pub(crate) fn rearm(&self, payload: usize) {
        debug_assert_eq!(payload & FLAGS, 0);
        self.0.store(payload, Ordering::Relaxed);
    }

    /// The address given to [`Latch::rearm`]; only before the event.
    #[inline(always)]
    pub(crate) fn payload(&self) -> usize {
        self.0.load(Ordering::Relaxed) & !FLAGS
    }

    /// Whether the event has happened. If so, everything that its setter wrote is visible.
    #[inline(always)]
    pub(crate) fn probe(&self) -> bool {
        self.0.load(Ordering::Acquire) & DONE != 0
    }

    /// The event happens. True: the waiter may be asleep, the caller must wake it.
    #[inline(always)]
    #[must_use]
    pub(crate) fn set(&self) -> bool {
        self.0.swap(DONE, Ordering::AcqRel) & ASLEEP != 0
    }

    /// The waiter is about to sleep. False: the event has happened, it must not.
    #[inline(always)]
    #[must_use]
    pub(crate) fn announce_sleep(&self) -> bool {
        self.0.fetch_or(ASLEEP, Ordering::AcqRel) & DONE == 0
    }
}

const PENDING: u32 = 0;
const SET: u32 = 1;
const BLOCKED: u32 = 2;

/// An event for which a thread that is not a worker blocks.
#[derive(Debug)]
pub(crate) struct ThreadLatch(Futex);

impl ThreadLatch {
    pub(crate) fn new() -> Self {
        ThreadLatch(Futex::new(PENDING))
    }

    /// Blocks until the event has happened.
    pub(crate) fn wait(&self) {
        let word = self.0.word();
        loop {
            match word.load(Ordering::Acquire) {
                SET => return,
                PENDING => {
                    // On failure the event came in between; the next turn sees it.
                    let _ = word.compare_exchange(PENDING, BLOCKED, Ordering::Relaxed, Ordering::Relaxed);
                }
                _ => self.0.wait(BLOCKED),
            }
        }
    }

    /// The event happens, and the waiter is woken.
    ///
    /// # Safety
    /// `this` is valid until the exchange; the waiter may free it right after.
    pub(crate) unsafe fn set(this: *const ThreadLatch) {
        // SAFETY: valid by the contract of this function; no reference survives the exchange.
        let (waker, was) = unsafe {
            let futex = &(*this).0;
            (futex.waker(), futex.word().swap(SET, Ordering::AcqRel))
        };
        if was == BLOCKED {
            waker.wake();
        }
    }
}
