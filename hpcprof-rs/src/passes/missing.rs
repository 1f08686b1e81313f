//! Missing CPU time: what threads, processes and children used beyond the time that samples stand for, why,
//! and what can be done.
//!
//! A difference is noise below the largest of these:
//!
//! - 2 % of the time used;
//! - a few distances between samples, as a thread's last samples may be outstanding at its end; for many
//!   threads such errors add up as the root of their number;
//! - the distance beyond a period times the root of the number of samples, as samples that stand for several
//!   periods are uneven.

use crate::model::experiment::{Missing, ProcessSummary, ThreadSummary, UnprofiledProgram};
use crate::passes::summarise::{SANDBOX, lost};
use crate::sources::measurements::{FEW_PERIODS, TRACED};
use hpc_formats::loss::LossCause;
use hpc_formats::process::{THREAD_OF, program_name};
use std::collections::BTreeMap;

/// Smallest share of the time used that counts as missing.
const SHARE: f64 = 0.02;
/// CPU time of a thread that the profiler cannot measure: its creation and its end.
const EDGE_NS: u64 = 50_000;

/// What is missing of all runs, largest first.
pub fn find(processes: &[ProcessSummary], threads: &[ThreadSummary]) -> Vec<Missing> {
    let mut by_process: Vec<Vec<&ThreadSummary>> = vec![Vec::new(); processes.len()];
    for thread in threads {
        by_process[thread.process].push(thread);
    }
    let mut missing = Vec::new();
    let mut runs: BTreeMap<usize, Vec<Account<'_>>> = BTreeMap::new();
    for (process, threads) in processes.iter().zip(by_process) {
        // Other events have other units.
        if ["", "cpu-time"].contains(&process.start.event.as_str()) {
            let account = Account::new(process, threads, processes.len() > 1);
            account.own(&mut missing);
            runs.entry(process.run).or_default().push(account);
        }
    }
    for run in runs.values() {
        missing.extend(children(run));
    }
    missing.sort_by(|a, b| (b.nanoseconds, &a.what).cmp(&(a.nanoseconds, &b.what)));
    missing
}

/// How exactly samples measure CPU time.
#[derive(Clone, Copy)]
struct Precision {
    period_ns: u64,
    /// Mean distance of samples of a thread.
    distance_ns: u64,
    samples: u64,
    threads: u64,
}

impl Precision {
    /// The least difference that counts in an amount of time.
    fn tolerance(self, used: u64) -> u64 {
        let root = |n: u64| (n as f64).sqrt();
        let distance = self.distance_ns as f64;
        let uneven = self.distance_ns.saturating_sub(self.period_ns) as f64;
        let ends = distance * root(self.threads).max(FEW_PERIODS as f64);
        let noise = ends.max(uneven * root(self.samples));
        (noise + EDGE_NS as f64 * self.threads as f64).max(used as f64 * SHARE) as u64
    }
}

/// The CPU time of one process image.
struct Account<'a> {
    process: &'a ProcessSummary,
    threads: Vec<&'a ThreadSummary>,
    /// Names the process in its entries, where there are several.
    prefix: String,
    precision: Precision,
    sampled_ns: u64,
}

impl<'a> Account<'a> {
    fn new(
        process: &'a ProcessSummary,
        threads: Vec<&'a ThreadSummary>,
        is_one_of_several: bool,
    ) -> Account<'a> {
        let name = program_name(&process.start.executable);
        let prefix = match is_one_of_several {
            true => format!("process `{name}` ({}), ", process.start.pid),
            false => String::new(),
        };
        let samples = threads.iter().map(|t| t.samples);
        let samples = samples.fold(0, u64::saturating_add);
        let weighted = |t: &&ThreadSummary| t.distance_ns as f64 * t.samples as f64;
        let mean = threads.iter().map(weighted).sum::<f64>() / samples.max(1) as f64;
        let lost = process.end.as_ref().map_or(0, |end| lost(&end.losses));
        let lost = lost.saturating_mul(process.start.period_ns);
        Account {
            prefix,
            precision: Precision {
                period_ns: process.start.period_ns,
                distance_ns: process.distance_ns.max(mean as u64),
                samples,
                threads: u64::from(process.threads),
            },
            sampled_ns: threads.iter().map(|t| t.sampled_ns).fold(lost, u64::saturating_add),
            process,
            threads,
        }
    }

    /// What is missing of the process itself.
    fn own(&self, out: &mut Vec<Missing>) {
        let first = out.len();
        for thread in &self.threads {
            let gap = thread.header.cpu_ns.saturating_sub(thread.sampled_ns);
            let own = Precision {
                distance_ns: self.process.distance_ns.max(thread.distance_ns),
                samples: thread.samples,
                threads: 1,
                ..self.precision
            };
            if gap > own.tolerance(thread.header.cpu_ns) {
                out.push(self.entry(gap, &thread_text(thread, &self.process.start.source)));
            }
        }
        let cpu = self.process.cpu();
        let used_by = |t: &&ThreadSummary| t.header.cpu_ns.max(t.sampled_ns);
        let seen = self.threads.iter().map(used_by);
        let seen = seen.fold(cpu.unsampled_ns, u64::saturating_add);
        let tolerance = self.precision.tolerance(cpu.process_ns);
        let unseen = cpu.process_ns.saturating_sub(seen);
        if unseen > tolerance {
            let mut which = match self.threads.iter().any(|t| t.header.cpu_ns == 0) {
                true => "threads that the profiler did not see, or that still ran at the end",
                false => "threads that the profiler did not see",
            }
            .to_owned();
            let threads = unprofiled([self.process].into_iter());
            let threads = threads.iter().filter(|row| row.reason.starts_with(THREAD_OF));
            let named: Vec<String> = threads.map(ToString::to_string).collect();
            if !named.is_empty() {
                which += &format!(" ({})", named.join(", "));
            }
            out.push(self.entry(unseen, &which));
        }
        let reported = out[first..].iter().map(|m| m.nanoseconds);
        let known = reported.fold(self.sampled_ns, u64::saturating_add);
        let rest = cpu.process_ns.saturating_sub(known);
        if rest > tolerance {
            let what = match cpu.unsampled_ns >= rest / 2 {
                true => self.unsampled_text(),
                false => "samples that were not taken".to_owned(),
            };
            out.push(self.entry(rest, &what));
        }
    }

    /// Why threads have no profile: they were short, or their timers did not fire.
    fn unsampled_text(&self) -> String {
        let profiles = self.threads.len() as u64;
        let threads = u64::from(self.process.threads).saturating_sub(profiles);
        let few = self.precision.distance_ns.saturating_mul(FEW_PERIODS);
        let why = match self.process.cpu().unsampled_ns / threads.max(1) > few {
            true => {
                let losses = self.process.end.as_ref().map_or(&[][..], |end| &end.losses);
                timer_stopped(losses, &self.process.start.source)
            }
            false => "they ended before their first one; use a higher rate (-e cpu-time@1000)",
        };
        format!("threads without a sample: {why}")
    }

    fn entry(&self, nanoseconds: u64, what: &str) -> Missing {
        Missing { what: format!("{}{what}", self.prefix), nanoseconds }
    }
}

