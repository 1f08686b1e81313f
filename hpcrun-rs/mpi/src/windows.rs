//! One-sided communication: who waits for whom at its synchronisation. Who has had a lock is not known.

use crate::call::{Call, Observed};
use crate::collectives::{Companion, Plan};
use crate::job::{Job, World};
use crate::library::{Kind, at, pmpi};
use crate::matching::{Found, Message};
use hpcrun_abi::{LOST_ROOM, LOST_UNKNOWN};
use std::ffi::c_int;

pub(crate) struct Window {
    pub(crate) comm: usize,
    /// Its number among those of the communicator, equal at all its processes.
    number: c_int,
    /// The processes of the job that have access to this one's memory, and that this one has access to.
    exposed_to: Vec<u32>,
    accesses: Vec<u32>,
}

/// In a communicator's number: of strands of epochs, with a window's number and an event as their tag.
const EPOCHS: u64 = 1 << 63;
/// A process exposes its memory to another one; that one has ended its accesses.
const POST: c_int = 0;
const COMPLETE: c_int = 1;

/// (…, window), and where the communicator is
pub(crate) fn make(call: &Call<'_>, comm: usize) -> c_int {
    call.observe(false, |_, job| {
        let comm = call.handle(Kind::Comm, comm);
        let result = call.run();
        if result == 0 {
            let window = call.handle_at(Kind::Window, call.last(), 0);
            job.state().world.add_window(window, comm);
        }
        result
    })
}

/// (window)
pub(crate) fn free(call: &Call<'_>) -> c_int {
    call.observe(false, |_, job| {
        let window = call.handle_at(Kind::Window, 0, 0);
        job.state().world.windows.remove(&window);
        call.run()
    })
}

/// (…, window): as `Barrier` on the window's communicator.
pub(crate) fn fence(call: &Call<'_>) -> c_int {
    call.observe(true, |observed, job| {
        let window = call.handle(Kind::Window, call.last());
        let comm = job.state().world.windows.get(&window).map(|window| window.comm);
        let plan = comm.map(Plan::all);
        if plan.is_none() {
            observed.lose(LOST_UNKNOWN);
        }
        let companion = plan.map(|plan| Companion::begin(plan, true, observed, job));
        let result = call.run();
        companion.inspect(|companion| companion.merge(observed));
        result
    })
}

/// (group, assertion, window): exposes the memory to the group's processes.
pub(crate) fn post(call: &Call<'_>) -> c_int {
    call.observe(true, |observed, job| {
        let group = job.state().world.group_of(call.handle(Kind::Group, 0));
        job.state().world.tell(call.handle(Kind::Window, 2), POST, &group, observed);
        if let Some(window) = job.state().world.windows.get_mut(&call.handle(Kind::Window, 2)) {
            window.exposed_to = group;
        }
        call.run()
    })
}

/// (group, assertion, window): begins accesses to the group's processes. Those wait at their end at the
/// latest.
pub(crate) fn start(call: &Call<'_>) -> c_int {
    call.observe(false, |_, job| {
        let group = job.state().world.group_of(call.handle(Kind::Group, 0));
        if let Some(window) = job.state().world.windows.get_mut(&call.handle(Kind::Window, 2)) {
            window.accesses = group;
        }
        call.run()
    })
}

/// (window): ends the accesses.
pub(crate) fn complete(call: &Call<'_>) -> c_int {
    call.observe(true, |observed, job| {
        let window = call.handle(Kind::Window, 0);
        let mut state = job.state();
        let known = state.world.windows.get_mut(&window);
        let others = known.map_or_else(Vec::new, |window| std::mem::take(&mut window.accesses));
        state.world.tell(window, COMPLETE, &others, observed);
        drop(state);
        let result = call.run();
        observed.expect(others.len());
        follow(window, POST, &others, observed, job);
        result
    })
}

/// (window, a flag that says so, if there is one): the accesses to this process's memory have ended.
pub(crate) fn wait(call: &Call<'_>) -> c_int {
    call.observe(false, |observed, job| {
        let result = call.run();
        if call.last() > 0 && call.int_at(1, 0) == 0 {
            return result;
        }
        let window = call.handle(Kind::Window, 0);
        let mut state = job.state();
        let known = state.world.windows.get_mut(&window);
        let others = known.map_or_else(Vec::new, |window| std::mem::take(&mut window.exposed_to));
        drop(state);
        observed.expect(others.len());
        follow(window, COMPLETE, &others, observed, job);
        result
    })
}

/// Merges what other processes have told of an event.
fn follow(window: usize, event: c_int, others: &[u32], observed: &Observed, job: &Job) {
    let mut state = job.state();
    let state = &mut *state;
    let Some((comm, tag)) = state.world.epoch(window, event) else {
        return observed.lose(LOST_UNKNOWN);
    };
    for source in others {
        let message = Message { comm, source: *source, tag };
        let merge = |strand: &_| observed.import(strand);
        if state.matching.take(None, message, &mut state.world, merge) != Found::Strand {
            observed.lose(LOST_ROOM);
        }
    }
}

impl World {
    fn add_window(&mut self, window: usize, comm: usize) {
        let of_comm = self.windows.values().filter(|window| window.comm == comm);
        let number = of_comm.map(|window| window.number + 1).max().unwrap_or(0);
        let window_of = Window { comm, number, exposed_to: Vec::new(), accesses: Vec::new() };
        self.windows.insert(window, window_of);
    }

    /// How strands of a window's event are known.
    fn epoch(&mut self, window: usize, event: c_int) -> Option<(u64, c_int)> {
        let window = self.windows.get(&window)?;
        let (comm, tag) = (window.comm, 2 * window.number + event);
        Some((self.comm(comm)?.id | EPOCHS, tag))
    }

    fn tell(&mut self, window: usize, event: c_int, others: &[u32], observed: &Observed) {
        if let Some(message) = self.epoch(window, event) {
            others.iter().for_each(|other| self.send(message, *other, observed.strand()));
        }
    }

    /// The processes of the job in a group.
    fn group_of(&self, group: usize) -> Vec<u32> {
        let mut size: c_int = 0;
        pmpi!(Group_size(group, at(&mut size)));
        self.ranks_of(group, size)
    }
}
