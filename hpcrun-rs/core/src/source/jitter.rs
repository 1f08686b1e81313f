//! Jitter: random distances between a thread's samples, and the weights of the samples.
//!
//! Jitter keeps samples from running in step with a program whose rounds have equal length. Distances are
//! uniform between half a period and one and a half: with less, rounds of half a period still stayed in step
//! at high rates. A timer that the kernel checks only in its tick gets whole ticks, chosen so that every tick
//! of a round has the same chance. The first distance is uniform over a whole period. So among threads that
//! live shorter than a period, the right share has a sample, which then has a weight of one period.
//!
//! The weight of a sample is the thread's time since the previous sample, in whole periods. It is rounded up
//! or down at random, with the fraction as the probability, and the rest is carried over to the next sample.
//! So the sum of weights differs from the time by at most one period, however late a sample is: a long system
//! call has no samples, and the sample at its end has the weight of all of it. A weight does not depend on
//! the sample's position in a period of the thread's time. (With rounding down only, a sample early in a
//! period always crossed the boundary, and one at its end half as often. A program with rounds of one period
//! had its beginning weighted three times as high as its end.)
//!
//! Async-signal-safe: [`Jitter::next`], which only computes. The caller reads the clock and sets the timer.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Number of bits of a random fraction.
const FRACTION_BITS: u32 = 20;

/// See [`Next::is_turn`].
const TURN: u64 = 256;

/// The constraints of a timer on its distances.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Mean distance, nanoseconds.
    pub(super) period: u64,
    /// Nanoseconds of a tick, at most 0.8 of the period, if the timer fires only in ticks; else 0.
    pub(super) tick: u64,
    /// Number of samples with the same distance.
    pub(super) samples_a_draw: u64,
}

impl Pace {
    /// Whether distances of whole ticks can have this mean. True without ticks.
    pub(super) fn leaves_room(&self) -> bool {
        self.tick.saturating_mul(5) <= self.period.saturating_mul(4)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The weight of the sample in periods: often one, sometimes zero.
    pub(super) periods: u64,
    /// Nanoseconds to the next sample, if the distance changes.
    pub(super) distance: Option<u64>,
    /// One in [`TURN`] samples.
    pub(super) is_turn: bool,
}

/// The jitter of one thread, used only by that thread.
#[derive(Default)]
pub(super) struct Jitter {
    /// [`Pace`]; the period is 0 while jitter is off.
    period: AtomicU64,
    tick: AtomicU64,
    samples_a_draw: AtomicU64,
    random: AtomicU64,
    /// Time that no sample has as weight yet, nanoseconds; negative if the weights are ahead of the time.
    carried: AtomicI64,
    samples: AtomicU64,
}

impl Jitter {
    /// Starts the calling thread's samples. `seed` selects the random sequence. Returns the first distance.
    pub(super) fn begin(&self, pace: Pace, seed: u64) -> u64 {
        self.tick.store(pace.tick, Relaxed);
        self.samples_a_draw.store(pace.samples_a_draw.max(1), Relaxed);
        self.random.store(seed, Relaxed);
        self.carried.store(0, Relaxed);
        self.samples.store(0, Relaxed);
        self.period.store(pace.period, Relaxed);
        let first = scale(pace.period, self.fraction());
        // Rounds down to ticks: the timer fires in the following tick, and a thread begins anywhere between
        // two.
        let beyond = first.checked_rem(pace.tick).unwrap_or(0);
        first.saturating_sub(beyond).max(1)
    }

    /// Turns jitter off: samples have equal distances.
    pub(super) fn end(&self) {
        self.period.store(0, Relaxed);
    }

    /// Whether jitter is on: between [`begin`](Self::begin) and [`end`](Self::end).
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.period() != 0
    }

    #[inline]
    pub(super) fn period(&self) -> u64 {
        self.period.load(Relaxed)
    }

