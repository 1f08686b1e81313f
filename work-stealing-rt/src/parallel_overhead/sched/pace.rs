//! How often thieves look at an owner's joins.
//!
//! A look takes the cache line of the deque's ends away from the owner, and a steal costs some hundred
//! nanoseconds on both sides. In a loop of joins shorter than that, the owner is faster alone. So an owner
//! whose joins are too short to be worth a steal asks thieves to look less often, and revokes that as soon as
//! a stolen task was worth it.
//!
//! The owner decides each time one of its stolen tasks ends: by the mean time of its open joins since the
//! last such moment, or, if every join is stolen, by the time it had to wait.

use std::time::{Duration, Instant};

use crate::worker::Worker;

/// A join that takes this long is worth a steal.
const WORTH_A_STEAL: Duration = Duration::from_micros(1);
/// An owner that waits longer than this for a thief had a task that was worth stealing.
const LONGEST_WAIT: Duration = Duration::from_micros(2);
/// The most pauses between two looks, some microseconds.
const SLOWEST: u32 = 512;
/// The most pauses if every join is stolen: then nothing tells whether the owner would be faster alone.
const SLOWEST_IF_ALL_ARE_STOLEN: u32 = 64;

/// The worker has taken an open join back.
#[inline(always)]
pub(super) fn taken_back(worker: &Worker) {
    let joins = &worker.own.taken_back;
    joins.set(joins.get().saturating_add(1));
}

/// A stolen join of the worker has ended. `waited`: how long the worker waited for it, `None` if hardly at
/// all.
#[inline(always)]
pub(super) fn stolen(worker: &Worker, waited: Option<Duration>) {
    let joins = worker.own.taken_back.replace(0);
    if joins == 0 {
        worker.own.stolen_at.set(None);
        match waited {
            None => worker.joins.set_pace(worker.joins.pace() / 2),
            Some(time) if time < LONGEST_WAIT => slow_down(worker, SLOWEST_IF_ALL_ARE_STOLEN),
            Some(_) => worker.joins.set_pace(0),
        }
        return;
    }
    let now = Instant::now();
    if let Some(last) = worker.own.stolen_at.replace(Some(now)) {
        // Plus one: the stolen join itself.
        if now - last >= WORTH_A_STEAL.saturating_mul(joins.saturating_add(1)) {
            worker.joins.set_pace(0);
        } else {
            slow_down(worker, SLOWEST);
        }
    }
}

fn slow_down(worker: &Worker, slowest: u32) {
    let pace = worker.joins.pace();
    worker.joins.set_pace((2 * pace + 1).min(slowest.max(pace)));
}
