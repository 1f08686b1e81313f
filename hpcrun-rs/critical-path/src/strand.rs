//! A strand: the longest chain of activity up to a point of the program.
//!
//! One duty: extend it by activity, and merge two of them where one must wait for the other. In the terms of
//! Oyama et al. a strand is the entry label (`begin`), the list of subpaths (`list`) and its length; only a
//! strand that is adopted pays for a further list node.

use core::ptr;

use hpcrun_abi::{RemoteStrand, SERIAL};

use crate::grain::{Estimates, Grain};
use crate::near::{Near, NearPaths};
use crate::path::{Arena, Edge, List, Local, Segment, Site, remote};
use crate::sampled::Sampled;
use crate::savings::{Procedure, Savings};
use crate::settings::Settings;

/// A strand, be it a thread's own or a copy of one on its way along an edge. It must come back to a
/// [`Thread`](crate::Thread) of its tracker, be it to [`discard`](crate::Thread::discard): part of its memory
/// is not given back otherwise. One word, since it is handed on often.
#[derive(Debug)]
#[must_use = "give it back to a `Thread`"]
pub struct Strand(pub(crate) Box<Chain>);

/// A strand's content.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Activity on the longest chain, in nanoseconds.
    pub(crate) length: u64,
    /// The longest chain if edges cost what the settings say.
    pub(crate) burdened: u64,
    /// The longest chain if grains took no time.
    pub(crate) least: u64,
    pub(crate) grain: Grain,
    /// If the chain comes from another process: from which of its exports, and its length there. The list
    /// goes on from there.
    pub(crate) origin: Option<(Site, u64)>,
    /// The chain before the open segment, and its length.
    pub(crate) list: List,
    closed: u64,
    /// The length at the last event that may have had a context, and the open segment's last context.
    pub(crate) placed: u64,
    pub(crate) context: Site,
    /// Where and by which edge the open segment began, and the thread that runs it.
    begin: Site,
    edge: Edge,
    pub(crate) thread: u32,
    /// Of the procedures that the program marks.
    pub(crate) marks: Savings,
    pub(crate) sampled: Sampled,
    near: NearPaths,
    pub(crate) session: u32,
    /// The length with which the strand was spawned; `None` if that is unknown, or the strand has not ended.
    pub(crate) since: Option<u64>,
    /// Of a copy, or of a strand that has ended: where. Of a thread's own: nothing.
    pub(crate) at: Site,
    /// Of a copy: what its spawner was in. Of a strand that was left: what its thread was in.
    pub(crate) procedure: Option<Procedure>,
    pub(crate) idle: bool,
    /// The length is that since the begin of a part of another strand ([`Grain::part`]).
    pub(crate) is_relative: bool,
    /// Where and how what it does was started, if it was.
    pub(crate) started: Option<(Site, Edge)>,
    /// Of a thread's own: the length up to which that is counted.
    pub(crate) counted: u64,
}

/// How a strand goes on after another one: where, by which edge, on which thread, at which cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transition {
    pub(crate) to: Site,
    pub(crate) edge: Edge,
    pub(crate) thread: u32,
    pub(crate) cost: u64,
}

/// What strands are made of.
pub(crate) struct Memory<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) settings: &'a Settings,
    pub(crate) spare: &'a mut Spare,
}

/// What a thread keeps for further strands.
pub(crate) struct Spare {
    pub(crate) nodes: Local,
    strands: Vec<Strand>,
}

/// Strands that a thread keeps at most.
const MOST_SPARE: usize = 64;

impl Spare {
    pub(crate) fn new() -> Self {
        Spare { nodes: Local::new(), strands: Vec::new() }
    }
}

impl Spare {
    /// A strand of any content, without a list.
    pub(crate) fn strand(&mut self) -> Strand {
        let spare = self.strands.pop();
        spare.unwrap_or_else(|| Strand::start(0, Site(0), 0))
    }
}

impl Strand {
    pub(crate) fn start(thread: u32, begin: Site, session: u32) -> Self {
        Strand(Box::new(Chain { thread, begin, at: begin, session, ..Chain::default() }))
    }

    /// The strand as a number that is not 0.
    pub fn into_raw(self) -> usize {
        Box::into_raw(self.0).expose_provenance()
    }

    /// The strand of a number, whose bit [`SERIAL`] is no part of it; `None` for 0.
    ///
    /// # Safety
    /// The number is 0, or comes from [`Strand::into_raw`] and is used here for the first time.
    pub unsafe fn from_raw(number: usize) -> Option<Strand> {
        let number = number & !SERIAL;
        // SAFETY: a box's address, which is even and which this owns from here on (this function's contract).
        (number != 0)
            .then(|| unsafe { Strand(Box::from_raw(ptr::with_exposed_provenance_mut(number))) })
    }

    /// Whether the strand is in a grain.
    pub(crate) fn is_in_grain(&self) -> bool {
        self.0.grain.is_open()
    }

    /// The thread that ran it last.
    pub fn thread(&self) -> u32 {
        self.0.thread
    }

