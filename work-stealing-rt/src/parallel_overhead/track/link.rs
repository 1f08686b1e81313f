//! The critical path along tasks for which somebody waits otherwise than by a join: installed closures,
//! broadcasts, scopes.

use core::cell::UnsafeCell;
use core::panic::Location;
use std::sync::{Mutex, PoisonError};

use super::path::{self, Strand};
use super::{Site, at, begin, end, is_active};

/// Where a task is spawned.
#[derive(Clone, Copy)]
enum Place {
    Source(&'static Location<'static>),
    Site(Site),
}

impl Place {
    /// 0 if nothing is tracked now, or was when a context was asked for.
    fn site(self) -> Site {
        match self {
            Place::Source(location) => at(location),
            Place::Site(site) => site,
        }
    }
}

/// From a spawner to one task, and back. Invariant: the spawner touches it before it hands the task out and
/// after it has waited for the task, whoever runs the task in between; both hand-overs synchronise.
pub(crate) struct Link {
    place: Place,
    strand: UnsafeCell<Option<Strand>>,
}

// SAFETY: see the type: one thread at a time.
unsafe impl Sync for Link {}

impl Link {
    /// The calling strand spawns a task at `location`; without one, in its context.
    pub(crate) fn new(location: Option<&'static Location<'static>>) -> Self {
        let place = location.map_or_else(|| Place::Site(path::context()), Place::Source);
        let strand = if is_active() { path::copy(place.site()) } else { None };
        Link { place, strand: UnsafeCell::new(strand) }
    }

    /// The task begins on the calling thread.
    ///
    /// # Safety
    /// The calling thread runs the task.
    pub(crate) unsafe fn begin(&self) -> Option<Strand> {
        // SAFETY: the task has the link now (the type's invariant).
        let forked = unsafe { (*self.strand.get()).take() };
        begin(forked, self.place.site())
    }

    /// The task has ended.
    ///
    /// # Safety
    /// As for `begin`, and before the waiter is told.
    pub(crate) unsafe fn end(&self, left: Option<Strand>) {
        let ended = left.and_then(|left| end(left, self.place.site()));
        // SAFETY: as in `begin`.
        unsafe { *self.strand.get() = ended };
    }

    /// The calling strand has waited for the task.
    ///
    /// # Safety
    /// The task has ended, and the calling thread is the one that made the link.
    pub(crate) unsafe fn join(&self) {
        // SAFETY: the task has given it back.
        join(unsafe { (*self.strand.get()).take() }, self.place);
    }
}

/// To a scope from its tasks.
pub(crate) struct Ends(Mutex<Option<Strand>>);

impl Ends {
    pub(crate) fn new() -> Self {
        Ends(Mutex::new(None))
    }

    /// A task has ended.
    pub(crate) fn add(&self, ended: Strand) {
        // Nothing here panics, and a strand is whole in any case.
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *ends = path::both(ends.take(), Some(ended));
    }

    /// The calling strand has waited, at `location`, for all tasks.
    pub(crate) fn join(&self, location: &'static Location<'static>) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        join(ends.take(), Place::Source(location));
    }
}

fn join(ended: Option<Strand>, place: Place) {
    if ended.is_none() {
        return;
    }
    if is_active() {
        path::join(ended, place.site());
    } else {
        path::discard(ended);
    }
}