    /// Weighs a sample that came `since` nanoseconds after the previous one, and draws the next distance.
    #[inline]
    pub(super) fn next(&self, since: i64) -> Next {
        let period = self.period.load(Relaxed);
        let samples = self.samples.load(Relaxed);
        self.samples.store(samples.wrapping_add(1), Relaxed);
        let is_drawn = samples.checked_rem(self.samples_a_draw.load(Relaxed)) == Some(0);
        let distance = is_drawn.then(|| self.draw(period));
        // The first distance is shorter, but the sample has a weight of one period, unless it was delayed.
        let since =
            if samples == 0 && since < period.saturating_mul(2) as i64 { period as i64 } else { since };
        let periods = self.weigh(period, since);
        Next { periods, distance, is_turn: samples % TURN == 0 }
    }

    pub(super) fn draw_next(&self) {
        let samples = self.samples.load(Relaxed);
        self.samples.store(samples.next_multiple_of(self.samples_a_draw.load(Relaxed).max(1)), Relaxed);
    }

    /// Draws a distance between half a period and one and a half.
    #[inline]
    fn draw(&self, period: u64) -> u64 {
        let Some(ticks) = (period << FRACTION_BITS).checked_div(self.tick.load(Relaxed)) else {
            return (period / 2).wrapping_add(scale(period, self.fraction()));
        };
        // Ticks in fixed point: at least one, and as far above the mean as below it.
        let least = (ticks / 2).max(1 << FRACTION_BITS);
        let range = ticks.saturating_sub(least).saturating_mul(2);
        let drawn = least.wrapping_add(scale(range, self.fraction()));
        let whole = drawn.wrapping_add(self.fraction()) >> FRACTION_BITS;
        // Half a tick early, so that the timer fires in the intended tick whatever the clocks do in between.
        let tick = self.tick.load(Relaxed);
        whole.wrapping_mul(tick).wrapping_sub(tick / 2)
    }

    /// The weight of `since` and the carried time, in periods.
    #[inline]
    fn weigh(&self, period: u64, since: i64) -> u64 {
        let time = since.wrapping_add(self.carried.load(Relaxed));
        let rounded = time.saturating_add(scale(period, self.fraction()) as i64);
        let periods = (rounded.max(0) as u64).checked_div(period).unwrap_or(1);
        self.carried.store(time.wrapping_sub(periods.wrapping_mul(period) as i64), Relaxed);
        periods
    }

