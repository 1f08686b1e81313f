//! Waits for nonblocking and persistent operations. A strand is merged when the program knows that its
//! message is there: at the wait, not where the receive was posted. The numbers that functions get are the
//! places of a call's arguments.

use crate::call::{Call, Observed};
use crate::collectives::{Companion, Plan};
use crate::job::Job;
use crate::library::{Kind, Status, Statuses, UNDEFINED, at, pmpi};
use crate::messages::{End, Mode};
use hpcrun_abi::LOST_UNKNOWN;
use std::collections::BTreeMap;
use std::ffi::c_int;

/// By handle. Of requests that are not here nothing needs to be known when they are complete.
pub(crate) type Requests = BTreeMap<usize, Request>;

#[derive(Debug)]
pub(crate) enum Request {
    Receive {
        from: End,
        /// Of the posted receive; `None`: it is not started, or its message is not observed.
        number: Option<u64>,
        is_persistent: bool,
        is_cancelled: bool,
    },
    PersistentSend(End, Mode),
    /// With the partitions that are not ready yet, of all.
    PartitionedSend {
        to: End,
        left: c_int,
        partitions: c_int,
    },
    Collective(Box<Companion>),
    /// With the one that runs.
    PersistentCollective(Plan, Option<Box<Companion>>),
}

impl Request {
    /// A posted receive, by its number, or a persistent one.
    pub(crate) fn receive(from: End, number: Option<u64>) -> Request {
        Request::Receive { from, number, is_persistent: number.is_none(), is_cancelled: false }
    }
}

/// Request and communicator of the posted receive of this number.
pub(crate) fn receive(requests: &Requests, number: u64) -> Option<(usize, usize)> {
    requests.iter().find_map(|(handle, request)| match request {
        Request::Receive { from, number: Some(of), .. } if *of == number => Some((*handle, from.comm)),
        _ => None,
    })
}

/// How a function tells which requests are complete; the numbers are the places of its arguments.
#[derive(Clone, Copy)]
pub(crate) enum Ends {
    /// All.
    All,
    /// All if a flag is set.
    AllIf(usize),
    /// The one of an index; if a flag is set, too, where there is one.
    One(usize, Option<usize>),
    /// So many, by an array of indices.
    Some(usize, usize),
}

/// (number of requests if there may be many, requests, …, statuses)
pub(crate) fn wait(call: &Call<'_>, many: bool, ends: Ends) -> c_int {
    call.observe(false, |observed, job| {
        let (count, requests) = requests_of(call, many);
        // MPI forgets the handles of what is complete.
        let (mut one, mut many) = ([0], Vec::new());
        let handles: &mut [usize] = match count {
            1 => &mut one,
            _ => {
                many.resize(count, 0);
                &mut many
            }
        };
        let state = job.state();
        let mut is_known = false;
        for (index, handle) in handles.iter_mut().enumerate() {
            *handle = call.handle_at(Kind::Request, requests, index);
            is_known |= state.world.requests.contains_key(handle);
        }
        drop(state);
        if !is_known {
            return call.run();
        }
        call.with_statuses(call.last(), count, |result, statuses| {
            if result != 0 {
                observed.lose(LOST_UNKNOWN);
                return result;
            }
            if count == 1 && ends.is_all(call) {
                finish(handles[0], statuses, observed, job);
                return result;
            }
            let mut complete = ends.complete(call, count);
            // In the order in which they were posted: what earlier ones have got is known by their requests,
            // which MPI has forgotten.
            let state = job.state();
            let request = |index: usize| state.world.requests.get(&handles[index]);
            complete.sort_by_key(|(index, _)| match request(*index) {
                Some(Request::Receive { number, .. }) => *number,
                _ => None,
            });
            drop(state);
            observed.expect(complete.len());
            for (index, place) in complete {
                finish(handles[index], statuses.nth(place), observed, job);
            }
            result
        })
    })
}

impl Ends {
    /// Whether all are complete.
    fn is_all(self, call: &Call<'_>) -> bool {
        match self {
            Ends::All => true,
            Ends::AllIf(flag) => call.int_at(flag, 0) != 0,
            _ => false,
        }
    }

