//! What holds for the runs as a whole: how long, on how many cores, and how far the figures can be trusted.
//! It is worked out when a database is built, and stored as JSON.

use crate::model::experiment::{Experiment, Host, Loss, ProcessSummary, ThreadSummary, UnprofiledProgram};
use hpc_formats::process::program_name;
use hpc_formats::profile::OVERSUBSCRIPTION;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// All processes and threads together. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Statistics {
    /// The first process's program with its arguments.
    pub program: String,
    /// The first process's event, as the user gave it; empty when unknown.
    pub event: String,
    /// Sampling period of the first process.
    pub period_ns: i64,
    pub executables: Vec<String>,
    /// Runs that were merged; the parts of one job are one run.
    pub runs: usize,
    /// Parts of runs: measurement directories, by host.
    pub parts: usize,
    pub hosts: Vec<String>,
    /// Cores that idleness is computed against on average, of all hosts of a run; the largest run's.
    pub cores: u32,
    pub threads: u64,
    /// From the first start to the last end, summed over the runs, each of which has its own clock. Hosts of
    /// one run worked at the same time.
    pub wall_ns: i64,
    /// All that occur.
    pub sizes: BTreeSet<u32>,
    /// Threads that could work at once, as many as the cores, of all runs together.
    pub takers: u32,
    /// Estimated wall time in which no thread worked: what effort on all cores does not fill.
    pub wait_ns: i64,
    /// Samples in the tree.
    pub samples: i64,
    /// Samples whose path reaches the program's entry.
    pub rooted: i64,
    /// The time that samples in the tree stand for.
    pub sampled_ns: i64,
    /// The same of those whose path reaches the program's entry.
    pub rooted_ns: i64,
    pub lost: BTreeMap<String, i64>,
    /// The time that they stand for.
    pub lost_ns: BTreeMap<String, i64>,
    /// CPU time that no sample stands for, with whose it is.
    pub missing: Vec<(String, i64)>,
    pub unprofiled: Vec<UnprofiledProgram>,
    /// Samples in tasks whose callers the task runtime does not tell, by runtime.
    pub unknown_caller_samples: BTreeMap<String, i64>,
    /// Share of working threads beyond the cores.
    pub oversubscribed_ns: i64,
    /// CPU time: what the kernel counted or what was sampled, whichever is more.
    pub cpu_ns: i64,
    /// CPU time in spinning waits and in schedulers' searches for work.
    pub spinning_ns: i64,
    /// Waiting that no hook saw.
    pub estimated_wait_ns: i64,
    /// Waiting for locks that no context is charged with.
    pub unknown_lock_wait_ns: i64,
    /// For how long threads were ready to run and had no core, by the kernel's account.
    pub run_delay_ns: i64,
}

