//! `--critical-path`: the summary at the end of a run.

use crate::output;
use hpc_formats::critical_path::{CriticalPath, EXTENSION, Rank};
use hpc_formats::message;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Processes that are shown, those with the longest paths.
const SHOWN: usize = 3;
/// Numbers of workers for which times are predicted.
const WORKERS: [u32; 4] = [2, 4, 8, 16];

/// Prints what the run's processes have written, to standard error.
pub(crate) fn summarise(directory: &Path) {
    let (paths, unread) = read(directory);
    let mut paths = joined(paths);
    paths.sort_by_key(|path| std::cmp::Reverse(path.span));
    for warning in unread {
        message!("hpcrun-rs: warning: {warning}");
    }
    if paths.is_empty() {
        message!("hpcrun-rs: warning: no process has written a critical path");
        return;
    }
    if paths.iter().all(|path| path.work == 0) {
        message!("hpcrun-rs: warning: nothing was tracked: no signal has started it");
    }
    for path in paths.iter().take(SHOWN) {
        message!("{}", summary(path, paths.len() > 1).trim_end());
    }
    if paths.len() > SHOWN {
        message!("hpcrun-rs: and of {} further processes", paths.len() - SHOWN);
    }
    message!(
        "hpcrun-rs: what lies on the path: hpcprof-rs {}; hpcprof-rs critical-path",
        output::display(directory)
    );
}

/// The files of a directory, and what is wrong with others.
fn read(directory: &Path) -> (Vec<CriticalPath>, Vec<String>) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == EXTENSION));
    let (mut paths, mut unread) = (Vec::new(), Vec::new());
    for file in files {
        let bytes = std::fs::read(&file).map_err(|error| error.to_string());
        match bytes.and_then(|bytes| CriticalPath::decode(&bytes).map_err(|e| e.to_string())) {
            Ok(path) => paths.push(path),
            Err(error) => unread.push(format!("{}: {error}", output::display(&file))),
        }
    }
    (paths, unread)
}

/// The processes of a job that exchange messages have one path: the end of each is as late as that of its
/// longest chain through all.
fn joined(paths: Vec<CriticalPath>) -> Vec<CriticalPath> {
    let mut jobs: BTreeMap<u64, CriticalPath> = BTreeMap::new();
    let mut others = Vec::new();
    for path in paths {
        let Some(rank) = &path.rank else {
            others.push(path);
            continue;
        };
        let sum = jobs.entry(rank.job).or_insert_with(|| CriticalPath {
            complete: true,
            rank: Some(Rank { ranks: 0, ..rank.clone() }),
            ..CriticalPath::default()
        });
        sum.rank.iter_mut().for_each(|rank| rank.ranks += 1);
        sum.complete &= path.complete;
        sum.work += path.work;
        sum.span = sum.span.max(path.span);
        sum.burdened_span = sum.burdened_span.max(path.burdened_span);
        sum.span_at_least = sum.span_at_least.max(path.span_at_least);
        sum.quality.exact_edges += path.quality.exact_edges;
        sum.quality.woken_edges += path.quality.woken_edges;
        sum.quality.grains += path.quality.grains;
        for (cause, count) in path.quality.lost_edges {
            let known = sum.quality.lost_edges.iter_mut().find(|known| known.0 == cause);
            match known {
                Some(known) => known.1 += count,
                None => sum.quality.lost_edges.push((cause, count)),
            }
        }
    }
    others.extend(jobs.into_values());
    others
}