fn thread_text(thread: &ThreadSummary, source: &str) -> String {
    let why = timer_stopped(&thread.header.losses, source);
    format!("thread `{}` ({}): {why}", thread.header.name, thread.header.thread)
}

/// Why a timer stops, and the remedy, by the counted losses and the source of samples.
fn timer_stopped(losses: &[(LossCause, u64)], source: &str) -> &'static str {
    let is_gone = losses.iter().any(|(cause, _)| *cause == LossCause::NoTimer);
    match source {
        s if s.starts_with("perf") && is_gone => {
            "the program closed the timer's descriptor by a system call of its own; use --source posix-timer"
        }
        s if s.starts_with("perf") => {
            "the timer stopped, or its signal was blocked; use --source posix-timer"
        }
        "posix-timer" if is_gone => {
            "the program deleted the timer, or the system refused it (ulimit -i); use --source perf-sigtrap"
        }
        "posix-timer" => {
            "the kernel's ticks came while others had the cores (a busy machine), the timer stopped, or its \
             signal was blocked; use --source perf-sigtrap"
        }
        _ => "the timer stopped",
    }
}

/// What children of a run used beyond its profiled processes. The first process is an ancestor of all others,
/// so their time is in the sum of its children. The time of a child that nobody waited for is in no sum.
fn children(run: &[Account<'_>]) -> Option<Missing> {
    let pid = run.first()?.process.start.pid;
    let (first, others): (Vec<_>, Vec<_>) = run.iter().partition(|a| a.process.start.pid == pid);
    // An exec keeps the sum of the children.
    let of_children = first.iter().map(|a| a.process.cpu().children_ns).max()?;
    let used = |a: &&Account<'_>| match a.process.cpu().process_ns {
        0 => a.sampled_ns,
        known => known,
    };
    let profiled = others.iter().map(used).fold(0, u64::saturating_add);
    let gap = of_children.saturating_sub(profiled);
    let unprofiled = unprofiled(run.iter().map(|a| a.process));
    let largest = run.iter().max_by_key(|a| a.precision.distance_ns)?;
    let precision =
        Precision { threads: (others.len() + unprofiled.len()).max(1) as u64, ..largest.precision };
    if gap <= precision.tolerance(of_children) {
        return None;
    }
    let programs = unprofiled.iter().filter(|row| !row.reason.starts_with(THREAD_OF));
    let mut which: Vec<String> = programs.map(ToString::to_string).collect();
    for (process, why) in others.iter().filter_map(|a| Some((a.process, stopped(a.process)?))) {
        which.push(format!("{} ({}): {why}", process.start.executable, process.start.pid));
    }
    let what = match which.is_empty() {
        true => "children that ran unprofiled, or used it before the profiler started in them".to_owned(),
        false => format!("children that ran unprofiled ({})", which.join(", ")),
    };
    Some(Missing { what, nanoseconds: gap })
}

/// Why a process was profiled in part only.
fn stopped(process: &ProcessSummary) -> Option<&'static str> {
    match process.end.as_ref()?.reason.as_str() {
        TRACED => Some("traced by another program (a debugger, strace, or by ptrace)"),
        SANDBOX => Some("in a sandbox (seccomp) that refuses what samples need"),
        _ => None,
    }
}

/// Each program that ran unprofiled, with how often it was started.
pub fn unprofiled<'a>(processes: impl Iterator<Item = &'a ProcessSummary>) -> Vec<UnprofiledProgram> {
    let mut counts: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for program in processes.flat_map(|p| &p.unprofiled) {
        let key = (program.executable.as_str(), program.reason.as_str());
        *counts.entry(key).or_default() += 1;
    }
    let row = |((program, reason), times): ((&str, &str), u32)| UnprofiledProgram {
        program: program.to_owned(),
        reason: reason.to_owned(),
        times,
    };
    counts.into_iter().map(row).collect()
}