    /// The same strand, to go on separately.
    #[inline]
    pub(crate) fn share(&self, memory: &mut Memory<'_>) -> Strand {
        let mut copy = memory.spare.strand();
        // Not all at once, which would drop and move what does not change.
        let (from, to) = (&*self.0, &mut *copy.0);
        to.length = from.length;
        to.burdened = from.burdened;
        to.least = from.least;
        to.grain = Grain::default();
        to.origin = from.origin;
        to.list = from.list.share(memory.arena);
        to.closed = from.closed;
        to.placed = from.length;
        to.context = from.context;
        to.begin = from.begin;
        to.edge = from.edge;
        to.thread = from.thread;
        to.marks.clone_from(&from.marks);
        to.sampled.clone_from(&from.sampled);
        to.near.clone_from(&from.near);
        to.session = from.session;
        to.since = from.since;
        to.at = from.at;
        to.procedure = from.procedure;
        to.idle = from.idle;
        to.is_relative = from.is_relative;
        to.started = from.started;
        copy
    }

    #[inline]
    pub(crate) fn release(mut self, memory: &mut Memory<'_>) {
        let list = core::mem::replace(&mut self.0.list, List::EMPTY);
        list.release(memory.arena, &mut memory.spare.nodes);
        if memory.spare.strands.len() < MOST_SPARE {
            memory.spare.strands.push(self);
        }
    }

    /// The strand was active.
    #[inline]
    pub(crate) fn extend(&mut self, time: u64, mark: Option<u64>) {
        self.0.length += time;
        self.0.burdened += time;
        if !self.0.grain.extend(time) {
            self.0.least += time;
        }
        if let Some(mark) = mark {
            self.0.marks.add(mark, time);
        }
    }

    /// The strand is in this context at `at`: what has begun there has begun in it.
    pub(crate) fn be_in(&mut self, context: Site, at: Site) {
        self.0.context = context;
        if self.0.begin == at && at != Site(0) {
            self.0.begin = context;
        }
    }

    /// The time of the open segment.
    #[inline]
    pub(crate) fn open_time(&self) -> u64 {
        self.0.length - self.0.closed
    }

    /// What starts whoever goes on after a copy: the place where it was made, or, if it was active only
    /// shortly before, what has started it. So a signal to many threads that pass on a lock is one place.
    #[inline]
    pub(crate) fn cause(&self, settings: &Settings) -> Site {
        let started = self.0.started;
        let started = started.filter(|_| self.open_time() < settings.near_least);
        started.map_or(self.0.at, |(place, _)| place)
    }

    /// Where a copy was made.
    pub(crate) fn at(&self) -> Site {
        self.0.at
    }

    /// The open segment, up to where the strand is.
    #[inline]
    pub(crate) fn open_segment(&self) -> Segment {
        Segment {
            begin: self.0.begin,
            end: self.0.at,
            edge: self.0.edge,
            rank: None,
            thread: Some(self.0.thread),
            time: self.open_time(),
            count: 1,
        }
    }

    /// The strand ends its segment where it is, and begins another one.
    #[inline]
    pub(crate) fn proceed(&mut self, memory: &mut Memory<'_>, transition: &Transition) {
        let segment = self.open_segment();
        let keep = memory.settings.segments / 2;
        let chain = &mut *self.0;
        let nodes = &mut memory.spare.nodes;
        chain.list.append(memory.arena, nodes, segment, keep);
        chain.burdened += transition.cost;
        self.begin_segment(transition);
    }

    #[inline]
    fn begin_segment(&mut self, transition: &Transition) {
        let chain = &mut *self.0;
        chain.closed = chain.length;
        chain.placed = chain.length;
        chain.context = Site(0);
        chain.begin = transition.to;
        chain.edge = transition.edge;
        chain.thread = transition.thread;
    }

    /// The strand had to wait for `other`: the longer of the two goes on.
    #[inline]
    pub(crate) fn merge(
        &mut self,
        memory: &mut Memory<'_>,
        mut other: Strand,
        transition: &Transition,
    ) {
        let burdened = self.0.burdened.max(other.0.burdened + transition.cost);
        let least = self.0.least.max(other.0.least);
        // The common length, if they come from a fork.
        let since = other.0.since.or(self.parted(&other));
        if other.0.length > self.0.length {
            other.proceed(memory, transition);
            other.0.since = self.0.since;
            core::mem::swap(&mut self.0.grain, &mut other.0.grain);
            // What it goes on after knows what was before it.
            other.0.grain.is_part &= transition.edge == Edge::Join;
            core::mem::swap(self, &mut other);
            other.0.at = transition.to;
        }
        self.0.burdened = burdened;
        self.0.least = least;
        self.absorb(memory, other, since);
    }

    /// The strand has waited for the end of `other`, and is about to be merged with it: what is known of the
    /// grains of both.
    #[inline]
    pub(crate) fn join_grain(&mut self, other: &Strand, estimates: &mut Estimates) {
        if other.0.grain.is_part {
            self.append(other);
        } else if other.0.grain.is_half() {
            self.0.grain.close();
        }
        self.0.grain.join(&other.0.grain, estimates);
    }