    /// The next random fraction of [`FRACTION_BITS`] bits (splitmix64).
    #[inline]
    fn fraction(&self) -> u64 {
        let state = self.random.load(Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.store(state, Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) >> (64 - FRACTION_BITS)
    }
}

/// Multiplies a value below 2^44 by a fraction.
#[inline]
fn scale(value: u64, fraction: u64) -> u64 {
    value.wrapping_mul(fraction) >> FRACTION_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FINE: Pace = Pace { period: MS, tick: 0, samples_a_draw: 16 };

    /// A timer in ticks of 4 ms with this rate.
    fn ticking(rate: u64) -> Pace {
        Pace { period: 1_000 * MS / rate, tick: 4 * MS, samples_a_draw: 1 }
    }

    /// The samples of a thread that runs all the time: time and weight of each.
    fn samples(pace: Pace, count: usize) -> Vec<(u64, u64)> {
        let jitter = Jitter::default();
        // The clock of the ticks and the thread's clock start at different times.
        let mut now = 1_234_567;
        let mut distance = jitter.begin(pace, 7);
        let arrival = |due: u64| match pace.tick {
            0 => due,
            tick => due.next_multiple_of(tick),
        };
        let mut all = Vec::new();
        for _ in 0..count {
            let came = arrival(now + distance);
            let next = jitter.next((came - now) as i64);
            now = came;
            distance = next.distance.unwrap_or(distance);
            all.push((now, next.periods));
        }
        all
    }

    #[test]
    fn distances_are_spread_about_the_period() {
        let jitter = Jitter::default();
        jitter.begin(FINE, 0x7fff_1234_5678);
        let drawn: Vec<u64> = (0..10_000).map(|_| jitter.draw(MS)).collect();
        assert!(drawn.iter().all(|d| (500_000..1_500_000).contains(d)));
        let mean = drawn.iter().sum::<u64>() as f64 / 1e4;
        // Five standard errors, each of 1 ms / sqrt(12) / 100.
        assert!((mean - 1e6).abs() < 1.5e4, "{mean}");
        for eighth in 0..8 {
            let range = 500_000 + eighth * 125_000..500_000 + (eighth + 1) * 125_000;
            let share = drawn.iter().filter(|d| range.contains(*d)).count();
            assert!((1080..1420).contains(&share), "{share} in {range:?}");
        }
    }

    #[test]
    fn ticks_keep_the_mean_rate() {
        for rate in [1, 3, 10, 50, 99, 100, 150, 199, 200] {
            let all = samples(ticking(rate), 20_000);
            let span = (all.last().unwrap().0 - all[0].0) as f64;
            let mean = span / 19_999.0 * rate as f64 / 1e9;
            // Distances scatter by at most half a period: five standard errors.
            assert!((mean - 1.0).abs() < 0.018, "{rate} Hz: {mean}");
            assert!(all.windows(2).all(|w| w[1].0 - w[0].0 >= 4 * MS));
        }
    }

    /// Every part of a program's round has the weight of its time, for every length of the round.
    #[test]
    fn weights_do_not_depend_on_the_place_in_a_round() {
        for pace in [FINE, ticking(200), ticking(100), ticking(50), ticking(10)] {
            let all = samples(pace, 200_000);
            let total: u64 = all.iter().map(|s| s.1).sum();
            for halves in [1, 2, 3, 4, 5, 8] {
                let round = match pace.tick {
                    0 => halves * pace.period / 2,
                    // A round meets ticks at as many positions as it takes for both to coincide again.
                    tick => 5 * halves * tick,
                };
                let mut fifths = [0; 5];
                for (now, periods) in &all {
                    fifths[(now % round * 5 / round) as usize] += periods;
                }
                for fifth in fifths {
                    let share = fifth as f64 / total as f64;
                    // The standard error of independent draws is 0.001. Consecutive samples at one distance
                    // may fall into the same fifth or spread over all; on average over the distances they
                    // scatter like independent samples.
                    assert!((share - 0.2).abs() < 0.012, "{pace:?} {round}: {fifths:?}");
                }
            }
        }
    }

    #[test]
    fn weights_add_up_to_the_time() {
        for pace in [FINE, ticking(200), ticking(100), ticking(1)] {
            let all = samples(pace, 1_000);
            let mut counted = 0;
            for (now, periods) in &all {
                counted += periods;
                // From the first sample, which has a weight of one period.
                let time = (now - all[0].0) as f64 / pace.period as f64 + 1.0;
                assert!((time - counted as f64).abs() <= 1.0, "{time}: {counted}");
            }
        }
    }

    /// A system call takes 50 periods. The sample at its end has the weight of all of them.
    #[test]
    fn a_late_sample_stands_for_all_the_time_before_it() {
        for turn in 0..100 {
            let jitter = Jitter::default();
            let first = jitter.begin(FINE, turn);
            assert_eq!(jitter.next(first as i64).periods, 1);
            let late = jitter.next((50 * MS + MS / 3) as i64).periods;
            assert!((50..=51).contains(&late), "{late}");
        }
    }

    /// Threads that live for a tenth of a period have a tenth of the samples.
    #[test]
    fn short_lives_have_their_share_of_samples() {
        let jitter = Jitter::default();
        let sampled = (0..10_000).filter(|seed| jitter.begin(FINE, seed * 0x1_0001) < MS / 10).count();
        // Five standard errors of 30.
        assert!((850..1150).contains(&sampled), "{sampled}");
        let first = |seed: &u64| jitter.begin(ticking(200), seed * 0x1_0001) < 4 * MS;
        // Four of five begin with the next tick.
        let next_tick = (0..10_000).filter(first).count();
        assert!((7800..8200).contains(&next_tick), "{next_tick}");
    }
}
