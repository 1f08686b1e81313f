//! The balanced loop: p equal parts, each of many equal iterations that depend on nothing but themselves.

use crate::calibration::{Construct, Place, Row, State};
use crate::model;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Iterations of a part.
pub(super) const ITERATIONS: usize = 128;
/// A part is so many start-ups long: long enough that the whole team takes part, no longer, as cores differ
/// in speed.
const START_UPS: u32 = 8;
/// Bounds of a part.
const SHORTEST: Duration = Duration::from_micros(2);
const LONGEST: Duration = Duration::from_micros(400);
/// The part is found by so many looks at shorter and shorter ones, each of so many rounds.
const LOOKS: u32 = 4;
const LOOK: u32 = 5;
/// Rounds of a measurement, and the most that their pauses may take, at least three.
const ROUNDS: u32 = 20;
const PAUSES: Duration = Duration::from_millis(400);
/// Executions in a round with awake workers; the first of them find the workers asleep.
const SERIES: u32 = 10;
const WAKING: u32 = 2;

pub(super) struct Loop {
    /// Steps of an iteration, and steps that take a second.
    steps: AtomicU64,
    steps_a_second: f64,
    /// The parts that were found, for when the same is measured again.
    parts: Mutex<BTreeMap<Kind, Duration>>,
}

/// What is measured.
type Kind = (Construct, Place, u32, State);

impl Loop {
    /// Without iterations yet.
    pub(super) fn new() -> Loop {
        const STEPS: u64 = 1 << 20;
        let least = (0..8).map(|_| time(|| spin(STEPS))).min();
        Loop {
            steps: AtomicU64::new(0),
            steps_a_second: STEPS as f64 / least.map_or(1.0, |t| t.as_secs_f64()),
            parts: Mutex::default(),
        }
    }

    fn set_part(&self, part: Duration) {
        let steps = self.steps_a_second * part.as_secs_f64() / ITERATIONS as f64;
        self.steps.store(steps as u64, Ordering::Relaxed);
    }

    pub(super) fn iteration(&self) {
        spin(self.steps.load(Ordering::Relaxed));
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
        let (parts, divisor) = if construct == Construct::Install { (1, 1) } else { (workers, workers) };
        let serial = || (0..parts).for_each(|_| self.part());
        let start_up = |parallel: Duration, serial: Duration| {
            model::start_up(parallel.as_nanos() as f64, serial.as_nanos() as f64, divisor)
        };
        [State::Awake, State::Asleep].map(|state| {
            let mut round = || match state {
                State::Awake => {
                    let serial = series(serial);
                    start_up(series(&mut parallel), serial)
                }
                State::Asleep => {
                    thread::sleep(pause);
                    let parallel = time(&mut parallel);
                    start_up(parallel, time(serial))
                }
            };
            let mut rounds = |rounds: u32| -> Vec<f64> {
                let rounds = match state {
                    State::Awake => rounds,
                    State::Asleep => rounds.min(most_pauses(pause, rounds)),
                };
                (0..rounds).map(|_| round()).collect()
            };
            let kind = (construct, place, workers, state);
            // Nothing panics with the lock held.
            let parts = || self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            let known = parts().get(&kind).copied();
            self.set_part(known.unwrap_or(LONGEST));
            for _ in 0..if known.is_some() { 0 } else { LOOKS } {
                let found = median(&mut rounds(LOOK)).max(0.0);
                let part = Duration::from_nanos(found as u64) * START_UPS;
                let part = part.clamp(SHORTEST, LONGEST);
                self.set_part(part);
                parts().insert(kind, part);
            }
            let mut start_ups = rounds(ROUNDS);
            let each = if state == State::Awake { SERIES - WAKING } else { 1 };
            let executions = start_ups.len() as u32 * each;
            let start_up_ns = median(&mut start_ups);
            let deviations = start_ups.iter().map(|t| (t - start_up_ns).abs());
            Row {
                construct,
                place,
                state,
                workers,
                start_up_ns,
                // Of normally distributed values.
                deviation_ns: 1.4826 * median(&mut deviations.collect::<Vec<f64>>()),
                executions,
            }
        })
    }
}

/// The typical execution of a series, the workers being awake.
fn series(mut execute: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..SERIES).map(|_| time(&mut execute)).collect();
    times.drain(..WAKING as usize);
    times.sort();
    times[times.len() / 2]
}

/// So many of the pauses of [`ROUNDS`] rounds as fit into [`PAUSES`], in proportion for fewer rounds.
fn most_pauses(pause: Duration, rounds: u32) -> u32 {
    let most = (PAUSES.as_millis() / pause.as_millis().max(1)) as u32;
    (most.max(3) * rounds / ROUNDS).max(1)
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
