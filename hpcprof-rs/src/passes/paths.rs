//! Third pass, part one: follows every record of a process to its root, through the trees of
//! other threads where an anchor says so, and yields for each record its context in both
//! projections and the overhead category that is in force there.
//!
//! Input may be damaged: a cycle of anchors, a missing tree or record ends in a partial root,
//! and no path is followed twice.

use crate::model::contexts::{Context, ContextIndex, ContextTree};
use crate::model::experiment::{DAMAGED_RECORD, EMPTY_PATH, MISSING_CONTEXT};
use crate::model::hash::FastMap;
use crate::model::runtimes::{Runtime, ThreadRoot};
use crate::model::symbols::{Frame, FrameIndex, Kind, Line, Procedure, Segment, Symbols, Text};
use crate::passes::loops::{LoopFinder, LoopState};
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::{Association, Profile, Record};
use hpc_formats::structure::Origin;
use std::collections::BTreeMap;

/// Why a path has no program entry: its name as a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartialCause {
    /// The profiler's.
    Recorded(LossCause),
    /// A record on the path is unreadable.
    DamagedRecord,
    /// An anchor leads nowhere.
    MissingContext,
    /// There is no frame at all.
    EmptyPath,
}

impl PartialCause {
    /// Stable name, as in the JSON views.
    pub fn name(self) -> &'static str {
        match self {
            PartialCause::Recorded(cause) => cause.name(),
            PartialCause::DamagedRecord => DAMAGED_RECORD,
            PartialCause::MissingContext => MISSING_CONTEXT,
            PartialCause::EmptyPath => EMPTY_PATH,
        }
    }
}

/// What is known at one record.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PathState {
    /// Context in the logical projection; `None` above the first frame.
    pub logical: Option<ContextIndex>,
    /// Context in the physical projection.
    pub physical: Option<ContextIndex>,
    /// Line of the innermost frame of the logical projection.
    pub logical_line: Option<Line>,
    /// Column of the call that this frame makes, or 0: [`Frame::column`].
    logical_column: u32,
    /// Line of the innermost frame of the physical projection.
    pub physical_line: Option<Line>,
    /// As the other column.
    physical_column: u32,
    /// Overhead category in force (ARCHITECTURE.md: terms).
    pub tag: Option<Text>,
    /// Set when the path does not reach the program's entry.
    pub partial: Option<PartialCause>,
    /// Set within a task whose spawner the task runtime does not tell: that runtime.
    pub spawnerless: Option<Runtime>,
    /// Whether the thread is a worker of such a runtime.
    thread: ThreadRoot,
    /// Where the logical path is with regard to parallel loops.
    pub parallel: LoopState,
}

impl PathState {
    /// Follows the path by a frame from the root of its thread: user code on a runtime's worker is a task
    /// whose caller is not known.
    fn enter_thread(&mut self, frame: &Frame, symbols: &Symbols) {
        let origin = |s: &Segment| symbols.procedures[s.procedure.0 as usize].origin;
        match self.thread {
            ThreadRoot::Above => {
                let first = frame.segments.iter().find(|s| origin(s) != Origin::System);
                self.thread = match first.map(|s| (Runtime::of(symbols, s.procedure), s.procedure))
                {
                    None => ThreadRoot::Above,
                    Some((None, _)) => ThreadRoot::Plain,
                    Some((Some(runtime), procedure)) => ThreadRoot::Worker(runtime, procedure),
                };
            }
            ThreadRoot::Worker(runtime, root) if self.spawnerless.is_none() => {
                let is_task = |s: &Segment| {
                    let of = Runtime::of(symbols, s.procedure);
                    let own = of == Some(runtime) && runtime != Runtime::OpenBlas;
                    s.procedure != root && !own && origin(s) == Origin::User
                };
                if frame.segments.iter().any(is_task) {
                    self.spawnerless = Some(runtime);
                }
            }
            ThreadRoot::Plain | ThreadRoot::Worker(..) => {}
        }
    }
}

/// Both projections of the experiment, being built.
pub struct Projections<'a> {
    /// Names and frames.
    pub symbols: &'a mut Symbols,
    /// Logical projection.
    pub logical: &'a mut ContextTree,
    /// Physical projection.
    pub physical: &'a mut ContextTree,
    /// Parallel loops of the logical projection.
    pub loops: &'a mut LoopFinder,
}

/// Frames of a process's code addresses.
pub type ProcessFrames = FastMap<u64, FrameIndex>;

