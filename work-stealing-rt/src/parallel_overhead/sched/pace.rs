//! How often thieves look at an owner's joins.
//!
//! One duty: ask thieves to come less often where they bring their owner less than they cost, and take
//! that back as soon as a stolen task was worth it. A look takes the cache line of the deque's
//! ends away from the owner, a steal costs some hundred nanoseconds on both sides. In a loop of joins that
//! take less than that, the owner does best alone.
//!
//! The owner judges when a stolen task of its is over: by the mean time of its open joins since the last
//! such moment, or, where every join is stolen, by the time that it had to wait.

use std::time::{Duration, Instant};

use crate::worker::Worker;

/// A join of this length is worth a steal.
const WORTH_A_STEAL: Duration = Duration::from_micros(1);
/// So long an owner waits at most for the thief of a task that was not worth it.
const LONGEST_WAIT: Duration = Duration::from_micros(2);
/// The most pauses between two looks, some microseconds.
const SLOWEST: u32 = 512;
/// The most where every join is stolen: nobody can tell there whether the owner goes on without a thief.
const SLOWEST_IF_ALL_ARE_STOLEN: u32 = 64;

/// The worker has taken an open join back.
#[inline(always)]
pub(super) fn taken_back(worker: &Worker) {
    let joins = &worker.own.taken_back;
    joins.set(joins.get().saturating_add(1));
}

/// A stolen join of the worker's is over; `waited`: how long it had to wait for that, `None` if hardly at all.
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
        // The stolen join is one of them.
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
