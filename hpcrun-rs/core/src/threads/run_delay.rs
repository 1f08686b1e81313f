//! For how long a thread was ready to run and had no core, by the kernel's account (`schedstat`).
//!
//! The kernel is asked at a sample if the thread was off its core for a while since it was asked last: the
//! sample's context is charged with what is new. What is new at the thread's end goes to the context of its
//! last sample.
//!
//! Async-signal-safe, except [`run_delays`].

use super::{Busy, OwnThread};
use crate::image;
use crate::record::Recorder;
use crate::sinks::Node;
use crate::system::{self, Text};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Nanoseconds off its core after which the kernel is asked again.
const WHILE: i64 = 10_000_000;

#[derive(Default)]
pub(super) struct RunDelay {
    /// The kernel's account when the thread began, or its program, nanoseconds.
    begun: AtomicU64,
    /// The kernel's account when it was asked last, nanoseconds.
    known: AtomicU64,
    /// The real time less the thread's CPU time then, nanoseconds.
    off_core: AtomicU64,
    /// The record of the last sample's context; 0: there was none.
    record: AtomicU32,
}

impl RunDelay {
    /// The thread with this kernel id begins. The account of the main thread goes on when a program is
    /// executed.
    pub(super) fn begin(&self, tid: u32, is_main: bool) {
        let begun = if is_main { run_delay(tid) } else { 0 };
        self.begun.store(begun, Relaxed);
        self.known.store(begun, Relaxed);
        self.off_core.store(0, Relaxed);
        self.record.store(0, Relaxed);
    }

    /// All of the thread with this kernel id since it began.
    pub(super) fn all(&self, tid: u32) -> u64 {
        run_delay(tid).saturating_sub(self.begun.load(Relaxed))
    }

    /// What is new of the thread with this kernel id.
    fn ask(&self, tid: u32) -> u64 {
        let now = run_delay(tid);
        now.saturating_sub(self.known.fetch_max(now, Relaxed))
    }

    /// The thread with this kernel id ends; its recorder has its profile.
    pub(super) fn end(&self, tid: u32, recorder: &mut Recorder) {
        let record = self.record.load(Relaxed);
        let node = Node { profile: std::ptr::null_mut(), record };
        let position = image::current().and_then(|image| image.oversubscription);
        if let Some(position) = position.filter(|_| record != 0) {
            recorder.add_value(node, position, self.ask(tid));
        }
    }
}

impl OwnThread {
    /// A sample at `now` belongs to a context.
    #[inline]
    pub(super) fn charge_run_delay(&self, busy: &mut Busy<'_>, node: Node, now: u64) {
        let delay = &self.run_delay;
        delay.record.store(node.record, Relaxed);
        let off_core = now.wrapping_sub(self.source.clock_at_sample());
        if off_core.wrapping_sub(delay.off_core.load(Relaxed)) as i64 > WHILE {
            delay.off_core.store(off_core, Relaxed);
            self.ask_run_delay(busy, node);
        }
    }

    #[cold]
    #[inline(never)]
    fn ask_run_delay(&self, busy: &mut Busy<'_>, node: Node) {
        if let Some(position) = image::current().and_then(|image| image.oversubscription) {
            match self.run_delay.ask(self.tid()) {
                0 => {}
                more => drop(busy.add_value(node, position, more)),
            }
        }
    }
}

/// Time for which the threads of the process were ready to run and had no core, in nanoseconds. Not
/// async-signal-safe.
pub fn run_delays() -> u64 {
    let live = super::live().map(|thread| thread.run_delay.all(thread.tid()));
    live.fold(image::counted(|counts| &counts.run_delay_ns), u64::saturating_add)
}

/// The kernel's account of a thread, nanoseconds; 0 if that is not known.
fn run_delay(tid: u32) -> u64 {
    let (mut path, mut text) = (Text::<64>::new(), [0; 64]);
    path.text(b"/proc/self/task/").number(u64::from(tid)).text(b"/schedstat");
    let read = path.as_c_str().and_then(|path| system::read_start(path, &mut text).ok());
    let numbers = read.and_then(|n| text.get(..n)).unwrap_or_default();
    let second = numbers.split(|b| *b == b' ').nth(1).unwrap_or_default();
    second
        .iter()
        .fold(0, |n: u64, digit| n.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0'))))
}
