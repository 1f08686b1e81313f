//! Jitter distances of a thread's samples, and what each sample stands for.
//!
//! One duty: keep samples from running in step with a program whose rounds are of equal length. Distances are drawn
//! at random from half of the period to one and a half: with less, rounds of half a period were still kept in step at
//! high rates. A timer that the kernel looks at in its tick only gets whole ticks, so that every tick of a round has
//! the same chance. The first distance is drawn from all of a period, so that of threads that live for less the
//! right share has a sample, which then stands for a whole one.
//!
//! A sample stands for the thread's time since the one before, in whole periods. They are rounded up or down at
//! random, each as often as the fraction says, and what was rounded is carried on to the next. So the sum is the time
//! to within a period, whatever held a sample up: during a long system call there are none, and the one at its end
//! stands for all of it. A sample's weight does not depend on where in a period of the thread's time it came.
//! (Rounded down only, it did: a sample early in a period had always crossed the border of two, one at the end half as
//! often, and a program with rounds of one period had its beginning weighted three times as high as its end.)
//!
//! Async-signal-safe: [`Jitter::next`], which is arithmetic only. The caller knows the time and sets the timer.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Random fractions have so many bits.
const FRACTION_BITS: u32 = 20;

/// How a timer wants its distances.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Nanoseconds from sample to sample at the mean.
    pub(super) period: u64,
    /// Nanoseconds of a tick, if the timer fires in ticks only, each 0.8 of the period at most; else 0.
    pub(super) tick: u64,
    /// So many samples come at one distance.
    pub(super) samples_a_draw: u64,
}

impl Pace {
    /// Whether distances of whole ticks can have this mean at all; to ticks of 0 they can.
    pub(super) fn leaves_room(&self) -> bool {
        self.tick.saturating_mul(5) <= self.period.saturating_mul(4)
    }
}

/// What [`Jitter::next`] says of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The periods that it stands for: often one, at times none.
    pub(super) periods: u64,
    /// Nanoseconds to the next sample, where that changes.
    pub(super) distance: Option<u64>,
}

/// The state of one thread; touched by that thread alone.
#[derive(Debug)]
pub(super) struct Jitter {
    /// [`Pace`]; a period of 0 before the beginning.
    period: AtomicU64,
    tick: AtomicU64,
    samples_a_draw: AtomicU64,
    /// State of the generator.
    random: AtomicU64,
    /// Time that no sample stands for yet, nanoseconds; negative: that is yet to come.
    carried: AtomicI64,
    /// Samples so far.
    samples: AtomicU64,
}

impl Jitter {
    pub(super) const fn new() -> Jitter {
        Jitter {
            period: AtomicU64::new(0),
            tick: AtomicU64::new(0),
            samples_a_draw: AtomicU64::new(1),
            random: AtomicU64::new(0),
            carried: AtomicI64::new(0),
            samples: AtomicU64::new(0),
        }
    }

    /// The calling thread's samples begin. `seed` chooses the sequence. Returns the distance of the first.
    pub(super) fn begin(&self, pace: Pace, seed: u64) -> u64 {
        self.tick.store(pace.tick, Relaxed);
        self.samples_a_draw
            .store(pace.samples_a_draw.max(1), Relaxed);
        self.random.store(seed, Relaxed);
        self.carried.store(0, Relaxed);
        self.samples.store(0, Relaxed);
        self.period.store(pace.period, Relaxed);
        let first = scale(pace.period, self.fraction());
        // In ticks: so many pass before the one that is meant; a thread begins anywhere between two.
        let beyond = first.checked_rem(pace.tick).unwrap_or(0);
        first.saturating_sub(beyond).max(1)
    }

    /// Samples come at equal distances again.
    pub(super) fn end(&self) {
        self.period.store(0, Relaxed);
    }

    /// Whether samples are between [`begin`](Self::begin) and [`end`](Self::end).
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.period() != 0
    }

    /// Nanoseconds from sample to sample at the mean.
    #[inline]
    pub(super) fn period(&self) -> u64 {
        self.period.load(Relaxed)
    }

    /// A sample has come, `since` nanoseconds after the last.
    #[inline]
    pub(super) fn next(&self, since: i64) -> Next {
        let period = self.period.load(Relaxed);
        let samples = self.samples.load(Relaxed);
        self.samples.store(samples.wrapping_add(1), Relaxed);
        let is_drawn = samples.checked_rem(self.samples_a_draw.load(Relaxed)) == Some(0);
        let distance = is_drawn.then(|| self.draw(period));
        // The first came sooner than others, yet stands for as much; unless it was held up.
        let since = if samples == 0 && since < period.saturating_mul(2) as i64 {
            period as i64
        } else {
            since
        };
        let periods = self.weigh(period, since);
        Next { periods, distance }
    }

    /// From half of the period to one and a half.
    #[inline]
    fn draw(&self, period: u64) -> u64 {
        let Some(ticks) = (period << FRACTION_BITS).checked_div(self.tick.load(Relaxed)) else {
            return (period / 2).wrapping_add(scale(period, self.fraction()));
        };
        // In ticks, as fractions: one at least, and as far above the mean as below it.
        let least = (ticks / 2).max(1 << FRACTION_BITS);
        let range = ticks.saturating_sub(least).saturating_mul(2);
        let drawn = least.wrapping_add(scale(range, self.fraction()));
        let whole = drawn.wrapping_add(self.fraction()) >> FRACTION_BITS;
        // Half a tick early, so that it is that tick whatever the clocks do in between.
        let tick = self.tick.load(Relaxed);
        whole.wrapping_mul(tick).wrapping_sub(tick / 2)
    }

    /// Periods of what was carried and `since`.
    #[inline]
    fn weigh(&self, period: u64, since: i64) -> u64 {
        let time = since.wrapping_add(self.carried.load(Relaxed));
        let rounded = time.saturating_add(scale(period, self.fraction()) as i64);
        let periods = (rounded.max(0) as u64).checked_div(period).unwrap_or(1);
        self.carried.store(
            time.wrapping_sub(periods.wrapping_mul(period) as i64),
            Relaxed,
        );
        periods
    }

    /// The next random number (splitmix64), [`FRACTION_BITS`] of it.
    #[inline]
    fn fraction(&self) -> u64 {
        let state = self
            .random
            .load(Relaxed)
            .wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.store(state, Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) >> (64 - FRACTION_BITS)
    }
}

