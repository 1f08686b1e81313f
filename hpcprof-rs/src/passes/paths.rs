//! Third pass, part one: resolves records to contexts.
//!
//! Each record of a process is followed to its root, through the trees of other threads where an anchor says
//! so. The result is the record's context in both projections and the overhead category in force there.
//!
//! Input may be damaged: a cycle of anchors, a missing tree or a missing record ends in a partial root.
//! No path is followed twice.

use crate::model::contexts::{Context, ContextIndex, ContextTree};
use crate::model::hash::FastMap;
use crate::model::runtimes::{Runtime, ThreadRoot};
use crate::model::symbols::{Frame, FrameIndex, Kind, Line, Procedure, Scope, Symbols, Text};
use crate::passes::parallel_loops::recognise::{LoopFinder, LoopState};
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::{Association, Profile, Record};
use hpc_formats::structure::Origin;
use std::collections::BTreeMap;

/// Why a path has no program entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartialCause {
    /// The profiler's.
    Recorded(LossCause),
    /// A record on the path is unreadable.
    DamagedRecord,
    /// An anchor leads to a profile or a record that is missing.
    MissingContext,
    /// There is no frame at all.
    EmptyPath,
}

impl PartialCause {
    /// Stable name, as in the JSON views.
    pub fn name(self) -> &'static str {
        match self {
            PartialCause::Recorded(cause) => cause.name(),
            PartialCause::DamagedRecord => "partial:damaged-record",
            PartialCause::MissingContext => "partial:missing-context",
            PartialCause::EmptyPath => "partial:empty-path",
        }
    }
}

/// The innermost frame of a path in one projection.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Innermost {
    /// Its innermost context; `None` above the first frame.
    pub context: Option<ContextIndex>,
    /// Its line.
    pub line: Option<Line>,
    /// [`Frame::column`].
    column: u32,
}

impl Innermost {
    /// Adds a frame that is called from here.
    fn push(&mut self, tree: &mut ContextTree, frame: &Frame, runtime: RuntimePart<'_>) {
        for scope in &frame.scopes {
            let (call, column) = match scope.kind {
                Kind::Procedure => (self.line, self.column),
                // Nobody calls a loop.
                Kind::Loop => (None, 0),
                _ => (scope.call, scope.column),
            };
            self.context = Some(tree.child(Context {
                parent: self.context,
                kind: scope.kind,
                procedure: scope.procedure,
                line: None,
                call,
                column,
                is_runtime: runtime.covers(scope),
            }));
        }
        self.line = frame.line;
        self.column = frame.column;
    }
}

/// Which scopes of a frame have no user-level frame.
#[derive(Clone, Copy)]
enum RuntimePart<'a> {
    /// None.
    Nothing,
    /// A runtime's own code. User code that the compiler inlined into it is at user level.
    OwnCode(&'a Symbols),
    /// All.
    Whole,
}

impl RuntimePart<'_> {
    fn covers(self, scope: &Scope) -> bool {
        match self {
            RuntimePart::Nothing => false,
            RuntimePart::Whole => true,
            RuntimePart::OwnCode(symbols) => {
                let origin = symbols.procedure(scope.procedure).origin;
                scope.kind == Kind::Procedure || origin != Origin::User
            }
        }
    }
}

/// What is known at one record.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PathState {
    /// In the logical projection.
    pub logical: Innermost,
    /// In the physical projection.
    pub physical: Innermost,
    /// Overhead category in force (ARCHITECTURE.md: terms).
    pub tag: Option<Text>,
    /// Set when the path does not reach the program's entry.
    pub partial: Option<PartialCause>,
    /// Set within a task whose caller is unknown: the runtime that does not tell it.
    pub unknown_caller: Option<Runtime>,
    /// Whether the thread is a worker of such a runtime.
    thread: ThreadRoot,
    /// Parallel loops of the logical projection.
    parallel: LoopState,
}