#[derive(Clone, Copy, PartialEq)]
enum Slot {
    Unknown,
    Active,
    Known,
}

/// Where a record's outer part is.
enum Outer {
    /// It is a root.
    Root(PathState),
    /// It continues a record of the same or another thread.
    Continues(usize, usize),
}

/// The records of a process and their states as far as they are known.
pub struct PathResolver<'a> {
    profiles: Vec<Profile<'a>>,
    by_ordinal: BTreeMap<u32, usize>,
    slots: Vec<Vec<Slot>>,
    states: Vec<Vec<PathState>>,
    frames: &'a ProcessFrames,
}

impl<'a> PathResolver<'a> {
    /// Over the profiles of one process, each with its thread's ordinal.
    pub fn new(profiles: Vec<(u32, Profile<'a>)>, frames: &'a ProcessFrames) -> Self {
        let by_ordinal = profiles.iter().enumerate().map(|(i, p)| (p.0, i)).collect();
        let profiles: Vec<Profile<'a>> = profiles.into_iter().map(|p| p.1).collect();
        let slots = profiles.iter().map(|p| vec![Slot::Unknown; p.len()]);
        let states = profiles.iter().map(|p| vec![PathState::default(); p.len()]);
        PathResolver {
            by_ordinal,
            slots: slots.collect(),
            states: states.collect(),
            profiles,
            frames,
        }
    }

    /// The profiles, in the order given.
    pub fn profiles(&self) -> &[Profile<'a>] {
        &self.profiles
    }

    /// The state of a record that samples belong to.
    pub fn state(&mut self, thread: usize, record: u32, out: &mut Projections<'_>) -> PathState {
        let mut chain = vec![(thread, record as usize)];
        let mut state = loop {
            let (thread, record) = *chain.last().unwrap_or(&(thread, 0));
            match self.slots[thread].get(record) {
                None => {
                    chain.pop();
                    break partial(PartialCause::DamagedRecord, out);
                }
                Some(Slot::Known) => {
                    chain.pop();
                    break self.states[thread][record];
                }
                Some(Slot::Active) => {
                    // A cycle of anchors: cut it where it closes.
                    chain.pop();
                    break partial(PartialCause::MissingContext, out);
                }
                Some(Slot::Unknown) => {}
            }
            self.slots[thread][record] = Slot::Active;
            match self.outer(thread, record, out) {
                Outer::Root(state) => break state,
                Outer::Continues(thread, record) => chain.push((thread, record)),
            }
        };
        while let Some((thread, record)) = chain.pop() {
            if self.slots[thread][record] != Slot::Active {
                continue;
            }
            state = self.extend(state, thread, record, out);
            self.states[thread][record] = state;
            self.slots[thread][record] = Slot::Known;
        }
        state
    }

    fn outer(&self, thread: usize, record: usize, out: &mut Projections<'_>) -> Outer {
        match self.profiles[thread].record(record) {
            Some(Record::Note { parent, .. }) => Outer::Continues(thread, parent as usize),
            Some(Record::Anchor { thread, node }) => match self.by_ordinal.get(&thread) {
                Some(index) if (node as usize) < self.profiles[*index].len() && node != 0 => {
                    Outer::Continues(*index, node as usize)
                }
                _ => Outer::Root(partial(PartialCause::MissingContext, out)),
            },
            Some(Record::Entry) => Outer::Root(PathState::default()),
            Some(Record::Partial(cause)) => {
                Outer::Root(partial(PartialCause::Recorded(cause), out))
            }
            Some(Record::Root | Record::Metric { .. }) | None => {
                Outer::Root(partial(PartialCause::DamagedRecord, out))
            }
        }
    }

    /// The state of a record, given the state of what it continues.
    fn extend(
        &self,
        outer: PathState,
        thread: usize,
        record: usize,
        out: &mut Projections<'_>,
    ) -> PathState {
        let mut state = outer;
        match self.profiles[thread].record(record) {
            Some(Record::Note {
                association,
                ip,
                lip,
                ..
            }) => {
                // The scheduler of an uncooperative runtime, and what lies below it.
                let below = association == Association::ManyToZero;
                if below {
                    state.spawnerless = Some(Runtime::Rayon);
                }
                let (ip, lip) = (self.frame(ip), self.frame(lip));
                let symbols = &*out.symbols;
                if let Some(index) = ip {
                    let frame = &symbols.frames[index.0 as usize];
                    state.tag = tag_in_force(state.tag, frame);
                    let (parent, call) =
                        (state.physical, (state.physical_line, state.physical_column));
                    state.physical = push(out.physical, parent, call, frame, Support::No);
                    state.physical_line = frame.line;
                    state.physical_column = frame.column;
                }
                if let Some(index) = lip.or(ip) {
                    let frame = &symbols.frames[index.0 as usize];
                    state.enter_thread(frame, symbols);
                    let support = match (below, lip) {
                        (true, _) => Support::Whole,
                        (false, None) => Support::OwnCode(symbols),
                        (false, Some(_)) => Support::No,
                    };
                    let (parent, call) =
                        (state.logical, (state.logical_line, state.logical_column));
                    let outer = (parent, state.parallel);
                    state.logical = push(out.logical, parent, call, frame, support);
                    state.logical_line = frame.line;
                    state.logical_column = frame.column;
                    state.parallel = match below {
                        true => LoopState::default(),
                        false => enter_loops(outer, state.logical, index, out),
                    };
                }
            }
            // A thread's or a detached task's stack is not called by what created it.
            Some(Record::Anchor { .. }) => {
                state.tag = None;
                state.spawnerless = None;
                state.thread = ThreadRoot::Above;
                state.parallel = LoopState::default();
            }
            _ => {}
        }
        state
    }

    fn frame(&self, address: CodeAddress) -> Option<FrameIndex> {
        if address.is_none() {
            return None;
        }
        self.frames.get(&address.0).copied()
    }
}

/// The category in force within a frame, given the one in force at its call. A tagged
/// instruction covers what it calls in system code, but never a user's procedure.
fn tag_in_force(outer: Option<Text>, frame: &Frame) -> Option<Text> {
    match frame.tag {
        Some(tag) => Some(tag),
        None if frame.system => outer,
        None => None,
    }
}

/// What of a frame has no user-level frame.
#[derive(Clone, Copy)]
enum Support<'a> {
    /// Nothing.
    No,
    /// A runtime's own code; the user code that the compiler inlined into it is at user level.
    OwnCode(&'a Symbols),
    /// All of it.
    Whole,
}

impl Support<'_> {
    fn covers(self, segment: &Segment) -> bool {
        match self {
            Support::No => false,
            Support::Whole => true,
            Support::OwnCode(symbols) => {
                let origin = symbols.procedures[segment.procedure.0 as usize].origin;
                segment.kind == Kind::Procedure || origin != Origin::User
            }
        }
    }
}

