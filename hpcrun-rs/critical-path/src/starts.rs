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
pub(crate) struct Starts(HashMap<Site, Start<Site>>);

/// They are of one place.
fn add(known: &mut Start<Site>, other: &Start<Site>) {
    known.first = known.first.min(other.first);
    known.count += other.count;
    known.time += other.time;
}

impl Starts {
    fn add(&mut self, start: Start<Site>) {
        let has_room = self.0.len() < MOST || self.0.contains_key(&start.place);
        let place = if has_room { start.place } else { Site(0) };
        let known = self.0.entry(place);
        known.and_modify(|known| add(known, &start)).or_insert(Start { place, ..start });
    }

    /// The places, where all is beside the path so far.
    pub(crate) fn all(&self) -> Vec<Start<Site>> {
        let starts = self.0.values().map(|start| Start { beside: start.time, ..start.clone() });
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
pub(crate) struct Recent([Option<Start<Site>>; RECENT]);

impl Recent {
    pub(crate) fn new() -> Self {
        Recent([const { None }; RECENT])
    }

    /// Something begins at a length, for an event at `place`. `false`: there is no room; see
    /// [`move_to`](Self::move_to).
    #[inline]
    pub(crate) fn begin(&mut self, place: Site, edge: Edge, first: u64) -> bool {
        let start = Start { place, edge, first, count: 1, time: 0, beside: 0 };
        match self.slot(place) {
            Some(known) if known.place == place => add(known, &start),
            Some(_) => return false,
            free => *free = Some(start),
        }
        true
    }

    /// What has begun for an event at `place` was active so long.
    #[inline]
    pub(crate) fn add(&mut self, place: Site, edge: Edge, time: u64) -> bool {
        let known = self.begin(place, edge, u64::MAX);
        if let Some(start) = self.slot(place).as_mut().filter(|_| known) {
            start.count -= 1;
            start.time += time;
        }
        known
    }

    #[inline]
    fn slot(&mut self, place: Site) -> &mut Option<Start<Site>> {
        let hash = place.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT.ilog2());
        &mut self.0[hash as usize % RECENT]
    }

    /// All of it becomes a part of the program's.
    pub(crate) fn move_to(&mut self, starts: &mut Starts) {
        self.0.iter_mut().filter_map(Option::take).for_each(|start| starts.add(start));
    }
}
