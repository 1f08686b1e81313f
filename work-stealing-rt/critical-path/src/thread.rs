//! The operations of a thread: what it does to its strand, and what it hands to others.
//!
//! One duty: measure activity between events, and carry strands along edges. An operation among many reads
//! the clock once, so its own time, some ten nanoseconds, counts as activity. One after a long segment reads
//! it twice and does not count.
//!
//! A strand that is handed to another thread ([`Forked`], [`Ended`], [`Message`]) must come back to a
//! `Thread` of the same tracker, be it to [`Thread::discard`]: its memory is not given back otherwise.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use crate::clock::Clock;
use crate::path::{Edge, Site};
use crate::procedures::Procedure;
use crate::samples::Samples;
use crate::strand::{Memory, Spare, Strand, Transition};
use crate::tracker::{Lost, Totals, Tracker, add};

/// A segment that takes this long, in nanoseconds, is long: more than a reading of any clock.
const LONG: u64 = 100_000;
/// What follows it within this time finds the caches cold.
const AFTER_LONG: u64 = 20_000;

/// A thread that is tracked; it belongs to one thread of the program.
pub struct Thread<'t, C> {
    tracker: &'t Tracker,
    clock: C,
    /// The clock's time up to which activity is counted.
    last: u64,
    /// Up to this time of the clock, operations exclude themselves; see [`Thread::settle`].
    cold: u64,
    /// Time that passes is not activity.
    idle: bool,
    strand: Strand,
    procedure: Option<Procedure>,
    /// The length with which it was spawned.
    since: Option<u64>,
    number: u32,
    session: u32,
    /// How often it was asked to publish its strand, and has.
    answered: u32,
    resyncs_before: u64,
    spare: Spare,
    samples: Arc<Samples>,
    totals: Arc<Totals>,
}

/// A copy of a strand at an event, on its way along an edge.
#[derive(Debug)]
struct Carried {
    strand: Strand,
    at: Site,
    session: u32,
}

/// A strand that divides: what a spawned thread or task begins with.
#[derive(Debug)]
#[must_use = "give it to `begin` or `discard_forked`"]
pub struct Forked {
    copy: Carried,
    procedure: Option<Procedure>,
}

/// A strand that has ended, for whoever waits for it.
#[derive(Debug)]
#[must_use = "give it to `join`, `finish` or `discard_ended`"]
pub struct Ended {
    copy: Carried,
    /// The length at which it began, if that is known.
    since: Option<u64>,
}

/// What travels with a value, or with room for one.
#[derive(Debug)]
#[must_use = "give it to `receive` or `discard`"]
pub struct Message(Carried);

/// The strand that a thread has left for another one.
#[derive(Debug)]
#[must_use = "give it to `end`"]
pub struct Paused {
    strand: Strand,
    procedure: Option<Procedure>,
    idle: bool,
    session: u32,
    /// The length at which the other one began.
    since: u64,
}

/// A lock, a condition, a barrier, or whatever else orders threads: the strand that an acquisition of it has
/// to wait for. Whoever owns it protects it, usually by what it stands for.
#[derive(Debug, Default)]
pub struct Object(Option<Message>);

impl Object {
    /// Nobody has released it.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<'t, C: Clock> Thread<'t, C> {
    /// The calling thread begins at `begin`, and nothing is known of its creation.
    pub fn new(tracker: &'t Tracker, mut clock: C, begin: Site) -> Self {
        let session = tracker.session();
        let (number, totals) = tracker.enter(session);
        Thread {
            tracker,
            last: clock.now(),
            clock,
            cold: 0,
            idle: false,
            strand: Strand::start(number, begin),
            procedure: None,
            since: None,
            number,
            session,
            answered: tracker.asked(),
            resyncs_before: 0,
            spare: Spare::new(),
            samples: Arc::default(),
            totals,
        }
    }

    /// The calling thread begins at `begin`, spawned by the strand of `forked`.
    pub fn spawned(tracker: &'t Tracker, clock: C, forked: Forked, begin: Site) -> Self {
        let mut thread = Thread::new(tracker, clock, begin);
        thread.procedure = forked.procedure;
        if let Some(copy) = thread.same_session(forked.copy) {
            thread.since = Some(copy.strand.length);
            thread.strand = thread.spawn(copy, begin);
        }
        thread.resume();
        thread
    }

