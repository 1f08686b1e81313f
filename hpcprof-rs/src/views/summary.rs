//! What a view says of the run as a whole: how long, on how much, and how far its figures can be trusted.

use crate::views::load::{Database, ProcessRow, UnprofiledRow};
use hpc_formats::process::program_name;
use std::collections::BTreeMap;

/// What holds for all processes and threads together. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// The program's name and arguments.
    pub program: String,
    /// Runs that were merged.
    pub runs: usize,
    /// Cores that idleness is computed against.
    pub cores: u32,
    /// Threads of all processes.
    pub threads: u64,
    /// From the first start to the last end, summed over the runs: each has a clock of its own.
    pub wall_ns: i64,
    /// Wall time in which, as far as its length tells, nobody worked: of the node that all processes of a run
    /// share.
    pub wait_ns: i64,
    /// Sampling period; of the first process.
    pub period_ns: i64,
    /// Samples in the tree.
    pub samples: i64,
    /// Those of them whose path reaches the program's entry.
    pub rooted: i64,
    /// Lost and partial samples by cause.
    pub lost: BTreeMap<String, i64>,
    /// CPU time that no sample stands for, with what it is of.
    pub missing: Vec<(String, i64)>,
    /// Programs that ran unprofiled.
    pub unprofiled: Vec<UnprofiledRow>,
    /// Samples in tasks whose spawner the task runtime does not tell, by runtime.
    pub spawnerless: BTreeMap<String, i64>,
    /// Share of working threads beyond the cores.
    pub oversubscribed_ns: i64,
    /// CPU time: of the processes as the kernel counts it, or what was sampled, whichever is more.
    pub cpu_ns: i64,
    /// The part of it that was spent in spinning waits and in schedulers' searches.
    pub spinning_ns: i64,
    /// Waiting that no hook saw.
    pub estimated_wait_ns: i64,
}

impl Summary {
    /// Of a database.
    pub fn of(database: &Database) -> Summary {
        let first = database.processes.first();
        let program = first.map_or(String::new(), |p| {
            let mut words = vec![program_name(&p.executable)];
            words.extend(p.arguments.iter().skip(1).map(String::as_str));
            words.join(" ")
        });
        let threads = || database.threads.iter();
        let processes = || database.processes.iter();
        let samples = sum(threads().map(|t| t.samples));
        let partial = database
            .losses
            .iter()
            .filter(|(cause, _)| cause.starts_with("partial:"));
        let spinning_ns = sum(threads().map(|t| t.idle_ns));
        let mut runs: BTreeMap<i64, Vec<(&ProcessRow, i64)>> = BTreeMap::new();
        let mut efforts = vec![0_i64; database.processes.len()];
        for thread in &database.threads {
            let slot = &mut efforts[thread.process as usize];
            *slot = sum([*slot, thread.working_ns, thread.idleness_ns].into_iter());
        }
        for (process, effort) in database.processes.iter().zip(efforts) {
            runs.entry(process.run).or_default().push((process, effort));
        }
        let (walls, waits): (Vec<i64>, Vec<i64>) = runs.values().map(|r| wall_and_wait(r)).unzip();
        let sampled = sum(threads().map(|t| t.working_ns)).saturating_add(spinning_ns);
        Summary {
            program,
            runs: runs.len(),
            cores: processes().map(|p| p.cores).max().unwrap_or(0),
            threads: processes().map(|p| u64::from(p.threads)).sum(),
            wall_ns: sum(walls.into_iter()),
            wait_ns: sum(waits.into_iter()),
            period_ns: first.map_or(0, |p| p.period_ns),
            samples,
            rooted: samples.saturating_sub(sum(partial.map(|(_, n)| *n))),
            lost: database.losses.clone(),
            missing: database.missing.clone(),
            unprofiled: database.unprofiled.clone(),
            spawnerless: database.spawnerless.clone(),
            oversubscribed_ns: sum(threads().map(|t| t.oversubscribed_ns)),
            cpu_ns: sum(processes().map(|p| p.cpu_ns)).max(sampled),
            spinning_ns,
            estimated_wait_ns: sum(processes().map(|p| p.estimated_wait_ns)),
        }
    }

    /// CPU time that no sample stands for.
    pub fn missing_ns(&self) -> i64 {
        sum(self.missing.iter().map(|(_, ns)| *ns))
    }

    /// Samples in tasks whose spawner the task runtime does not tell.
    pub fn spawnerless_samples(&self) -> i64 {
        sum(self.spawnerless.values().copied())
    }
}

fn sum(values: impl Iterator<Item = i64>) -> i64 {
    values.fold(0, i64::saturating_add)
}

/// The wall time of one run, and that part of it which the effort of its processes leaves.
fn wall_and_wait(run: &[(&ProcessRow, i64)]) -> (i64, i64) {
    let start = run.iter().map(|(p, _)| p.image).min().unwrap_or(0);
    let end = run.iter().map(|(p, _)| p.end_ns).max().unwrap_or(0);
    let cores = run
        .iter()
        .map(|(p, _)| i64::from(p.cores))
        .max()
        .unwrap_or(0);
    let wall = end.saturating_sub(start).max(0);
    let effort = sum(run.iter().map(|(_, effort)| *effort));
    let attributed = effort.checked_div(cores).unwrap_or(wall);
    (wall, wall.saturating_sub(attributed).max(0))
}
