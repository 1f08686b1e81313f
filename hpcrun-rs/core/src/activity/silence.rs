//! Who is asleep though no hook saw it: the general rule below the hooks (MODEL: a thread that is charged no
//! CPU time does not work, however it waits).
//!
//! A running thread has a sample at least every period and a half of its CPU time. So each sample of a
//! working thread looks at a few slots of the node's table. One whose last sample is older is inspected:
//! `/proc` says whether the thread sleeps, is ready to run, or is gone, whichever process it belongs to. A
//! sleeper counts as `Silent` from then on, until its own next sample.
//!
//! What was charged meanwhile is put right in sum: the sleep began half a period after the last sample, as it
//! seems from a mean over samples, and the thread runs for half a period before it is sampled again. Both
//! differences go into the node's correction, which the next sample takes.
//!
//! Async-signal-safe.

use super::node::{self, HOT, Slot, State};
use super::{cores, idle_cores, working};
use crate::system;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Slots that one sample looks at. They lie in other cores' caches.
const LOOKS: usize = 2;
/// A thread that is ready to run is not inspected again for so long: two ticks of a slow kernel.
const AGAIN_NS: u64 = 8_000_000;

/// Nanoseconds that this process's threads were asleep in waits that no hook saw.
static ESTIMATED: AtomicU64 = AtomicU64::new(0);

/// Samples come every `period` nanoseconds of CPU time, or in ticks of so many; 0: not in ticks.
pub fn set_distance(period: u64, tick: u64) {
    let distance = period.max(tick);
    HOT.distance.store(distance, Relaxed);
    HOT.longest
        .store(distance + distance * 3 / 4 + tick, Relaxed);
}

/// Looks at some slots on behalf of a working thread that is sampled at `now`, whose slot is `me`.
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
            // It counts from here on, unless it has a sample at this moment.
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

/// Asks the kernel about a thread on behalf of one that has worked since `charged_since`.
#[cold]
fn inspect(slot: &Slot, now: u64, charged_since: u64) {
    slot.inspect_after.store(now + AGAIN_NS, Relaxed);
    let (process, thread) = slot.owner();
    let state = slot.state();
    match kernel_state(process, if thread == 0 { process } else { thread }) {
        Kernel::Ready => {}
        // The slot stays its owner's, who may be in a namespace that hides it from here.
        Kernel::Gone if state == State::Runtimes => slot.publish(0),
        Kernel::Asleep if state == State::Runtimes => {}
        Kernel::Gone | Kernel::Asleep => {
            let silent = match state {
                State::Worker => State::SilentWorker,
                _ => State::Silent,
            };
            let since = retrospect(slot, now, charged_since);
            slot.asleep_since.store(since, Relaxed);
            slot.move_from(state, silent);
        }
    }
}

/// The thread has not worked since the result, as estimated. Those who worked meanwhile were charged too
/// little.
fn retrospect(slot: &Slot, now: u64, charged_since: u64) -> u64 {
    let last = slot.last.load(Relaxed);
    let since = last + (HOT.distance.load(Relaxed) / 2).min(now.saturating_sub(last));
    if working() <= i64::from(cores()) {
        node::correct(now.saturating_sub(since.max(charged_since)) as i64);
    }
    since
}

/// The thread of a slot has a sample at `now` that stands for so many nanoseconds: whatever was believed, it
/// runs.
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
        State::Free | State::Waiting | State::Silent | State::Spinning | State::Yielding => {
            State::Working
        }
        State::Asleep | State::Blocked | State::SilentWorker => State::Worker,
    };
    // What others were charged too much while it ran.
    let too_much = match state {
        // A wait that burns CPU time: each sample in one stands for as much of it. One that stands for more
        // comes at the end of a long system call that was woken again and again.
        State::Waiting | State::Blocked => stands_for.min(2 * distance),
        State::Silent | State::SilentWorker => {
            let since = slot.asleep_since.load(Relaxed);
            ESTIMATED.fetch_add(now.saturating_sub(since), Relaxed);
            distance / 2
        }
        State::Yielding => distance / 2,
        // A spinning wait is seen by samples alone: it began as long before the first as it ended before
        // this.
        _ => 0,
    };
    // Nobody was, if nobody else works.
    let others = working();
    if others > 0 && idle_cores(others) > 0 {
        node::correct(-(too_much as i64));
    }
    slot.move_from(state, is);
}

/// A thread ends: what is known of its last wait.
pub(super) fn end(slot: &Slot, now: u64) {
    if matches!(slot.state(), State::Silent | State::SilentWorker) {
        let since = slot.asleep_since.load(Relaxed);
        ESTIMATED.fetch_add(now.saturating_sub(since), Relaxed);
    }
}

/// Nanoseconds that this process's threads were asleep in waits that no hook saw, as far as these are over.
pub fn estimated_ns() -> u64 {
    ESTIMATED.load(Relaxed)
}

/// In a forked child.
pub(super) fn forget() {
    ESTIMATED.store(0, Relaxed);
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    /// Runs, or waits for a core. Also where nothing can be learnt.
    Ready,
    /// Sleeps, or is stopped.
    Asleep,
    /// Does not exist any more.
    Gone,
}

fn kernel_state(process: u32, thread: u32) -> Kernel {
    let mut path = [0u8; 64];
    let mut at = 0;
    let mut text = |part: &[u8]| {
        if let Some(to) = path.get_mut(at..at + part.len()) {
            to.copy_from_slice(part);
            at += part.len();
        }
    };
    let mut digits = [0; 10];
    text(b"/proc/");
    text(decimal(process, &mut digits));
    text(b"/task/");
    text(decimal(thread, &mut digits));
    text(b"/stat");
    let mut buffer = [0u8; 128];
    // SAFETY: the path is terminated, as it is shorter than its array of zeroes; the buffer is ours. Neither
    // call waits: the file is made by the kernel.
    let read = unsafe {
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            // Where `/proc` is not mounted nothing is found in it.
            return match system::is_gone(process, thread) {
                true => Kernel::Gone,
                false => Kernel::Ready,
            };
        }
        // Not `read`, which is interposed.
        let read = libc::pread(file, buffer.as_mut_ptr().cast(), buffer.len(), 0);
        system::close(file);
        read
    };
    match usize::try_from(read) {
        Ok(n) => parse(&buffer[..n.min(buffer.len())]),
        // The thread ended between the two calls.
        Err(_) => Kernel::Gone,
    }
}

/// The state in `stat`: behind the name, which is in parentheses and may hold some itself.
fn parse(stat: &[u8]) -> Kernel {
    let end = stat.iter().rposition(|b| *b == b')');
    match end.and_then(|end| stat.get(end + 2)) {
        Some(b'S' | b'D' | b'T' | b't' | b'I') => Kernel::Asleep,
        Some(b'Z' | b'X' | b'x') => Kernel::Gone,
        _ => Kernel::Ready,
    }
}

fn decimal(mut n: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_behind_the_name() {
        assert_eq!(parse(b"7 (a) b) S 1 2"), Kernel::Asleep);
        assert_eq!(parse(b"7 (S) R 1 2"), Kernel::Ready);
        assert_eq!(parse(b"7 (x) Z 1"), Kernel::Gone);
        assert_eq!(parse(b""), Kernel::Ready);
    }

    #[test]
    fn a_thread_is_seen_to_run_to_sleep_and_to_be_gone() {
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
        assert_eq!(decimal(0, &mut [0; 10]), b"0");
        assert_eq!(decimal(u32::MAX, &mut [0; 10]), b"4294967295");
    }
}
