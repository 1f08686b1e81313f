//! A strand: the longest chain of activity up to a point of the program.
//!
//! One duty: extend it by activity, and merge two of them where one must wait for the other. In the terms of
//! Oyama et al. a strand is the entry label (`begin`), the list of subpaths (`list`) and its length; only a
//! strand that is adopted pays for a further list node.

use core::ptr;

use hpc_formats::critical_path::Near;
use hpcrun_abi::{RemoteStrand, SERIAL};

use crate::event::Moment;
use crate::grain::{Estimates, Grain};
use crate::near::{Branch, NearPaths};
use crate::path::{Arena, Edge, List, Local, Segment, Site};
use crate::sampled::Sampled;
use crate::savings::{Procedure, Savings, Times};
use crate::settings::Settings;
use crate::starts::Started;

/// A strand, be it a thread's own or a copy of one on its way along an edge. It must come back to a
/// [`Thread`](crate::Thread) of its tracker, be it to [`discard`](crate::Thread::discard): part of its memory
/// is not given back otherwise. One word, since it is handed on often.
#[derive(Debug)]
#[must_use = "give it back to a `Thread`"]
pub struct Strand(pub(crate) Box<Chain>);

/// A strand's content: a length, a list and a place, and what travels along.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Activity on the longest chain, in nanoseconds.
    pub(crate) length: u64,
    /// The chain before the open segment.
    pub(crate) list: List,
    pub(crate) open: Open,
    /// Of a copy, or of a strand that has ended: where. Of a thread's own: nothing.
    pub(crate) at: Site,
    /// When that was, for the trace.
    pub(crate) told: Moment,
    /// The longest chain if edges cost what the settings say.
    pub(crate) burdened: u64,
    pub(crate) grain: Grain,
    /// Of the procedures that the program marks.
    pub(crate) marks: Savings,
    pub(crate) sampled: Sampled,
    near: NearPaths,
    pub(crate) started: Started,
    pub(crate) of: Belonging,
}

/// The open segment: the entry label.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Open {
    /// Where and by which edge it began, and the thread that runs it.
    begin: Site,
    edge: Edge,
    thread: u32,
    /// The length of the chain before it.
    closed: u64,
    /// The length at the last event that may have had a context, and the last context.
    pub(crate) placed: u64,
    pub(crate) context: Site,
}

/// What a strand is a part of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Belonging {
    pub(crate) session: u32,
    /// The length with which the strand was spawned; `None` if that is unknown, or the strand has not ended.
    pub(crate) since: Option<u64>,
    /// Of a copy: what its spawner was in. Of a strand that was left: what its thread was in.
    pub(crate) procedure: Option<Procedure>,
    pub(crate) idle: bool,
    /// The length is that since the begin of a part of another strand ([`Grain::part`]).
    pub(crate) is_relative: bool,
}

/// How a strand goes on after another one: where, by which edge, on which thread, at which cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transition {
    pub(crate) to: Site,
    pub(crate) edge: Edge,
    pub(crate) thread: u32,
    pub(crate) cost: u64,
    /// What of the cost is a part of the chain.
    pub(crate) weight: u64,
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

    /// A strand of any content, without a list.
    pub(crate) fn strand(&mut self) -> Strand {
        let spare = self.strands.pop();
        spare.unwrap_or_else(|| Strand::start(0, Site(0), 0))
    }
}

impl Strand {
    pub(crate) fn start(thread: u32, begin: Site, session: u32) -> Self {
        let open = Open { thread, begin, ..Open::default() };
        let of = Belonging { session, ..Belonging::default() };
        Strand(Box::new(Chain { open, at: begin, of, ..Chain::default() }))
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
        (number != 0).then(|| unsafe { Strand(Box::from_raw(ptr::with_exposed_provenance_mut(number))) })
    }

    /// Whether the strand is in a grain.
    pub(crate) fn is_in_grain(&self) -> bool {
        self.0.grain.is_open()
    }

    /// The thread that ran it last.
    pub fn thread(&self) -> u32 {
        self.0.open.thread
    }

    /// The same strand, to go on separately.
    #[inline]
    pub(crate) fn share(&self, memory: &mut Memory<'_>) -> Strand {
        let mut copy = memory.spare.strand();
        // Not all at once, which would drop and move what does not change.
        let (from, to) = (&*self.0, &mut *copy.0);
        to.length = from.length;
        to.list = from.list.share(memory.arena);
        to.open = Open { placed: from.length, ..from.open };
        to.at = from.at;
        to.told = from.told;
        to.burdened = from.burdened;
        to.grain = from.grain.of_copy();
        to.marks.clone_from(&from.marks);
        to.sampled.clone_from(&from.sampled);
        to.near.clone_from(&from.near);
        to.started = from.started;
        to.of = from.of;
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

    /// The strand was active. `saved`: as [`Settings::faster`].
    #[inline]
    pub(crate) fn extend(&mut self, time: u64, mark: Option<u64>, saved: u32) {
        self.0.length += time;
        self.0.burdened += time;
        self.0.grain.extend(time);
        if let Some(mark) = mark {
            self.0.marks.add(mark, Times::of(time, saved));
        }
    }

    /// The strand is in this context at `at`: what has begun there has begun in it.
    pub(crate) fn be_in(&mut self, context: Site, at: Site) {
        let open = &mut self.0.open;
        open.context = context;
        if open.begin == at && at != Site(0) {
            open.begin = context;
        }
    }

    /// The time of the open segment.
    #[inline]
    pub(crate) fn open_time(&self) -> u64 {
        self.0.length - self.0.open.closed
    }

    /// What starts whoever goes on after a copy: the place where it was made, or, if it was active only
    /// shortly before, what has started it. So a signal to many threads that pass on a lock is one place.
    #[inline]
    pub(crate) fn cause(&self, settings: &Settings) -> Site {
        let started = self.0.started.by.filter(|_| self.open_time() < settings.near_least);
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
            begin: self.0.open.begin,
            end: self.0.at,
            edge: self.0.open.edge,
            rank: None,
            thread: Some(self.0.open.thread),
            time: self.open_time(),
            count: 1,
        }
    }

