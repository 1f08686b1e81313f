//! Synchronisation events. A hook reports each event here, once, and whoever measures is told:
//!
//! | event | n_working | `lock-wait` (`locks`) | critical path (`path`) |
//! |---|---|---|---|
//! | a wait begins, ends | moves the thread's slot | if it is for a lock | is no activity |
//! | acquire | | ends the wait | the strands that were left at the lock go before |
//! | release | | the waiting so far is charged to the caller | leaves a strand at the lock |
//! | spawn, begin, end, join; send, receive; signal; arrive, leave | | | leave a strand, or it goes before |
//!
//! An event's *place* is the address of the call in the program. If nobody measures, hooks whose events only
//! the last two columns need call libc directly ([`Real::direct`](crate::real::Real::direct)).

use critical_path::{Edge, Event};
use hpcrun_abi::host::Stacked;
use hpcrun_core::futex_locks::{self, FutexLock, FutexWait};
use hpcrun_core::locks::{self, Outcome, Wait};
use hpcrun_core::path::{self, Tracked};
use hpcrun_core::threads::{self, OwnThread};
use hpcrun_core::unwind::Registers;
use hpcrun_core::{image, session};
use std::ffi::{c_int, c_long};

/// Where the program has called a hook.
#[derive(Clone, Copy)]
pub(crate) struct Place(u64);

impl Place {
    /// The current context, captured.
    pub(crate) const CONTEXT: Place = Place(0);

    #[inline]
    pub(crate) fn of_call(return_address: usize) -> Place {
        Place((return_address as u64).wrapping_sub(1))
    }
}

/// The last parameter of a hook whose place is needed.
pub(crate) type Caller = Stacked;

/// The last byte of the call instruction, in a hook whose other parameters are in registers.
#[inline(always)]
pub(crate) fn place(caller: &Caller) -> Place {
    Place::of_call(caller.return_address(0))
}

/// Whether nobody measures locks or paths, in this run.
#[cold]
pub(crate) fn nobody_measures() -> bool {
    session::has_begun() && !locks::enabled() && !path::is_configured()
}

/// Reports an event of the calling thread to the critical path.
#[inline]
pub(crate) fn tell<R>(place: Place, event: impl FnOnce(&mut Tracked, Event) -> R) -> Option<R> {
    if !path::is_active() {
        return None;
    }
    // What a message-passing library does in its calls is its own.
    let thread = threads::current().filter(|thread| !thread.is_in_call())?;
    keeping_errno(|| thread.event(place.0, event))
}

/// Reports, to the critical path, what is no event of its own but belongs to one.
pub(crate) fn amend<R>(amendment: impl FnOnce(&mut Tracked) -> R) -> Option<R> {
    let thread = threads::current()?;
    keeping_errno(|| thread.path().with(amendment))
}

pub(crate) fn keeping_errno<R>(act: impl FnOnce() -> R) -> R {
    // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        let result = act();
        *errno = kept;
        result
    }
}

/// Runs `wait` while the calling thread counts as waiting.
#[inline]
pub(crate) fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let Some(state) = threads::current() else {
        return wait();
    };
    state.working().begin_wait();
    let result = wait();
    state.end_wait();
    result
}

/// Like [`waiting`], in functions that signal handlers may not call. First refreshes the load map if the
/// handler has found a module outside it.
#[inline]
pub(crate) fn waiting_outside_handlers<T>(wait: impl FnOnce() -> T) -> T {
    session::refresh_if_stale();
    waiting(wait)
}

/// Runs `wait`, by which the calling thread waits for others at `place`. `before` tells what the wait begins
/// with, and `after` what it has waited for.
pub(crate) fn wait_for<T, B>(
    place: Place,
    before: impl FnOnce(&mut Tracked, Event) -> B,
    wait: impl FnOnce() -> T,
    after: impl FnOnce(&mut Tracked, Event, B, &T),
) -> T {
    let begun = tell(place, |tracked, at| {
        let begun = before(tracked, at);
        tracked.begin_wait();
        (at.place, begun)
    });
    let result = wait();
    if let Some((at, begun)) = begun {
        amend(|tracked| {
            tracked.end_wait();
            after(tracked, at.into(), begun, &result);
        });
    }
    result
}

/// How a call that locks has ended.
fn locked(result: c_int) -> Outcome {
    match result {
        0 | libc::EOWNERDEAD => Outcome::Acquired,
        _ => Outcome::Held,
    }
}

/// The thread has a lock, alone or with others, if `result` says so.
pub(crate) fn acquired(place: Place, lock: usize, shared: bool, result: c_int) -> c_int {
    if locked(result) == Outcome::Acquired {
        tell(place, |tracked, at| tracked.acquire(lock, shared, Edge::Lock, at));
    }
    result
}

/// Runs `wait`, a wait for a lock.
pub(crate) fn wait_for_lock(place: Place, lock: usize, shared: bool, wait: impl FnOnce() -> c_int) -> c_int {
    wait_for(
        place,
        |_, _| (),
        || blamed(|| Wait::begin(lock), wait, locked),
        |tracked, at, (), result| {
            if locked(*result) == Outcome::Acquired {
                tracked.acquire(lock, shared, Edge::Lock, at);
            }
        },
    )
}

