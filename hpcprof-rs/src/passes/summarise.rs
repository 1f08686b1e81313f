//! Summaries of processes and threads: identity, end, counters, losses.

use crate::model::experiment::{Experiment, ProcessSummary, ThreadSummary};
use crate::model::warnings::Warnings;
use crate::sources::measurements::{ProcessInput, ThreadInput};
use hpc_formats::loss::LossCause;
use hpc_formats::process::Start;

/// Adds a process's summary and its lost samples; partial ones are counted in the tree.
pub fn process(
    index: usize,
    input: &ProcessInput,
    experiment: &mut Experiment,
    warnings: &mut Warnings,
) {
    let last_sample = input.threads.values().map(|t| t.header.last_ns).max();
    let period = input.threads.values().map(|t| t.header.period_ns).next();
    let mut summary = ProcessSummary {
        run: input.run,
        pid: input.pid,
        start_monotonic_ns: input.start_monotonic_ns,
        end_ns: last_sample.unwrap_or(0).max(input.start_monotonic_ns),
        period_ns: period.unwrap_or(0),
        threads: input.threads.len() as u32,
        ..ProcessSummary::default()
    };
    let mut losses: Vec<(LossCause, u64)> = Vec::new();
    for thread in input.threads.values() {
        losses.extend(&thread.header.losses);
    }
    if let Some(file) = &input.process {
        let start = &file.start;
        summary.ppid = start.ppid;
        summary.executable.clone_from(&start.executable);
        summary.arguments.clone_from(&start.arguments);
        summary.directory.clone_from(&start.directory);
        summary.event.clone_from(&start.event);
        summary.source.clone_from(&start.source);
        summary.realtime_ns = start.realtime_ns;
        summary.cores = start.cores;
        summary.unprofiled.clone_from(&file.unprofiled);
        if start.period_ns > 0 {
            summary.period_ns = start.period_ns;
        }
        let ceiling = u64::from(start.rate_ceiling);
        summary.distance_ns = 1_000_000_000_u64.checked_div(ceiling).unwrap_or(0);
        if let Some(text) = coarse_rate(start) {
            warnings.add(text);
        }
        match &file.end {
            Some(end) => {
                summary.end_ns = end.monotonic_ns.max(start.image);
                summary.end_reason = Some(end.reason.clone());
                summary.workers = end.workers;
                summary.cpu = end.cpu;
                summary.threads = summary.threads.max(end.threads);
                summary.cores = match (end.cores, start.cores) {
                    (0, 0) => end.workers,
                    (0, n) => n,
                    (n, _) => n,
                };
                losses.extend(&end.losses);
                let lost = end.losses.iter().filter(|(cause, _)| !cause.is_partial());
                summary.lost = lost.map(|(_, n)| *n).fold(0, u64::saturating_add);
            }
            None => warnings.add(format!(
                "process {} ({}) did not end in order (crashed, was killed, or still runs): \
                 figures go up to its last sample",
                start.pid, start.executable
            )),
        }
    }
    summary.distance_ns = summary.distance_ns.max(summary.period_ns);
    for (cause, samples) in losses {
        if !cause.is_partial() {
            experiment.add_loss(index, cause.name(), samples);
        }
    }
    experiment.processes.push(summary);
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

/// A thread's summary, before its samples are counted.
pub fn thread(process: usize, input: &ThreadInput) -> ThreadSummary {
    let header = &input.header;
    let periods = |n: f64| (n * header.period_ns as f64).round() as u64;
    let lost = header
        .losses
        .iter()
        .filter(|(cause, _)| !cause.is_partial());
    let lost: u64 = lost.map(|(_, n)| *n).fold(0, u64::saturating_add);
    let recorded = header.weight.saturating_add(header.idle_weight);
    let distance = header.weight as f64 / header.samples.max(1) as f64;
    ThreadSummary {
        process,
        ordinal: header.thread,
        tid: header.tid,
        name: header.name.clone(),
        finished: header.finished,
        cpu_ns: header.cpu_ns,
        idle_ns: periods(header.idle_weight as f64),
        oversubscribed_ns: periods(header.oversubscribed),
        creator: header.creator_thread,
        sampled_ns: periods(recorded.saturating_add(lost) as f64),
        distance_ns: periods(distance.max(1.0)),
        ..ThreadSummary::default()
    }
}
