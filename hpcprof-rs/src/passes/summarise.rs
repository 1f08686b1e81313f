//! Summaries of processes and threads: identity, end, counters, losses.

use crate::model::experiment::{Experiment, Loss, ProcessSummary, ThreadSummary};
use crate::model::warnings::Warnings;
use crate::sources::measurements::{ProcessInput, TRACED, ThreadInput};
use hpc_formats::loss::LossCause;
use hpc_formats::process::Start;
use hpc_formats::profile::Header;
use std::collections::BTreeMap;

/// Why a process's file ended before the process.
pub(super) const SANDBOX: &str = "sandbox that refuses samples";
/// How a process ends that may write no more files.
const NO_MORE_FILES: &str = "no more files";
/// Why a process could not write its files from some time on.
const USER: &str = "another user than the measurement directory's owner";

/// Adds a process's summary and its lost samples; partial ones are counted in the tree.
pub fn process(index: usize, input: &ProcessInput, experiment: &mut Experiment, warnings: &mut Warnings) {
    let headers = || input.threads.values().map(|t| &t.header);
    let file = input.process.as_ref();
    let end = file.and_then(|file| file.end.clone());
    let mut start = file.map_or_else(Start::default, |file| file.start.clone());
    (start.pid, start.image) = (input.pid, input.start_monotonic_ns);
    if let Some(text) = coarse_rate(&start) {
        warnings.add(text);
    }
    const WORTH_A_WORD_NS: u64 = 100_000_000;
    let is_slow = |h: &&Header| {
        let mut slow = h.losses.iter().filter(|(cause, _)| *cause == LossCause::SlowSamples);
        slow.any(|(_, n)| n.saturating_mul(20) > h.weight && n.saturating_mul(h.period_ns) > WORTH_A_WORD_NS)
    };
    if let Some(first) = headers().find(is_slow) {
        let n = headers().filter(is_slow).count();
        warnings.add(format!(
            "threads of process {} have fewer samples than asked for ({n}, first `{}`): each took more than \
             a twentieth of the time between two (deep stacks); they are weighted, so totals are right",
            start.pid, first.name
        ));
    }
    let is_another_user = file.is_some_and(|f| f.unprofiled.iter().any(|u| u.reason == USER));
    let ended = |by: &str| end.as_ref().is_some_and(|end| end.reason == by);
    for (is_so, text) in [
        (
            file.is_some() && end.is_none() && !is_another_user,
            "did not end in order (crashed, killed, or still running): figures go up to the last sample",
        ),
        (
            ended(SANDBOX),
            "entered a sandbox (seccomp) that refuses what samples need: what was done from then on is in no \
             figure",
        ),
        (
            ended(NO_MORE_FILES),
            "lowered the limit of open files or their size, or entered a sandbox, and ended where no more \
             files could be written: threads and processes that began then are in no figure",
        ),
        (
            ended(TRACED),
            "ran under another program (a debugger, strace, or by ptrace), which samples would disturb: \
             what was done then is in no figure",
        ),
        (
            is_another_user,
            "became another user, who may not write into the measurement directory: threads and processes \
             that began then are in no figure; chown the directory to that user before the run (-o DIR)",
        ),
    ] {
        if is_so {
            warnings.add_of_process(start.pid, &start.executable, text);
        }
    }
    if start.period_ns == 0 {
        start.period_ns = headers().map(|h| h.period_ns).next().unwrap_or(0);
    }
    if let Some(end) = &end {
        start.cores = match (end.cores, start.cores) {
            (0, 0) => end.workers,
            (0, n) | (n, _) => n,
        };
    }
    // A lost sample of a thread stands for as long as its others do on average.
    let of_threads = headers().map(|h| (&h.losses, distance(h)));
    let of_process = end.iter().map(|e| (&e.losses, start.period_ns));
    for (losses, each) in of_threads.chain(of_process) {
        for (cause, samples) in losses.iter().filter(|(cause, _)| cause.is_lost()) {
            let loss = Loss { samples: *samples, nanoseconds: samples.saturating_mul(each) };
            experiment.add_loss(index, cause.name(), loss);
        }
    }
    // A process that was about to write no more files wrote its end then, and had more samples.
    let last_sample = headers().map(|h| h.last_ns).max().unwrap_or(0);
    let last_ns = match &end {
        Some(end) if end.reason != NO_MORE_FILES => end.monotonic_ns,
        Some(end) => end.monotonic_ns.max(last_sample),
        None => last_sample,
    };
    let ceiling = 1_000_000_000_u64.checked_div(u64::from(start.rate_ceiling));
    experiment.processes.push(ProcessSummary {
        run: input.run,
        end_ns: last_ns.max(start.image),
        threads: end.as_ref().map_or(0, |e| e.threads).max(input.threads.len() as u32),
        distance_ns: ceiling.unwrap_or(0).max(start.period_ns),
        unprofiled: file.map_or(Vec::new(), |file| file.unprofiled.clone()),
        start,
        end,
    });
}

/// Samples that are in no tree.
pub(super) fn lost(losses: &[(LossCause, u64)]) -> u64 {
    let lost = losses.iter().filter(|(cause, _)| cause.is_lost());
    lost.map(|(_, n)| *n).fold(0, u64::saturating_add)
}

/// A warning where the kernel's tick limits the rate: each sample then stands for several periods. Totals
/// stay right, detail is coarser.
fn coarse_rate(start: &Start) -> Option<String> {
    let rate = 1_000_000_000 / start.period_ns.max(1);
    let ceiling = u64::from(start.rate_ceiling);
    (ceiling > 0 && rate > ceiling).then(|| {
        format!(
            "{} takes at most {ceiling} samples per second of the {rate} asked for; they are weighted, so \
             totals are right (for more detail allow perf_event_open: sysctl kernel.perf_event_paranoid=1)",
            start.source
        )
    })
}

/// The time that a sample of a thread stands for on average, nanoseconds.
fn distance(header: &Header) -> u64 {
    let periods = header.weight as f64 / header.samples.max(1) as f64;
    (periods.max(1.0) * header.period_ns as f64).round() as u64
}

/// A thread's summary, before its samples are counted.
pub fn thread(process: usize, input: &ThreadInput) -> ThreadSummary {
    let header = &input.header;
    let periods = |n: f64| (n * header.period_ns as f64).round() as u64;
    let recorded = header.weight.saturating_add(header.idle_weight);
    ThreadSummary {
        process,
        header: header.clone(),
        samples: 0,
        unknown_caller_samples: BTreeMap::new(),
        sampled_ns: periods(recorded.saturating_add(lost(&header.losses)) as f64),
        distance_ns: distance(header),
        idle_ns: periods(header.idle_weight as f64),
        oversubscribed_ns: periods(header.oversubscribed),
        totals: BTreeMap::new(),
    }
}
