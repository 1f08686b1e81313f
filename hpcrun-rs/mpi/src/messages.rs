//! Sends, receives and probes.

use crate::call::{Call, Function, Observed, observe};
use crate::job::{Job, State};
use crate::library::{ANY_TAG, library};
use crate::matching::{Message, Wanted};
use crate::requests::Request;
use hpcrun_abi::{LOST_SYNCHRONOUS, LOST_UNKNOWN};
use std::ffi::c_int;

/// How a send waits for its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Standard,
    Synchronous,
}

/// Where a message goes, as its sender says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) comm: usize,
    pub(crate) rank: c_int,
    pub(crate) tag: c_int,
    pub(crate) mode: Mode,
}

/// What a receive asks for, as it says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From {
    pub(crate) comm: usize,
    pub(crate) rank: c_int,
    pub(crate) tag: c_int,
}

// What is unsafe here relies on the caller's arguments being those that MPI's function takes. The numbers are
// the places of arguments.
impl To {
    /// Of destination, tag and communicator.
    pub(crate) unsafe fn of(call: &Call<'_>, rank: usize, comm: usize, mode: Mode) -> To {
        // SAFETY: see above.
        unsafe {
            To {
                comm: call.comm(comm),
                rank: call.int(rank),
                tag: call.int(rank + 1),
                mode,
            }
        }
    }

    /// Sends the strand before the message.
    #[inline]
    pub(crate) fn send(self, observed: Observed, job: &Job) {
        let mut state = job.state();
        let state = &mut *state;
        // A message to nobody, or in a communicator that is not known: so it is at the other end.
        let Some(comm) = state.comm(self.comm) else {
            return;
        };
        let Some(rank) = State::rank(comm, self.rank) else {
            return;
        };
        let message = (comm.id, self.tag);
        state.flush();
        state.send(message, rank, observed);
        if self.mode == Mode::Synchronous {
            observed.lose(LOST_SYNCHRONOUS);
        }
    }
}

impl From {
    pub(crate) unsafe fn of(call: &Call<'_>, rank: usize, comm: usize) -> From {
        // SAFETY: see above.
        unsafe {
            From {
                comm: call.comm(comm),
                rank: call.int(rank),
                tag: call.int(rank + 1),
            }
        }
    }

    /// Posts the receive; `None` if it is from nobody, or in a communicator that is not known.
    pub(crate) fn post(self, state: &mut State) -> Option<u64> {
        let wanted = self.wanted(state)?;
        Some(state.matching.post(wanted))
    }

    fn wanted(self, state: &mut State) -> Option<Wanted> {
        let any = state.library.any_source;
        let comm = state.comm(self.comm)?;
        let source = match self.rank == any {
            true => None,
            false => Some(State::rank(comm, self.rank)?),
        };
        Some(Wanted {
            comm: comm.id,
            source,
            tag: Some(self.tag).filter(|tag| *tag != ANY_TAG),
        })
    }

    /// The message of a receive that is complete. `Err`: it is not known which. `None`: it is from nobody.
    ///
    /// # Safety
    /// The status is its one.
    pub(crate) unsafe fn message(
        comm: usize,
        status: *const c_int,
        state: &mut State,
    ) -> Result<Option<Message>, ()> {
        // SAFETY: the caller's promise.
        let (source, tag) = unsafe { state.library.source_and_tag(status) };
        if source == state.library.proc_null {
            return Ok(None);
        }
        let comm = state.comm(comm).ok_or(())?;
        let source = State::rank(comm, source).ok_or(())?;
        let comm = comm.id;
        Ok(Some(Message { comm, source, tag }))
    }

    /// The receive is complete: merges what came with its message.
    ///
    /// # Safety
    /// As for [`From::message`].
    #[inline]
    pub(crate) unsafe fn receive(
        comm: usize,
        number: Option<u64>,
        status: *const c_int,
        observed: Observed,
        job: &Job,
    ) {
        let mut state = job.state();
        // SAFETY: the caller's promise.
        match unsafe { From::message(comm, status, &mut state) } {
            Ok(Some(message)) => state.take(number, message, observed),
            Ok(None) => {}
            Err(()) => observed.lose(LOST_UNKNOWN),
        }
    }
}

pub(crate) unsafe fn send(call: Call<'_>, real: impl Function) -> c_int {
    // SAFETY: see above.
    unsafe { send_as(call, real, Mode::Standard) }
}

pub(crate) unsafe fn synchronous_send(call: Call<'_>, real: impl Function) -> c_int {
    // SAFETY: see above.
    unsafe { send_as(call, real, Mode::Synchronous) }
}

/// Blocking and nonblocking alike.
#[inline]
unsafe fn send_as(call: Call<'_>, real: impl Function, mode: Mode) -> c_int {
    observe(&call, &real, |observed, job| {
        // SAFETY: see above.
        unsafe { To::of(&call, 3, 5, mode) }.send(observed, job);
        real(call.arguments)
    })
}

/// (…, source, tag, communicator, status), the source at a place.
#[inline]
unsafe fn receive_at(
    rank: usize,
    call: &Call<'_>,
    real: &impl Function,
    observed: Observed,
    job: &Job,
) -> c_int {
    // SAFETY: see above.
    let from = unsafe { From::of(call, rank, rank + 2) };
    // Without other threads nobody asks for other messages until this one is there.
    let number = match job.is_threaded {
        true => from.post(&mut job.state()),
        false => None,
    };
    call.with_statuses(rank + 3, 1, real, |result, status| {
        match result {
            // SAFETY: the status of the receive.
            0 => unsafe { From::receive(from.comm, number, status, observed, job) },
            _ => {
                if let Some(number) = number {
                    job.state().matching.abandon(number);
                }
                observed.lose(LOST_UNKNOWN);
            }
        }
        result
    })
}