    /// The complete ones, each with the place of its status.
    fn complete(self, call: &Call<'_>, count: usize) -> Vec<(usize, usize)> {
        let is_set = |flag| call.int_at(flag, 0) != 0;
        let index = |array, place| {
            // Fortran counts from 1.
            let index = Some(call.int_at(array, place)).filter(|index| *index != UNDEFINED)?;
            let index = usize::try_from(index - c_int::from(call.fortran)).ok()?;
            (index < count).then_some((index, place))
        };
        match self {
            _ if self.is_all(call) => (0..count).map(|index| (index, index)).collect(),
            Ends::One(at, flag) if flag.is_none_or(is_set) => index(at, 0).into_iter().collect(),
            Ends::Some(number, indices) => {
                let places = 0..call.int_at(number, 0).max(0) as usize;
                places.filter_map(|place| index(indices, place)).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A request is complete, with its status.
fn finish(handle: usize, status: Statuses, observed: &Observed, job: &Job) {
    let mut state = job.state();
    let requests = &mut state.world.requests;
    match requests.get_mut(&handle) {
        None | Some(Request::PersistentSend(..) | Request::PartitionedSend { .. }) => {}
        Some(Request::PersistentCollective(_, running)) => {
            let running = running.take();
            drop(state);
            running.into_iter().for_each(|companion| companion.finish(observed));
        }
        Some(Request::Collective(_)) => {
            let Some(Request::Collective(companion)) = requests.remove(&handle) else {
                return;
            };
            drop(state);
            companion.finish(observed);
        }
        Some(Request::Receive { from, number, is_persistent, is_cancelled }) => {
            let (from, number, was_cancelled) = (*from, number.take(), *is_cancelled);
            if !*is_persistent {
                requests.remove(&handle);
            }
            let Some(number) = number else { return };
            if was_cancelled && status.is_cancelled() {
                return state.matching.withdraw(number);
            }
            let of = from.got(state.world.library.any_source, status);
            drop(state);
            from.receive(Some(number), of, observed, job);
        }
    }
}

/// How many requests there are, and the place of the first.
fn requests_of(call: &Call<'_>, many: bool) -> (usize, usize) {
    if many { (call.int(0).max(0) as usize, 1) } else { (1, 0) }
}

/// (number of requests if there may be many, persistent requests)
pub(crate) fn start(call: &Call<'_>, many: bool) -> c_int {
    call.observe(true, |observed, job| {
        let (count, requests) = requests_of(call, many);
        for index in 0..count {
            start_one(call.handle_at(Kind::Request, requests, index), observed, job);
        }
        call.run()
    })
}

fn start_one(handle: usize, observed: &Observed, job: &Job) {
    let mut state = job.state();
    match state.world.requests.get_mut(&handle) {
        Some(Request::PartitionedSend { left, partitions, .. }) => *left = *partitions,
        Some(Request::PersistentSend(to, mode)) => {
            let (to, mode) = (*to, *mode);
            drop(state);
            to.send(mode, observed, job);
        }
        Some(Request::PersistentCollective(plan, _)) => {
            let plan = plan.clone();
            drop(state);
            let companion = Companion::begin(plan, false, observed, job);
            let mut state = job.state();
            if let Some(Request::PersistentCollective(_, running)) = state.world.requests.get_mut(&handle) {
                *running = Some(companion);
            }
        }
        Some(Request::Receive { from, .. }) => {
            let from = *from;
            let posted = from.post(&mut state);
            if let Some(Request::Receive { number, is_cancelled, .. }) = state.world.requests.get_mut(&handle)
            {
                (*number, *is_cancelled) = (posted, false);
            }
        }
        _ => {}
    }
}

/// (request)
pub(crate) fn cancel(call: &Call<'_>) -> c_int {
    call.observe(false, |_, job| {
        let handle = call.handle_at(Kind::Request, 0, 0);
        let mut state = job.state();
        let request = state.world.requests.get_mut(&handle);
        if let Some(Request::Receive { is_cancelled, .. }) = request {
            *is_cancelled = true;
        }
        drop(state);
        call.run()
    })
}

/// (request)
pub(crate) fn free(call: &Call<'_>) -> c_int {
    call.observe(false, |observed, job| {
        let mut state = job.state();
        let request = state.world.requests.remove(&call.handle_at(Kind::Request, 0, 0));
        if let Some(Request::Receive { number: Some(number), .. }) = request {
            if !state.matching.abandon(number) {
                observed.lose(LOST_UNKNOWN);
            }
        }
        drop(state);
        call.run()
    })
}

/// Waits for a request of this library's own.
pub(crate) fn wait_for(mut request: usize) {
    let mut status: Status = [0; 6];
    pmpi!(Wait(at(&mut request), at(&mut status)));
}
