//! Captures a thread's context, for a task that it spawns or for the waiting that it has caused, and adds the
//! samples that arrive meanwhile.
//!
//! Async-signal-safe: a sample may arrive at any point.

use super::{Busy, OwnThread, with_room};
use crate::image::{self, Image};
use crate::sinks::{Node, Verdict};
use crate::unwind::Registers;

impl OwnThread {
    /// Captures the calling thread's current path; see [`hpcrun_abi::ProfilerTable`]. Samples that arrive
    /// meanwhile are added to that path.
    pub fn capture(&self, registers: Registers) -> Option<(u32, u32)> {
        let node = with_room(|| self.capture_and(&registers, |_, node| node));
        let Node { profile, record } = node?;
        self.path.samples().inspect(|samples| samples.capture(profile, record));
        Some((self.ordinal(), record))
    }

    /// Charges the calling thread's current path with an amount of a metric, which the image may have:
    /// waiting for a lock that it held, or for other ranks, nanoseconds. False if that is not possible.
    pub fn charge_metric(
        &self,
        registers: Registers,
        metric: fn(&Image) -> Option<usize>,
        amount: u64,
    ) -> bool {
        let Some(position) = image::current().and_then(metric) else { return false };
        let charge = |busy: &mut Busy<'_>, node: Node| {
            self.own().working.trace().waited(node.record);
            busy.add_value(node, position, amount)
        };
        with_room(|| self.capture_and(&registers, charge)).unwrap_or(false)
    }

    /// The thread's wait is over. If it was long, says where it was: to the trace, and for how long nobody
    /// worked.
    #[inline]
    pub fn end_wait(&self) {
        /// It takes some microseconds to say where a wait was.
        const LONG: u64 = 2_000_000;
        let stood_still = self.own().working.end_wait();
        if stood_still >= LONG {
            self.charge_metric(Registers::here(), |image| image.standstill, stood_still);
        } else if self.own().working.trace().has_waited() {
            let trace = self.own().working.trace();
            with_room(|| self.capture_and(&Registers::here(), |_, node| trace.waited(node.record)));
        }
    }

    /// Captures the current path, and calls `act` with its node.
    fn capture_and<T>(&self, registers: &Registers, act: impl FnOnce(&mut Busy<'_>, Node) -> T) -> Option<T> {
        // Opened before `enter` and closed after `Busy` is dropped, so that no sample falls between.
        self.own().deferred.open();
        let done = self.enter().map(|mut busy| {
            let verdict = busy.walk(registers);
            match verdict {
                Verdict::Path(node) => (verdict, Some(act(&mut busy, node))),
                Verdict::Idle | Verdict::Lost(_) => (verdict, None),
            }
        });
        while let (Some((verdict, _)), false) = (&done, self.own().deferred.is_empty()) {
            let Some(mut busy) = self.enter() else { break };
            if let Some(values) = self.own().deferred.take() {
                busy.tell(*verdict, &values);
            }
        }
        self.own().deferred.close();
        done?.1
    }
}
