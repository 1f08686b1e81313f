//! The operations of a thread: what it does to its strand, and what it hands to others.
//!
//! One duty: measure activity between events, and carry strands along edges. An operation among many reads
//! the clock once, so its own time counts as activity, less what operations take in the mean
//! ([`Settings::operation_cost`](crate::Settings)). One after other activity reads it twice and does not
//! count.
//!
//! Samples tell of waits that no hook sees, as they use CPU time: spinning, polling. Their time is no
//! activity. Unless the next operation is an edge, what has ended the wait is not known, and counted so.

use std::sync::Arc;

use hpcrun_abi::RemoteStrand;

use crate::clock::Clock;
use crate::event::{Event, Moment};
use crate::grain::{Estimates, Grain};
use crate::levels::Recent;
use crate::path::{Edge, List, Site};
use crate::sampled::{Context, Sampler};
use crate::samples::Samples;
use crate::savings::{Procedure, Savings};
use crate::shares::Shares;
use crate::starts;
use crate::strand::{Memory, Spare, Strand, Transition};
use crate::tracker::{EXACT, GRAINS, LOST, Lost, Totals, Tracker, WOKEN};

mod causes;

/// A segment that takes this long, in nanoseconds, is long: more than a reading of any clock.
const LONG: u64 = 100_000;
/// After a segment of this time the tracker's memory is no longer in the processor's first caches; operations
/// within a further time find it so.
const OTHER: u64 = 2_000;
const AFTER_OTHER: u64 = 20_000;
/// A thread that is active for so many nanoseconds after a wait has been told by nobody that it is over.
const GOES_ON: u64 = 1_000;

