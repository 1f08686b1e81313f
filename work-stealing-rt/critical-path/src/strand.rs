//! A strand: the longest chain of activity up to a point of the program.
//!
//! One duty: extend it by activity, and merge two of them where one must wait for the other. In the terms of
//! Oyama et al. a strand is the entry label (`begin`), the list of subpaths (`list`) and its length; only a
//! strand that is adopted pays for a further list node.

use core::ops::{Deref, DerefMut};

use crate::near::{Near, NearPaths, is_near};
use crate::path::{Arena, Edge, List, Local, Segment, Site};
use crate::procedures::{Procedure, Procedures};
use crate::tracker::Settings;

/// See the module. It must be released. One word, since it is handed on often.
#[derive(Debug)]
pub(crate) struct Strand(Box<Chain>);

/// A strand's content.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Activity on the longest chain, in nanoseconds.
    pub(crate) length: u64,
    /// The longest chain if edges cost what the settings say.
    pub(crate) burdened: u64,
    /// The chain before the open segment, and its length.
    list: List,
    closed: u64,
    /// Where and by which edge the open segment began, and the thread that runs it.
    begin: Site,
    edge: Edge,
    pub(crate) thread: u32,
    pub(crate) procedures: Procedures,
    near: NearPaths,
}

/// How a strand goes on after another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transition {
    /// Where the earlier one's segment ends.
    pub(crate) from: Site,
    /// Where the new segment begins, by which edge, on which thread.
    pub(crate) to: Site,
    pub(crate) edge: Edge,
    pub(crate) thread: u32,
    /// The edge's cost.
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
        Spare {
            nodes: Local::new(),
            strands: Vec::new(),
        }
    }
}

impl Deref for Strand {
    type Target = Chain;

    #[inline]
    fn deref(&self) -> &Chain {
        &self.0
    }
}

impl DerefMut for Strand {
    #[inline]
    fn deref_mut(&mut self) -> &mut Chain {
        &mut self.0
    }
}

impl Strand {
    pub(crate) fn start(thread: u32, begin: Site) -> Self {
        Strand(Box::new(Chain {
            length: 0,
            burdened: 0,
            list: List::EMPTY,
            closed: 0,
            begin,
            edge: Edge::Start,
            thread,
            procedures: Procedures::default(),
            near: NearPaths::default(),
        }))
    }

    /// The same chain, to go on separately.
    #[inline]
    pub(crate) fn share(&self, memory: &mut Memory<'_>) -> Strand {
        let mut copy = match memory.spare.strands.pop() {
            Some(spare) => spare,
            None => Strand::start(0, Site(0)),
        };
        copy.length = self.length;
        copy.burdened = self.burdened;
        copy.list = self.list.share(memory.arena);
        copy.closed = self.closed;
        copy.begin = self.begin;
        copy.edge = self.edge;
        copy.thread = self.thread;
        copy.procedures.copy_from(&self.procedures);
        copy.near.clone_from(&self.near);
        copy
    }

    #[inline]
    pub(crate) fn release(mut self, memory: &mut Memory<'_>) {
        let list = core::mem::replace(&mut self.list, List::EMPTY);
        list.release(memory.arena, &mut memory.spare.nodes);
        if memory.spare.strands.len() < MOST_SPARE {
            memory.spare.strands.push(self);
        }
    }

    /// The strand was active.
    #[inline]
    pub(crate) fn extend(&mut self, time: u64, procedure: Option<Procedure>) {
        self.length += time;
        self.burdened += time;
        if let Some(procedure) = procedure {
            self.procedures.add(procedure, time);
        }
    }

    /// The strand ends its segment, and begins another one.
    #[inline]
    pub(crate) fn proceed(&mut self, memory: &mut Memory<'_>, transition: &Transition) {
        let segment = Segment {
            begin: self.begin,
            end: transition.from,
            edge: self.edge,
            thread: Some(self.thread),
            time: self.length - self.closed,
            count: 1,
        };
        let keep = memory.settings.segments / 2;
        let nodes = &mut memory.spare.nodes;
        self.list.append(memory.arena, nodes, segment, keep);
        self.closed = self.length;
        self.begin = transition.to;
        self.edge = transition.edge;
        self.thread = transition.thread;
        self.burdened += transition.cost;
    }

    /// The strand had to wait for `other`: the longer of the two goes on. `since`: their common length, if
    /// they come from a fork.
    #[inline]
    pub(crate) fn merge(
        &mut self,
        memory: &mut Memory<'_>,
        other: Strand,
        transition: &Transition,
        since: Option<u64>,
    ) {
        let burdened = self.burdened.max(other.burdened + transition.cost);
        let since = since.or(self.parted(&other));
        let (shorter, end) = if other.length > self.length {
            let mut longer = other;
            longer.proceed(memory, transition);
            (core::mem::replace(self, longer), transition.to)
        } else {
            (other, transition.from)
        };
        self.burdened = burdened;
        self.absorb(memory, shorter, end, since);
    }

    /// For two strands of which the shorter one may be a branch beside the longer one: where its last
    /// segment begins. `None`: the same thread ran both one after the other.
    pub(crate) fn parted(&self, other: &Strand) -> Option<u64> {
        let shorter = if other.length > self.length {
            self
        } else {
            other
        };
        (self.thread != other.thread).then_some(shorter.closed)
    }

    /// The strand goes on, and `shorter` has ended at `end`. `since`: where they parted; `None` if they
    /// are not beside each other.
    #[inline]
    pub(crate) fn absorb(
        &mut self,
        memory: &mut Memory<'_>,
        shorter: Strand,
        end: Site,
        since: Option<u64>,
    ) {
        let slack = self.length - shorter.length;
        self.procedures.merge(&shorter.procedures, slack);
        if let Some(since) = since {
            self.compare(memory.settings, &shorter, end, since.min(shorter.length));
        } else if slack == 0 && self.near.branches().len() < shorter.near.branches().len() {
            // The same chain, by way of a barrier at which others arrived later.
            self.near = shorter.near.clone();
        }
        shorter.release(memory);
    }

    /// Remembers the branch `shorter` if it is nearly critical.
    #[inline]
    fn compare(&mut self, settings: &Settings, shorter: &Strand, end: Site, since: u64) {
        let slack = self.length - shorter.length;
        let time = shorter.length - since;
        if time < settings.near_least || !is_near(slack, time, settings.near) {
            return;
        }
        let branch = Near {
            begin: shorter.begin,
            end,
            thread: shorter.thread,
            time,
            slack,
            since,
        };
        if self.near.wants(&branch) {
            self.near.add(branch, &shorter.near, settings.near);
        }
    }

    /// The segments of the chain, the open one up to `end`.
    pub(crate) fn segments(&self, arena: &Arena, end: Site) -> Vec<Segment> {
        let mut segments = self.list.segments(arena);
        if self.length > self.closed || segments.is_empty() {
            segments.push(Segment {
                begin: self.begin,
                end,
                edge: self.edge,
                thread: Some(self.thread),
                time: self.length - self.closed,
                count: 1,
            });
        }
        segments
    }

    pub(crate) fn near(&self) -> &[Near] {
        self.near.branches()
    }
}
