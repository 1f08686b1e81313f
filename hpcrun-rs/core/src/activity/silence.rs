//! Finds threads that sleep in waits that no hook observed, by the general rule: a thread that uses no CPU
//! time does not work, whatever it waits for.
//!
//! A running thread has a sample at least every one and a half periods of its CPU time. Each sample of a
//! working thread looks at a few slots of the node's table. If the last sample of a slot is older, the slot
//! is inspected: `/proc` tells whether its thread, of any process, sleeps, is ready to run, or is gone. A
//! sleeping thread counts as `Silent` until its own next sample.
//!
//! The charges made in the meantime are corrected in sum. On average the sleep began half a period after the
//! last sample, and the thread runs for half a period before its next sample. Both differences are added to
//! the node's correction, which the next sample takes.
//!
//! Async-signal-safe.

use super::members;
use super::node::{self, HOT, Slot, State};
use super::{cores, idle_cores, working};
use crate::system::{self, Text};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of slots that one sample looks at. They are in the caches of other cores.
const LOOKS: usize = 2;
/// Nanoseconds before a thread that is ready to run is inspected again: two ticks of a slow kernel.
const AGAIN_NS: u64 = 8_000_000;
/// Inspections in a row, each by a thread that has got a core, after which a thread that got none counts as
/// asleep, if it is in another namespace, so that the kernel does not show it to this process.
const UNSEEN: u32 = 16;

/// Nanoseconds that this process's threads slept in waits that no hook observed.
static ESTIMATED: AtomicU64 = AtomicU64::new(0);

/// Sets the nanoseconds of CPU time between samples: `period`, or `tick` if that is longer. `tick` is 0 for a
/// source that does not fire in ticks.
pub fn set_distance(period: u64, tick: u64) {
    let distance = period.max(tick);
    HOT.distance.store(distance, Relaxed);
    HOT.longest.store(distance + distance * 3 / 4 + tick, Relaxed);
}

/// Looks at some slots, at a sample at `now` of the working thread with slot `me`.
#[inline]
pub(super) fn look(me: &Slot, now: u64) {
    let slots = node::used();
    let longest = HOT.longest.load(Relaxed);
    for _ in 0..slots.len().min(LOOKS) {
        let next = HOT.next.load(Relaxed);
        HOT.next.store(next.wrapping_add(1), Relaxed);
        let slot = &slots[next as usize % slots.len()];
        let last = slot.last.load(Relaxed);
        if last == 0 {
            // The time counts from now, unless the thread has a sample at this moment.
            if slot.last.compare_exchange(0, now, Relaxed, Relaxed).is_ok() {
                slot.works_since.store(now, Relaxed);
            }
            continue;
        }
        let is_suspect = now.saturating_sub(last) > longest
            && now >= slot.inspect_after.load(Relaxed)
            && match slot.state() {
                State::Working | State::Worker => true,
                State::Runtimes => slot.is_published(),
                _ => false,
            };
        if is_suspect && !std::ptr::eq(slot, me) {
            inspect(slot, now, me.works_since.load(Relaxed));
            return;
        }
    }
}

/// Asks the kernel for the state of a slot's thread, at a sample of a thread that has worked since
/// `charged_since`.
#[cold]
fn inspect(slot: &Slot, now: u64, charged_since: u64) {
    let before = slot.inspect_after.swap(now + AGAIN_NS, Relaxed).saturating_sub(AGAIN_NS);
    let times = match slot.last.load(Relaxed) > before {
        true => 0,
        false => slot.inspected.load(Relaxed) + 1,
    };
    slot.inspected.store(times, Relaxed);
    let state = slot.state();
    let owner = slot.owner_here();
    let found = match owner {
        Some((process, 0)) => kernel_state(process, process),
        Some((process, thread)) => kernel_state(process, thread),
        None if times < UNSEEN => Kernel::Ready,
        None => Kernel::Asleep,
    };
    match found {
        Kernel::Ready => {}
        Kernel::Gone if state == State::Runtimes => slot.publish(0),
        Kernel::Asleep if state == State::Runtimes => {}
        Kernel::Gone | Kernel::Asleep => {
            let silent = if state == State::Worker { State::SilentWorker } else { State::Silent };
            let since = retrospect(slot, now, charged_since);
            slot.asleep_since.store(since, Relaxed);
            slot.move_from(state, silent);
        }
    }
    if owner.is_some_and(|(process, _)| found == Kernel::Gone && system::is_gone(process, process)) {
        members::remove_gone(slot.owner().0);
    }
}

/// Estimates since when the thread has been asleep, and corrects the charges since then: the threads that
/// worked were charged too little.
fn retrospect(slot: &Slot, now: u64, charged_since: u64) -> u64 {
    let last = slot.last.load(Relaxed);
    let since = last + (HOT.distance.load(Relaxed) / 2).min(now.saturating_sub(last));
    if working() <= i64::from(cores()) {
        node::correct(now.saturating_sub(since.max(charged_since)) as i64);
    }
    since
}