impl Statistics {
    pub fn of(experiment: &Experiment) -> Statistics {
        let Experiment { hosts, processes, threads, .. } = experiment;
        let lost = |of: fn(&Loss) -> u64| {
            let mut sums: BTreeMap<String, i64> = BTreeMap::new();
            for ((_, cause), loss) in &experiment.losses {
                let slot = sums.entry(cause.clone()).or_default();
                *slot = slot.saturating_add(signed(of(loss)));
            }
            sums
        };
        let (lost, lost_ns) = (lost(|l| l.samples), lost(|l| l.nanoseconds));
        let partial = |of: &BTreeMap<String, i64>| {
            let partial = of.iter().filter(|(cause, _)| cause.starts_with("partial:"));
            sum(partial.map(|(_, n)| *n))
        };
        let mut unknown_caller_samples: BTreeMap<String, i64> = BTreeMap::new();
        for (runtime, samples) in threads.iter().flat_map(|t| &t.unknown_caller_samples) {
            let slot = unknown_caller_samples.entry(runtime.0.to_owned()).or_default();
            *slot = slot.saturating_add(signed(*samples));
        }
        let all = |of: fn(&ProcessSummary) -> u64| sum(processes.iter().map(|p| signed(of(p))));
        let of_threads = |of: fn(&ThreadSummary) -> u64| sum(threads.iter().map(|t| signed(of(t))));
        let (samples, spinning_ns) = (of_threads(|t| t.samples), of_threads(|t| t.idle_ns));
        let total = |name: &str| sum(threads.iter().filter_map(|t| t.totals.get(name)).copied());
        let in_tree_ns = total("work").saturating_add(total("overhead"));
        // Of a process without an end, what its contexts were charged with is known.
        let mut charged = vec![0_i64; processes.len()];
        for thread in threads {
            let of_thread = thread.totals.get(OVERSUBSCRIPTION).copied().unwrap_or(0);
            if let Some(slot) = charged.get_mut(thread.process) {
                *slot = slot.saturating_add(of_thread);
            }
        }
        let kernels = processes.iter().map(|p| signed(p.cpu().run_delay_ns));
        let run_delay_ns = sum(kernels.zip(charged).map(|(kernel, charged)| kernel.max(charged)));
        let runs = Run::all(experiment);
        let walls = runs.iter().map(|run| run.wall(hosts));
        let (first, missing) = (processes.first(), experiment.missing.iter());
        Statistics {
            program: first.map_or(String::new(), |p| {
                let typed = &experiment.runs[p.run].command;
                let (program, words) = typed
                    .first()
                    .map_or((&p.start.executable, &p.start.arguments), |program| (program, typed));
                let arguments = words.iter().skip(1).map(String::as_str);
                let words = std::iter::once(program_name(program)).chain(arguments);
                words.collect::<Vec<_>>().join(" ")
            }),
            takers: 0,
            event: first.map_or(String::new(), |p| p.start.event.clone()),
            period_ns: first.map_or(0, |p| signed(p.start.period_ns)),
            runs: runs.len(),
            parts: experiment.runs.len(),
            cores: runs.iter().map(Run::cores).max().unwrap_or(0),
            sizes: runs.iter().map(Run::cores).collect(),
            threads: processes.iter().map(|p| u64::from(p.threads)).sum(),
            wall_ns: sum(walls.clone()),
            wait_ns: sum(runs.iter().zip(walls).map(|(run, wall)| run.wait(wall))),
            hosts: hosts.iter().map(|host| host.name.clone()).collect(),
            samples,
            rooted: samples.saturating_sub(partial(&lost)),
            sampled_ns: in_tree_ns,
            rooted_ns: in_tree_ns.saturating_sub(partial(&lost_ns)),
            missing: missing.map(|m| (m.what.clone(), signed(m.nanoseconds))).collect(),
            unprofiled: experiment.unprofiled.clone(),
            unknown_caller_samples,
            oversubscribed_ns: of_threads(|t| t.oversubscribed_ns),
            cpu_ns: all(|p| p.cpu().process_ns).max(in_tree_ns.saturating_add(spinning_ns)),
            spinning_ns,
            estimated_wait_ns: all(|p| p.cpu().estimated_wait_ns),
            unknown_lock_wait_ns: all(|p| p.cpu().unknown_lock_wait_ns),
            run_delay_ns,
            executables: processes.iter().map(|p| p.start.executable.clone()).collect(),
            lost,
            lost_ns,
        }
    }

    /// Estimated wall time in which nobody worked since others had the cores: threads were ready to run, and
    /// not because there are more of them than cores.
    pub fn others_ns(&self) -> i64 {
        self.run_delay_ns.saturating_sub(self.oversubscribed_ns).clamp(0, self.wait_ns)
    }

    /// For how long threads waited for a core that the program's own threads had. As many threads as cores
    /// can wait at once while others have these.
    pub fn competition_ns(&self) -> i64 {
        let cores = i64::from(self.cores);
        match self.run_delay_ns {
            _ if self.threads <= u64::from(self.cores) && self.oversubscribed_ns == 0 => 0,
            0 => self.oversubscribed_ns,
            delay => delay.saturating_sub(self.others_ns().saturating_mul(cores)).max(0),
        }
    }

    pub fn missing_ns(&self) -> i64 {
        sum(self.missing.iter().map(|(_, ns)| *ns))
    }