    /// A part of the strand's own grain, that another thread has run: as if it had run here.
    #[cold]
    fn append(&mut self, part: &Strand) {
        let time = part.0.length;
        self.0.length += time;
        self.0.burdened += time;
        self.0.marks.append(part.0.marks.all(), self.0.length);
        self.0.sampled.append(&part.0.sampled, self.0.length);
    }

    /// Whether zeroing anything saves some time.
    #[inline]
    pub(crate) fn has_savings(&self) -> bool {
        self.0.sampled.has_savings() || !self.0.marks.is_empty()
    }

    /// Merges the savings with those of another process's strand. `marks` is for use here.
    #[inline(never)]
    pub(crate) fn merge_savings(&mut self, remote: &RemoteStrand, marks: &mut Savings) {
        let chain = &mut *self.0;
        let (gap, is_longer) = (remote.length.abs_diff(chain.length), remote.length > chain.length);
        marks.receive(remote.marks());
        if is_longer {
            core::mem::swap(&mut chain.marks, marks);
        }
        chain.marks.merge(marks, gap);
        chain.sampled.merge_received(remote.functions(), is_longer, gap);
    }

    /// As `merge`, with a strand of another process, whose savings are merged already.
    #[inline]
    pub(crate) fn merge_remote(
        &mut self,
        memory: &mut Memory<'_>,
        remote: &RemoteStrand,
        transition: &Transition,
    ) {
        let chain = &mut *self.0;
        chain.burdened = chain.burdened.max(remote.burdened + transition.cost);
        chain.least = chain.least.max(remote.length);
        if remote.length <= chain.length {
            return;
        }
        let branch = Near {
            begin: chain.begin,
            end: transition.to,
            thread: chain.thread,
            time: chain.length - chain.closed,
            slack: remote.length - chain.length,
            since: chain.closed,
        };
        let beside = core::mem::take(&mut chain.near);
        if branch.is_near(memory.settings) {
            chain.near.add(branch, &beside, memory.settings.near);
        }
        let list = core::mem::replace(&mut chain.list, List::EMPTY);
        list.release(memory.arena, &mut memory.spare.nodes);
        chain.origin = Some((Site(remote.site()), remote.length));
        chain.length = remote.length;
        self.begin_segment(transition);
    }

    /// Of two strands for which the same one waits, the longer, merged with the other one.
    pub(crate) fn both(memory: &mut Memory<'_>, mut longer: Strand, mut other: Strand) -> Strand {
        let since = longer.0.since.min(other.0.since);
        let parted = since.or(longer.parted(&other));
        if other.0.length > longer.0.length {
            core::mem::swap(&mut longer, &mut other);
        }
        longer.0.since = since;
        longer.0.burdened = longer.0.burdened.max(other.0.burdened);
        longer.0.least = longer.0.least.max(other.0.least);
        longer.absorb(memory, other, parted);
        longer
    }

    /// For two strands of which the shorter one may be a branch beside the longer one: where its last
    /// segment begins. `None`: the same thread ran both one after the other.
    fn parted(&self, other: &Strand) -> Option<u64> {
        let shorter = if other.0.length > self.0.length { self } else { other };
        (self.0.thread != other.0.thread).then_some(shorter.0.closed)
    }

    /// The strand goes on, and `shorter` has ended. `since`: where they parted; `None` if they are not beside
    /// each other.
    #[inline]
    fn absorb(&mut self, memory: &mut Memory<'_>, shorter: Strand, since: Option<u64>) {
        let slack = self.0.length - shorter.0.length;
        self.0.marks.merge(&shorter.0.marks, slack);
        self.0.sampled.merge(&shorter.0.sampled, slack);
        if let Some(since) = since {
            self.compare(memory.settings, &shorter, since.min(shorter.0.length));
        } else if slack == 0 && self.near().len() < shorter.near().len() {
            // The same chain, by way of a barrier at which others arrived later.
            self.0.near = shorter.0.near.clone();
        }
        shorter.release(memory);
    }

    /// Remembers the branch `shorter` if it is nearly critical.
    #[inline]
    fn compare(&mut self, settings: &Settings, shorter: &Strand, since: u64) {
        let branch = Near {
            begin: shorter.0.begin,
            end: shorter.0.at,
            thread: shorter.0.thread,
            time: shorter.0.length - since,
            slack: self.0.length - shorter.0.length,
            since,
        };
        if branch.is_near(settings) && self.0.near.wants(&branch) {
            self.0.near.add(branch, &shorter.0.near, settings.near);
        }
    }

    /// The segments of the chain, the open one up to where the strand is.
    pub(crate) fn segments(&self, arena: &Arena) -> Vec<Segment> {
        let origin = self.0.origin.map(remote);
        let mut segments = Vec::from_iter(origin);
        segments.extend(self.0.list.segments(arena));
        let open = self.open_segment();
        if open.time > 0 || segments.is_empty() {
            segments.push(open);
        }
        segments
    }

    pub(crate) fn near(&self) -> &[Near] {
        self.0.near.branches()
    }
}