/// That fraction of a value below 2^44.
#[inline]
fn scale(value: u64, fraction: u64) -> u64 {
    value.wrapping_mul(fraction) >> FRACTION_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FINE: Pace = Pace {
        period: MS,
        tick: 0,
        samples_a_draw: 16,
    };

    /// A timer in ticks of 4 ms at such a rate.
    fn ticking(rate: u64) -> Pace {
        Pace {
            period: 1_000 * MS / rate,
            tick: 4 * MS,
            samples_a_draw: 1,
        }
    }

    /// A thread that runs all the time: when each of its samples comes, and what it stands for.
    fn samples(pace: Pace, count: usize) -> Vec<(u64, u64)> {
        let uneven = Jitter::new();
        // The clock of ticks and the thread's began at different times.
        let mut now = 1_234_567;
        let mut distance = uneven.begin(pace, 7);
        let arrival = |due: u64| match pace.tick {
            0 => due,
            tick => due.next_multiple_of(tick),
        };
        let mut all = Vec::new();
        for _ in 0..count {
            let came = arrival(now + distance);
            let next = uneven.next((came - now) as i64);
            now = came;
            distance = next.distance.unwrap_or(distance);
            all.push((now, next.periods));
        }
        all
    }

    #[test]
    fn distances_are_spread_about_the_period() {
        let uneven = Jitter::new();
        uneven.begin(FINE, 0x7fff_1234_5678);
        let drawn: Vec<u64> = (0..10_000).map(|_| uneven.draw(MS)).collect();
        assert!(drawn.iter().all(|d| (500_000..1_500_000).contains(d)));
        let mean = drawn.iter().sum::<u64>() as f64 / 1e4;
        // Five standard errors: 1 ms / sqrt(12) / 100 each.
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
            // Distances scatter by 0.5 of the period at most: five standard errors.
            assert!((mean - 1.0).abs() < 0.018, "{rate} Hz: {mean}");
            assert!(all.windows(2).all(|w| w[1].0 - w[0].0 >= 4 * MS));
        }
    }

    /// No place in a program's round has more weight than it has time, whatever the round's length.
    #[test]
    fn weights_do_not_depend_on_the_place_in_a_round() {
        for pace in [FINE, ticking(200), ticking(100), ticking(50), ticking(10)] {
            let all = samples(pace, 200_000);
            let total: u64 = all.iter().map(|s| s.1).sum();
            for halves in [1, 2, 3, 4, 5, 8] {
                let round = match pace.tick {
                    0 => halves * pace.period / 2,
                    // Ticks see a round at as many places as it takes for both to begin together.
                    tick => 5 * halves * tick,
                };
                let mut fifths = [0; 5];
                for (now, periods) in &all {
                    fifths[(now % round * 5 / round) as usize] += periods;
                }
                for fifth in fifths {
                    let share = fifth as f64 / total as f64;
                    // The standard error of independent draws is 0.001. Some of those at one distance see the same fifth, as
                    // many others one after the other: on the average over the distances they scatter as independent ones.
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
                // From the first sample on, which stands for one period.
                let time = (now - all[0].0) as f64 / pace.period as f64 + 1.0;
                assert!((time - counted as f64).abs() <= 1.0, "{time}: {counted}");
            }
        }
    }

    /// A system call takes 50 periods: its end has a sample for all of them.
    #[test]
    fn a_late_sample_stands_for_all_the_time_before_it() {
        for turn in 0..100 {
            let uneven = Jitter::new();
            let first = uneven.begin(FINE, turn);
            assert_eq!(uneven.next(first as i64).periods, 1);
            let late = uneven.next((50 * MS + MS / 3) as i64).periods;
            assert!((50..=51).contains(&late), "{late}");
        }
    }

    /// Threads that live for a tenth of a period have a tenth of the samples.
    #[test]
    fn short_lives_have_their_share_of_samples() {
        let uneven = Jitter::new();
        let sampled = (0..10_000)
            .filter(|seed| uneven.begin(FINE, seed * 0x1_0001) < MS / 10)
            .count();
        // Five standard errors of 30.
        assert!((850..1150).contains(&sampled), "{sampled}");
        let first = |seed: &u64| uneven.begin(ticking(200), seed * 0x1_0001) < 4 * MS;
        // Four of five begin with the next tick.
        let next_tick = (0..10_000).filter(first).count();
        assert!((7800..8200).contains(&next_tick), "{next_tick}");
    }
}