pub(crate) unsafe fn receive(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |observed, job| {
        // SAFETY: see above.
        unsafe { receive_at(3, &call, &real, observed, job) }
    })
}

pub(crate) unsafe fn send_and_receive(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |observed, job| {
        // SAFETY: see above.
        unsafe {
            To::of(&call, 3, 10, Mode::Standard).send(observed, job);
            receive_at(8, &call, &real, observed, job)
        }
    })
}

pub(crate) unsafe fn send_and_replace(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |observed, job| {
        // SAFETY: see above.
        unsafe {
            To::of(&call, 3, 7, Mode::Standard).send(observed, job);
            receive_at(5, &call, &real, observed, job)
        }
    })
}

/// (buffer, count, type, source, tag, communicator, request)
pub(crate) unsafe fn begin_receive(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |_, job| {
        // SAFETY: see above.
        unsafe {
            let from = From::of(&call, 3, 5);
            let number = from.post(&mut job.state());
            let result = real(call.arguments);
            let mut state = job.state();
            match number {
                Some(number) if result == 0 => {
                    let request = Request::receive(from, number);
                    state.requests.insert(call.request_at(6, 0), request);
                }
                Some(number) => state.matching.withdraw(number),
                None => {}
            }
            result
        }
    })
}

/// (source, tag, communicator, status): a message is there, and stays.
pub(crate) unsafe fn probe(call: Call<'_>, real: impl Function) -> c_int {
    // SAFETY: see above.
    unsafe { probe_by(call, real, 3, None, false) }
}

/// (source, tag, communicator, flag, status)
pub(crate) unsafe fn try_probe(call: Call<'_>, real: impl Function) -> c_int {
    // SAFETY: see above.
    unsafe { probe_by(call, real, 4, Some(3), false) }
}

/// (source, tag, communicator, message, status): a message is taken, and will be received.
pub(crate) unsafe fn take(call: Call<'_>, real: impl Function) -> c_int {
    // SAFETY: see above.
    unsafe { probe_by(call, real, 4, None, true) }
}

/// (source, tag, communicator, flag, message, status)
pub(crate) unsafe fn try_take(call: Call<'_>, real: impl Function) -> c_int {
    // SAFETY: see above.
    unsafe { probe_by(call, real, 5, Some(3), true) }
}

unsafe fn probe_by(
    call: Call<'_>,
    real: impl Function,
    status: usize,
    flag: Option<usize>,
    takes: bool,
) -> c_int {
    observe(&call, &real, |observed, job| {
        // SAFETY: see above.
        let from = unsafe { From::of(&call, 0, 2) };
        call.with_statuses(status, 1, &real, |result, status| {
            // SAFETY: see above; the status is the message's, if there is one.
            unsafe {
                if result != 0 || flag.is_some_and(|flag| call.int_at(flag, 0) == 0) {
                    return result;
                }
                if takes {
                    From::receive(from.comm, None, status, observed, job);
                    return result;
                }
                let mut state = job.state();
                let message = From::message(from.comm, status, &mut state);
                if let Ok(Some(message)) = message {
                    state.peek(message, observed);
                }
            }
            result
        })
    })
}

/// Of a message that was taken: the strand was merged then.
pub(crate) unsafe fn other(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |_, _| real(call.arguments))
}

/// (…, tag, communicator, request)
unsafe fn prepare(call: Call<'_>, real: impl Function, request: impl FnOnce() -> Request) -> c_int {
    observe(&call, &real, |_, job| {
        let result = real(call.arguments);
        if result == 0 {
            // SAFETY: see above.
            let handle = unsafe { call.request_at(6, 0) };
            job.state().requests.insert(handle, request());
        }
        result
    })
}

pub(crate) unsafe fn prepare_send(call: Call<'_>, real: impl Function) -> c_int {
    // SAFETY: see above.
    unsafe {
        let to = To::of(&call, 3, 5, Mode::Standard);
        prepare(call, real, || Request::PersistentSend(to))
    }
}

pub(crate) unsafe fn prepare_synchronous_send(call: Call<'_>, real: impl Function) -> c_int {
    // SAFETY: see above.
    unsafe {
        let to = To::of(&call, 3, 5, Mode::Synchronous);
        prepare(call, real, || Request::PersistentSend(to))
    }
}

pub(crate) unsafe fn prepare_receive(call: Call<'_>, real: impl Function) -> c_int {
    // SAFETY: see above.
    unsafe {
        let from = From::of(&call, 3, 5);
        prepare(call, real, || Request::persistent_receive(from))
    }
}

/// Begins MPI, and meets the other processes.
pub(crate) unsafe fn init(call: Call<'_>, real: impl Function) -> c_int {
    crate::call::observe_any(&call, &real, |_| {
        let result = real(call.arguments);
        if result == 0 {
            crate::job::begin();
        }
        result
    })
}

pub(crate) unsafe fn finalize(call: Call<'_>, real: impl Function) -> c_int {
    crate::call::observe_any(&call, &real, |_| {
        crate::job::end();
        real(call.arguments)
    })
}

/// (…, new communicator)
pub(crate) unsafe fn make_comm(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |observed, job| {
        let result = real(call.arguments);
        if result == 0 {
            // SAFETY: see above.
            let new = unsafe { call.comm_at(call.arguments.len() - 1) };
            job.made(new, observed);
        }
        result
    })
}

/// (communicator)
pub(crate) unsafe fn free_comm(call: Call<'_>, real: impl Function) -> c_int {
    observe(&call, &real, |_, job| {
        // SAFETY: see above.
        let old = unsafe { call.comm_at(0) };
        if old != library().world {
            job.freed(old);
        }
        real(call.arguments)
    })
}
