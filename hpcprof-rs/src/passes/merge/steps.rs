//! The steps of call paths that a worker has taken, each with the state that it leads to.
//!
//! The threads of a program take the same paths again and again. A step that was taken before is one look-up,
//! whatever scopes its frame has.

use crate::model::contexts::ContextIndex;
use crate::model::hash::{DenseSet, NumberedSet};
use crate::model::symbols::FrameIndex;
use crate::model::workers::Runtime;
use crate::passes::merge::paths::{PartialCause, PathState};
use hpc_formats::profile::Association;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StateId(pub u32);

/// One step of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    Entry,
    Partial(PartialCause),
    /// To the time of a thread without a place.
    Placeless {
        /// The thread's root.
        outer: StateId,
        cause: PartialCause,
    },
    /// Over an anchor, from the state of what it leads to.
    Anchor(StateId),
    /// Into a frame.
    Note {
        outer: StateId,
        /// The physical frame.
        ip: Option<FrameIndex>,
        /// The logical frame.
        lip: Option<FrameIndex>,
        kind: NoteKind,
    },
}

/// What the association of a note says of its frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NoteKind {
    Plain,
    /// It is the boundary of a task, and the notes further out are its spawner's.
    Boundary,
    /// It is the scheduler of a runtime that does not cooperate.
    Scheduler,
}

impl NoteKind {
    pub fn of(association: Association) -> NoteKind {
        match association {
            Association::OneToMany => NoteKind::Boundary,
            _ if Runtime::of_scheduler(association).is_some() => NoteKind::Scheduler,
            _ => NoteKind::Plain,
        }
    }
}

/// A step in twelve bytes.
type Key = [u32; 3];
const NONE: u32 = u32::MAX;
const ROOT: u32 = u32::MAX;
const ANCHOR: u32 = u32::MAX - 1;
const PLACELESS: u32 = u32::MAX - 2;
const FLAG: u32 = 1 << 31;

impl Step {
    fn key(self) -> Key {
        let frame = |frame: Option<FrameIndex>| frame.map_or(NONE >> 1, |f| f.0);
        match self {
            Step::Entry => [ROOT, 0, 0],
            Step::Partial(cause) => [ROOT, 1, cause.number()],
            Step::Placeless { outer, cause } => [outer.0, PLACELESS, cause.number()],
            Step::Anchor(outer) => [outer.0, ANCHOR, 0],
            Step::Note { outer, ip, lip, kind } => {
                let flag = |is: NoteKind| if kind == is { FLAG } else { 0 };
                let boundary = flag(NoteKind::Boundary);
                [outer.0, frame(ip) | boundary, frame(lip) | flag(NoteKind::Scheduler)]
            }
        }
    }
}

/// All steps and states of a worker.
#[derive(Default)]
pub struct Steps {
    numbers: DenseSet<Key>,
    /// By number: the contexts in both projections, or [`NONE`], and the index of the rest.
    states: Vec<([u32; 2], u32)>,
    /// The contexts that samples of a state belong to, in both projections; [`NONE`] until there are any.
    leaves: Vec<[u32; 2]>,
    /// What states are but for their contexts: many share it.
    rests: NumberedSet<PathState>,
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} steps", self.states.len())
    }
}

impl Steps {
    /// Where a step leads, if it was taken before.
    pub fn find(&self, step: Step) -> Option<StateId> {
        self.numbers.find(&step.key()).map(StateId)
    }

    /// Says where a step leads that was not taken before.
    pub fn add(&mut self, step: Step, state: &PathState) -> StateId {
        let mut rest = *state;
        let contexts = [&mut rest.logical, &mut rest.physical];
        let contexts = contexts.map(|of| of.context.take().map_or(NONE, |c| c.0));
        self.states.push((contexts, self.rests.insert_full(rest).0 as u32));
        StateId(self.numbers.insert(step.key()))
    }

    /// The contexts that samples of a state belong to, logical and physical, if they are known.
    pub fn leaf(&self, id: StateId) -> Option<[ContextIndex; 2]> {
        let leaf = self.leaves.get(id.0 as usize)?;
        (leaf[0] != NONE).then_some(leaf.map(ContextIndex))
    }

    pub fn set_leaf(&mut self, id: StateId, leaf: [ContextIndex; 2]) {
        if self.leaves.len() <= id.0 as usize {
            self.leaves.resize(self.states.len(), [NONE; 2]);
        }
        self.leaves[id.0 as usize] = leaf.map(|context| context.0);
    }

    /// What, beside the contexts, decides how the values of a state count.
    pub fn labels(&self, id: StateId) -> &PathState {
        &self.rests[self.states[id.0 as usize].1 as usize]
    }

    pub fn state(&self, id: StateId) -> PathState {
        let (contexts, _) = self.states[id.0 as usize];
        let mut state = *self.labels(id);
        [state.logical.context, state.physical.context] =
            contexts.map(|context| (context != NONE).then_some(ContextIndex(context)));
        state
    }
}
