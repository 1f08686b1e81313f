//! Activity: n_working and n over all processes of the run on this host (paper, sections 2.1 and 5.1;
//! ARCHITECTURE.md: terms), and the idleness that a sample is charged.
//!
//! `node` stores the contribution of each thread, `members` the cores of each process, `runtimes` counts the
//! workers of cooperating runtimes, and `silence` finds threads that sleep in waits that no hook observed.
//!
//! Async-signal-safe, except for functions of those modules that say otherwise.

mod members;
mod node;
mod runtimes;
mod silence;

pub use members::{set_process, set_quota, set_threads};
pub use node::{Slot, State, acquire, attach};
pub use runtimes::{
    MAX_RUNTIMES, Refusal, discount, peak_workers, publish_count, register_runtime, runtime, runtimes,
};
pub use silence::{estimated_ns, set_distance};

use crate::{arch, sandbox, system};
use hpc_formats::environment::ALL_CORES;
use node::{HOT, Header};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Of this process's samples: the time in which someone worked that they account for, and that time of all
/// cores, nanoseconds.
static BUSY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Sets n, the number of cores; 0: the peak number of workers; [`ALL_CORES`]: those that the run's processes
/// on this host may use together, at any time.
pub fn set_cores(n: u32) {
    HOT.cores.store(n, Ordering::Relaxed);
}

/// The current n.
pub fn cores() -> u32 {
    match HOT.cores.load(Ordering::Relaxed) {
        0 => peak_workers().max(1),
        ALL_CORES => node::header().cores.load(Ordering::Relaxed).max(1),
        n => n,
    }
}

/// The mean n of the time that this process's samples account for.
pub fn mean_cores() -> f64 {
    let [busy, cores_time] = BUSY.each_ref().map(|sum| sum.load(Ordering::Relaxed) as f64);
    if busy > 0.0 { cores_time / busy } else { f64::from(cores()) }
}

/// The charge of one sample of a working thread, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Charge {
    /// Its share of the idle cores' time.
    pub idleness: f64,
    /// Its share of the time of working threads that have no core.
    pub oversubscribed: f64,
}

/// Prefetches the memory that `charge` reads.
#[inline]
pub fn prepare(slot: &Slot) {
    arch::prefetch(std::ptr::from_ref(slot).cast());
    node::prefetch();
}

/// Charges a sample at `now` that stands for `stands_for` nanoseconds of work. The sample proves that the
/// thread with this slot runs, whatever its state says.
#[inline]
pub fn charge(slot: &Slot, now: u64, stands_for: u64) -> Charge {
    runtimes::publish(now);
    silence::found_running(slot, now, stands_for);
    silence::look(slot, now);
    let n = cores();
    let charge = share(working(), n, stands_for);
    let all = stands_for as f64 + charge.idleness;
    // Two threads may lose an addition, which a mean can bear.
    for (sum, more) in BUSY.iter().zip([all / f64::from(n), all]) {
        sum.store(sum.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
    }
    let correction = node::take_correction();
    if correction == 0 {
        return charge;
    }
    let idleness = charge.idleness + correction as f64;
    if idleness < 0.0 {
        node::correct(idleness as i64);
    }
    Charge { idleness: idleness.max(0.0), ..charge }
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

/// A shorter time in which nobody works is a call that might have waited, and did not: counts of the
/// processor.
const CALL: u64 = 1 << 14;

/// A thread has begun to wait. Returns for how long nobody has worked so far, in counts of the processor: it
/// takes less time than a clock.
#[inline]
pub fn begin_wait() -> u64 {
    let Header { still_since, still, .. } = node::header();
    // Of several threads that begin to wait at once, the last one sees the others'.
    fence(Ordering::SeqCst);
    if still_since.load(Ordering::Relaxed) == 0 && working() <= 0 && may_read_clock() {
        still_since.store(arch::counter(), Ordering::Relaxed);
    }
    still.load(Ordering::Relaxed)
}

/// A thread works. Returns the same.
#[inline]
pub fn begin_work() -> u64 {
    let Header { still_since, still, .. } = node::header();
    let since = still_since.load(Ordering::Relaxed);
    if since != 0 && may_read_clock() {
        let counts = arch::counter().saturating_sub(since);
        if counts < CALL {
            still_since.store(0, Ordering::Relaxed);
        // Of several threads, the first counts.
        } else if still_since.compare_exchange(since, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            still.fetch_add(counts, Ordering::Relaxed);
        }
    }
    still.load(Ordering::Relaxed)
}

/// A strict sandbox ends who reads a clock or the counter.
fn may_read_clock() -> bool {
    !sandbox::refuses(libc::SYS_clock_gettime)
}

/// Removes a thread from the counts; it ends at `now`.
pub fn end(slot: &Slot, now: u64) {
    silence::end(slot, now);
    slot.move_to(State::Free, 0);
}

/// Frees the slot of the process's runtimes, and its cores, because the process ends.
pub fn end_process() {
    runtimes::end();
    members::forget_mask();
}

/// Resets the counts in a forked child, which does not own the slots of its parent. `counted` runtimes count
/// its only thread as working.
pub fn enter_child(counted: i32) {
    node::enter_child();
    members::set_threads(std::iter::once(system::thread_id()));
    BUSY.iter().for_each(|sum| sum.store(0, Ordering::Relaxed));
    silence::forget();
    runtimes::enter_child(counted);
}

#[inline]
fn working() -> i64 {
    node::working() + runtimes::unpublished()
}

/// The number of idle cores while `working` threads work.
fn idle_cores(working: i64) -> i64 {
    let n = i64::from(cores());
    n - working.clamp(0, n)
}

/// The charge of a thread that works for so many nanoseconds: its share of n_idle and of the threads beyond
/// the cores, each divided by n_working, which is limited to 1..=n (ARCHITECTURE.md: terms).
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

    /// Eight threads on two cores: six wait for a core at any time; their wait is charged to the two that
    /// have one.
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