/// A thread that is tracked; it belongs to one thread of the program.
pub struct Thread<'t, C> {
    pub(crate) tracker: &'t Tracker,
    clock: C,
    /// The clock's time up to which activity is counted.
    last: u64,
    /// Up to this time of the clock, operations exclude themselves; see [`Thread::settle`].
    cold: u64,
    /// Time that passes is not activity.
    idle: bool,
    /// A sample found it in a wait, and no edge has ended that.
    has_waited: bool,
    pub(crate) strand: Strand,
    procedure: Option<Procedure>,
    number: u32,
    /// How often it was asked to publish its strand, and has.
    answered: u32,
    resyncs_before: u64,
    spare: Spare,
    samples: Arc<Samples>,
    sampler: Option<Box<dyn Sampler>>,
    shares: Shares,
    totals: Arc<Totals>,
    estimates: Estimates,
    recent: Recent,
    starts: starts::Recent,
    /// The times of marks that the last export has kept.
    pub(crate) marks: Arc<[(u64, u64)]>,
    /// For the marks of a message.
    pub(crate) received: Savings,
    /// The strand as it was last exported.
    pub(crate) outgoing: RemoteStrand,
    /// The export that is not kept yet, and where it is.
    pub(crate) exported: Option<(u32, Site)>,
    /// The moment of the strand to which the thread has returned, until the trace is told.
    returns_to: Moment,
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
            has_waited: false,
            strand: Strand::start(number, begin, session),
            procedure: None,
            number,
            answered: tracker.asked(),
            resyncs_before: 0,
            spare: Spare::new(),
            samples: Arc::default(),
            sampler: None,
            shares: Shares::new(&tracker.settings),
            totals,
            estimates: Estimates::new(),
            recent: Recent::new(tracker.settings.level),
            starts: starts::Recent::new(),
            marks: Arc::default(),
            received: Savings::default(),
            outgoing: RemoteStrand::default(),
            exported: None,
            returns_to: Moment::default(),
        }
    }

    /// Begins the tracker's current session at `begin`, if it is another one.
    #[inline]
    pub fn restart(&mut self, begin: Site) {
        if self.strand.0.of.session != self.tracker.session() {
            self.begin_session(begin);
            self.last = self.clock.now();
        }
    }

    /// As [`restart`](Self::restart), where the session has begun when the thread's CPU clock showed `cpu`,
    /// and the thread was active since. Any thread may call it, as [`Self::tell_from_outside`].
    #[cold]
    pub fn restart_at(&mut self, cpu: u64) {
        if self.strand.0.of.session != self.tracker.session() {
            self.begin_session(Site(0));
        }
        self.last = self.clock.at(cpu);
    }

    #[cold]
    fn begin_session(&mut self, begin: Site) {
        let session = self.tracker.session();
        self.totals.reset(session);
        self.resyncs_before = self.clock.resyncs();
        self.samples.take();
        self.samples.take_waited();
        self.has_waited = false;
        self.shares = Shares::new(&self.tracker.settings);
        let new = Strand::start(self.number, begin, session);
        let old = core::mem::replace(&mut self.strand, new);
        self.discard(old);
        self.recent = Recent::new(self.tracker.settings.level);
        self.starts = starts::Recent::new();
        self.exported = None;
    }

    /// The thread's number, by which reports name it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The longest chain of activity up to now, in nanoseconds.
    pub fn length(&mut self) -> u64 {
        self.tick();
        self.strand.0.length
    }

    /// An event of the thread, now, at `at`; or, if that is not known or there was much activity since the
    /// last event, in the context that `capture` returns. Where `at` is a `runtime`'s own, a long segment's
    /// last context says more.
    #[inline]
    pub fn event(&mut self, at: Site, runtime: bool, capture: impl FnOnce() -> Option<Site>) -> Event {
        let now = self.clock.now();
        self.advance(now);
        let place = self.site(at, runtime, capture);
        // Whether a context was captured depends on the time before.
        self.pass(if at == Site(0) { place } else { at });
        Event { time: Some(now), place }
    }

    #[inline]
    fn site(&mut self, at: Site, runtime: bool, capture: impl FnOnce() -> Option<Site>) -> Site {
        let is_short = runtime && self.strand.open_time() < LONG;
        if is_short || self.idle {
            return at;
        }
        let chain = &mut *self.strand.0;
        if chain.length - chain.open.placed < LONG && at != Site(0) {
            if runtime && chain.open.context != Site(0) {
                return chain.open.context;
            }
            if !runtime {
                chain.open.placed = chain.length;
            }
            return at;
        }
        chain.open.placed = chain.length;
        let Some(context) = capture() else { return at };
        self.be_in(context, at);
        context
    }

    #[cold]
    fn be_in(&mut self, context: Site, at: Site) {
        self.tracker.name_context(context, at);
        self.strand.be_in(context, at);
    }

    /// Whether the thread was told to pause.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Counts the activity since the last event.
    #[inline]
    fn tick(&mut self) {
        let now = self.clock.now();
        self.advance(now);
        self.pass(Site(0));
    }

    /// The thread is at an event, up to which activity is counted. Returns its place.
    #[inline]
    fn reach(&mut self, event: Event) -> Site {
        if event.time.is_none() {
            self.tick();
        }
        event.place
    }

    /// The thread is at an event, and activity is counted up to now.
    #[inline]
    fn pass(&mut self, event: Site) {
        if self.shares.are_due() {
            self.divide(event);
        }
        self.shares.pass(event);
    }

    /// Divides the activity since the last time among contexts and functions.
    #[cold]
    #[inline(never)]
    fn divide(&mut self, event: Site) {
        let Some(sampler) = self.sampler.as_deref_mut() else {
            return self.shares.skip();
        };
        let times = self.shares.divide(event, sampler, &self.tracker.sampled);
        if !times.functions.is_empty() || !times.contexts.is_empty() {
            let chain = &mut *self.strand.0;
            let length = chain.length;
            let saved = self.tracker.settings.faster;
            chain.sampled.add(&times.functions, times.contexts, saved, length);
        }
    }

    /// Counts the activity up to a time of the clock.
    #[inline]
    fn advance(&mut self, now: u64) {
        let mut time = now.saturating_sub(self.last).saturating_sub(self.tracker.settings.operation_cost);
        self.last = now;
        if self.samples.are_there() {
            self.take_samples();
        }
        if self.has_waited || self.samples.found_wait() {
            time = self.leave_out_wait(time);
        }
        if time >= OTHER {
            self.cold = now + AFTER_OTHER;
        }
        if !self.idle {
            let from = self.strand.0.length;
            let mark = self.procedure.map(|procedure| self.tracker.key(procedure));
            self.strand.extend(time, mark, self.tracker.settings.faster);
            self.totals.add_work(time, self.procedure);
            self.add_level(from);
            self.shares.add(time);
        }
        if self.answered != self.tracker.asked() {
            self.answer();
        }
    }

    /// What of a time was no wait.
    #[cold]
    fn leave_out_wait(&mut self, time: u64) -> u64 {
        let waited = self.samples.take_waited();
        if self.idle {
            return time;
        }
        let active = time.saturating_sub(waited);
        if self.has_waited && active >= GOES_ON {
            self.has_waited = false;
            self.lose(Lost::Wait);
        }
        self.has_waited |= waited > 0;
        active
    }

    /// The strand was active since its length was `from`. A relative length is no level: of a part of a
    /// strand, the longest chain has levels once the strand goes on after it, and the rest has none.
    #[inline]
    fn add_level(&mut self, from: u64) {
        let chain = &*self.strand.0;
        if !chain.of.is_relative && !self.recent.add(from, chain.length) {
            self.move_levels(from);
        }
    }

    #[cold]
    #[inline(never)]
    fn move_levels(&mut self, from: u64) {
        let chain = &*self.strand.0;
        let last = (from, chain.length);
        self.tracker.add_levels(chain.of.session, &mut self.recent, last);
        // The operation does not count as activity.
        self.cold = self.cold.max(self.last + 1);
    }

    /// Ends an operation. One that finds the caches cold may take microseconds: it reads the clock again, so
    /// as not to count as activity.
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
        self.end_so_far();
    }

    /// Publishes the strand as it is.
    fn end_so_far(&mut self) {
        self.tell();
        let mut strand = self.with_memory(|memory, strand| strand.share(memory));
        strand.0.at = Site(0);
        self.tracker.end(strand);
    }

    /// Tells reports what the thread has kept for itself.
    fn tell(&mut self) {
        self.tell_resyncs();
        self.move_levels(self.strand.0.length);
        self.count_started();
        self.move_starts();
    }

    /// Tells reports how often the clock had to ask the system.
    fn tell_resyncs(&self) {
        let resyncs = self.clock.resyncs() - self.resyncs_before;
        self.totals.set_resyncs(resyncs);
    }

    /// What follows is no activity, until [`Thread::resume`]: a wait, or work of the tracker's own.
    #[inline]
    pub fn pause(&mut self) {
        self.tick();
        self.idle = true;
    }

    /// What follows is activity again.
    #[inline]
    pub fn resume(&mut self) {
        self.keep_export();
        if self.samples.are_there() {
            self.take_samples();
        }
        if self.samples.found_wait() {
            self.samples.take_waited();
        }
        self.last = self.clock.now();
        self.idle = false;
    }

    /// What follows is the poll after one that got nothing. What lies between is no activity if it is short.
    #[inline]
    pub fn poll_again(&mut self) {
        let now = self.clock.now();
        if now.saturating_sub(self.last) < GOES_ON {
            self.last = now;
        }
    }

    /// As [`Thread::import`] and [`Thread::resume`], with one reading of the clock before the operation: the
    /// strand is still on its way from another core then. After a longer wait the caches are cold.
    #[inline]
    pub fn resume_after(&mut self, remote: &RemoteStrand, at: Site) {
        let paused = self.last;
        self.resume();
        if self.last - paused >= OTHER {
            self.cold = self.last + AFTER_OTHER;
        }
        self.import(remote, Event { time: Some(self.last), place: at });
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

    /// Whoever knows the contexts of the samples. Without it, they do not count.
    pub fn set_sampler(&mut self, sampler: Box<dyn Sampler>) {
        self.sampler = Some(sampler);
    }

    /// Takes the samples since the last event. Those of an idle thread do not count.
    #[cold]
    fn take_samples(&mut self) {
        let taken = self.samples.take();
        let Some(sampler) = self.sampler.as_mut().filter(|_| !self.idle) else {
            return;
        };
        let profile = sampler.profile();
        for (record, time) in taken {
            if sampler.waits(record) {
                self.samples.add_wait(time);
                continue;
            }
            let context = Context { profile, record };
            self.shares.sample(context, sampler.functions(record), time);
        }
        if self.samples.take_missed() > 0 {
            self.lose(Lost::Sample);
        }
    }

    /// A copy of the strand at `at`, for whoever waits for this event: the begin of a spawned thread or task,
    /// a receive, the next acquisition of a lock.
    #[inline]
    pub fn copy(&mut self, at: impl Into<Event>) -> Strand {
        if self.strand.0.grain.is_part {
            // It does not know how long the chain before it is.
            self.lose(Lost::Untracked);
        }
        self.copy_at(at.into())
    }

    #[inline]
    fn copy_at(&mut self, at: Event) -> Strand {
        let at = self.reach(at);
        let mut copy = self.with_memory(|memory, strand| strand.share(memory));
        copy.0.at = at;
        copy.0.told = self.moment();
        copy.0.of.since = None;
        copy.0.of.procedure = self.procedure;
        self.settle();
        copy
    }

    /// Whether a fork that follows is one of those in a grain ([`Settings::grain`](crate::Settings)) that are
    /// left out: nothing is told of it, unless another thread runs its second half
    /// ([`begin_part`](Self::begin_part)). It need not be asked of each.
    #[inline]
    pub fn leaves_out_fork(&mut self) -> bool {
        if !self.strand.0.grain.is_open() {
            return false;
        }
        self.tick();
        let limit = self.tracker.settings.grain;
        let is_too_long = self.strand.0.grain.is_too_long(limit);
        if is_too_long {
            self.strand.0.grain.close();
        }
        !is_too_long
    }

    /// As [`copy`](Self::copy), for the second half of a fork, which the current strand joins, as it does
    /// those of later forks before. `site`: where in the code the fork is.
    #[inline]
    pub fn fork(&mut self, at: impl Into<Event>, site: Site) -> Strand {
        let limit = self.tracker.settings.grain;
        let mut copy = self.copy_at(at.into());
        if limit != 0 {
            copy.0.grain = self.strand.0.grain.fork(site, &self.estimates, limit);
            let is_grain = copy.0.grain.is_open();
            self.totals.add(GRAINS, is_grain.into());
        }
        copy
    }

    /// A thread that pauses does not read the clock.
    #[inline]
    pub(crate) fn reach_if_active(&mut self, event: Event) -> Site {
        if self.idle { event.place } else { self.reach(event) }
    }

    /// Gives a list's memory back.
    pub(crate) fn release(&mut self, list: List) {
        list.release(&self.tracker.arena, &mut self.spare.nodes);
    }

    /// The strand, at `at`, has waited for the event of `strand`.
    #[inline]
    pub fn merge(&mut self, strand: Strand, at: impl Into<Event>, edge: Edge) {
        let at = self.reach(at.into());
        self.merge_now(strand, at, edge);
    }

    /// Leaves the current strand, and begins one at `at`: a spawned one, from its spawner's copy. `None`: the
    /// spawner is unknown, which is counted. The result is for [`Thread::end`].
    #[inline]
    pub fn begin(&mut self, spawned: Option<Strand>, at: impl Into<Event>) -> Strand {
        let at = self.reach(at.into());
        let procedure = spawned.as_ref().and_then(|strand| strand.0.of.procedure);
        let settings = &self.tracker.settings;
        let spawn = spawned.as_ref().map_or(Site(0), |s| s.cause(settings));
        match spawned {
            Some(_) => self.has_waited = false,
            None => self.lose(Lost::Untracked),
        }
        let told = self.moment();
        let mut strand = match spawned.and_then(|strand| self.same_session(strand)) {
            Some(mut strand) => {
                self.follow(strand.0.told, Edge::Spawn, true);
                let transition = self.transition(at, Edge::Spawn);
                strand.cross(&transition);
                self.with_memory(|memory, _| strand.proceed(memory, &transition));
                self.count(Edge::Spawn);
                strand
            }
            None => Strand::start(self.number, at, self.strand.0.of.session),
        };
        strand.0.of.since = Some(strand.0.length);
        let left = self.leave(strand, procedure, told);
        self.start(spawn, Edge::Spawn);
        left
    }

    /// Leaves the current strand, and begins the second half of a fork that was left out, at `at`. The
    /// result is for [`Thread::end`].
    pub fn begin_part(&mut self, at: Site) -> Strand {
        self.tick();
        let mut strand = Strand::start(self.number, at, self.strand.0.of.session);
        strand.0.grain = Grain::part();
        strand.0.of.is_relative = true;
        let told = self.moment();
        self.leave(strand, None, told)
    }

    #[inline]
    fn leave(&mut self, next: Strand, procedure: Option<Procedure>, told: Moment) -> Strand {
        let mut left = core::mem::replace(&mut self.strand, next);
        left.0.told = told;
        left.0.of.procedure = core::mem::replace(&mut self.procedure, procedure);
        left.0.of.idle = core::mem::replace(&mut self.idle, false);
        self.settle();
        left
    }

    /// The current strand ends at `at`; the thread goes on with `left`, which it has left for it. The result
    /// is for whoever waits for the end, or for [`Thread::finish`].
    #[inline]
    pub fn end(&mut self, left: Strand, at: impl Into<Event>) -> Strand {
        let at = self.reach(at.into());
        self.count_started();
        self.procedure = left.0.of.procedure;
        self.idle = left.0.of.idle;
        let session = self.strand.0.of.session;
        let told = self.moment();
        self.returns_to = left.0.told;
        let before = if left.0.of.session == session {
            left
        } else {
            self.discard(left);
            Strand::start(self.number, at, session)
        };
        let mut ended = core::mem::replace(&mut self.strand, before);
        (ended.0.at, ended.0.told) = (at, told);
        self.settle();
        ended
    }

    /// As `end` and `merge`: the current strand ends at `at`, where the one that was left for it waits.
    #[inline]
    pub fn end_and_merge(&mut self, left: Strand, at: impl Into<Event>) {
        let at = at.into();
        let ended = self.end(left, at);
        self.merge_now(ended, at.place, Edge::Join);
    }

    /// A strand has ended for which nobody waits: the report counts it among the ends.
    pub fn finish(&mut self, ended: Strand) {
        self.tell_resyncs();
        self.tracker.end(ended);
    }

    /// The current strand ends at `at` as far as a report now is concerned.
    pub fn publish(&mut self, at: impl Into<Event>) {
        let copy = self.copy(at);
        self.tell();
        self.tracker.end(copy);
    }

    /// Counts the activity up to when the thread's CPU clock, by the system, shows `cpu` nanoseconds. If it
    /// `ends` there, the strand does so as far as a report now is concerned; else nobody waits for it, and
    /// the path ends elsewhere. For another thread: the one that the strand belongs to must not use this
    /// any more.
    pub fn tell_from_outside(&mut self, cpu: u64, ends: bool) {
        let now = self.clock.at(cpu).max(self.last);
        self.advance(now);
        self.pass(Site(0));
        if ends { self.end_so_far() } else { self.tell() }
    }

    /// Of two strands for which the same one waits, leaves one.
    pub fn both(&mut self, first: Strand, second: Strand) -> Strand {
        let Some(first) = self.same_session(first) else {
            return second;
        };
        match self.same_session(second) {
            Some(second) => self.with_memory(|memory, _| Strand::both(memory, first, second)),
            None => first,
        }
    }

    /// The same strand once more.
    pub fn share(&mut self, strand: &Strand) -> Strand {
        self.with_memory(|memory, _| strand.share(memory))
    }

    /// Forgets what nobody waits for.
    pub fn discard(&mut self, strand: Strand) {
        self.with_memory(|memory, _| strand.release(memory));
    }

    /// An edge to this thread is missing from the result.
    pub fn lose(&mut self, cause: Lost) {
        self.totals.add(LOST + cause as usize, 1);
    }

    /// Merges a strand of another process, but for its savings.
    #[inline]
    pub(crate) fn merge_remote(&mut self, remote: &RemoteStrand, transition: Transition) {
        self.has_waited = false;
        let is_longer = remote.length + transition.weight > self.strand.0.length;
        if let Some(trace) = &self.tracker.settings.trace {
            self.moment();
            (trace.receive)(remote.rank, remote.export, is_longer);
        }
        if is_longer {
            // What began it is in another process.
            self.count_started();
            self.strand.0.started.by = None;
        }
        self.with_memory(|memory, strand| strand.merge_remote(memory, remote, &transition));
        self.count(Edge::Message);
        if !self.idle {
            self.settle();
        }
    }

    /// Merges at a moment up to which activity is counted.
    #[inline]
    fn merge_now(&mut self, strand: Strand, at: Site, edge: Edge) {
        let Some(other) = self.same_session(strand) else {
            return;
        };
        self.has_waited = false;
        if edge == Edge::Join {
            let from = self.strand.0.length;
            self.strand.join_grain(&other, &mut self.estimates);
            if self.strand.0.length != from {
                self.add_level(from);
            }
        }
        let mut transition = self.transition(at, edge);
        if other.0.of.is_relative {
            // It has become a part of this one.
            transition.weight = 0;
        }
        let (length, from) = (self.strand.0.length, other.cause(&self.tracker.settings));
        let goes_on_after = other.0.length + transition.weight > length;
        if goes_on_after {
            self.count_started();
        }
        self.follow(other.0.told, edge, goes_on_after);
        self.with_memory(|memory, strand| strand.merge(memory, other, &transition));
        if goes_on_after {
            self.start(from, edge);
        }
        self.count(edge);
        self.settle();
    }

    /// The strand, if it belongs to the thread's session.
    #[inline]
    fn same_session(&mut self, strand: Strand) -> Option<Strand> {
        if strand.0.of.session == self.strand.0.of.session {
            return Some(strand);
        }
        if strand.0.of.session >= self.tracker.first_session() {
            self.lose(Lost::OtherSession);
        }
        self.discard(strand);
        None
    }

    #[inline]
    pub(crate) fn transition(&self, to: Site, edge: Edge) -> Transition {
        let settings = &self.tracker.settings;
        let cost = if edge == Edge::Spawn { settings.spawn_cost } else { settings.message_cost };
        let weight = if settings.edges { cost } else { 0 };
        Transition { to, edge, thread: self.number, cost, weight }
    }

    #[inline]
    fn count(&mut self, edge: Edge) {
        self.totals.add(if edge == Edge::Wake { WOKEN } else { EXACT }, 1);
    }
}

impl<C> Thread<'_, C> {
    #[inline]
    fn with_memory<R>(&mut self, change: impl FnOnce(&mut Memory<'_>, &mut Strand) -> R) -> R {
        let mut memory =
            Memory { arena: &self.tracker.arena, settings: &self.tracker.settings, spare: &mut self.spare };
        change(&mut memory, &mut self.strand)
    }
}

impl<C> Drop for Thread<'_, C> {
    fn drop(&mut self) {
        let chain = &*self.strand.0;
        let last = (chain.length, chain.length);
        self.tracker.add_levels(chain.of.session, &mut self.recent, last);
        self.tracker.add_starts(chain.of.session, &mut self.starts);
        self.shares.end(&self.tracker.sampled);
        let strand = core::mem::replace(&mut self.strand, Strand::start(0, Site(0), 0));
        self.with_memory(|memory, _| strand.release(memory));
        self.spare.nodes.empty(&self.tracker.arena);
        self.tracker.leave(&self.totals);
    }
}

impl<C> core::fmt::Debug for Thread<'_, C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Thread")
            .field("number", &self.number)
            .field("length", &self.strand.0.length)
            .finish_non_exhaustive()
    }
}
