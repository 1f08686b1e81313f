//! Waits for nonblocking and persistent operations. A strand is merged when the program knows that its
//! message is there: at the wait, not where the receive was posted.

use crate::call::{Call, Function, Observed, observe};
use crate::collectives::Companion;
use crate::job::{Job, State};
use crate::library::{Status, UNDEFINED, at, library, pmpi};
use crate::messages::{From, To};
use hpcrun_abi::LOST_UNKNOWN;
use std::collections::HashMap;
use std::ffi::c_int;
use std::hash::{BuildHasherDefault, Hasher};

/// By handle. Of requests that are not here nothing needs to be known when they are complete.
pub(crate) type Requests = HashMap<usize, Request, BuildHasherDefault<Spread>>;

/// Spreads handles, which are addresses or small numbers.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_usize((*byte).into()));
    }

    fn write_usize(&mut self, handle: usize) {
        self.0 = (self.0 ^ handle as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
}

/// A request.
#[derive(Debug)]
pub(crate) enum Request {
    Receive {
        from: From,
        /// Of the posted receive; `None`: it is not started, or its message is not observed.
        number: Option<u64>,
        is_persistent: bool,
        is_cancelled: bool,
    },
    PersistentSend(To),
    Collective(Box<Companion>),
}

impl Request {
    pub(crate) fn receive(from: From, number: u64) -> Request {
        Request::Receive {
            from,
            number: Some(number),
            is_persistent: false,
            is_cancelled: false,
        }
    }

    pub(crate) fn persistent_receive(from: From) -> Request {
        Request::Receive {
            from,
            number: None,
            is_persistent: true,
            is_cancelled: false,
        }
    }
}

/// Request and communicator of the posted receive of this number.
pub(crate) fn receive(requests: &Requests, number: u64) -> Option<(usize, usize)> {
    requests.iter().find_map(|(handle, request)| match request {
        Request::Receive {
            from,
            number: Some(of),
            ..
        } if *of == number => Some((*handle, from.comm)),
        _ => None,
    })
}

/// How a function tells which requests are complete; the numbers are the places of its arguments.
#[derive(Clone, Copy)]
enum Ends {
    /// All.
    All,
    /// All if a flag is set.
    AllIf(usize),
    /// The one of an index; if a flag is set, too, where there is one.
    One(usize, Option<usize>),
    /// So many, by an array of indices.
    Some(usize, usize),
}

// What is unsafe here relies on the caller's arguments being those that MPI's function takes.
macro_rules! waits {
    ($(
        $name:ident: count $count:expr, requests $requests:literal, statuses $statuses:literal, $ends:expr;
    )*) => { $(
        pub(crate) unsafe fn $name(call: Call<'_>, real: impl Function) -> c_int {
            let count: Option<usize> = $count;
            // SAFETY: see above.
            unsafe { wait_by(call, real, count, $requests, $statuses, $ends) }
        }
    )* };
}

waits! {
    wait: count None, requests 0, statuses 1, Ends::All;
    test: count None, requests 0, statuses 2, Ends::AllIf(1);
    wait_all: count Some(0), requests 1, statuses 2, Ends::All;
    test_all: count Some(0), requests 1, statuses 3, Ends::AllIf(2);
    wait_any: count Some(0), requests 1, statuses 3, Ends::One(2, None);
    test_any: count Some(0), requests 1, statuses 4, Ends::One(2, Some(3));
    wait_some: count Some(0), requests 1, statuses 4, Ends::Some(2, 3);
}

unsafe fn wait_by(
    call: Call<'_>,
    real: impl Function,
    count: Option<usize>,
    requests: usize,
    statuses: usize,
    ends: Ends,
) -> c_int {
    observe(&call, &real, |observed, job| {
        // SAFETY: see above.
        let count = count.map_or(1, |count| unsafe { call.int(count) }.max(0) as usize);
        // MPI forgets the handles of what is complete.
        let (mut one, mut many) = ([0], Vec::new());
        let handles: &mut [usize] = match count {
            1 => &mut one,
            _ => {
                many.resize(count, 0);
                &mut many
            }
        };
        let mut state = job.state();
        state.flush();
        let mut is_known = false;
        for (index, handle) in handles.iter_mut().enumerate() {
            // SAFETY: see above.
            *handle = unsafe { call.request_at(requests, index) };
            is_known |= state.requests.contains_key(handle);
        }
        drop(state);
        if !is_known {
            return real(call.arguments);
        }
        call.with_statuses(statuses, count, &real, |result, statuses| {
            if result != 0 {
                observed.lose(LOST_UNKNOWN);
                return result;
            }
            // SAFETY: see above.
            let mut complete = unsafe { complete(&call, count, ends) };
            // In the order in which they were posted: what earlier ones have got is known by their requests,
            // which MPI has forgotten.
            let state = job.state();
            complete.sort_by_key(|(index, _)| match state.requests.get(&handles[*index]) {
                Some(Request::Receive { number, .. }) => *number,
                _ => None,
            });
            drop(state);
            for (index, place) in complete {
                // SAFETY: there is a status for each.
                let status = unsafe { statuses.add(place * library().status) };
                finish(handles[index], status, observed, job);
            }
            result
        })
    })
}

/// The complete ones, each with the place of its status.
unsafe fn complete(call: &Call<'_>, count: usize, ends: Ends) -> Vec<(usize, usize)> {
    let all = || (0..count).map(|index| (index, index)).collect();
    // SAFETY: see above. Fortran counts from 1.
    unsafe {
        let is_set = |flag| call.int_at(flag, 0) != 0;
        let index = |index: c_int| {
            let index = index - c_int::from(call.fortran);
            usize::try_from(index).ok().filter(|index| *index < count)
        };
        match ends {
            Ends::All => all(),
            Ends::AllIf(flag) if is_set(flag) => all(),
            Ends::One(at, flag) if flag.is_none_or(is_set) => {
                let at = Some(call.int_at(at, 0)).filter(|at| *at != UNDEFINED);
                at.and_then(index)
                    .map(|index| (index, 0))
                    .into_iter()
                    .collect()
            }
            Ends::Some(number, indices) => (0..call.int_at(number, 0).max(0) as usize)
                .filter_map(|place| Some((index(call.int_at(indices, place))?, place)))
                .collect(),
            Ends::AllIf(_) | Ends::One(..) => Vec::new(),
        }
    }
}

/// A request is complete, with its status.
fn finish(handle: usize, status: *const c_int, observed: Observed, job: &Job) {
    let mut state = job.state();
    match state.requests.get_mut(&handle) {
        None | Some(Request::PersistentSend(_)) => {}
        Some(Request::Collective(_)) => {
            let Some(Request::Collective(companion)) = state.requests.remove(&handle) else {
                return;
            };
            drop(state);
            companion.finish(observed, job);
        }
        Some(Request::Receive {
            from,
            number,
            is_persistent,
            is_cancelled,
        }) => {
            let (comm, number, was_cancelled) = (from.comm, number.take(), *is_cancelled);
            if !*is_persistent {
                state.requests.remove(&handle);
            }
            let Some(number) = number else { return };
            if was_cancelled && is_cancelled_in(status) {
                return state.matching.withdraw(number);
            }
            drop(state);
            // SAFETY: the receive's status.
            unsafe { From::receive(comm, Some(number), status, observed, job) };
        }
    }
}

fn is_cancelled_in(status: *const c_int) -> bool {
    let mut flag: c_int = 0;
    // SAFETY: MPI's function on a status.
    unsafe { pmpi!(Test_cancelled(status.expose_provenance(), at(&mut flag))) };
    flag != 0
}

/// A persistent operation starts.
fn start_one(handle: usize, observed: Observed, job: &Job) {
    let mut state = job.state();
    let (to, from) = match state.requests.get(&handle) {
        Some(Request::PersistentSend(to)) => (Some(*to), None),
        Some(Request::Receive { from, .. }) => (None, Some(*from)),
        _ => (None, None),
    };
    if let Some(from) = from {
        let posted = from.post(&mut state);
        if let Some(Request::Receive {
            number,
            is_cancelled,
            ..
        }) = state.requests.get_mut(&handle)
        {
            (*number, *is_cancelled) = (posted, false);
        }
    }
    drop(state);
    if let Some(to) = to {
        to.send(observed, job);
    }
}

/// (request)
pub(crate) unsafe fn start(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |observed, job| {
        // SAFETY: see above.
        start_one(unsafe { call.request_at(0, 0) }, observed, job);
        real(call.arguments)
    })
}