    /// Begins the tracker's current session at `begin`, if it is another one.
    #[inline]
    pub fn restart(&mut self, begin: Site) {
        if self.session != self.tracker.session() {
            self.begin_session(begin);
        }
    }

    #[cold]
    fn begin_session(&mut self, begin: Site) {
        self.session = self.tracker.session();
        self.totals.reset(self.session);
        self.resyncs_before = self.clock.resyncs();
        self.since = None;
        self.samples.take().for_each(drop);
        let old = core::mem::replace(&mut self.strand, Strand::start(self.number, begin));
        self.with_memory(|memory, _| old.release(memory));
        self.last = self.clock.now();
    }

    /// The thread's number, by which reports name it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The longest chain of activity up to now, in nanoseconds.
    pub fn length(&mut self) -> u64 {
        self.tick();
        self.strand.length
    }

    /// Counts the activity since the last event.
    #[inline]
    fn tick(&mut self) {
        let now = self.clock.now();
        let time = now - self.last;
        self.last = now;
        if time >= LONG {
            self.cold = now + AFTER_LONG;
        }
        if !self.idle {
            self.strand.extend(time, self.procedure);
            self.totals.add_work(time, self.procedure);
        }
        if self.samples.are_there() {
            self.take_samples();
        }
        if self.answered != self.tracker.asked() {
            self.answer();
        }
    }

    /// Ends an operation. After a long segment the tracker's memory is no longer in the processor's caches,
    /// and the first operations take microseconds: they read the clock again, so as not to count as activity.
    #[inline]
    fn settle(&mut self) {
        if self.last < self.cold {
            self.last = self.clock.now();
        }
    }

    /// Publishes the strand, as the tracker has asked.
    #[cold]
    fn answer(&mut self) {
        self.answered = self.tracker.asked();
        self.tell_resyncs();
        let strand = self.with_memory(|memory, strand| strand.share(memory));
        self.tracker.end(strand, Site(0), self.session);
    }

    /// Tells reports how often the clock had to ask the system.
    fn tell_resyncs(&self) {
        let resyncs = self.clock.resyncs() - self.resyncs_before;
        self.totals.resyncs.store(resyncs, Ordering::Relaxed);
    }

    /// What follows is no activity, until [`Thread::resume`]: a wait, or work of the tracker's own.
    #[inline]
    pub fn pause(&mut self) {
        self.tick();
        self.tell_resyncs();
        self.idle = true;
    }

    /// What follows is activity again.
    #[inline]
    pub fn resume(&mut self) {
        self.last = self.clock.now();
        self.idle = false;
    }

    /// The calling thread enters a procedure, until the returned one is entered again. Time belongs to the
    /// innermost procedure.
    #[inline]
    pub fn enter(&mut self, procedure: Option<Procedure>) -> Option<Procedure> {
        self.tick();
        let outer = core::mem::replace(&mut self.procedure, procedure);
        self.settle();
        outer
    }

    /// Where a signal handler of this thread leaves its samples.
    pub fn samples(&self) -> Arc<Samples> {
        Arc::clone(&self.samples)
    }

    #[cold]
    fn take_samples(&mut self) {
        let length = self.strand.length;
        for (procedure, time) in self.samples.take() {
            self.strand.procedures.attribute(procedure, time, length);
            self.totals.add_procedure(procedure, time);
        }
    }

    /// The strand divides at `at`.
    #[inline]
    pub fn fork(&mut self, at: Site) -> Forked {
        let procedure = self.procedure;
        Forked {
            copy: self.copy(at),
            procedure,
        }
    }

    /// Leaves the current strand, and begins one of whose spawner nothing is known.
    pub fn begin_unknown(&mut self, begin: Site) -> Paused {
        self.tick();
        self.lose(Lost::Untracked);
        self.leave(Strand::start(self.number, begin), None)
    }

    /// Leaves the current strand, and begins a spawned one at `begin`.
    #[inline]
    pub fn begin(&mut self, forked: Forked, begin: Site) -> Paused {
        self.tick();
        let procedure = forked.procedure;
        let strand = match self.same_session(forked.copy) {
            Some(copy) => self.spawn(copy, begin),
            None => Strand::start(self.number, begin),
        };
        self.leave(strand, procedure)
    }