/// Adds a frame below `parent`, called at this line and column.
fn push(
    tree: &mut ContextTree,
    parent: Option<ContextIndex>,
    call: (Option<Line>, u32),
    frame: &Frame,
    support: Support<'_>,
) -> Option<ContextIndex> {
    let mut at = parent;
    for segment in &frame.segments {
        let (site, column) = match segment.kind {
            Kind::Procedure => call,
            // Nobody calls a loop.
            Kind::Loop => (None, 0),
            _ => (segment.site, segment.column),
        };
        at = Some(tree.child(Context {
            parent: at,
            kind: segment.kind,
            procedure: segment.procedure,
            line: None,
            call: site,
            column,
            support: support.covers(segment),
        }));
    }
    at
}

/// Follows the contexts of one frame, from just below `outer` to `innermost`, through loops.
fn enter_loops(
    outer: (Option<ContextIndex>, LoopState),
    innermost: Option<ContextIndex>,
    frame: FrameIndex,
    out: &mut Projections<'_>,
) -> LoopState {
    let (above, mut state) = outer;
    let mut contexts = Vec::new();
    let mut next = innermost;
    while let Some(at) = next.filter(|_| next != above) {
        contexts.push(at);
        next = out.logical.contexts[at.0 as usize].parent;
    }
    for at in contexts.iter().rev() {
        state = out.loops.enter(state, out.symbols, out.logical, *at);
    }
    if let Some(outermost) = contexts.last() {
        out.loops.note_function(out.symbols, frame, *outermost);
    }
    state
}

/// The state right under the partial root of a cause.
pub fn partial(cause: PartialCause, out: &mut Projections<'_>) -> PathState {
    let name = out.symbols.intern(cause.name());
    let procedure = out.symbols.procedure(Procedure {
        name,
        module: None,
        declared: None,
        origin: Origin::User,
    });
    let root = Context {
        parent: None,
        kind: Kind::Partial,
        procedure,
        line: None,
        call: None,
        column: 0,
        support: false,
    };
    PathState {
        logical: Some(out.logical.child(root)),
        physical: Some(out.physical.child(root)),
        partial: Some(cause),
        ..PathState::default()
    }
}
