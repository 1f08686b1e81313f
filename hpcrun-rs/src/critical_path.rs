//! `--critical-path`: the summary at the end of a run, a line for each process, or for all ranks of a job.
//! What lies on the path is for `hpcprof-rs critical-path`.

use crate::cli::Options;
use crate::output;
use hpc_formats::critical_path::{CriticalPath, EXTENSION};
use hpc_formats::message;
use std::collections::BTreeMap;
use std::path::Path;

/// Processes that are shown, those with the longest paths.
const SHOWN: usize = 3;

/// Prints what the run's processes have written, to standard error.
pub(crate) fn summarise(directory: &Path, options: &Options) {
    // By the job, or of no job by the file.
    let mut jobs: BTreeMap<(u64, usize), Vec<CriticalPath>> = BTreeMap::new();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    for file in files.filter(|path| path.extension().is_some_and(|e| e == EXTENSION)) {
        let bytes = std::fs::read(&file).map_err(|error| error.to_string());
        match bytes.and_then(|bytes| CriticalPath::decode(&bytes).map_err(|e| e.to_string())) {
            Ok(path) => {
                let alone = (0, jobs.len() + 1);
                let job = path.rank.as_ref().map_or(alone, |rank| (rank.job, 0));
                jobs.entry(job).or_default().push(path);
            }
            Err(error) => {
                message!("hpcrun-rs: warning: {}: {error}", output::display(&file));
            }
        }
    }
    if jobs.is_empty() {
        message!("hpcrun-rs: warning: no process has written a critical path");
        return;
    }
    if jobs.values().flatten().all(|path| path.work == 0) {
        message!("hpcrun-rs: warning: nothing was tracked: no signal has started it");
    }
    let mut lines: Vec<_> = jobs.values().map(|paths| summary(paths)).collect();
    lines.sort_by_key(|(span, _)| std::cmp::Reverse(*span));
    for (_, line) in lines.iter().take(SHOWN) {
        message!("hpcrun-rs: critical path {line}");
    }
    if lines.len() > SHOWN {
        message!("hpcrun-rs: and of {} further processes", lines.len() - SHOWN);
    }
    message!(
        "hpcrun-rs: what lies on the path: hpcprof-rs {}; hpcprof-rs critical-path{}",
        output::display(directory),
        options.faster().fold(String::new(), |all, one| format!("{all} '{one}'"))
    );
}

/// The span of a process, or of a job's ranks, the end of each of which is as late as its longest chain
/// through all; and what to say of it.
fn summary(paths: &[CriticalPath]) -> (u64, String) {
    let work: u64 = paths.iter().map(|path| path.work).sum();
    let span = paths.iter().map(|path| path.span).max().unwrap_or(0);
    let parallelism = hpc_formats::critical_path::ratio(work, span);
    let who = match paths {
        [path] if path.rank.is_none() => format!("of process {}", path.pid),
        _ => format!("of {} ranks", paths.len()),
    };
    let [work, span_ms] = [work, span].map(|time| time as f64 * 1e-6);
    let mut text = format!("{who}: work {work:.3} ms, span {span_ms:.3} ms, parallelism {parallelism:.2}");
    let lost: u64 = paths.iter().map(|path| path.quality.missing_edges()).sum();
    if lost > 0 {
        text.push_str(&format!("; {lost} edges are lost"));
    }
    if !paths.iter().all(|path| path.complete) {
        text.push_str("; not ended by itself: up to its last report");
    }
    (span, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hpc_formats::critical_path::{Quality, Rank};

    #[test]
    fn ranks_of_a_job_are_summed_up() {
        let lost = vec![("untracked".into(), 2)];
        let rank = |rank, span| CriticalPath {
            complete: true,
            work: 2_000_000,
            span,
            quality: Quality { lost_edges: lost.clone(), ..Quality::default() },
            rank: Some(Rank { job: 9, rank, ranks: 2, ..Rank::default() }),
            ..CriticalPath::default()
        };
        let two = [rank(0, 3_000_000), rank(1, 2_500_000)];
        let text = "of 2 ranks: work 4.000 ms, span 3.000 ms, parallelism 1.33; 4 edges are lost";
        assert_eq!(summary(&two), (3_000_000, text.to_owned()));
        assert!(summary(&[CriticalPath::default()]).1.ends_with("up to its last report"));
    }
}
