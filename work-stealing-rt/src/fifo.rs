//! First-in-first-out order on top of a last-in-first-out queue.
//!
//! A worker takes the youngest entry of its queue first, but `spawn_fifo` tasks start in the order of their
//! spawns. For such a task the queue holds a *ticket*: whoever takes a ticket gets the oldest task of the
//! ticket's [`Fifo`].
//!
//! Invariant: a task is put into the `Fifo` before its ticket is queued, and each ticket is
//! redeemed once; so there is a task for every ticket.

use hpcrun_abi::TaskHeader;

use crate::queue::{Injector, Steal};
use crate::task::TaskRef;

/// Set in the address of a ticket; headers and `Fifo`s are aligned to more than two bytes.
const TICKET: usize = 1;

/// An entry of a queue: a task, or a ticket.
#[derive(Clone, Copy)]
pub(crate) struct Queued(*const TaskHeader);

// SAFETY: a task reference may be sent (`TaskRef`), and a `Fifo` is `Sync`.
unsafe impl Send for Queued {}

impl Queued {
    #[inline(always)]
    pub(crate) fn task(task: TaskRef) -> Self {
        Queued(task.0)
    }

    /// The task to run for this entry.
    ///
    /// # Safety
    /// The task, or the ticket's `Fifo`, is alive. A ticket is redeemed once.
    #[inline(always)]
    pub(crate) unsafe fn redeem(self) -> TaskRef {
        if self.0.addr() & TICKET == 0 {
            return TaskRef(self.0);
        }
        let fifo = self.0.map_addr(|address| address & !TICKET).cast::<Fifo>();
        // SAFETY: alive by contract.
        unsafe { &*fifo }.oldest()
    }
}

/// Tasks in the order of their spawns.
pub(crate) struct Fifo(Injector<TaskRef>);

impl Fifo {
    pub(crate) fn new() -> Self {
        Fifo(Injector::new())
    }

    /// Adds the task, and returns the ticket for its queue. The `Fifo` must stay in place
    /// until the ticket is redeemed.
    pub(crate) fn push(&self, task: TaskRef) -> Queued {
        self.0.push(task);
        let this: *const Fifo = self;
        Queued(this.cast::<TaskHeader>().map_addr(|address| address | TICKET))
    }

    fn oldest(&self) -> TaskRef {
        loop {
            match self.0.steal() {
                Steal::Success(task) => return task,
                Steal::Retry => core::hint::spin_loop(),
                Steal::Empty => unreachable!("a ticket without a task"),
            }
        }
    }
}
