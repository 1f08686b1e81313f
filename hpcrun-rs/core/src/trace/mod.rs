//! The trace of one thread: its samples and the changes of its state, with their times (FORMATS.md).
//!
//! | file | duty |
//! |---|---|
//! | `ring` | the process's file, whose blocks threads take in turn |
//!
//! The thread's hooks and its handler write here, and the handler may interrupt a hook: then the sample's
//! event is lost, and counted. Waits that end at once are taken back, so that loops around `sched_yield` and
//! short locks do not push out what is older.
//!
//! Async-signal-safe, except [`start`].

mod ring;

pub use ring::start;

use critical_path::{Edge, Moment};
use hpc_formats::trace::{
    BLOCK_HEADER_SIZE, BLOCK_SIZE, Event, Followed, Last, MAX_EVENT, State, block, encode,
};
pub(crate) use ring::now;
use ring::{give_back, running};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

/// Waits that end within this time are not kept, nanoseconds.
const SHORT_NS: u64 = 10_000;
/// It takes some microseconds to say where a wait was: it must have taken this long, nanoseconds.
const LONG_NS: u64 = 1_000_000;

/// Where a thread's next event goes.
#[derive(Clone, Copy)]
struct Place {
    block: NonNull<u8>,
    /// Bytes of events.
    used: u32,
    last: Last,
}

/// What was before a change.
#[derive(Clone, Copy)]
struct Before {
    place: Place,
    state: State,
    since: u64,
    /// Bytes of events with the change.
    used: u32,
}

/// The trace of one thread. Only the thread and its handler use it.
pub struct ThreadTrace {
    /// Ordinal of the thread; 0: it is not traced.
    thread: Cell<u32>,
    place: Cell<Option<Place>>,
    state: Cell<State>,
    /// Since when, nanoseconds.
    since: Cell<u64>,
    /// What was before the last change, if it is the last event.
    before: Cell<Option<Before>>,
    /// A long wait is over, and nobody has said where it was.
    has_waited: Cell<bool>,
    /// A wait that was not short is over, and nobody has said for what it was.
    has_just_waited: Cell<bool>,
    is_writing: Cell<bool>,
}

impl ThreadTrace {
    /// Of a thread that is not traced.
    pub(crate) fn none() -> ThreadTrace {
        ThreadTrace {
            thread: Cell::new(0),
            place: Cell::new(None),
            state: Cell::new(State::Ended),
            since: Cell::new(0),
            before: Cell::new(None),
            has_waited: Cell::new(false),
            has_just_waited: Cell::new(false),
            is_writing: Cell::new(false),
        }
    }

    /// The thread with this ordinal begins, in this process. It has no state yet.
    pub(crate) fn begin(&self, thread: u32) {
        self.place.set(None);
        self.before.set(None);
        self.state.set(State::Ended);
        self.thread.set(ring::current().map_or(0, |_| thread));
    }

    pub(crate) fn end(&self) {
        self.change(State::Ended);
        self.thread.set(0);
        if let Some(place) = self.place.take() {
            give_back(place.block);
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.thread.get() != 0
    }

    /// The thread's state is this from now on.
    #[inline]
    pub(crate) fn change(&self, state: State) {
        if self.is_on() && self.state.get() != state {
            self.change_now(state);
        }
    }

    #[cold]
    fn change_now(&self, state: State) {
        let Some(now) = now() else { return };
        let (was, lasted) = (self.state.get(), now.saturating_sub(self.since.get()));
        self.has_waited.set(was == State::Waits && lasted >= LONG_NS);
        self.has_just_waited.set(matches!(was, State::Waits | State::Idle) && lasted >= SHORT_NS);
        let is_short = was != State::Works && lasted < SHORT_NS;
        let before = self.before.take().filter(|b| is_short && b.state == state);
        if !before.is_some_and(|before| self.take_back(before)) {
            let (place, since) = (self.place.get(), self.since.replace(now));
            self.put(now, Event::Change(state));
            // Another block cannot be left again.
            let after = self.place.get();
            let before = place.zip(after).filter(|(place, after)| place.block == after.block);
            let before = before.map(|(place, after)| Before { place, state: was, since, used: after.used });
            self.before.set(before);
        }
        self.state.set(state);
    }

    /// Takes the last change back. False if it is not the last event any more.
    fn take_back(&self, Before { place, since, used, .. }: Before) -> bool {
        let mut is_last = false;
        self.with_lock(|| {
            is_last = self.place.get().is_some_and(|now| now.used == used && now.block == place.block);
            if is_last {
                self.place.set(Some(place));
                // SAFETY: the block is this thread's, and the field is aligned.
                unsafe { place.block.add(block::USED).cast().write(place.used) };
                self.since.set(since);
            }
        });
        is_last
    }

    /// Samples at `now` found the thread working in a context.
    #[inline]
    pub(crate) fn works(&self, now: u64, weight: u64, context: u32) {
        if self.is_on() {
            self.sample(now, State::Works, weight, context);
        }
    }

    /// Samples at `now` found the thread idle.
    #[inline]
    pub(crate) fn idles(&self, now: u64, weight: u64) {
        if self.is_on() {
            let state = match self.state.get() {
                State::Works | State::Ended => State::Spins,
                known => known,
            };
            self.sample(now, state, weight, 0);
        }
    }

    fn sample(&self, now: u64, state: State, weight: u64, context: u32) {
        self.before.set(None);
        if self.state.get() != state {
            self.since.set(now);
        }
        self.put(now, Event::Sample { state, weight, context });
        self.state.set(state);
    }

    /// Whether a long wait is over, and nobody has said where it was.
    #[inline]
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited.get()
    }