    #[inline]
    fn leave(&mut self, strand: Strand, procedure: Option<Procedure>) -> Paused {
        let since = strand.length;
        let paused = Paused {
            strand: core::mem::replace(&mut self.strand, strand),
            procedure: core::mem::replace(&mut self.procedure, procedure),
            idle: core::mem::replace(&mut self.idle, false),
            session: self.session,
            since,
        };
        self.settle();
        paused
    }

    /// The current strand ends at `at`; the thread goes on with the one that it has left for it.
    #[inline]
    pub fn end(&mut self, paused: Paused, at: Site) -> Ended {
        self.tick();
        self.procedure = paused.procedure;
        self.idle = paused.idle;
        let mut before = paused.strand;
        if paused.session != self.session {
            let old = core::mem::replace(&mut before, Strand::start(self.number, at));
            self.with_memory(|memory, _| old.release(memory));
        }
        Ended {
            copy: Carried {
                strand: core::mem::replace(&mut self.strand, before),
                at,
                session: self.session,
            },
            since: (paused.session == self.session).then_some(paused.since),
        }
    }

    /// As `end` and `join`: the current strand ends at `at`, where the one that was left for it waits.
    #[inline]
    pub fn end_and_join(&mut self, paused: Paused, at: Site) {
        let ended = self.end(paused, at);
        self.merge(ended.copy, at, Edge::Join, ended.since);
    }

    /// The strand, at `at`, has waited for the end of another one.
    #[inline]
    pub fn join(&mut self, ended: Ended, at: Site) {
        self.tick();
        self.merge(ended.copy, at, Edge::Join, ended.since);
    }

    /// The thread ends at `at`. The result is for whoever joins it.
    pub fn end_of_thread(&mut self, at: Site) -> Ended {
        self.tick();
        self.publish(at);
        Ended {
            copy: self.copy(at),
            since: self.since,
        }
    }

    /// The strand ends at `at`, or is asked there how far it is: the report counts it among the ends.
    pub fn publish(&mut self, at: Site) {
        let copy = self.copy(at);
        self.tell_resyncs();
        self.tracker.end(copy.strand, at, self.session);
    }

    /// A strand has ended, and nobody waits for it.
    pub fn finish(&mut self, ended: Ended) {
        if let Some(copy) = self.same_session(ended.copy) {
            self.tracker.end(copy.strand, copy.at, self.session);
        }
    }

    /// Sends a value at `at`: the result goes with it.
    #[inline]
    pub fn send(&mut self, at: Site) -> Message {
        Message(self.copy(at))
    }

    /// Has received, at `at`, what the message went with.
    #[inline]
    pub fn receive(&mut self, message: Message, at: Site, edge: Edge) {
        self.tick();
        self.merge(message.0, at, edge, None);
    }

    /// Releases the object at `at`: the next acquisition waits for this strand alone.
    pub fn release(&mut self, object: &mut Object, at: Site) {
        let message = self.send(at);
        if let Some(old) = object.0.replace(message) {
            self.discard(old);
        }
    }

    /// Arrives at the object at `at`: an acquisition waits for all strands that have arrived. A barrier needs
    /// an object for each round, or two in turn: a thread arrives at the next round while others still leave
    /// the last one.
    pub fn arrive(&mut self, object: &mut Object, at: Site) {
        let mut message = self.send(at);
        if let Some(old) = object.0.take().and_then(|old| self.same_session(old.0)) {
            self.absorb(&mut message.0, old, None);
        }
        object.0 = Some(message);
    }

    /// Acquires the object at `at`.
    pub fn acquire(&mut self, object: &Object, at: Site, edge: Edge) {
        if let Some(Message(last)) = &object.0 {
            let strand = self.with_memory(|memory, _| last.strand.share(memory));
            let copy = Carried { strand, ..*last };
            self.tick();
            self.merge(copy, at, edge, None);
        }
    }

    /// Forgets what nobody will receive.
    pub fn discard(&mut self, message: Message) {
        self.with_memory(|memory, _| message.0.strand.release(memory));
    }

    /// Forgets what nobody will begin.
    pub fn discard_forked(&mut self, forked: Forked) {
        self.with_memory(|memory, _| forked.copy.strand.release(memory));
    }

    /// Forgets what nobody will join.
    pub fn discard_ended(&mut self, ended: Ended) {
        self.with_memory(|memory, _| ended.copy.strand.release(memory));
    }

