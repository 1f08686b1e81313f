//! Forks of so little activity that following each of their tasks would take longer than the tasks.
//!
//! One duty: know from earlier forks which ones these are, and what a strand must remember of them. Such a
//! fork is followed exactly, but the forks inside of its two halves are not: each half is a *grain*, which
//! counts as if it ran serially. So the span is an upper bound, and the longest chain without grains is a
//! lower one.

use crate::path::Site;

/// What a strand remembers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Grain {
    /// Activity of the strand, and of what it has forked and joined, since it began.
    pub(crate) work: u64,
    /// The longest chain if grains took no time.
    pub(crate) least: u64,
    /// Forks that it is inside of, its spawners' included.
    depth: u32,
    /// It is a fork's second half: of which kind of fork, and the spawner's work when it forked.
    fork: Option<(Kind, u64)>,
    /// The activity of the grain that it is in.
    open: Option<u64>,
    /// Somebody ran it beside the strand that it is a serial part of: it knows nothing of what was before it.
    pub(crate) is_part: bool,
}

/// Number of an estimate: forks at a site and depth, some of which share one.
type Kind = u8;

/// What is known of the forks of a kind, in nanoseconds of their activity.
#[derive(Debug, Clone, Copy, Default)]
struct Estimate {
    /// The mean of the recent ones.
    mean: u32,
    /// The longest one, which is forgotten slowly: what is in a long one must not count as serial.
    longest: u32,
    /// How many there were, up to [`TRIALS`].
    trials: u16,
}

/// So many forks of a kind must have been seen.
const TRIALS: u16 = 16;
/// The part of a mean, and of a longest time, that each further fork replaces.
const FADING: (u32, u32) = (8, 1024);
/// In grains, the longest fork is less than so many times as long as the mean may be.
const LONG: u64 = 64;

/// What is known of each kind of fork.
#[derive(Debug)]
pub(crate) struct Estimates([Estimate; 1 << Kind::BITS]);

impl Estimates {
    pub(crate) fn new() -> Self {
        Estimates([Estimate::default(); 1 << Kind::BITS])
    }

    fn is_below(&self, kind: Kind, limit: u64) -> bool {
        let known = &self.0[usize::from(kind)];
        let (mean, longest) = (u64::from(known.mean), u64::from(known.longest));
        known.trials == TRIALS && mean < limit && longest < limit * LONG
    }

    fn learn(&mut self, kind: Kind, time: u64) {
        let known = &mut self.0[usize::from(kind)];
        let time = u32::try_from(time).unwrap_or(u32::MAX);
        known.mean =
            if known.trials == 0 { time } else { known.mean - known.mean / FADING.0 + time / FADING.0 };
        known.longest = time.max(known.longest - known.longest / FADING.1);
        known.trials = TRIALS.min(known.trials + 1);
    }
}

impl Grain {
    /// The strand was active.
    #[inline]
    pub(crate) fn extend(&mut self, time: u64) {
        self.work += time;
        match &mut self.open {
            Some(open) => *open += time,
            None => self.least += time,
        }
    }

    /// What a copy of the strand remembers.
    #[inline]
    pub(crate) fn of_copy(&self) -> Grain {
        Grain { least: self.least, ..Grain::default() }
    }

    /// The strand of `self` goes on in place of another one, which keeps what it remembers of its own grains.
    /// If it does not join, it knows then what was before it.
    #[inline]
    pub(crate) fn go_on_after(&mut self, own: &mut Grain, joins: bool) {
        core::mem::swap(self, own);
        core::mem::swap(&mut self.least, &mut own.least);
        self.is_part &= joins;
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the strand is the second half of a fork.
    #[inline]
    pub(crate) fn is_half(&self) -> bool {
        self.fork.is_some()
    }

    /// Whether the grain is twice as long as it should be.
    pub(crate) fn is_too_long(&self, limit: u64) -> bool {
        self.open.is_some_and(|time| time > 2 * limit)
    }

    /// The grain ends.
    #[inline]
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// The strand forks at a site: the fork's second half, and that both halves are grains if the activity in
    /// forks of its kind is below `limit`.
    pub(crate) fn fork(&mut self, site: Site, estimates: &Estimates, limit: u64) -> Grain {
        self.depth += 1;
        let mixed = (site.0 ^ u64::from(self.depth) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let kind = (mixed >> (u64::BITS - Kind::BITS)) as Kind;
        self.open = estimates.is_below(kind, limit).then_some(0);
        Grain {
            work: 0,
            least: self.least,
            depth: self.depth,
            fork: Some((kind, self.work)),
            open: self.open,
            is_part: false,
        }
    }

    /// A serial part of a strand, that another thread runs.
    pub(crate) fn part() -> Grain {
        Grain { open: Some(0), is_part: true, ..Grain::default() }
    }

    /// The strand has joined a fork's second half, whose grain is closed.
    pub(crate) fn join(&mut self, second: &Grain, estimates: &mut Estimates) {
        if second.is_part {
            self.work += second.work;
        } else if let Some((kind, before)) = second.fork {
            self.work += second.work;
            self.depth = self.depth.saturating_sub(1);
            estimates.learn(kind, self.work.saturating_sub(before));
        }
    }
}