    /// Says where it was.
    pub(crate) fn waited(&self, context: u32) {
        if self.has_waited.replace(false) {
            self.before.set(None);
            if let Some(now) = now() {
                self.put(now, Event::Waited(context));
            }
        }
    }

    pub(crate) fn thread(&self) -> u32 {
        self.thread.get()
    }

    /// The thread has waited for this moment, and what follows goes on after it if it `is_path`. What is not
    /// on the path counts if it has ended a wait; what was short before in the same thread does not.
    pub(crate) fn follow(&self, moment: Moment, edge: Edge, is_path: bool) {
        let Moment { time, thread: from } = moment;
        let is_own = from == self.thread.get();
        if from == 0 || (is_own || !self.has_just_waited.replace(false)) && !is_path {
            return;
        }
        self.put_now(|now| {
            let ago = now.saturating_sub(time);
            (!is_own || ago >= SHORT_NS).then_some(Event::Followed(Followed { edge, is_path, from, ago }))
        });
    }

    /// Adds what `event` makes of the time.
    pub(crate) fn put_now(&self, event: impl FnOnce(u64) -> Option<Event>) {
        if let Some((now, event)) = now().and_then(|now| event(now).map(|event| (now, event))) {
            self.before.set(None);
            self.put(now, event);
        }
    }

    /// Acts while the handler does not write; false if this is the handler, which has interrupted a writer.
    fn with_lock(&self, act: impl FnOnce()) -> bool {
        if self.is_writing.replace(true) {
            return false;
        }
        compiler_fence(SeqCst);
        act();
        compiler_fence(SeqCst);
        self.is_writing.set(false);
        true
    }

    fn put(&self, time: u64, event: Event) {
        let Some(ring) = running() else { return };
        let mut is_kept = false;
        let ran = self.with_lock(|| {
            let room = (BLOCK_SIZE - BLOCK_HEADER_SIZE - MAX_EVENT) as u32;
            let place = match self.place.get() {
                Some(place) if place.used <= room => Some(place),
                full => {
                    full.inspect(|place| give_back(place.block));
                    let context = full.map_or(0, |place| place.last.context);
                    ring.take().map(|taken| self.begin_block(taken, time, context))
                }
            };
            self.place.set(place.map(|place| append(place, time, event)));
            is_kept = place.is_some();
        });
        if !(ran && is_kept) {
            ring.lose();
        }
    }

    /// Writes the header of a block that is the thread's.
    fn begin_block(&self, (taken, sequence): (NonNull<u8>, u64), time: u64, context: u32) -> Place {
        // SAFETY: the block is this thread's; the fields are in it, and aligned.
        unsafe {
            taken.add(block::TIME).cast().write(time);
            taken.add(block::SEQUENCE).cast().write(sequence);
            taken.add(block::THREAD).cast().write(self.thread.get());
            taken.add(block::CONTEXT).cast().write(context);
            taken.add(block::STATE).write(self.state.get() as u8);
        }
        Place { block: taken, used: 0, last: Last { time, context } }
    }
}

/// Writes an event to a block that has room for it.
fn append(place: Place, time: u64, event: Event) -> Place {
    let Place { block: to, used, mut last } = place;
    let mut bytes = [0; MAX_EVENT];
    let length = encode(time, event, &mut last, &mut bytes);
    // SAFETY: the block is this thread's, and has room for `MAX_EVENT` bytes.
    unsafe { to.add(BLOCK_HEADER_SIZE + used as usize).cast::<[u8; MAX_EVENT]>().write_unaligned(bytes) };
    let used = used + length as u32;
    // What a kill leaves behind is whole events.
    compiler_fence(SeqCst);
    // SAFETY: as above; the field is aligned.
    unsafe { to.add(block::USED).cast().write(used) };
    Place { block: to, used, last }
}
