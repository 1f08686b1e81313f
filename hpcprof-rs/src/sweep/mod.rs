//! Why a program does not scale: databases of it on several numbers of workers, each compared with the one on
//! the fewest.
//!
//! On p workers a run has p times its wall time of cores. What of that the fewest workers did not need is
//! lost: cores idle, there is more overhead, the same work takes longer, or nobody works. These add up.
//! [`mod@print`] says it, `picture` draws it.

mod picture;
pub mod print;

use crate::advice::quality;
use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{EFFORT, IDLENESS, OVERHEAD, WORK};
use crate::error::{Error, Result};
use crate::views::diff::{Diff, METRICS, Node, diff};

/// Contexts with a smaller share of the effort on both numbers of workers are left out, percent.
const LEAST_PERCENT: f64 = 0.1;

/// Core seconds that are lost, nanoseconds of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Losses {
    /// p t_p less the same of the fewest workers.
    pub total: f64,
    /// Cores were idle while others worked.
    pub idleness: f64,
    pub overhead: f64,
    /// The same work took longer.
    pub work: f64,
    /// Nobody worked, or others had the cores.
    pub waiting: f64,
}

/// A number of workers.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    pub workers: u32,
    /// Runs on so many.
    pub runs: usize,
    /// Wall time of a run, nanoseconds.
    pub wall: f64,
    /// How many times as fast as on the fewest, if those share the work evenly.
    pub speed_up: f64,
    /// The wall time by the critical path of the run on the fewest, if that had more strands.
    pub predicted: Option<f64>,
    pub losses: Losses,
    /// Why the figures may be wrong.
    pub doubt: Option<String>,
    /// What differs from the fewest; `None` for those.
    pub diff: Option<Diff>,
}

/// Compares databases of one program, each on another number of workers.
pub fn sweep(databases: &[Catalogue]) -> Result<Vec<Step>> {
    let [base, ..] = databases else { return Ok(Vec::new()) };
    let cores = |of: &Catalogue| of.statistics.cores.max(1);
    if let Some(pair) = databases.windows(2).find(|pair| cores(&pair[0]) >= cores(&pair[1])) {
        let (two, p) = (pair[1].path.display(), cores(&pair[1]));
        let problem = format!("{two} is of {p} workers: give one database for each number, the least first");
        return Err(Error::Usage(problem));
    }
    let area = |of: &Catalogue| f64::from(cores(of)) * wall(of);
    let waiting = |of: &Catalogue| {
        let run = &of.statistics;
        f64::from(cores(of)) * run.wait_ns as f64 / run.runs.max(1) as f64
    };
    let path = base.tracked_processes()?;
    let path = path.first().map(|process| base.critical_path(process)).transpose()?;
    // A path of one strand for each worker says nothing about more of them.
    let path = path.filter(|path| path.strands().is_none_or(|strands| strands > cores(base)));
    let steps = databases.iter().enumerate().map(|(at, of)| {
        let diff = (at > 0).then(|| diff([base, of], LEAST_PERCENT)).transpose()?;
        let losses = diff.as_ref().map_or(Losses::default(), |diff| Losses {
            total: area(of) - area(base),
            idleness: diff.total.difference(IDLENESS),
            overhead: diff.total.difference(OVERHEAD),
            work: diff.total.difference(WORK),
            waiting: waiting(of) - waiting(base),
        });
        let run = &of.statistics;
        Ok(Step {
            workers: cores(of),
            runs: run.runs,
            wall: wall(of),
            speed_up: f64::from(cores(base)) * wall(base) / wall(of).max(1.0),
            predicted: path.as_ref().map(|path| path.prediction(cores(of)).time),
            losses,
            doubt: quality::lack(run).or_else(|| quality::others_had_cores(run)),
            diff,
        })
    });
    steps.collect()
}

fn wall(of: &Catalogue) -> f64 {
    quality::wall_of_run(&of.statistics)
}

impl Step {
    /// Speed-up by workers.
    pub fn efficiency(&self) -> f64 {
        self.speed_up / f64::from(self.workers)
    }

    /// The procedures and parallel loops that lose more than two standard errors, the most first.
    pub fn places(&self) -> Vec<&Node> {
        let lost = |node: &Node| node.compared.difference(effort());
        let all = self.diff.iter().flat_map(|diff| &diff.procedures);
        let is_beyond = |node: &&Node| lost(node) > 2.0 * node.compared.error[effort()];
        let mut all: Vec<&Node> = all.filter(is_beyond).collect();
        all.sort_by(|a, b| lost(b).total_cmp(&lost(a)));
        all
    }
}

/// The position of effort in a comparison.
fn effort() -> usize {
    METRICS.iter().position(|name| *name == EFFORT).unwrap_or(0)
}