impl PathState {
    /// Follows a frame of the thread's own stack: user code on a runtime's worker is a task whose caller is
    /// not known.
    fn enter_thread(&mut self, frame: &Frame, symbols: &Symbols) {
        let origin = |s: &Scope| symbols.procedure(s.procedure).origin;
        match self.thread {
            ThreadRoot::Above => {
                let first = frame.scopes.iter().find(|s| origin(s) != Origin::System);
                if let Some(procedure) = first.map(|s| s.procedure) {
                    self.thread = match Runtime::of(symbols, procedure) {
                        Some(runtime) => ThreadRoot::Worker(runtime, procedure),
                        None => ThreadRoot::Plain,
                    };
                }
            }
            ThreadRoot::Worker(runtime, root) if self.unknown_caller.is_none() => {
                let is_task = |s: &Scope| {
                    let is_own = Runtime::of(symbols, s.procedure) == Some(runtime);
                    s.procedure != root
                        && !(is_own && runtime.is_told_by_module())
                        && origin(s) == Origin::User
                };
                if frame.scopes.iter().any(is_task) {
                    self.unknown_caller = Some(runtime);
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
        match self.profiles[thread].record(record) {
            Some(Record::Note {
                association,
                ip,
                lip,
                ..
            }) => self.extend_by_note(outer, association, (ip, lip), out),
            // What created a thread or a detached task does not call it.
            Some(Record::Anchor { .. }) => PathState {
                tag: None,
                unknown_caller: None,
                thread: ThreadRoot::Above,
                parallel: LoopState::default(),
                ..outer
            },
            _ => outer,
        }
    }

    fn extend_by_note(
        &self,
        outer: PathState,
        association: Association,
        (ip, lip): (CodeAddress, CodeAddress),
        out: &mut Projections<'_>,
    ) -> PathState {
        let mut state = outer;
        let scheduler = Runtime::of_scheduler(association);
        state.unknown_caller = scheduler.or(state.unknown_caller);
        let symbols = &*out.symbols;
        let (ip, lip) = (self.frame(ip), self.frame(lip));
        if let Some(index) = ip {
            let frame = symbols.frame(index);
            state.tag = tag_in_force(state.tag, frame);
            state
                .physical
                .push(out.physical, frame, RuntimePart::Nothing);
        }
        if let Some(index) = lip.or(ip) {
            let frame = symbols.frame(index);
            state.enter_thread(frame, symbols);
            let runtime = match (scheduler, lip) {
                (Some(_), _) => RuntimePart::Whole,
                (None, None) => RuntimePart::OwnCode(symbols),
                (None, Some(_)) => RuntimePart::Nothing,
            };
            state.logical.push(out.logical, frame, runtime);
            let path = (outer.logical.context, state.logical.context);
            state.parallel = match scheduler {
                Some(_) => LoopState::default(),
                None => {
                    let loops = &mut out.loops;
                    loops.enter_frame(outer.parallel, index, path, symbols, out.logical)
                }
            };
        }
        state
    }

    fn frame(&self, address: CodeAddress) -> Option<FrameIndex> {
        self.frames.get(&address.0).copied()
    }
}

/// The category in force within a frame, given the one in force at its call. A tagged
/// instruction covers what it calls in system code, but never a user's procedure.
fn tag_in_force(outer: Option<Text>, frame: &Frame) -> Option<Text> {
    frame.tag.or(outer.filter(|_| frame.is_system))
}

/// The state right under the partial root of a cause.
pub fn partial(cause: PartialCause, out: &mut Projections<'_>) -> PathState {
    let name = out.symbols.intern(cause.name());
    let procedure = out.symbols.add_procedure(Procedure {
        name,
        module: None,
        declared: None,
        origin: Origin::User,
    });
    let root = |tree: &mut ContextTree| Innermost {
        context: Some(tree.child(Context {
            parent: None,
            kind: Kind::Partial,
            procedure,
            line: None,
            call: None,
            column: 0,
            is_runtime: false,
        })),
        ..Innermost::default()
    };
    PathState {
        logical: root(out.logical),
        physical: root(out.physical),
        partial: Some(cause),
        ..PathState::default()
    }
}
