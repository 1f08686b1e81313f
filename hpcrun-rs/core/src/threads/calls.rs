//! Calls of a message-passing library (MPI). What a thread does in one is no activity on the critical path.
//! In a call that may wait for other processes it is idle, however the library waits; but code of the C
//! library that the call runs outside of waits there moves data (copies, allocates), and is work.
//!
//! Async-signal-safe: [`OwnThread::is_idle_in_call`].

use super::OwnThread;
use crate::image;
use crate::path;
use crate::unwind::{Registers, loadmap};
use critical_path::Site;
use hpcrun_abi::{CALL_NESTED, CALL_UNTRACKED, Entered, RemoteStrand};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Waits of less than this are charged to no context: what lies between is the call itself.
const SHORTEST_NS: u64 = 10_000;

/// Where the C library is: its code copies.
static COPIES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

pub(super) struct Call {
    is_open: Cell<bool>,
    /// Since when it may wait there, by the monotonic clock; 0: it may not.
    waits_since: Cell<u64>,
    /// Where it has last called what does not wait, and got nothing: a poll, if that comes again.
    polled: Cell<u64>,
}

impl Call {
    pub(super) const fn none() -> Call {
        Call { is_open: Cell::new(false), waits_since: Cell::new(0), polled: Cell::new(0) }
    }
}

/// Finds the C library. Not async-signal-safe.
pub fn find_copies() {
    let inside = libc::memcpy as *const () as usize as u64;
    loadmap::with_current(|snapshot| {
        let modules = snapshot.modules().iter();
        if let Some(module) = modules.into_iter().find(|m| (m.start..m.end).contains(&inside)) {
            COPIES[1].store(module.end, Relaxed);
            COPIES[0].store(module.start, Relaxed);
        }
    });
}

impl OwnThread {
    /// A call begins, from an address. The site is for [`Self::leave_call`]; [`CALL_NESTED`]: the thread is
    /// in such a call already. The strand is there if it `sends`; `waits`: it may wait.
    pub fn enter_call(&self, address: u64, (sends, waits): (bool, bool)) -> Entered {
        let without = |site| Entered { site, strand: ptr::null() };
        if self.own().call.is_open.replace(true) {
            return without(CALL_NESTED);
        }
        if waits {
            self.own().working.begin_wait();
            self.own().call.waits_since.set(image::now());
        }
        if !path::is_active() {
            return without(CALL_UNTRACKED);
        }
        let last = self.own().call.polled.replace(if waits || sends { 0 } else { address });
        if last == address {
            self.path.with(|tracked| tracked.thread.poll_again());
        }
        let entered = self.event(address, |tracked, at| {
            tracked.thread.pause();
            let site = at.place.0.max(CALL_UNTRACKED + 1);
            match sends {
                true => Entered { site, strand: tracked.export(at) },
                false => without(site),
            }
        });
        entered.unwrap_or(without(CALL_UNTRACKED))
    }

    /// The call has waited for a strand of another process, and ends if it `is_over`.
    pub fn leave_call(&self, site: u64, from: Option<&RemoteStrand>, is_over: bool) {
        if is_over {
            self.own().call.is_open.set(false);
            let since = self.own().call.waits_since.replace(0);
            if since != 0 {
                self.own().working.end_wait();
                let waited = image::now().saturating_sub(since);
                if waited >= SHORTEST_NS {
                    self.charge_metric(Registers::here(), |image| image.mpi_wait, waited);
                }
            }
        }
        if from.is_some() {
            self.own().call.polled.set(0);
        }
        if site == CALL_UNTRACKED {
            // A message may just have started the session.
            if let Some(from) = from.filter(|_| path::is_active()) {
                let here = self.context(None).unwrap_or(Site(0));
                let import = |thread: &mut path::OwnThread| thread.import(from, here);
                self.path.with(|tracked| Some(&mut tracked.thread).filter(|t| !t.is_idle()).map(import));
            }
        } else {
            self.path.with(|tracked| match from {
                Some(from) if is_over => tracked.thread.resume_after(from, Site(site)),
                Some(from) => tracked.thread.import(from, Site(site)),
                None => tracked.thread.resume(),
            });
        }
    }

    #[inline]
    pub fn is_in_call(&self) -> bool {
        self.own().call.is_open.get()
    }

    /// Whether it is in one that may wait.
    #[inline]
    pub fn waits_in_call(&self) -> bool {
        self.own().call.waits_since.get() != 0
    }

    /// Whether a sample at an instruction finds the thread waiting in a call. Async-signal-safe.
    #[inline]
    pub fn is_idle_in_call(&self, instruction: u64) -> bool {
        let [start, end] = COPIES.each_ref().map(|bound| bound.load(Relaxed));
        self.waits_in_call() && (self.own().working.waits_inside() || !(start..end).contains(&instruction))
    }
}
