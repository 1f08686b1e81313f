//! Which contexts and functions the activity between events was in, by samples.
//!
//! One duty: divide a time among them. A sample stands for a whole period, in which there may be many events.
//! A function's saving is the least over parallel branches, so it is too small if its times are right only in
//! the mean: most of a period is no saving where a branch beside it ends soon after. Therefore activity of
//! few samples is divided like what the thread, or one that has ended, did before between the same two
//! events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::path::Site;
use crate::sampled::{Context, Function, Sampler};
use crate::settings::Settings;

/// Activity with samples of so many periods is divided by these alone.
const ENOUGH: u64 = 4;
/// Periods of samples that are remembered of activity between the same two events.
const REMEMBERED: u64 = 128;
/// Pairs of events that are remembered; with one more, all are forgotten.
const MOST_PAIRS: usize = 256;

/// What was sampled between two events.
pub(crate) type Known = HashMap<(Site, Site), Times>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Nanoseconds between samples.
    period: u64,
    /// Longer activity between two events is divided at once.
    most: u64,
    /// Shorter activity adds up to this time, which is random: else one of several short activities that
    /// alternate would always have the time of all.
    due: u64,
    random: u64,
    /// The time that is not divided yet, that of it since the last event, and its samples.
    activity: u64,
    last: u64,
    samples: Vec<(Context, Arc<[Function]>, u64)>,
    /// The last event.
    after: Site,
    known: Known,
}

/// Times of contexts, and of the functions in them; in order.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times {
    pub(crate) contexts: Vec<(Context, u64)>,
    pub(crate) functions: Vec<(Function, u64)>,
    sum: u64,
}

impl Shares {
    pub(crate) fn new(settings: &Settings) -> Self {
        Shares {
            period: settings.sample_period,
            most: settings.share,
            due: settings.share,
            random: 1,
            activity: 0,
            last: 0,
            samples: Vec::new(),
            after: Site(0),
            known: Known::new(),
        }
    }

    /// The thread was active.
    #[inline]
    pub(crate) fn add(&mut self, time: u64) {
        self.activity += time;
        self.last = time;
    }

    /// Whether it is time to [`divide`](Self::divide).
    #[inline]
    pub(crate) fn are_due(&self) -> bool {
        self.activity > self.due || self.last > self.most
    }

    /// There was a sample in a context, which is in these functions.
    pub(crate) fn sample(&mut self, context: Context, functions: Arc<[Function]>, time: u64) {
        self.samples.push((context, functions, time));
    }

    /// The thread is at an event.
    #[inline]
    pub(crate) fn pass(&mut self, event: Site) {
        self.after = event;
    }

    /// Divides the activity since the last time, which ends at an event. `ended`: what threads that have
    /// ended knew.
    pub(crate) fn divide(&mut self, event: Site, sampler: &mut dyn Sampler, ended: &Mutex<Known>) -> Times {
        self.random = xorshift(self.random);
        // Where events are that close, gains are too small anyway, and dividing would cost too much.
        let is_short = self.last < self.most / 8;
        self.due = self.random % (self.most << if is_short { 4 } else { 0 }).max(1);
        let pair = (sampler.place(self.after), sampler.place(event));
        if !self.known.contains_key(&pair) {
            let times = lock(ended).get(&pair).cloned();
            insert(&mut self.known, pair, times.unwrap_or_default());
        }
        let known = self.known.entry(pair).or_default();
        let sampled: u64 = self.samples.iter().map(|sample| sample.2).sum();
        let is_enough = sampled >= ENOUGH * self.period;
        if sampled > 0 {
            let kept = if is_enough { 0 } else { REMEMBERED * self.period };
            known.scale(known.sum.min(kept));
            for (context, functions, time) in self.samples.drain(..) {
                known.add(context, &functions, time);
            }
        }
        // What cannot be sampled, as it blocks signals, is in no function.
        let activity = core::mem::take(&mut self.activity).min(sampled + ENOUGH * self.period);
        let mut times = Times {
            contexts: match is_enough {
                true => known.contexts.clone(),
                false => known.one(self.random).into_iter().collect(),
            },
            functions: known.functions.clone(),
            sum: known.sum,
        };
        times.scale(activity);
        times
    }

    /// Nobody knows of samples.
    pub(crate) fn skip(&mut self) {
        self.activity = 0;
    }

    /// The thread ends.
    pub(crate) fn end(&mut self, ended: &Mutex<Known>) {
        let mut ended = lock(ended);
        for (pair, times) in self.known.drain().filter(|(_, times)| times.sum > 0) {
            insert(&mut ended, pair, times);
        }
    }
}

/// The next random number (Marsaglia, "Xorshift RNGs", 2003).
fn xorshift(mut random: u64) -> u64 {
    random ^= random << 13;
    random ^= random >> 7;
    random ^ (random << 17)
}

fn insert(known: &mut Known, pair: (Site, Site), times: Times) {
    if known.len() >= MOST_PAIRS && !known.contains_key(&pair) {
        known.clear();
    }
    known.insert(pair, times);
}

impl Times {
    fn add(&mut self, context: Context, functions: &[Function], time: u64) {
        self.sum += time;
        add(&mut self.contexts, context, time);
        functions.iter().for_each(|function| add(&mut self.functions, *function, time));
    }

    /// The sum as one context's time, by chance: a time on the path is right if it is so in the mean.
    fn one(&self, random: u64) -> Option<(Context, u64)> {
        let mut left = random.checked_rem(self.sum)?;
        let is_it = |(_, time): &&(Context, u64)| {
            let before = left;
            left = left.saturating_sub(*time);
            before < *time
        };
        let (context, _) = self.contexts.iter().find(is_it)?;
        Some((*context, self.sum))
    }

    /// Changes the sum, but not the shares.
    fn scale(&mut self, sum: u64) {
        if self.sum == 0 || self.sum == sum {
            return;
        }
        let factor = sum as f64 / self.sum as f64;
        self.sum = sum;
        let scale = |time: &mut u64| {
            *time = (*time as f64 * factor) as u64;
            *time > 0
        };
        self.contexts.retain_mut(|(_, time)| scale(time));
        self.functions.retain_mut(|(_, time)| scale(time));
    }
}

/// Adds to an entry of a list in order.
fn add<K: Ord + Copy>(times: &mut Vec<(K, u64)>, key: K, time: u64) {
    match times.binary_search_by_key(&key, |known| known.0) {
        Ok(at) => times[at].1 += time,
        Err(at) => times.insert(at, (key, time)),
    }
}
