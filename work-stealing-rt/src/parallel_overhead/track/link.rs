//! The critical path along tasks for which somebody waits otherwise than by a join: installed closures,
//! broadcasts, scopes.

use core::cell::UnsafeCell;
use core::panic::Location;
use std::sync::{Mutex, PoisonError};

use critical_path::{Edge, Site, Strand};

use super::{at, begin, discard, end, is_active, with};

/// From a spawner to one task, and back. Invariant: the spawner touches it before it hands the task out and
/// after it has waited for the task, whoever runs the task in between; both hand-overs synchronise.
pub(crate) struct Link(UnsafeCell<Strands>);

struct Strands {
    site: Site,
    forked: Option<Strand>,
    ended: Option<Strand>,
}

// SAFETY: see the type: one thread at a time.
unsafe impl Sync for Link {}

impl Link {
    /// The calling strand spawns a task at `location`.
    pub(crate) fn new(location: &'static Location<'static>) -> Self {
        Link(UnsafeCell::new(Strands {
            site: at(location),
            forked: super::spawn(location),
            ended: None,
        }))
    }

    /// The task begins on the calling thread.
    ///
    /// # Safety
    /// The calling thread runs the task.
    pub(crate) unsafe fn begin(&self) -> Option<Strand> {
        // SAFETY: the task has the link now (the type's invariant).
        let strands = unsafe { &mut *self.0.get() };
        begin(strands.forked.take(), strands.site)
    }

    /// The task has ended.
    ///
    /// # Safety
    /// As for `begin`, and before the waiter is told.
    pub(crate) unsafe fn end(&self, left: Option<Strand>) {
        // SAFETY: as in `begin`.
        let strands = unsafe { &mut *self.0.get() };
        strands.ended = left.and_then(|left| end(left, strands.site));
    }

    /// The calling strand has waited for the task.
    ///
    /// # Safety
    /// The task has ended, and the calling thread is the one that made the link.
    pub(crate) unsafe fn join(&self) {
        // SAFETY: the task has given it back.
        let strands = unsafe { &mut *self.0.get() };
        join(strands.ended.take(), strands.site);
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
        let earlier = ends.take();
        *ends = with(true, |thread| match earlier {
            Some(earlier) => thread.both(earlier, ended),
            None => ended,
        });
    }

    /// The calling strand has waited, at `location`, for all tasks.
    pub(crate) fn join(&self, location: &'static Location<'static>) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        join(ends.take(), at(location));
    }
}

fn join(ended: Option<Strand>, site: Site) {
    match ended {
        Some(ended) if is_active() => {
            with(false, |thread| thread.merge(ended, site, Edge::Join));
        }
        ended => discard(ended),
    }
}