    /// The strand is at the end of the edge by which it goes on next.
    #[inline]
    pub(crate) fn cross(&mut self, edge: &Transition) {
        self.0.burdened += edge.cost;
        self.0.length += edge.weight;
        self.0.grain.least += edge.weight;
    }

    /// The strand ends its segment where it is, before the edge that it has [crossed](Self::cross), and
    /// begins another one, of which the edge is a part.
    #[inline]
    pub(crate) fn proceed(&mut self, memory: &mut Memory<'_>, transition: &Transition) {
        let mut segment = self.open_segment();
        segment.time -= transition.weight;
        let keep = memory.settings.segments / 2;
        self.0.list.append(memory.arena, &mut memory.spare.nodes, segment, keep);
        self.begin_segment(transition);
    }

    #[inline]
    fn begin_segment(&mut self, transition: &Transition) {
        let length = self.0.length;
        self.0.open = Open {
            begin: transition.to,
            edge: transition.edge,
            thread: transition.thread,
            closed: length - transition.weight,
            placed: length,
            context: Site(0),
        };
    }

    /// The strand had to wait for `other`: the longer of the two goes on.
    #[inline]
    pub(crate) fn merge(&mut self, memory: &mut Memory<'_>, mut other: Strand, transition: &Transition) {
        other.cross(transition);
        // The common length, if they come from a fork.
        let since = other.0.of.since.or(self.parted(&other));
        if other.0.length > self.0.length {
            other.proceed(memory, transition);
            other.0.of.since = self.0.of.since;
            other.0.grain.go_on_after(&mut self.0.grain, transition.edge == Edge::Join);
            core::mem::swap(self, &mut other);
            other.0.at = transition.to;
        }
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
    pub(crate) fn merge_savings(&mut self, remote: &RemoteStrand, weight: u64, marks: &mut Savings) {
        let (chain, length) = (&mut *self.0, remote.length + weight);
        let (gap, is_longer) = (length.abs_diff(chain.length), length > chain.length);
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
        let (chain, length) = (&mut *self.0, remote.length + transition.weight);
        chain.burdened = chain.burdened.max(remote.burdened + transition.cost);
        chain.grain.least = chain.grain.least.max(length);
        if length <= chain.length {
            return;
        }
        let near = Near {
            begin: chain.open.begin,
            end: transition.to,
            thread: Some(chain.open.thread),
            time: chain.length - chain.open.closed,
            slack: length - chain.length,
        };
        let branch = Branch { near, since: chain.open.closed };
        let beside = core::mem::take(&mut chain.near);
        if branch.is_near(memory.settings) {
            chain.near.add(branch, &beside, memory.settings.near);
        }
        let list = List::from(remote);
        core::mem::replace(&mut chain.list, list).release(memory.arena, &mut memory.spare.nodes);
        chain.length = length;
        self.begin_segment(transition);
    }

    /// Of two strands for which the same one waits, the longer, merged with the other one.
    pub(crate) fn both(memory: &mut Memory<'_>, mut longer: Strand, mut other: Strand) -> Strand {
        let since = longer.0.of.since.min(other.0.of.since);
        let parted = since.or(longer.parted(&other));
        if other.0.length > longer.0.length {
            core::mem::swap(&mut longer, &mut other);
        }
        longer.0.of.since = since;
        longer.absorb(memory, other, parted);
        longer
    }

    /// For two strands of which the shorter one may be a branch beside the longer one: where its last
    /// segment begins. `None`: the same thread ran both one after the other.
    fn parted(&self, other: &Strand) -> Option<u64> {
        let shorter = if other.0.length > self.0.length { self } else { other };
        (self.thread() != other.thread()).then_some(shorter.0.open.closed)
    }

    /// The strand goes on, and `shorter` has ended. `since`: where they parted; `None` if they are not beside
    /// each other.
    #[inline]
    fn absorb(&mut self, memory: &mut Memory<'_>, shorter: Strand, since: Option<u64>) {
        let slack = self.0.length - shorter.0.length;
        self.0.burdened = self.0.burdened.max(shorter.0.burdened);
        self.0.grain.least = self.0.grain.least.max(shorter.0.grain.least);
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
        let near = Near {
            begin: shorter.0.open.begin,
            end: shorter.0.at,
            thread: Some(shorter.thread()),
            time: shorter.0.length - since,
            slack: self.0.length - shorter.0.length,
        };
        let branch = Branch { near, since };
        if branch.is_near(settings) && self.0.near.wants(&branch) {
            self.0.near.add(branch, &shorter.0.near, settings.near);
        }
    }

    /// The segments of the chain, the open one up to where the strand is.
    pub(crate) fn segments(&self, arena: &Arena) -> Vec<Segment> {
        let mut segments = self.0.list.segments(arena);
        let open = self.open_segment();
        if open.time > 0 || segments.is_empty() {
            segments.push(open);
        }
        segments
    }

    pub(crate) fn near(&self) -> &[Branch] {
        self.0.near.branches()
    }
}
