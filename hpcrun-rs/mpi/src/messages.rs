//! Sends, receives and probes, and the begin and end of MPI and of communicators. The numbers that functions
//! get are the places of a call's arguments.

use crate::call::{Call, Form, Observed};
use crate::job::{self, Comm, Job, State};
use crate::library::{ANY_TAG, Kind, Statuses, library};
use crate::matching::{Message, Wanted};
use crate::requests::Request;
use crate::start;
use hpcrun_abi::{LOST_SYNCHRONOUS, LOST_UNKNOWN};
use std::ffi::c_int;

/// How a send waits for its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Standard,
    Synchronous,
}

/// Where a message goes, or comes from, as the program says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) comm: usize,
    rank: c_int,
    tag: c_int,
    /// Messages of partitioned operations match those alone.
    is_partitioned: bool,
}

/// In a communicator's number: of messages of partitioned operations.
const PARTITIONED: u64 = 1 << 62;

impl End {
    /// Of rank, tag and communicator; the tag follows the rank.
    #[inline]
    fn of(call: &Call<'_>, rank: usize, comm: usize) -> End {
        let (comm, rank, tag) = (call.handle(Kind::Comm, comm), call.int(rank), call.int(rank + 1));
        End { comm, rank, tag, is_partitioned: false }
    }

    /// The number of its communicator among those of messages.
    #[inline]
    fn id(self, comm: &Comm) -> u64 {
        if self.is_partitioned { comm.id | PARTITIONED } else { comm.id }
    }

    /// Sends the strand before the message, unless that is to nobody, or in a communicator that is not known:
    /// so it is at the other end.
    #[inline]
    pub(crate) fn send(self, mode: Mode, observed: &Observed, job: &Job) {
        let mut state = job.state();
        let world = &mut state.world;
        let Some(comm) = world.comm(self.comm) else {
            return;
        };
        let Some(rank) = comm.rank(self.rank) else {
            return;
        };
        let message = (self.id(comm), self.tag);
        world.send(message, rank, observed.strand());
        if mode == Mode::Synchronous {
            observed.lose(LOST_SYNCHRONOUS);
        }
    }

    /// Posts a receive; `None` if it is from nobody, or in a communicator that is not known.
    pub(crate) fn post(self, state: &mut State) -> Option<u64> {
        let any = state.world.library.any_source;
        let comm = state.world.comm(self.comm)?;
        let source = if self.rank == any { None } else { Some(comm.rank(self.rank)?) };
        let wanted =
            Wanted { comm: self.id(comm), source, tag: Some(self.tag).filter(|tag| *tag != ANY_TAG) };
        Some(state.matching.post(wanted))
    }

    /// The message of a receive that is complete. `Err`: it is not known which. `None`: it is from nobody.
    #[inline]
    fn message(self, (source, tag): (c_int, c_int), state: &mut State) -> Result<Option<Message>, ()> {
        if source == state.world.library.proc_null {
            return Ok(None);
        }
        let comm = state.world.comm(self.comm).ok_or(())?;
        let source = comm.rank(source).ok_or(())?;
        let comm = self.id(comm);
        Ok(Some(Message { comm, source, tag }))
    }

    /// Source and tag of the message that a receive has got. A status is asked only with a wildcard: MPICH
    /// does not set that of `Isendrecv`.
    pub(crate) fn got(self, any_source: c_int, status: Statuses) -> (c_int, c_int) {
        match self.rank == any_source || self.tag == ANY_TAG {
            true => status.source_and_tag(),
            false => (self.rank, self.tag),
        }
    }

    /// A receive has got a message of a source and tag: merges what came with it.
    #[inline]
    pub(crate) fn receive(self, number: Option<u64>, of: (c_int, c_int), observed: &Observed, job: &Job) {
        let mut state = job.state();
        match self.message(of, &mut state) {
            Ok(Some(message)) => state.take(number, message, observed),
            Ok(None) => {}
            Err(()) => observed.lose(LOST_UNKNOWN),
        }
    }
}

/// (buffer, count, type, destination, tag, communicator, …)
pub(crate) fn send(call: &Call<'_>, mode: Mode) -> c_int {
    if call.form == Form::Persistent {
        return prepare(call, |to| Request::PersistentSend(to, mode));
    }
    call.observe(true, |observed, job| {
        End::of(call, 3, 5).send(mode, observed, job);
        call.run()
    })
}

/// (…, source, tag, communicator, status or request)
#[inline]
fn receive_at(rank: usize, call: &Call<'_>, observed: &Observed, job: &Job) -> c_int {
    if call.form == Form::Immediate {
        return receive_later(rank, call, job);
    }
    let from = End::of(call, rank, rank + 2);
    // Without other threads nobody asks for other messages until this one is there.
    let number = if job.is_threaded { from.post(&mut job.state()) } else { None };
    call.with_statuses(rank + 3, 1, |result, status| {
        if result == 0 {
            from.receive(number, status.source_and_tag(), observed, job);
        } else {
            number.map(|number| job.state().matching.abandon(number));
            observed.lose(LOST_UNKNOWN);
        }
        result
    })
}