    /// Another strand's copy of what a task or several tasks begin with.
    pub fn share(&mut self, forked: &Forked) -> Forked {
        let strand = self.with_memory(|memory, _| forked.copy.strand.share(memory));
        Forked {
            copy: Carried {
                strand,
                ..forked.copy
            },
            procedure: forked.procedure,
        }
    }

    /// Of two strands for which the same one waits, leaves one.
    pub fn both(&mut self, first: Ended, second: Ended) -> Ended {
        let since = first.since.min(second.since);
        let copy = match (self.same_session(first.copy), second.copy) {
            (None, copy) => copy,
            (Some(mut copy), other) => {
                if let Some(other) = self.same_session(other) {
                    self.absorb(&mut copy, other, since);
                }
                copy
            }
        };
        Ended { copy, since }
    }

    /// An edge to this thread is missing from the result.
    pub fn lose(&mut self, cause: Lost) {
        self.totals.count_lost(cause);
    }

    #[inline]
    fn copy(&mut self, at: Site) -> Carried {
        self.tick();
        let strand = self.with_memory(|memory, strand| strand.share(memory));
        self.settle();
        Carried {
            strand,
            at,
            session: self.session,
        }
    }

    /// Merges a strand for which the current one has waited, at a moment up to which activity is counted.
    #[inline]
    fn merge(&mut self, copy: Carried, at: Site, edge: Edge, since: Option<u64>) {
        let Some(copy) = self.same_session(copy) else {
            return;
        };
        let transition = self.transition(copy.at, at, edge);
        self.with_memory(|memory, strand| strand.merge(memory, copy.strand, &transition, since));
        self.count(edge);
        self.settle();
    }

    /// Makes `copy` the longer of both, merged with the other one.
    fn absorb(&mut self, copy: &mut Carried, mut other: Carried, since: Option<u64>) {
        let since = since.or(copy.strand.parted(&other.strand));
        if other.strand.length > copy.strand.length {
            core::mem::swap(copy, &mut other);
        }
        let longer = &mut copy.strand;
        longer.burdened = longer.burdened.max(other.strand.burdened);
        self.with_memory(|memory, _| longer.absorb(memory, other.strand, other.at, since));
    }

    /// The copy, if it belongs to the thread's session.
    #[inline]
    fn same_session(&mut self, copy: Carried) -> Option<Carried> {
        if copy.session == self.session {
            return Some(copy);
        }
        self.lose(Lost::OtherSession);
        self.with_memory(|memory, _| copy.strand.release(memory));
        None
    }

    /// The strand that begins at `begin`.
    #[inline]
    fn spawn(&mut self, copy: Carried, begin: Site) -> Strand {
        let transition = self.transition(copy.at, begin, Edge::Spawn);
        let mut strand = copy.strand;
        self.with_memory(|memory, _| strand.proceed(memory, &transition));
        self.count(Edge::Spawn);
        strand
    }

    #[inline]
    fn transition(&self, from: Site, to: Site, edge: Edge) -> Transition {
        let settings = &self.tracker.settings;
        Transition {
            from,
            to,
            edge,
            thread: self.number,
            cost: if edge == Edge::Spawn {
                settings.spawn_cost
            } else {
                settings.message_cost
            },
        }
    }

    #[inline]
    fn count(&mut self, edge: Edge) {
        let counter = if edge == Edge::Wake {
            &self.totals.woken
        } else {
            &self.totals.exact
        };
        add(counter, 1);
    }

    #[inline]
    fn with_memory<R>(&mut self, change: impl FnOnce(&mut Memory<'_>, &mut Strand) -> R) -> R {
        let mut memory = Memory {
            arena: &self.tracker.arena,
            settings: &self.tracker.settings,
            spare: &mut self.spare,
        };
        change(&mut memory, &mut self.strand)
    }
}

impl<C> Drop for Thread<'_, C> {
    fn drop(&mut self) {
        let strand = core::mem::replace(&mut self.strand, Strand::start(0, Site(0)));
        let mut memory = Memory {
            arena: &self.tracker.arena,
            settings: &self.tracker.settings,
            spare: &mut self.spare,
        };
        strand.release(&mut memory);
        self.spare.nodes.empty(&self.tracker.arena);
        self.tracker.leave(&self.totals);
    }
}

impl<C> core::fmt::Debug for Thread<'_, C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Thread")
            .field("number", &self.number)
            .field("length", &self.strand.length)
            .finish_non_exhaustive()
    }
}
