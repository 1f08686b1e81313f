//! The predicted time of the whole program on each number of workers (the paper's equations 1 and 2): all
//! regions, what is outside of them, which counts as serial, and the time in which nobody worked. What the
//! run itself had no room for is no start-up: then the calibration's are scaled.

use crate::regions::find::Regions;
use crate::regions::overheads::{Assessment, Known};

/// Times are nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Whole {
    /// Work and overhead outside of the regions.
    pub outside: f64,
    /// Time in which nobody worked, without the start-ups in it.
    pub wait: f64,
    /// The start-ups that this run had room for, by those of the calibration; at most 1.
    pub start_up_scale: f64,
    /// What the run took: all effort on its cores, and the wait.
    pub measured: f64,
    /// Numbers of workers, from 1 to the most of the calibration, with the predicted time.
    pub times: Vec<(u32, f64)>,
    /// Regions whose start-up is not known, so that they seem to start in no time.
    pub without_start_up: usize,
    /// What is outside kept fewer cores waiting than serial code does.
    pub is_outside_parallel: bool,
}

impl Whole {
    /// Of a run on `cores`, in which nobody worked for `wait` nanoseconds; `None` without a calibration.
    pub fn predict(
        (regions, assessed): (&Regions, &[Assessment]),
        cores: u32,
        wait: i64,
        known: &Known,
    ) -> Option<Whole> {
        let calibration = known.calibration.as_ref()?;
        let most = calibration.rows.iter().map(|row| row.workers).max()?;
        let start_up = |index: usize, p| {
            assessed[index].executions?;
            regions.all[index].start_up(Some(calibration), known.state(), p)
        };
        let outside = regions.outside.effort() - regions.outside.idleness;
        let beyond = assessed.iter().map(|found| found.start_up_beyond).sum::<i64>();
        let starting = assessed.iter().filter_map(|found| found.overheads.start_up).sum::<i64>() + beyond;
        let calibrated = |(index, found): (usize, &Assessment)| {
            found.executions.unwrap_or(0) as f64 * start_up(index, cores).unwrap_or(0.0).max(0.0)
        };
        let calibrated: f64 = assessed.iter().enumerate().map(calibrated).sum();
        let cores = f64::from(cores.max(1));
        let scale = if calibrated > 0.0 { (starting as f64 / cores / calibrated).min(1.0) } else { 1.0 };
        let (outside, all_wait) = (outside as f64, wait as f64);
        let wait = (all_wait - beyond as f64 / cores).max(0.0);
        let time = |p| {
            let of = |(index, found): (usize, &Assessment)| match p {
                1 => found.program.unparallelised + found.program.serial,
                p => found.program.time(scale * start_up(index, p).unwrap_or(0.0).max(0.0), p),
            };
            (p, outside + wait + assessed.iter().enumerate().map(of).sum::<f64>())
        };
        let area = assessed.iter().map(|found| found.area).sum::<i64>() + regions.outside.effort();
        Some(Whole {
            outside,
            wait,
            start_up_scale: scale,
            measured: area as f64 / cores + all_wait,
            times: (1..=most).map(time).collect(),
            without_start_up: (0..assessed.len()).filter(|index| start_up(*index, 2).is_none()).count(),
            is_outside_parallel: (regions.outside.idleness as f64) < (cores - 1.0) * outside / 2.0,
        })
    }

    /// The number of workers with the least time; the least such number.
    pub fn best(&self) -> (u32, f64) {
        let first = (1, f64::INFINITY);
        self.times.iter().fold(first, |best, next| if next.1 < best.1 { *next } else { best })
    }
}