/// Marks the thread of a slot as running: it has a sample at `now` that stands for `stands_for` nanoseconds.
/// Corrects the charges of other threads if the slot's state was wrong.
#[inline]
pub(super) fn found_running(slot: &Slot, now: u64, stands_for: u64) {
    let state = slot.state();
    let distance = HOT.distance.load(Relaxed);
    let is_seen_before = slot.last.load(Relaxed) != 0;
    slot.last.store(now, Relaxed);
    if !is_seen_before || !matches!(state, State::Working | State::Worker) {
        let since = now.saturating_sub(stands_for.min(distance));
        slot.works_since.store(since, Relaxed);
    }
    let is = match state {
        State::Working | State::Worker | State::Runtimes => return,
        State::Free | State::Waiting | State::Silent | State::Spinning | State::Yielding => State::Working,
        State::Asleep | State::Blocked | State::SilentWorker => State::Worker,
    };
    // Nanoseconds that other threads were charged too much while this thread ran.
    let too_much = match state {
        // A wait that uses CPU time: each sample in the wait stands for CPU time used there. A larger weight
        // comes at the end of a long system call that was woken repeatedly, so it is limited.
        State::Waiting | State::Blocked => stands_for.min(2 * distance),
        State::Silent | State::SilentWorker => {
            end_silence(slot, now);
            distance / 2
        }
        State::Yielding => distance / 2,
        // Only samples show a spinning wait. On average it began as long before the first of them as it ended
        // before this one.
        _ => 0,
    };
    // If no other thread works, nobody was charged.
    let others = working();
    if others > 0 && idle_cores(others) > 0 {
        node::correct(-(too_much as i64));
    }
    slot.move_from(state, is);
    super::begin_work();
}

/// Adds the last silent wait of a thread that ends.
pub(super) fn end(slot: &Slot, now: u64) {
    if matches!(slot.state(), State::Silent | State::SilentWorker) {
        end_silence(slot, now);
    }
}

fn end_silence(slot: &Slot, now: u64) {
    let slept = now.saturating_sub(slot.asleep_since.load(Relaxed));
    ESTIMATED.fetch_add(slept, Relaxed);
}

/// Nanoseconds that this process's threads slept in completed waits that no hook observed.
pub fn estimated_ns() -> u64 {
    ESTIMATED.load(Relaxed)
}

/// Resets the estimate in a forked child.
pub(super) fn forget() {
    ESTIMATED.store(0, Relaxed);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    /// It runs, or waits for a core; also if the state is unknown.
    Ready,
    /// It sleeps, or is stopped.
    Asleep,
    Gone,
}

fn kernel_state(process: u32, thread: u32) -> Kernel {
    let mut path = Text::<64>::new();
    path.text(b"/proc/").number(u64::from(process));
    path.text(b"/task/").number(u64::from(thread)).text(b"/stat");
    let Some(path) = path.as_c_str() else { return Kernel::Ready };
    let mut buffer = [0u8; 128];
    match system::read_start(path, &mut buffer) {
        Ok(n) => parse(buffer.get(..n).unwrap_or_default()),
        // The thread ended between the two calls.
        Err(libc::ESRCH) => Kernel::Gone,
        // Either the thread is gone, or `/proc` is not mounted.
        Err(libc::ENOENT) if system::is_gone(process, thread) => Kernel::Gone,
        Err(_) => Kernel::Ready,
    }
}

/// Parses the state in `stat`. It follows the name, which is in parentheses and may itself contain some.
fn parse(stat: &[u8]) -> Kernel {
    let end = stat.iter().rposition(|b| *b == b')');
    match end.and_then(|end| stat.get(end + 2)) {
        Some(b'S' | b'D' | b'T' | b't' | b'I') => Kernel::Asleep,
        Some(b'Z' | b'X' | b'x') => Kernel::Gone,
        _ => Kernel::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_name() {
        assert_eq!(parse(b"7 (a) b) S 1 2"), Kernel::Asleep);
        assert_eq!(parse(b"7 (S) R 1 2"), Kernel::Ready);
        assert_eq!(parse(b"7 (x) Z 1"), Kernel::Gone);
        assert_eq!(parse(b""), Kernel::Ready);
    }

    #[test]
    fn the_kernel_tells_running_sleeping_and_ended_threads_apart() {
        // SAFETY: no arguments.
        let gettid = || unsafe { libc::syscall(libc::SYS_gettid) } as u32;
        let process = std::process::id();
        assert_eq!(kernel_state(process, gettid()), Kernel::Ready);
        let (send, receive) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(gettid()).unwrap();
            let _ = stopped.recv();
        });
        let other = receive.recv().unwrap();
        while kernel_state(process, other) != Kernel::Asleep {
            std::thread::yield_now();
        }
        drop(stop);
        thread.join().unwrap();
        while kernel_state(process, other) != Kernel::Gone {
            std::thread::yield_now();
        }
    }
}