    /// Share of the samples that are rooted, each by the time that it stands for.
    pub fn rooted_percent(&self) -> f64 {
        match self.sampled_ns {
            0 => self.rooted as f64 * 100.0 / self.samples.max(1) as f64,
            all => self.rooted_ns as f64 * 100.0 / all as f64,
        }
    }
}

/// A sum that forged measurements, or a forged database, cannot make overflow.
pub fn sum(values: impl Iterator<Item = i64>) -> i64 {
    values.fold(0, i64::saturating_add)
}

/// A forged counter beyond signed numbers, which are all that SQLite has, is cut.
pub fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The parts of one job, which ran at the same time, by host.
#[derive(Default)]
struct Run(BTreeMap<usize, OnHost>);

/// What ran on one host.
#[derive(Default)]
struct OnHost {
    /// Most cores that a process could use on average.
    cores: f64,
    spans: Vec<Span>,
    effort: i64,
    /// Time in which someone worked, as far as samples know.
    busy: f64,
}

impl OnHost {
    /// Mean n while someone worked.
    fn mean_cores(&self) -> f64 {
        if self.busy > 0.0 { self.effort as f64 / self.busy } else { self.cores }
    }
}

/// First start and last end by the clock of a host, nanoseconds.
type Span = (i64, i64);

impl Run {
    fn all(experiment: &Experiment) -> Vec<Run> {
        let Experiment { runs: parts, processes, threads, .. } = experiment;
        let mut efforts = vec![0_i64; processes.len()];
        for thread in threads {
            let totals = ["work", "idleness", "overhead"].map(|name| thread.totals.get(name));
            let effort = sum(totals.into_iter().flatten().copied());
            efforts[thread.process] = efforts[thread.process].saturating_add(effort);
        }
        let mut runs: BTreeMap<usize, Run> = BTreeMap::new();
        let mut spans: BTreeMap<usize, Span> = BTreeMap::new();
        for (process, effort) in processes.iter().zip(efforts) {
            let (start, end) = (signed(process.start.image), signed(process.end_ns));
            let span = spans.entry(process.run).or_insert((start, end));
            *span = (span.0.min(start), span.1.max(end));
            let part = &parts[process.run];
            let host = runs.entry(part.set).or_default().0.entry(part.host).or_default();
            let cores = process.mean_cores();
            host.cores = host.cores.max(cores);
            if cores > 0.0 {
                host.effort = host.effort.saturating_add(effort);
                host.busy += effort as f64 / cores;
            }
        }
        for (part, span) in spans {
            let part = &parts[part];
            let run = runs.entry(part.set).or_default();
            run.0.entry(part.host).or_default().spans.push(span);
        }
        runs.into_values().collect()
    }

    fn cores(&self) -> u32 {
        let cores = self.0.values().map(|host| host.mean_cores().round() as u32);
        cores.fold(0, u32::saturating_add)
    }

    /// How long it took: on the host that took longest.
    fn wall(&self, hosts: &[Host]) -> i64 {
        let walls = self.0.iter().map(|(host, OnHost { spans, .. })| {
            let longest = spans.iter().map(|s| s.1.saturating_sub(s.0)).max();
            match !hosts[*host].boot.is_empty() {
                true => covered(spans.clone()),
                false => longest.unwrap_or(0),
            }
        });
        walls.max().unwrap_or(0).max(0)
    }

    /// The part of its wall time that its effort does not fill.
    fn wait(&self, wall: i64) -> i64 {
        let effort: i64 = sum(self.0.values().map(|host| host.effort));
        let cores: f64 = self.0.values().map(OnHost::mean_cores).sum();
        let attributed = if cores > 0.0 { effort as f64 / cores } else { wall as f64 };
        wall.saturating_sub(attributed.round() as i64).max(0)
    }
}

/// The time within any of the spans.
fn covered(mut spans: Vec<Span>) -> i64 {
    spans.sort_unstable();
    let mut until = i64::MIN;
    let mut time = 0_i64;
    for (start, end) in spans {
        let start = start.max(until);
        time = time.saturating_add(end.saturating_sub(start).max(0));
        until = until.max(end);
    }
    time
}