/// (buffer, count, type, source, tag, communicator, …)
pub(crate) fn receive(call: &Call<'_>) -> c_int {
    if call.form == Form::Persistent {
        return prepare(call, |from| Request::receive(from, None));
    }
    call.observe(false, |observed, job| receive_at(3, call, observed, job))
}

/// (…, destination, tag, …, source, tag, communicator, …)
pub(crate) fn exchange(call: &Call<'_>, source: usize) -> c_int {
    call.observe(true, |observed, job| {
        End::of(call, 3, source + 2).send(Mode::Standard, observed, job);
        receive_at(source, call, observed, job)
    })
}

/// (…, source, tag, communicator, request)
fn receive_later(rank: usize, call: &Call<'_>, job: &Job) -> c_int {
    let from = End::of(call, rank, rank + 2);
    let number = from.post(&mut job.state());
    let result = call.run();
    let mut state = job.state();
    match number {
        Some(number) if result == 0 => {
            let request = Request::receive(from, Some(number));
            state.world.requests.insert(call.handle_at(Kind::Request, rank + 3, 0), request);
        }
        Some(number) => state.matching.withdraw(number),
        None => {}
    }
    result
}

/// (source, tag, communicator, flag of the nonblocking form, …, status): a message is there. It stays, or
/// is taken and will be received.
pub(crate) fn probe(call: &Call<'_>, takes: bool) -> c_int {
    call.observe(false, |observed, job| {
        let from = End::of(call, 0, 2);
        call.with_statuses(call.last(), 1, |result, status| {
            if result != 0 || call.form == Form::Immediate && call.int_at(3, 0) == 0 {
                return result;
            }
            if takes {
                from.receive(None, status.source_and_tag(), observed, job);
                return result;
            }
            let mut state = job.state();
            if let Ok(Some(message)) = from.message(status.source_and_tag(), &mut state) {
                state.peek(message, observed);
            }
            result
        })
    })
}

/// Nobody's strand is waited for: of a message that was taken, it was merged then; a window is not another
/// process's.
pub(crate) fn other(call: &Call<'_>) -> c_int {
    call.observe(false, |_, _| call.run())
}

/// Whom it waits for, if for anybody, is not known.
pub(crate) fn unknown(call: &Call<'_>) -> c_int {
    call.observe(false, |observed, _| {
        observed.lose(LOST_UNKNOWN);
        call.run()
    })
}

/// (buffer, partitions, count, type, rank, tag, communicator, information, request)
pub(crate) fn prepare_partitioned(call: &Call<'_>, sends: bool) -> c_int {
    call.observe(false, |_, job| {
        let end = End { is_partitioned: true, ..End::of(call, 4, 6) };
        let result = call.run();
        if result == 0 {
            let request = match sends {
                true => Request::PartitionedSend { to: end, left: 0, partitions: call.int(1) },
                false => Request::receive(end, None),
            };
            job.state().world.requests.insert(call.handle_at(Kind::Request, 8, 0), request);
        }
        result
    })
}

/// (…, request): so many partitions are ready to be sent. The strand goes with the last ones.
pub(crate) fn partitions(call: &Call<'_>, count: impl FnOnce(&Call<'_>) -> c_int) -> c_int {
    call.observe(true, |observed, job| {
        let (handle, count) = (call.handle(Kind::Request, call.last()), count(call));
        let mut state = job.state();
        let request = state.world.requests.get_mut(&handle);
        let Some(Request::PartitionedSend { to, left, .. }) = request else { return call.run() };
        *left -= count;
        let to = (*left == 0).then_some(*to);
        drop(state);
        to.inspect(|to| to.send(Mode::Standard, observed, job));
        call.run()
    })
}

/// (…, session)
pub(crate) fn begin_session(call: &Call<'_>) -> c_int {
    job::begin_sessions();
    other(call)
}

/// (buffer, count, type, rank, tag, communicator, request)
fn prepare(call: &Call<'_>, request: impl FnOnce(End) -> Request) -> c_int {
    call.observe(false, |_, job| {
        let end = End::of(call, 3, 5);
        let result = call.run();
        if result == 0 {
            let handle = call.handle_at(Kind::Request, 6, 0);
            job.state().world.requests.insert(handle, request(end));
        }
        result
    })
}

/// Begins MPI, and meets the other processes.
pub(crate) fn init(call: &Call<'_>) -> c_int {
    call.observe_in(None, false, |_, _| {
        let result = call.run();
        if result == 0 {
            start::begin();
        }
        result
    })
}

pub(crate) fn finalize(call: &Call<'_>) -> c_int {
    call.observe_in(job::current(), false, |_, _| {
        start::end();
        call.run()
    })
}

/// (…, new communicator)
pub(crate) fn make_comm(call: &Call<'_>) -> c_int {
    call.observe(false, |observed, job| {
        let result = call.run();
        if result == 0 {
            job.made(call.handle_at(Kind::Comm, call.last(), 0), observed);
        }
        result
    })
}

/// (communicator)
pub(crate) fn free_comm(call: &Call<'_>) -> c_int {
    call.observe(false, |_, job| {
        let old = call.handle_at(Kind::Comm, 0, 0);
        if old != library().world {
            job.state().world.forget(old);
        }
        call.run()
    })
}
