//! The traces of process images. Which contexts one names is read at once, its events when they are asked
//! for: memory does not grow with the traces.

use crate::error::{Error, Result};
use crate::model::warnings::Warnings;
use crate::sources::measurements::decoded;
use hpc_formats::error::FileError;
use hpc_formats::trace::{Block, Event, Trace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct TraceInput {
    path: PathBuf,
    pub pid: u32,
    /// The image's start.
    pub image: u64,
    /// By thread the records of its profile that events name, sorted.
    records: BTreeMap<u32, Vec<u32>>,
}

impl TraceInput {
    /// Finds what a trace names. `None`, with a warning, if it cannot be read; what it lacks is a warning.
    pub(super) fn find(path: &Path, warnings: &mut Warnings) -> Option<TraceInput> {
        let cost = "what this process did when is lost, all else is kept: run again for it";
        decoded(path, |data| Ok::<_, FileError>(TraceInput::of(path, &Trace::parse(data)?)), cost, warnings)
            .map(|(input, problems)| {
                problems.into_iter().for_each(|problem| warnings.add(problem));
                input
            })
    }

    fn of(path: &Path, trace: &Trace<'_>) -> (TraceInput, Vec<String>) {
        let mut damaged = trace.damaged;
        let mut records = BTreeMap::new();
        for blocks in trace.blocks.chunk_by(|a, b| a.thread == b.thread) {
            let mut own: Vec<u32> = Vec::new();
            for event in blocks.iter().flat_map(Block::events) {
                match event {
                    Some((_, Event::Sample { context, .. } | Event::Waited(context))) if context > 0 => {
                        own.push(context);
                    }
                    Some(_) => {}
                    None => damaged += 1,
                }
            }
            own.sort_unstable();
            own.dedup();
            records.insert(blocks[0].thread, own);
        }
        let name = path.display();
        let mut problems = Vec::new();
        if trace.replaced > 0 {
            let all = trace.replaced + trace.blocks.len() as u64;
            let share = (trace.replaced * 100).div_ceil(all);
            let problem =
                "of the trace are gone, since it was full: it has the newest; give --trace=SIZE more";
            problems.push(format!("{name}: the oldest {share} % {problem}"));
        }
        if trace.lost > 0 {
            problems
                .push(format!("{name}: {} events are not in the trace (no room, or too close)", trace.lost));
        }
        if damaged > 0 {
            let problem = "parts of the trace are damaged, the rest is kept: run again if it matters";
            problems.push(format!("{name}: {damaged} {problem}"));
        }
        (TraceInput { path: path.to_owned(), pid: trace.pid, image: trace.image, records }, problems)
    }

    pub fn records(&self, thread: u32) -> &[u32] {
        self.records.get(&thread).map_or(&[], Vec::as_slice)
    }

    /// Lets `act` see the whole trace.
    pub fn read<T>(&self, act: impl FnOnce(&Trace<'_>) -> Result<T>) -> Result<T> {
        let data = std::fs::read(&self.path).map_err(Error::io("read", &self.path))?;
        let refused = |e: FileError| Error::input(&self.path, e.to_string(), "leave it as it is meanwhile");
        act(&Trace::parse(&data).map_err(refused)?)
    }
}
