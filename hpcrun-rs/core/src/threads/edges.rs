//! What the critical path tells the trace of the calling thread: after which moments of others it goes on.

use crate::trace::{ThreadTrace, now};
use critical_path::{Edge, Moment, Trace};
use hpc_formats::trace::Event;

/// For the tracker of a process image that is traced.
pub(crate) const TRACE: Trace = Trace { now: moment, follow, receive, send };

fn traced<R>(act: impl FnOnce(&ThreadTrace) -> R) -> Option<R> {
    let thread = super::current()?;
    let trace = thread.own().working.trace();
    trace.is_on().then(|| act(trace))
}

fn moment() -> Moment {
    traced(|trace| Moment { time: now().unwrap_or(0), thread: trace.thread() }).unwrap_or_default()
}

fn follow(moment: Moment, edge: Edge, is_path: bool) {
    traced(|trace| trace.follow(moment, edge, is_path));
}

fn receive(rank: u32, export: u32, is_path: bool) {
    traced(|trace| trace.put_now(|_| Some(Event::Received { is_path, rank, export })));
}

fn send(export: u32) {
    traced(|trace| trace.put_now(|_| Some(Event::Sent(export))));
}
