//! Makes one pair of trees of those of all workers.

use crate::error::{Error, Result};
use crate::model::contexts::ContextIndex;
use crate::model::loops::{LoopIndex, ParallelLoops};
use crate::passes::merge::shard::{Finished, Inputs, MergedThread, Shard, Trees};
use crate::passes::merge::spool::Spool;
use hpcstruct_rs::parallel;
use std::io;
use std::path::Path;

/// A worker's spooled values, with what its contexts became.
#[derive(Debug)]
pub struct Spooled {
    pub spool: Spool,
    /// Contexts, by the worker's index.
    pub contexts: Vec<u32>,
    /// Contexts of the physical projection, where that differs and contexts have their final numbers.
    pub physical: Option<Vec<u32>>,
}

/// All workers' results in one.
#[derive(Debug, Default)]
pub struct Merged {
    pub trees: Trees,
    pub spooled: Vec<Spooled>,
    /// All threads in the order of their profiles, each with the index of its worker.
    pub threads: Vec<(usize, MergedThread)>,
}

/// Merges all profiles on `threads` threads. Temporary files are in `directory`.
pub fn merge(
    inputs: Inputs<'_>,
    threads: usize,
    directory: &Path,
    progress: impl Fn(usize) + Sync,
) -> Result<Merged> {
    let profiles: Vec<_> = inputs.measurements.profiles().collect();
    let begin = || Spool::new(directory).map(Shard::new);
    let shards = parallel::for_each(&profiles, threads, begin, |shard, index, (process, thread)| {
        let Ok(known) = shard else { return };
        let added = known.add(inputs, index, *process, thread);
        if let Err(error) = added {
            *shard = Err(error);
        }
        progress(thread.size());
    });
    let written: io::Result<Vec<Finished>> = shards.into_iter().map(|s| s?.finish()).collect();
    let mut merged = Merged::default();
    for shard in written.map_err(Error::io("write values to", directory))? {
        merged.add(shard);
    }
    merged.threads.sort_by_key(|(_, thread)| thread.index);
    Ok(merged)
}

impl Merged {
    /// Gives contexts their final numbers, of the logical projection and the physical one.
    pub fn number(&mut self, logical: &[u32], physical: Option<&[u32]>) {
        for Spooled { contexts, physical: machine, .. } in &mut self.spooled {
            let final_of = |context: &u32, numbers: &[u32]| numbers[*context as usize];
            *machine = physical.map(|of| contexts.iter().map(|c| final_of(c, of)).collect());
            for context in contexts {
                *context = final_of(context, logical);
            }
        }
    }

    fn add(&mut self, (trees, spool, threads): Finished) {
        let worker = self.spooled.len();
        let contexts = match worker {
            0 => {
                self.trees = trees;
                (0..self.trees.contexts.len() as u32).collect()
            }
            _ => {
                let became = self.trees.contexts.merge(&trees.contexts);
                add_loops(&mut self.trees.loops.loops, &trees.loops.loops, &became);
                became.into_iter().map(|context| context.0).collect()
            }
        };
        self.spooled.push(Spooled { spool, contexts, physical: None });
        self.threads.extend(threads.into_iter().map(|t| (worker, t)));
    }
}

/// Adds loops that another worker found; `became` says what its contexts are.
fn add_loops(to: &mut ParallelLoops, from: &ParallelLoops, became: &[ContextIndex]) {
    let add = |key| {
        let entry = to.all.entry(key);
        let index = LoopIndex(entry.index() as u32);
        entry.or_default();
        index
    };
    let own: Vec<LoopIndex> = from.all.keys().copied().map(add).collect();
    for (context, index) in &from.frames {
        let context = became[context.0 as usize];
        to.frames.insert(context, own[index.0 as usize]);
    }
    for (function, seen) in &from.by_function {
        let known = to.by_function.entry(*function).or_default();
        known.extend(seen.iter().map(|index| own[index.0 as usize]));
    }
}
