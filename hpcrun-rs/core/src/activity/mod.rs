//! Who works: n_working and n over all processes of the run on this host (paper, sections 2.1 and 5.1;
//! ARCHITECTURE.md: terms), and what a sample is charged by them.
//!
//! `node` keeps what each thread contributes, `runtimes` what the workers of cooperating runtimes do,
//! `silence` finds who is asleep though no hook saw it.
//!
//! Async-signal-safe, but for what says otherwise in those.

mod node;
mod runtimes;
mod silence;

pub use node::{Slot, State, acquire, attach};
pub use runtimes::{
    MAX_RUNTIMES, Refusal, discount, peak_workers, publish_count, register_runtime, runtime,
    runtimes,
};
pub use silence::{estimated_ns, set_distance};

use crate::arch;
use node::HOT;
use std::sync::atomic::Ordering;

/// Sets n; 0 = as many as workers.
pub fn set_cores(n: u32) {
    HOT.cores.store(n, Ordering::Relaxed);
}

/// n as it is now.
pub fn cores() -> u32 {
    match HOT.cores.load(Ordering::Relaxed) {
        0 => peak_workers().max(1),
        n => n,
    }
}

/// What one sample of a working thread is charged, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Charge {
    /// Its share of the idle cores' time.
    pub idleness: f64,
    /// Its share of the time of working threads that have no core.
    pub oversubscribed: f64,
}

/// A sample of the thread with this slot is about to be charged.
#[inline]
pub fn prepare(slot: &Slot) {
    arch::prefetch(std::ptr::from_ref(slot).cast());
    node::prefetch();
}

/// Charges a sample at `now`, which stands for so many nanoseconds, of the thread with this slot: it runs,
/// whatever was believed of it.
#[inline]
pub fn charge(slot: &Slot, now: u64, stands_for: u64) -> Charge {
    runtimes::publish(now);
    silence::found_running(slot, now, stands_for);
    silence::look(slot, now);
    let charge = share(working(), cores(), stands_for);
    let correction = node::take_correction();
    if correction == 0 {
        return charge;
    }
    let idleness = charge.idleness + correction as f64;
    if idleness < 0.0 {
        node::correct(idleness as i64);
    }
    Charge {
        idleness: idleness.max(0.0),
        ..charge
    }
}

/// A sample at `now` found the thread in a spinning wait.
#[inline]
pub fn spin(slot: &Slot, now: u64) {
    runtimes::publish(now);
    slot.last.store(now, Ordering::Relaxed);
    match slot.state() {
        State::SilentWorker => slot.move_from(State::SilentWorker, State::Worker),
        state @ (State::Working | State::Silent) => slot.move_from(state, State::Spinning),
        _ => {}
    }
}

/// A thread ends at `now`: it counts no more.
pub fn end(slot: &Slot, now: u64) {
    silence::end(slot, now);
    slot.move_to(State::Free, 0);
}

/// The process ends: all its slots are free.
pub fn end_process() {
    runtimes::end();
}

/// In a forked child: the slots of its parent are not its own. So many runtimes count its one thread as
/// working.
pub fn enter_child(counted: i32) {
    node::enter_child();
    silence::forget();
    runtimes::enter_child(counted);
}

/// n_working as it is now.
#[inline]
fn working() -> i64 {
    node::working() + runtimes::unpublished()
}

/// Cores that are idle while so many threads work.
fn idle_cores(working: i64) -> i64 {
    let n = i64::from(cores());
    n - working.clamp(0, n)
}

/// Shares of a thread that works for so many nanoseconds: n_idle and those beyond the cores, each by
/// n_working capped to 1..=n (ARCHITECTURE.md: terms).
#[inline]
fn share(working: i64, cores: u32, nanoseconds: u64) -> Charge {
    let n = i64::from(cores.max(1));
    let capped = working.clamp(1, n) as f64;
    let time = nanoseconds as f64;
    Charge {
        idleness: time * (n as f64 - capped) / capped,
        oversubscribed: time * (working - n).max(0) as f64 / capped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_is_shared_by_those_who_work() {
        assert_eq!(share(3, 4, 3).idleness, 1.0);
        assert_eq!(share(1, 8, 1).idleness, 7.0);
        assert_eq!(share(4, 4, 1).idleness, 0.0);
    }

    /// Eight threads on two cores: six wait for a core at any time, charged to the two that have one.
    #[test]
    fn more_threads_than_cores_is_oversubscription_not_idleness() {
        let charge = share(8, 2, 1);
        assert_eq!((charge.idleness, charge.oversubscribed), (0.0, 3.0));
        assert_eq!(share(6, 4, 2).oversubscribed, 1.0);
    }

    #[test]
    fn a_worker_that_is_seen_before_it_is_counted_counts_as_one() {
        assert_eq!(share(0, 2, 1).idleness, 1.0);
        assert_eq!(share(-1, 2, 1).idleness, 1.0);
    }
}
