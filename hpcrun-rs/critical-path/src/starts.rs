//! Where activity begins that may run beside the path.
//!
//! One duty: know how much activity the events at each place have started: what a spawned strand does, and
//! what a strand does after a message, a signal or a barrier that it had to wait for. What of it is not on
//! the path runs beside the path, so the place exposes parallelism. Dooley and Kalé (2010, future work) look
//! for such places among messages.

use std::collections::HashMap;

use hpc_formats::critical_path::Start;

use crate::path::{Edge, Site};

/// Places that are told apart; further ones count as one that is not known.
const MOST: usize = 4096;
/// Places of which a thread has sums that others do not see yet.
const RECENT: usize = 16;

/// The places of a program.
#[derive(Debug, Default)]
pub(crate) struct Starts(HashMap<Site, Sum>);

/// What the events at a place have started.
#[derive(Debug, Clone, Copy)]
struct Sum {
    edge: Edge,
    /// The least length at which something began.
    first: u64,
    count: u64,
    time: u64,
}

impl Sum {
    fn add(&mut self, other: &Sum) {
        self.first = self.first.min(other.first);
        self.count += other.count;
        self.time += other.time;
    }
}

impl Starts {
    fn add(&mut self, place: Site, sum: &Sum) {
        let has_room = self.0.len() < MOST || self.0.contains_key(&place);
        let place = if has_room { place } else { Site(0) };
        let known = self.0.entry(place);
        known.and_modify(|known| known.add(sum)).or_insert(*sum);
    }

    /// The places, without what is on the path.
    pub(crate) fn all(&self) -> Vec<Start<Site>> {
        let starts = self.0.iter().map(|(place, sum)| Start {
            place: *place,
            edge: sum.edge,
            first: sum.first,
            count: sum.count,
            time: sum.time,
            beside: sum.time,
        });
        let mut starts: Vec<_> = starts.collect();
        starts.sort_by_key(|start| (start.first, start.place));
        starts
    }
}

/// What a strand knows of its start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Started {
    /// Where and how what it does was started, if it was.
    pub(crate) by: Option<(Site, Edge)>,
    /// Of a thread's own: the length up to which that is counted.
    counted: u64,
}

impl Started {
    /// A strand of this length begins, or goes on, after an event at `place` of another one.
    #[inline]
    pub(crate) fn at(place: Site, edge: Edge, length: u64) -> Started {
        let by = (edge.is_start() && place != Site(0)).then_some((place, edge));
        Started { by, counted: length }
    }

    /// What was done since this was asked last, up to a length.
    #[inline]
    pub(crate) fn count(&mut self, length: u64) -> u64 {
        length - core::mem::replace(&mut self.counted, length)
    }
}

/// What a thread has started and done, that is not among the program's [`Starts`] yet.
#[derive(Debug)]
pub(crate) struct Recent([Option<(Site, Sum)>; RECENT]);

impl Recent {
    pub(crate) fn new() -> Self {
        Recent([None; RECENT])
    }

    /// Something begins at a length, for an event at `place`. `false`: there is no room; see
    /// [`move_to`](Self::move_to).
    #[inline]
    pub(crate) fn begin(&mut self, place: Site, edge: Edge, first: u64) -> bool {
        let sum = Sum { edge, first, count: 1, time: 0 };
        match self.slot(place) {
            Some((known, sums)) if *known == place => {
                sums.add(&sum);
                true
            }
            Some(_) => false,
            free => {
                *free = Some((place, sum));
                true
            }
        }
    }

    /// What has begun for an event at `place` was active so long.
    #[inline]
    pub(crate) fn add(&mut self, place: Site, edge: Edge, time: u64) -> bool {
        let known = self.begin(place, edge, u64::MAX);
        if let Some((_, sum)) = self.slot(place).as_mut().filter(|_| known) {
            sum.count -= 1;
            sum.time += time;
        }
        known
    }

    #[inline]
    fn slot(&mut self, place: Site) -> &mut Option<(Site, Sum)> {
        let hash = place.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT.ilog2());
        &mut self.0[hash as usize % RECENT]
    }

    /// All of it becomes a part of the program's.
    pub(crate) fn move_to(&mut self, starts: &mut Starts) {
        for (place, sum) in self.0.iter_mut().filter_map(Option::take) {
            starts.add(place, &sum);
        }
    }
}
