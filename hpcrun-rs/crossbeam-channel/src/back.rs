//! What goes back, from receivers to senders.
//!
//! # A bounded channel
//! Send `i` of a channel of capacity `c` has waited for receive `i - c`, which made its room. [`Room`] keeps
//! the strands of receives until their sends take them. Sends and receives are numbered in the order in
//! which they finish, so racing ones may be numbered otherwise than the channel orders their values; those
//! of one sender and one receiver never race with each other.
//!
//! A send looks for its room after the value is in the channel. Its room may not be there yet: its receiver
//! is between the end of its receive and [`Room::make`]. The send then waits for these some ten nanoseconds.
//! It does not wait for anything else: if `k` tracked sends have finished, and at most `c` tracked values
//! are in the channel, `k - c` tracked receives have finished, and each makes room. (Values that are dropped
//! with the channel do not count: no send finishes after that.) What was sent untracked uses no room here,
//! and makes none.
//!
//! # Capacity 0
//! A send ends when its value is received: both go on with the longer strand. The [`Reply`] goes along with
//! the value. Its sender waits for it, but not for ever: who selects a receive may do something else before
//! it completes it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use hpcrun_api::{Edge, Strand};

use crate::waiting;

/// For a receiver's strand.
pub(crate) type Reply = published::Sender<Strand>;

/// The most that a sender waits for a reply: longer than it takes to wake a thread on a busy machine.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// Merges the reply; without one, the edge is lost.
#[track_caller]
pub(crate) fn merge_reply(reply: &published::Receiver<Strand>) {
    match waiting(|| reply.recv_timeout(LONGEST_WAIT)) {
        Ok(strand) => Strand::merge(Some(strand), Edge::Channel),
        Err(_) => hpcrun_api::lose(),
    }
}

/// The room in a bounded channel, and who made it.
pub(crate) struct Room {
    pub(crate) capacity: usize,
    state: Mutex<State>,
}

struct State {
    /// Room that no receive made.
    untouched: usize,
    /// Of receives, for sends; `None`: it was not tracked.
    made: VecDeque<Option<Strand>>,
    /// The only thread that has received; 0: none yet.
    receiver: u64,
    /// Of the last receives, as many as the capacity, once several threads receive: receive `i` also comes
    /// after receive `i - c`, as its send did. `None`: not known.
    last: Option<VecDeque<Option<Strand>>>,
    received: usize,
}

impl Room {
    pub(crate) fn new(capacity: usize) -> Self {
        let state =
            State { untouched: capacity, made: VecDeque::new(), receiver: 0, last: None, received: 0 };
        Room { capacity, state: Mutex::new(state) }
    }

    /// Never waits in the system, where the wait would look like one of the program's.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut turns = 0;
        loop {
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => turn(&mut turns),
            }
        }
    }

    /// A tracked send has finished: merges the receive that made its room.
    #[track_caller]
    pub(crate) fn take(&self) {
        let mut state = self.lock();
        if state.untouched > 0 {
            state.untouched -= 1;
            return;
        }
        let mut turns = 0;
        let made = loop {
            if let Some(made) = state.made.pop_front() {
                break made;
            }
            drop(state);
            turn(&mut turns);
            state = self.lock();
        };
        drop(state);
        Strand::merge(made, Edge::Channel);
    }

    /// A value of a tracked send was received, and its strand merged: makes room.
    #[track_caller]
    pub(crate) fn make(&self) {
        let mut state = self.lock();
        let me = this_thread();
        if state.receiver != me && state.last.is_none() {
            match state.receiver {
                0 => state.receiver = me,
                _ => self.several_receive(&mut state),
            }
        }
        state.received += 1;
        let before = match &mut state.last {
            Some(last) if last.len() >= self.capacity => last.pop_front(),
            _ => None,
        };
        if let Some(before) = before {
            match before {
                Some(before) => Strand::merge(Some(before), Edge::Channel),
                None => hpcrun_api::lose(),
            }
        }
        let strand = Strand::copy();
        if let Some(last) = &mut state.last {
            last.push_back(strand.as_ref().and_then(Strand::share));
        }
        state.made.push_back(strand);
    }

    /// Several threads are going to receive.
    pub(crate) fn share(&self) {
        let mut state = self.lock();
        if state.last.is_none() {
            self.several_receive(&mut state);
        }
    }

    fn several_receive(&self, state: &mut State) {
        let unknown = state.received.min(self.capacity);
        state.last = Some((0..unknown).map(|_| None).collect());
    }
}

/// A further turn of a short wait for another thread.
fn turn(turns: &mut u32) {
    *turns += 1;
    if *turns < 100 {
        core::hint::spin_loop();
    } else {
        waiting(std::thread::yield_now);
    }
}

/// The calling thread's number, which no other thread had before.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}
