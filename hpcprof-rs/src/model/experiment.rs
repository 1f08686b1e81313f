//! What is known of the merged runs: the passes fill it, the sinks write it.

use crate::model::code::Code;
use crate::model::critical_path::CriticalPath;
use crate::model::metrics::Metric;
use crate::model::workers::Runtime;
use hpc_formats::process::{CpuTimes, End, Start, Unprofiled};
use hpc_formats::profile::Header;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One process image.
#[derive(Clone, PartialEq, Debug)]
pub struct ProcessSummary {
    /// Its run, from 0. Processes of different runs have different clocks.
    pub run: usize,
    /// Its start; period and cores are those that were in force.
    pub start: Start,
    /// Its end; `None` when it crashed, was killed or still runs.
    pub end: Option<End>,
    /// Monotonic clock at the end, or at the last sample, nanoseconds.
    pub end_ns: u64,
    pub threads: u32,
    /// Least distance of its samples, nanoseconds: the period, or what the kernel's tick allows.
    pub distance_ns: u64,
    /// Programs that it started and that were not profiled.
    pub unprofiled: Vec<Unprofiled>,
}

impl ProcessSummary {
    /// CPU times; zeros when unknown.
    pub fn cpu(&self) -> CpuTimes {
        self.end.as_ref().map_or(CpuTimes::default(), |end| end.cpu)
    }

    /// Cores that it could use on average of the time in which it worked.
    pub fn mean_cores(&self) -> f64 {
        self.end.as_ref().map_or(f64::from(self.start.cores), |end| end.mean_cores)
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct ThreadSummary {
    /// Index of its process in [`Experiment::processes`].
    pub process: usize,
    pub header: Header,
    /// Samples in the tree.
    pub samples: u64,
    /// Of these, samples in tasks whose callers the task runtime does not tell, by runtime.
    pub unknown_caller_samples: BTreeMap<Runtime, u64>,
    /// CPU time that its samples stand for, in the tree or not, nanoseconds.
    pub sampled_ns: u64,
    /// Mean distance of its samples, nanoseconds.
    pub distance_ns: u64,
    /// Time in which it was sampled while idle (not in the tree), nanoseconds.
    pub idle_ns: u64,
    /// Its share of working threads beyond the cores, nanoseconds.
    pub oversubscribed_ns: u64,
    /// Totals by metric except samples, in base units.
    pub totals: BTreeMap<String, i64>,
}

impl ThreadSummary {
    pub fn add(&mut self, metric: &str, amount: i64) {
        if amount != 0 {
            let slot = self.totals.entry(metric.to_owned()).or_insert(0);
            *slot = slot.saturating_add(amount);
        }
    }
}

/// Samples that are lost or partial, and the time that they stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    pub samples: u64,
    pub nanoseconds: u64,
}

impl Loss {
    pub fn add(&mut self, other: Loss) {
        self.samples = self.samples.saturating_add(other.samples);
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
    }
}

/// CPU time that no sample stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// Whose, why, and what can be done.
    pub what: String,
    pub nanoseconds: u64,
}

/// A program that processes of the run started and that was not profiled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnprofiledProgram {
    pub program: String,
    pub reason: String,
    pub times: u32,
}

impl std::fmt::Display for UnprofiledProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.times {
            1 => write!(f, "{}: {}", self.program, self.reason),
            n => write!(f, "{}, {n} times: {}", self.program, self.reason),
        }
    }
}

/// A host, between two of its starts: all its processes share a clock.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Host {
    /// Its name; empty when unknown.
    pub name: String,
    pub boot: String,
}

/// A run: the processes of one measurement directory on one host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// What tells it from all other runs, 16 hexadecimal digits.
    pub key: String,
    /// Index of its host.
    pub host: usize,
    /// The set of runs that it is one part of, from 0: those of one job, which ran at the same time.
    pub set: usize,
    /// The job's id, from its launcher; empty when there is none.
    pub job: String,
    pub directory: String,
    /// What the user typed; empty where that is not known.
    pub command: Vec<String>,
    /// Wall clock at its start, nanoseconds since 1970.
    pub start_ns: u64,
    /// From its first start to its last end, nanoseconds.
    pub wall_ns: u64,
}

/// Everything that a database holds beside the values of threads.
#[derive(Debug, Default)]
pub struct Experiment {
    pub hosts: Vec<Host>,
    /// Runs, in the order of the directories.
    pub runs: Vec<Run>,
    /// Processes, by run, oldest first.
    pub processes: Vec<ProcessSummary>,
    /// Threads, by process and ordinal.
    pub threads: Vec<ThreadSummary>,
    /// Lost and partial samples by process and cause.
    pub losses: BTreeMap<(usize, String), Loss>,
    /// CPU time that no sample stands for, largest first.
    pub missing: Vec<Missing>,
    pub unprofiled: Vec<UnprofiledProgram>,
    /// Critical paths of the processes that tracked theirs, by index of the process.
    pub critical_paths: Vec<(usize, CriticalPath)>,
    pub metrics: Vec<Metric>,
    pub code: Code,
    pub logical_contexts: u32,
    /// The same of the physical projection; `None` where they are the same contexts.
    pub physical_contexts: Option<u32>,
}

impl Experiment {
    pub fn add_loss(&mut self, process: usize, cause: &str, loss: Loss) {
        self.losses.entry((process, cause.to_owned())).or_default().add(loss);
    }
}
