//! The slices of a run's threads, with the threads' positions and the final numbers of contexts.

use crate::error::Result;
use crate::passes::merge::reduce::Merged;
use crate::passes::slices::{self, Slice};
use crate::sources::measurements::Measurements;
use hpc_formats::trace::{Block, Trace};
use std::collections::BTreeMap;

/// A thread's position among all, and the records that its trace names with their contexts, sorted.
type Known = (usize, Vec<(u32, u32)>);

/// What the records that traces name became, by process and ordinal.
#[derive(Debug, Default)]
pub struct Named(BTreeMap<(usize, u32), Known>);

#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Index of its process.
    pub process: usize,
    pub ordinal: u32,
    /// The thread's position, if it has a profile.
    pub thread: Option<usize>,
    pub context: Option<u32>,
    /// Its times count from the run's start.
    pub slice: Slice,
}

impl Named {
    /// Of threads whose contexts have their final numbers.
    pub fn new(merged: &Merged) -> Named {
        let threads = merged.threads.iter().enumerate();
        let named = threads.map(|(position, (worker, thread))| {
            let contexts = &merged.spooled[*worker].contexts;
            let named = thread.traced.iter().map(|(record, context)| (*record, contexts[*context as usize]));
            let key = (thread.summary.process, thread.summary.header.thread);
            (key, (position, named.collect()))
        });
        Named(named.collect())
    }

    /// Calls `add` with each slice of a run, one thread after the other. `end_of` says when a process has
    /// ended.
    pub fn each(
        &self,
        (measurements, run): (&Measurements, usize),
        end_of: impl Fn(usize) -> u64,
        add: &mut dyn FnMut(&Row) -> Result<()>,
    ) -> Result<()> {
        let processes = || measurements.processes.iter().enumerate().filter(|(_, p)| p.run == run);
        let begin = begin(measurements, run);
        for (process, input) in processes() {
            let Some(input) = &input.trace else { continue };
            input.read(|trace| {
                let end = end_of(process).max(last_event(trace));
                for blocks in trace.blocks.chunk_by(|a, b| a.thread == b.thread) {
                    let ordinal = blocks[0].thread;
                    let known = self.0.get(&(process, ordinal));
                    let thread = known.map(|(position, _)| *position);
                    for slice in slices::of(blocks, end, trace.period_ns) {
                        let context = known.and_then(|(_, named)| {
                            let at = named.binary_search_by_key(&slice.context, |(record, _)| *record);
                            Some(named[at.ok()?].1)
                        });
                        let [start, end] = [slice.start, slice.end].map(|time| time.saturating_sub(begin));
                        let slice = Slice { start, end, ..slice };
                        add(&Row { process, ordinal, thread, context, slice })?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// When a run begins, by the monotonic clock.
pub fn begin(measurements: &Measurements, run: usize) -> u64 {
    let own = measurements.processes.iter().filter(|p| p.run == run);
    own.map(|p| p.start_monotonic_ns).min().unwrap_or(0)
}

fn last_event(trace: &Trace<'_>) -> u64 {
    let events = trace.blocks.iter().flat_map(Block::events).flatten();
    events.map(|(time, _)| time).max().unwrap_or(0)
}