/// (count, requests)
pub(crate) unsafe fn start_all(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |observed, job| {
        // SAFETY: see above.
        for index in 0..unsafe { call.int(0) }.max(0) as usize {
            // SAFETY: as above.
            start_one(unsafe { call.request_at(1, index) }, observed, job);
        }
        real(call.arguments)
    })
}

/// (request)
pub(crate) unsafe fn cancel(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |_, job| {
        // SAFETY: see above.
        let handle = unsafe { call.request_at(0, 0) };
        if let Some(Request::Receive { is_cancelled, .. }) = job.state().requests.get_mut(&handle) {
            *is_cancelled = true;
        }
        real(call.arguments)
    })
}

/// (request)
pub(crate) unsafe fn free(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |observed, job| {
        // SAFETY: see above.
        let handle = unsafe { call.request_at(0, 0) };
        let mut state = job.state();
        let state: &mut State = &mut state;
        if let Some(Request::Receive {
            number: Some(number),
            ..
        }) = state.requests.remove(&handle)
        {
            if !state.matching.abandon(number) {
                observed.lose(LOST_UNKNOWN);
            }
        }
        real(call.arguments)
    })
}

/// Waits for a request of this library's own.
pub(crate) fn wait_for(mut request: usize) {
    let mut status: Status = [0; 6];
    // SAFETY: MPI's function on a request of ours.
    unsafe { pmpi!(Wait(at(&mut request), at(&mut status))) };
}
