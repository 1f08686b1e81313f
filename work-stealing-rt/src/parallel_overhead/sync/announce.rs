//! Setting a latch for which a worker waits.

use crate::latch::Latch;
use crate::worker::Pool;

/// Sets the latch for which worker `waiter` of `pool` waits, and wakes that worker if it sleeps. The latch
/// may be gone afterwards; the pool must not.
#[inline(always)]
pub(crate) fn announce(pool: &Pool, latch: &Latch, waiter: impl FnOnce() -> usize) {
    if latch.set() {
        pool.sleep.wake(waiter());
    }
}