fn summary(path: &CriticalPath, is_one_of_several: bool) -> String {
    let mut text = String::from("hpcrun-rs: critical path");
    // Writing to a `String` does not fail.
    if let Some(rank) = &path.rank {
        let _ = write!(text, " of {} ranks", rank.ranks);
    } else if is_one_of_several {
        let _ = write!(text, " of process {}", path.pid);
    }
    let _ = writeln!(
        text,
        ": work {}, span {} ({} with the costs of spawns and messages), parallelism {:.2}",
        time(path.work as f64),
        time(path.span as f64),
        time(path.burdened_span as f64),
        path.parallelism(),
    );
    let times = WORKERS.iter().map(|workers| {
        let prediction = path.prediction(*workers);
        let (predicted, upper) = (time(prediction.time), time(prediction.upper));
        format!("{workers}: {predicted}, at most {upper}")
    });
    let times: Vec<String> = times.collect();
    let _ = writeln!(text, "hpcrun-rs:   time on so many cores: {}", times.join("; "));
    let quality = &path.quality;
    let _ = write!(
        text,
        "hpcrun-rs:   it rests on {} edges that were seen and {} of which only the wake-up was",
        quality.exact_edges, quality.woken_edges
    );
    if quality.grains > 0 {
        let _ = write!(
            text,
            "; {} forks were too short to follow those inside of them: their tasks count as serial, and the \
             span is at least {}",
            quality.grains,
            time(path.span_at_least as f64)
        );
    }
    let lost: u64 = quality.lost_edges.iter().map(|(_, count)| count).sum();
    if lost > 0 {
        let causes = quality.lost_edges.iter().map(|(cause, n)| format!("{cause} {n}"));
        let causes: Vec<String> = causes.collect();
        let _ = write!(text, "; {lost} are lost ({})", causes.join(", "));
    }
    text.push_str(match path.complete {
        true => "\n",
        false => "; the process has not ended by itself: up to its last report\n",
    });
    text
}

/// Nanoseconds in a unit to read.
fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n >= 1e9 => format!("{:.3} s", n * 1e-9),
        n if n >= 1e6 => format!("{:.3} ms", n * 1e-6),
        n => format!("{:.1} us", n * 1e-3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hpc_formats::critical_path::{Level, Quality};

    #[test]
    fn ranks_of_a_job_are_summed_up() {
        let rank = |rank, span, lost| CriticalPath {
            complete: true,
            work: 2_000_000,
            span,
            quality: Quality {
                exact_edges: 5,
                lost_edges: vec![("room".into(), lost)],
                ..Quality::default()
            },
            rank: Some(Rank { job: 9, rank, ranks: 2, ..Rank::default() }),
            ..CriticalPath::default()
        };
        let joined =
            joined(vec![rank(0, 3_000_000, 1), CriticalPath::default(), rank(1, 2_500_000, 2)]);
        assert_eq!(joined.len(), 2);
        let text = summary(&joined[1], true);
        for part in ["of 2 ranks: work 4.000 ms, span 3.000 ms", "10 edges", "(room 3)\n"] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }

    #[test]
    fn the_summary_has_the_bounds_and_what_is_lost() {
        let path = CriticalPath {
            pid: 7,
            complete: true,
            work: 4_000_000_000,
            span: 1_000_000_000,
            burdened_span: 1_100_000_000,
            levels: vec![
                Level { cores: 2, time: 400_000_000, work: 1_000_000_000 },
                Level { cores: 5, time: 600_000_000, work: 3_000_000_000 },
            ],
            quality: Quality {
                exact_edges: 5,
                woken_edges: 2,
                lost_edges: vec![("untracked".into(), 3)],
                ..Quality::default()
            },
            ..CriticalPath::default()
        };
        let text = summary(&path, true);
        for part in [
            "critical path of process 7: work 4.000 s, span 1.000 s (1.100 s with",
            "parallelism 4.00",
            "2: 2.400 s, at most 2.500 s; 4: 1.600 s, at most 1.750 s; 8:",
            "5 edges that were seen and 2 of which",
            "3 are lost (untracked 3)\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let partial: CriticalPath = CriticalPath::default();
        assert!(summary(&partial, false).contains("critical path: work 0.0 us"));
        assert!(summary(&partial, false).contains("not ended by itself"));
    }
}
