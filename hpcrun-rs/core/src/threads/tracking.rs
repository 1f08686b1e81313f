//! The thread's events on the critical path ([`path`]).
//!
//! Not async-signal-safe. Samples may arrive at any point.

use super::lifecycle::wait_until;
use super::{OwnThread, SharedThread};
use crate::activity::{self, State};
use crate::path::{self, ThreadPath, Tracked};
use crate::unwind::Registers;
use critical_path::{Event, Site, Strand};
use hpcrun_abi::{CountedSite, RuntimeTable, SITE_CONTEXT, TaskHeader};

impl OwnThread {
    /// The thread's part, for what is no event of its own.
    #[inline]
    pub fn path(&self) -> &ThreadPath {
        &self.path
    }

    /// An event of the thread, which `act` reports. Its site is the instruction at `address`; if that is 0,
    /// or a long segment ends here, the current context.
    #[inline]
    pub fn event<R>(&self, address: u64, act: impl FnOnce(&mut Tracked, Event) -> R) -> Option<R> {
        self.path.with(|tracked| {
            tracked.end_wait();
            // A runtime has said that the thread has nothing to do: what it does now is the runtime's own.
            if tracked.thread.is_idle() {
                return None;
            }
            let event = tracked.thread.event(Site(address), false, || self.context(None));
            let result = act(tracked, event);
            // What a runtime does while it waits is none of the program's activity.
            if self.own().working.is_paused() {
                tracked.begin_wait();
            }
            Some(result)
        })?
    }

    /// The current context as a site, or that in which a live task of a cooperating runtime was spawned.
    #[cold]
    #[inline(never)]
    pub fn context(&self, task: Option<*const TaskHeader>) -> Option<Site> {
        let Some(task) = task else {
            return self.capture(Registers::here()).map(site_of);
        };
        // SAFETY: the task lives (`PathTable`'s contract).
        let site = unsafe { (*task).site }.cast::<CountedSite>();
        let has_site = |t: &&RuntimeTable| (t.sites_start..t.sites_end).contains(&site);
        let table = activity::runtimes().map(|(_, t)| t).find(has_site)?;
        // The walk begins in a boundary's frame that has the task in its slot.
        let slot = task.expose_provenance();
        let sp = (&raw const slot).expose_provenance().wrapping_sub(table.task_slot);
        let boundary = table.boundary_return.wrapping_sub(1);
        self.capture(Registers::new(boundary as u64, sp as u64, 0)).map(site_of)
    }

    /// The thread begins with this start routine. `spawned` is its spawner's strand, `creation` its creation
    /// context.
    pub fn begin_path(&self, spawned: Option<Strand>, creation: (u32, u32), routine: u64) {
        if !path::is_active() {
            self.begin_main_path();
        } else {
            let at = site_of(creation);
            self.path.with(|tracked| {
                tracked.begin(spawned, name(), at, Site(routine));
                if self.own().working.is_paused() {
                    tracked.begin_wait();
                }
            });
        }
    }

    /// The main thread begins, or the only one of a forked child; or another one, while nothing is tracked.
    pub fn begin_main_path(&self) {
        if path::is_configured() {
            self.path.with(|_| ());
        }
    }

    pub(super) fn end_path(&self) {
        if path::is_configured() {
            self.path.end(name());
        }
    }

    /// The calling thread's strand counts as ended here, for a report, and goes on.
    pub fn publish_so_far(&self) {
        self.path.with(|tracked| tracked.thread.publish(Site(0)));
    }
}

impl SharedThread {
    /// The strand of the calling thread, if this is it, counts as ended. Returns whether it does. Called when
    /// tracking is over.
    pub fn publish_own_path(&self) -> bool {
        // A program's signal handler may end the process in the middle of an event.
        self.is_own() && !self.path.is_inside() && self.path.publish()
    }

    /// A session begins. A thread that waits, or is a runtime's, joins it with its next event; of one that
    /// works, what it does from now on counts.
    pub fn start_path(&self) {
        if self.listing.slot().state() == State::Working {
            self.path.starts_at(self.cpu.read());
        }
    }

    /// As [`Self::publish_own_path`], for another thread: its activity counts, and it `ends` here or not.
    pub fn tell_path(&self, ends: bool) {
        if !self.is_own() && wait_until(|| !self.path.is_inside()) {
            self.path.tell_from_outside(self.cpu.read(), ends);
        }
    }
}

/// By what others know the calling thread when they join it.
fn name() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// A captured context as a site; 0 if there is none.
fn site_of((thread, record): (u32, u32)) -> Site {
    match (thread, record) {
        (0, _) => Site(0),
        _ => Site(SITE_CONTEXT | u64::from(thread) << 32 | u64::from(record)),
    }
}