/// Runs `wait`, a wait for a lock, whose holder is charged with it: `begin` begins it, `outcome` tells how it
/// ended. Keeps errno.
pub(crate) fn blamed<T: Copy>(
    begin: impl FnOnce() -> Option<Wait>,
    wait: impl FnOnce() -> T,
    outcome: impl FnOnce(T) -> Outcome,
) -> T {
    if !locks::enabled() {
        return wait();
    }
    let since = image::now();
    let begun = own_thread().and_then(|t| Some((t, t.begin_lock_wait(begin)?)));
    let result = wait();
    keeping_errno(|| match (begun, outcome(result)) {
        (Some((thread, wait)), outcome) => thread.end_lock_wait(wait, outcome),
        (None, Outcome::NoLock) => {}
        (None, _) => locks::lose(image::now().saturating_sub(since)),
    });
    result
}

/// The calling thread's state, unless the thread uses the thread-local storage of another.
fn own_thread() -> Option<OwnThread> {
    threads::current().filter(|thread| thread.is_own())
}

/// Runs `unlock`, which releases a lock.
pub(crate) fn release<T>(place: Place, lock: usize, unlock: impl FnOnce() -> T) -> T {
    tell(place, |tracked, at| tracked.release(lock, at));
    charging(lock, unlock)
}

/// Runs `unlock`, which releases a lock. If others have waited for it, charges the current context. The
/// charge follows the release, so that it does not make them wait longer.
pub(crate) fn charging<T>(lock: usize, unlock: impl FnOnce() -> T) -> T {
    let waited = match locks::enabled() && locks::is_awaited(lock) {
        true => locks::take(lock),
        false => 0,
    };
    let result = unlock();
    charge(waited);
    result
}

fn charge(nanoseconds: u64) {
    if nanoseconds > 0 {
        keeping_errno(|| {
            let thread = own_thread();
            if !thread
                .is_some_and(|t| t.charge_metric(Registers::here(), |image| image.lock_wait, nanoseconds))
            {
                locks::lose(nanoseconds);
            }
        });
    }
}

/// Runs `wait`, a wait for a condition, which releases the mutex at this address.
pub(crate) fn wait_for_condition(
    place: Place,
    condition: usize,
    mutex: usize,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    if locks::enabled() && locks::is_awaited(mutex) {
        charge(locks::take(mutex));
    }
    wait_for(
        place,
        |tracked, at| tracked.begin_condition(condition, mutex, at),
        || waiting_outside_handlers(wait),
        |tracked, at, before, result| {
            tracked.end_condition(condition, mutex, before, *result == 0, at);
        },
    )
}

/// Runs `wait`, a wait on a semaphore.
pub(crate) fn wait_for_post(place: Place, semaphore: usize, wait: impl FnOnce() -> c_int) -> c_int {
    wait_for(
        place,
        |_, _| (),
        || waiting(wait),
        |tracked, at, (), result| {
            if *result == 0 {
                tracked.receive(semaphore, Edge::Channel, at);
            }
        },
    )
}

/// Runs `wait`, a wait on a barrier.
pub(crate) fn wait_at_barrier(place: Place, barrier: usize, wait: impl FnOnce() -> c_int) -> c_int {
    wait_for(
        place,
        |tracked, at| tracked.arrive(barrier, at),
        || waiting_outside_handlers(wait),
        |tracked, at, round, result| {
            let passed = matches!(*result, 0 | libc::PTHREAD_BARRIER_SERIAL_THREAD);
            if let Some(round) = round.filter(|_| passed) {
                tracked.leave(barrier, round, at);
            }
        },
    )
}

/// Runs `wait`, a wait for the end of a thread.
pub(crate) fn join(thread: libc::pthread_t, wait: impl FnOnce() -> c_int) -> c_int {
    wait_for(
        Place::CONTEXT,
        |tracked, _| tracked.begin_join(thread as usize),
        || waiting_outside_handlers(wait),
        |tracked, at, (), result| tracked.end_join(thread as usize, *result == 0, at),
    )
}

/// The lock for which the calling thread is about to wait on a futex, if locks are measured.
fn lock_of_futex(futex: usize, wait: FutexWait) -> Option<FutexLock> {
    if !locks::enabled() {
        return None;
    }
    let named = || match wait.may_be_of_named() {
        true => keeping_errno(|| own_thread()?.lock_of_futex(Registers::here(), futex)),
        false => None,
    };
    FutexLock::of_value(futex, wait).or_else(named)
}

/// Runs `call`, a wait on a futex that ends with 0 if somebody has woken the thread.
pub(crate) fn wait_on_futex(futex: usize, wait: FutexWait, call: impl FnOnce() -> c_long) -> c_long {
    let lock = lock_of_futex(futex, wait);
    let call = || match lock {
        Some(lock) => blamed(|| lock.begin(), || waiting(call), |result| lock.outcome(result == 0)),
        None => waiting(call),
    };
    wait_for(
        Place::CONTEXT,
        |_, _| (),
        call,
        |tracked, at, (), result| {
            if *result == 0 {
                tracked.receive(futex, Edge::Wake, at);
            }
        },
    )
}

/// Runs `wake`, which wakes at most `most` that wait on a futex, and returns how many it has woken.
pub(crate) fn wake(futex: usize, most: c_int, wake: impl FnOnce() -> c_long) -> c_long {
    let released = match locks::enabled() {
        true => futex_locks::released_by_wake(futex),
        false => None,
    };
    let wake = || match released {
        Some(lock) => charging(lock, wake),
        None => wake(),
    };
    let sent = tell(Place::CONTEXT, |tracked, at| {
        let sent = tracked.send(futex, most.max(0) as u64, at)?;
        // The context's capture was no activity.
        tracked.thread.resume();
        Some(sent)
    });
    let woken = wake();
    if let Some(sent) = sent.flatten() {
        amend(|tracked| tracked.settle(futex, sent, woken.max(0) as u64));
    }
    woken
}
