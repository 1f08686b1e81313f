//! The balanced loop: p equal parts of some tens of microseconds, each of many equal iterations that depend on
//! nothing but themselves.

use crate::calibration::{Construct, Place, Row, State};
use crate::measure::Effort;
use crate::model;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// Iterations of a part.
pub(super) const ITERATIONS: usize = 128;
/// Serial time of a part: long beside a start-up, so that the whole team takes part.
const PART: Duration = Duration::from_micros(40);
/// Executions in a round with awake workers; the first of them find the workers asleep.
const SERIES: usize = 10;
const WAKING: usize = 2;

/// The loop.
pub(super) struct Loop {
    steps: u64,
    effort: Effort,
}

impl Loop {
    /// With iterations as long as they should be on this machine.
    pub(super) fn new(effort: Effort) -> Loop {
        const STEPS: u64 = 1 << 20;
        let least = (0..8).map(|_| time(|| spin(STEPS))).min();
        let least = least.map_or(1, |t| t.as_nanos().max(1));
        let steps = u128::from(STEPS) * PART.as_nanos() / (ITERATIONS as u128 * least);
        Loop {
            steps: steps.max(1) as u64,
            effort,
        }
    }

    /// One iteration.
    pub(super) fn iteration(&self) {
        spin(self.steps);
    }

    /// The iterations of one part.
    pub(super) fn part(&self) {
        for _ in 0..ITERATIONS {
            self.iteration();
        }
    }

    /// Measures `parallel`, which executes the loop's `workers` parts, or one part on one worker if it does
    /// not divide it. After a `pause` its workers are asleep.
    pub(super) fn measure(
        &self,
        (construct, place, workers): (Construct, Place, u32),
        pause: Duration,
        mut parallel: impl FnMut(),
    ) -> [Row; 2] {
        let (parts, divisor) = match construct {
            Construct::Install => (1, 1),
            _ => (workers, workers),
        };
        let mut serial = || (0..parts).for_each(|_| self.part());
        let start_up = |parallel: Duration, serial: Duration| {
            model::start_up(
                parallel.as_nanos() as f64,
                serial.as_nanos() as f64,
                divisor,
            )
        };
        let row = |state, mut start_ups: Vec<f64>, executions| {
            let start_up_ns = median(&mut start_ups);
            let mut deviations: Vec<f64> =
                start_ups.iter().map(|t| (t - start_up_ns).abs()).collect();
            Row {
                construct,
                place,
                state,
                workers,
                start_up_ns,
                // Of normally distributed values.
                deviation_ns: 1.4826 * median(&mut deviations),
                executions,
            }
        };
        let series = |execute: &mut dyn FnMut()| {
            let mut times: Vec<Duration> = (0..SERIES).map(|_| time(&mut *execute)).collect();
            times.drain(..WAKING);
            times.sort();
            times[times.len() / 2]
        };
        let awake = (0..self.effort.awake).map(|_| {
            let serial = series(&mut serial);
            start_up(series(&mut parallel), serial)
        });
        let awake: Vec<f64> = awake.collect();
        let executions = self.effort.awake * (SERIES - WAKING) as u32;
        let awake = row(State::Awake, awake, executions);
        // A pause of a quarter of a second would make it minutes.
        let executions = self
            .effort
            .asleep
            .min((2000 / pause.as_millis().max(1)) as u32)
            .max(1);
        let asleep = (0..executions).map(|_| {
            thread::sleep(pause);
            let parallel = time(&mut parallel);
            start_up(parallel, time(&mut serial))
        });
        let asleep: Vec<f64> = asleep.collect();
        [awake, row(State::Asleep, asleep, executions)]
    }
}

/// A chain of operations on registers.
fn spin(steps: u64) {
    let mut x = black_box(1_u64);
    for _ in 0..steps {
        x = x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    }
    black_box(x);
}

fn time(execute: impl FnOnce()) -> Duration {
    let start = Instant::now();
    execute();
    start.elapsed()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
