//! Third pass, part one: resolves records to contexts.
//!
//! Each record of a thread is followed to its root, and through the trees of other threads where an anchor
//! says so. The result is the record's context in both projections and the overhead category in force there.
//!
//! Input may be damaged: a cycle of anchors, a missing tree or a missing record ends in a partial root. No
//! path of a thread is followed twice, nor one of another thread, unless it leads into a cycle.

use crate::model::contexts::{ContextIndex, ContextTree, Part, Scope};
use crate::model::hash::FastMap;
use crate::model::symbols::{
    Frame, FrameIndex, FrameScope, Kind, Line, Procedure, ProcedureIndex, Symbols, Text,
};
use crate::model::workers::{Runtime, ThreadRoot};
use crate::passes::merge::steps::{NoteKind, StateId, Step, Steps};
use crate::passes::parallel_loops::recognise::{LoopFinder, LoopState};
use crate::sources::measurements::ProcessInput;
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::{Association, Profile, Record};
use hpc_formats::structure::Origin;

/// Why a path has no program entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PartialCause {
    /// The profiler's.
    Recorded(LossCause),
    DamagedRecord,
    /// An anchor leads to a profile or a record that is missing.
    MissingContext,
    /// There is no frame at all.
    EmptyPath,
}

impl PartialCause {
    /// A number that no other cause has.
    pub(super) fn number(self) -> u32 {
        match self {
            PartialCause::Recorded(cause) => cause as u32,
            PartialCause::DamagedRecord => 1 << 8,
            PartialCause::MissingContext => 2 << 8,
            PartialCause::EmptyPath => 3 << 8,
        }
    }

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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Innermost {
    /// Its innermost context; `None` above the first frame.
    pub context: Option<ContextIndex>,
    pub line: Option<Line>,
    /// [`Frame::column`].
    pub(super) column: u32,
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
            let scope = Scope {
                kind: scope.kind,
                procedure: scope.procedure,
                line: None,
                call,
                column,
                is_runtime: runtime.covers(scope),
            };
            self.context = Some(tree.child(self.context, scope));
        }
        self.line = frame.line;
        self.column = frame.column;
    }

    /// The context of its line; its own where no line is known.
    fn with_line(self, tree: &mut ContextTree) -> Option<ContextIndex> {
        let context = self.context?;
        if self.line.is_none() {
            return Some(context);
        }
        let line = Scope {
            kind: Kind::Line,
            procedure: tree.scope(context).procedure,
            line: self.line,
            call: None,
            column: 0,
            is_runtime: false,
        };
        Some(tree.child(Some(context), line))
    }
}

/// Which scopes of a frame have no user-level frame.
#[derive(Clone, Copy)]
enum RuntimePart<'a> {
    Nothing,
    /// A runtime's own code. User code that the compiler inlined into it is at user level.
    OwnCode(&'a Symbols),
    Whole,
}

impl RuntimePart<'_> {
    fn covers(self, scope: &FrameScope) -> bool {
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PathState {
    pub logical: Innermost,
    pub physical: Innermost,
    /// Overhead category in force (ARCHITECTURE.md: terms).
    pub tag: Option<Text>,
    /// Set when the path does not reach the program's entry.
    pub partial: Option<PartialCause>,
    /// Set within a task whose caller is unknown: the runtime that does not tell it.
    pub unknown_caller: Option<Runtime>,
    /// Whether the thread is a worker of such a runtime.
    pub(super) thread: ThreadRoot,
    /// Parallel loops of the logical projection.
    pub(super) parallel: LoopState,
    /// What is further in belongs to this region or task of OpenMP, which has no context yet.
    pub(super) directive: Option<ProcedureIndex>,
}

impl PathState {
    /// Follows a frame of the thread's own stack: user code on a runtime's worker is a task whose caller is
    /// not known.
    fn enter_thread(&mut self, frame: &Frame, symbols: &Symbols) {
        let origin = |s: &FrameScope| symbols.procedure(s.procedure).origin;
        match self.thread {
            ThreadRoot::Above => {
                let first = frame.scopes.iter().find(|s| origin(s) != Origin::System);
                if let Some(procedure) = first.map(|s| s.procedure) {
                    self.thread = Runtime::of(symbols, procedure)
                        .map_or(ThreadRoot::Plain, |runtime| ThreadRoot::Worker(runtime, procedure));
                }
            }
            ThreadRoot::Worker(runtime, root) if self.unknown_caller.is_none() => {
                let is_task = |s: &FrameScope| {
                    s.procedure != root && origin(s) == Origin::User && !runtime.has(symbols, s.procedure)
                };
                if frame.scopes.iter().any(is_task) {
                    self.unknown_caller = Some(runtime);
                }
            }
            ThreadRoot::Plain | ThreadRoot::Worker(..) => {}
        }
    }
}

/// Both projections, being built.
pub struct Projections<'a> {
    pub symbols: &'a Symbols,
    pub contexts: &'a mut ContextTree,
    /// Parallel loops of the logical projection.
    pub loops: &'a mut LoopFinder,
}

/// Frames of a process's code addresses.
pub type ProcessFrames = FastMap<u64, FrameIndex>;

/// The state at contexts of other threads that anchors lead to, by ordinal and record; `None` while it is
/// being resolved. It holds for one process and one pair of trees.
pub type Anchored = FastMap<(u32, u32), Option<StateId>>;

/// A piece of a path: notes of one thread, with what it hangs on.
struct Piece {
    /// The thread's ordinal and the innermost record.
    key: (u32, u32),
    /// Innermost first.
    notes: Vec<Note>,
}

/// A note's association, physical and logical address.
type Note = (Association, CodeAddress, CodeAddress);

/// What the outermost record of a piece is.
enum Outer {
    /// The program's entry, or a partial root.
    Step(Step),
    /// A context of another thread.
    Anchor(u32, u32),
}

/// The records of a thread and their states as far as they are known.
pub struct PathResolver<'a> {
    profile: &'a Profile<'a>,
    states: Vec<Option<StateId>>,
    /// Records between the one asked for and the nearest one that is known.
    chain: Vec<usize>,
    frames: &'a ProcessFrames,
    process: &'a ProcessInput,
    anchored: &'a mut Anchored,
    steps: &'a mut Steps,
}

impl<'a> PathResolver<'a> {
    /// Over the profile of a thread of `process`.
    pub fn new(
        profile: &'a Profile<'a>,
        process: &'a ProcessInput,
        frames: &'a ProcessFrames,
        (anchored, steps): (&'a mut Anchored, &'a mut Steps),
    ) -> Self {
        PathResolver {
            states: vec![None; profile.len()],
            chain: Vec::new(),
            profile,
            frames,
            process,
            anchored,
            steps,
        }
    }

    /// The state of a record that samples belong to.
    pub fn state(&mut self, record: u32, out: &mut Projections<'_>) -> StateId {
        self.chain.clear();
        let mut record = record as usize;
        let mut state = loop {
            match self.states.get(record) {
                None => break self.take(Step::Partial(PartialCause::DamagedRecord), out),
                Some(Some(known)) => break *known,
                Some(None) => self.chain.push(record),
            }
            // A parent has a smaller index, so this ends.
            // Time without a place hangs on its thread's root.
            if let Some(Record::Partial { parent: parent @ 1.., .. }) = self.profile.record(record) {
                record = parent as usize;
                continue;
            }
            match around(self.profile, record) {
                Ok((_, parent)) => record = parent,
                Err(Outer::Anchor(thread, node)) => break self.follow((thread, node), out),
                Err(Outer::Step(step)) => break self.take(step, out),
            }
        };
        while let Some(record) = self.chain.pop() {
            match self.profile.record(record) {
                Some(Record::Note { association, ip, lip, .. }) => {
                    state = self.enter(state, (association, ip, lip), out);
                }
                Some(Record::Partial { parent: 1.., cause }) => {
                    let cause = PartialCause::Recorded(cause);
                    state = self.take(Step::Placeless { outer: state, cause }, out);
                }
                _ => {}
            }
            self.states[record] = Some(state);
        }
        state
    }

    /// The contexts that samples of a state belong to, logical and physical; `None` if there is no frame.
    pub fn leaf(&mut self, state: StateId, out: &mut Projections<'_>) -> Option<[ContextIndex; 2]> {
        if let Some(known) = self.steps.leaf(state) {
            return Some(known);
        }
        let PathState { logical, physical, .. } = self.steps.state(state);
        let contexts = &mut *out.contexts;
        let own = logical.with_line(contexts)?;
        let machine = match logical == physical {
            true => own,
            false => physical.with_line(contexts)?,
        };
        out.contexts.mark_sampled(own, Part::Logical);
        out.contexts.mark_sampled(machine, Part::Physical);
        self.steps.set_leaf(state, [own, machine]);
        Some([own, machine])
    }

    /// The state of a path without frames.
    pub fn empty(&mut self, out: &mut Projections<'_>) -> StateId {
        self.take(Step::Partial(PartialCause::EmptyPath), out)
    }

    /// What counts for the values of a state.
    pub fn labels(&self, state: StateId) -> &PathState {
        self.steps.labels(state)
    }

    /// Takes a step, which may have been taken before.
    fn take(&mut self, step: Step, out: &mut Projections<'_>) -> StateId {
        if let Some(known) = self.steps.find(step) {
            return known;
        }
        let state = match step {
            Step::Entry => PathState::default(),
            Step::Partial(cause) => partial(None, cause, out),
            Step::Placeless { outer, cause } => partial(self.steps.state(outer).logical.context, cause, out),
            Step::Anchor(outer) => below_anchor(self.steps.state(outer)),
            Step::Note { outer, ip, lip, kind } => extend(self.steps.state(outer), (ip, lip), kind, out),
        };
        self.steps.add(step, &state)
    }

    fn enter(&mut self, outer: StateId, note: Note, out: &mut Projections<'_>) -> StateId {
        let (association, ip, lip) = note;
        let frame_of = |address: CodeAddress| self.frames.get(&address.0).copied();
        let physical = frame_of(ip);
        let step = Step::Note {
            outer,
            ip: physical,
            lip: if lip == ip { physical } else { frame_of(lip) },
            kind: NoteKind::of(association),
        };
        self.take(step, out)
    }

    /// The state below an anchor to a context of any thread.
    fn follow(&mut self, target: (u32, u32), out: &mut Projections<'_>) -> StateId {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut buffer = Vec::new();
        let mut next = target;
        let mut is_cut = false;
        let mut state = loop {
            match self.anchored.get(&next) {
                Some(Some(known)) => break *known,
                Some(None) => {
                    // A cycle of anchors: cut it where it closes.
                    is_cut = true;
                    break self.take(Step::Partial(PartialCause::MissingContext), out);
                }
                None => {}
            }
            let Some((piece, outer)) = self.piece(next, &mut buffer) else {
                break self.take(Step::Partial(PartialCause::MissingContext), out);
            };
            self.anchored.insert(next, None);
            pieces.push(piece);
            match outer {
                Outer::Step(step) => break self.take(step, out),
                Outer::Anchor(thread, node) => next = (thread, node),
            }
        };
        // The outermost piece hangs on an entry or a partial root, each other one on an anchor.
        let mut hangs_on_anchor = pieces.last().is_none_or(|p| p.key != next) || is_cut;
        while let Some(piece) = pieces.pop() {
            if hangs_on_anchor {
                state = self.take(Step::Anchor(state), out);
            }
            for note in piece.notes.iter().rev() {
                state = self.enter(state, *note, out);
            }
            match is_cut {
                // Where a cycle is cut depends on where it was entered.
                true => self.anchored.remove(&piece.key),
                false => self.anchored.insert(piece.key, Some(state)),
            };
            hangs_on_anchor = true;
        }
        self.take(Step::Anchor(state), out)
    }

    /// The notes from a record of a thread to its root; `None` where there is no such record.
    fn piece(&self, key: (u32, u32), buffer: &mut Vec<u8>) -> Option<(Piece, Outer)> {
        let thread = self.process.threads.get(&key.0)?;
        let profile = thread.read(buffer).ok()?;
        let mut at = key.1 as usize;
        if at == 0 || at >= profile.len() {
            return None;
        }
        let mut notes = Vec::new();
        let outer = loop {
            match around(&profile, at) {
                Ok((note, parent)) => {
                    notes.push(note);
                    at = parent;
                }
                Err(outer) => break outer,
            }
        };
        Some((Piece { key, notes }, outer))
    }
}

/// The note of a record, with the record around it; of an outermost one what it is.
fn around(profile: &Profile<'_>, record: usize) -> Result<(Note, usize), Outer> {
    Err(Outer::Step(match profile.record(record) {
        Some(Record::Note { parent, association, ip, lip, .. }) => {
            return Ok(((association, ip, lip), parent as usize));
        }
        Some(Record::Anchor { thread, node }) => return Err(Outer::Anchor(thread, node)),
        Some(Record::Entry) => Step::Entry,
        Some(Record::Partial { cause, .. }) => Step::Partial(PartialCause::Recorded(cause)),
        Some(Record::Root | Record::Metric { .. }) | None => Step::Partial(PartialCause::DamagedRecord),
    }))
}

/// What created a thread or a detached task does not call it.
fn below_anchor(outer: PathState) -> PathState {
    PathState {
        tag: None,
        unknown_caller: None,
        thread: ThreadRoot::Above,
        parallel: outer.parallel.of_task(),
        ..outer
    }
}

/// The state in a frame that is called in the state `outer`.
fn extend(
    outer: PathState,
    (ip, lip): (Option<FrameIndex>, Option<FrameIndex>),
    kind: NoteKind,
    out: &mut Projections<'_>,
) -> PathState {
    let outer = enter_directive(outer, out);
    let mut state = outer;
    let symbols = out.symbols;
    let is_scheduler = kind == NoteKind::Scheduler;
    if is_scheduler {
        state.unknown_caller = Runtime::of_scheduler(Association::ManyToZero);
    }
    if let Some(index) = ip {
        state.tag = tag_in_force(state.tag, symbols.frame(index));
    }
    if let Some(index) = lip.or(ip) {
        let frame = symbols.frame(index);
        match (kind, lip) {
            // What is further out is the context in which the task was made, not the thread's root.
            (NoteKind::Boundary, None) => state.thread = ThreadRoot::Plain,
            _ => state.enter_thread(frame, symbols),
        }
        let runtime = match (is_scheduler, lip) {
            (true, _) => RuntimePart::Whole,
            (false, None) => RuntimePart::OwnCode(symbols),
            (false, Some(_)) => RuntimePart::Nothing,
        };
        state.logical.push(out.contexts, frame, runtime);
        state.directive = frame.directive;
        let path = (outer.logical.context, state.logical.context);
        state.parallel = match is_scheduler {
            true => LoopState::default(),
            false => {
                let loops = &mut out.loops;
                loops.enter_frame(outer.parallel, index, path, symbols, out.contexts)
            }
        };
    }
    if let Some(index) = ip {
        let frame = symbols.frame(index);
        let runs_there = lip.is_some() && !is_scheduler;
        if runs_there && lip == ip && outer.physical == outer.logical {
            state.physical = state.logical;
        } else {
            state.physical.push(out.contexts, frame, RuntimePart::Nothing);
        }
    }
    state
}

/// The state within the region or task of OpenMP that the innermost frame calls: its body may have no frame,
/// and the runtime's frames around it are none of the user's.
fn enter_directive(outer: PathState, out: &mut Projections<'_>) -> PathState {
    let Some(procedure) = outer.directive else { return outer };
    let scope = Scope {
        kind: Kind::Procedure,
        procedure,
        line: None,
        call: outer.logical.line,
        column: outer.logical.column,
        is_runtime: false,
    };
    let context = out.contexts.child(outer.logical.context, scope);
    let parallel = out.loops.enter_directive(context, out.contexts);
    let logical = Innermost { context: Some(context), ..Innermost::default() };
    PathState { logical, parallel, directive: None, ..outer }
}

/// The category in force within a frame, given the one in force at its call. A tagged
/// instruction covers what it calls in system code, but never a user's procedure.
fn tag_in_force(outer: Option<Text>, frame: &Frame) -> Option<Text> {
    frame.tag.or(outer.filter(|_| frame.is_system))
}

/// Adds the names of all partial roots, so that [`partial`] finds them.
pub fn add_partial_roots(symbols: &mut Symbols) {
    let recorded = LossCause::ALL.into_iter().map(PartialCause::Recorded);
    let found = [PartialCause::DamagedRecord, PartialCause::MissingContext, PartialCause::EmptyPath];
    for cause in recorded.chain(found) {
        let procedure = partial_root(symbols.intern(cause.name()));
        symbols.add_procedure(procedure);
    }
}

fn partial_root(name: Text) -> Procedure {
    Procedure { name, module: None, declared: None, origin: Origin::User, position: 0 }
}

/// The state right under the partial root of a cause, or under that of time without a place.
pub fn partial(above: Option<ContextIndex>, cause: PartialCause, out: &mut Projections<'_>) -> PathState {
    let name = out.symbols.find_text(cause.name()).map(partial_root);
    let Some(procedure) = name.and_then(|root| out.symbols.find_procedure(&root)) else {
        return PathState::default();
    };
    let scope =
        Scope { kind: Kind::Partial, procedure, line: None, call: None, column: 0, is_runtime: false };
    let root = Innermost { context: Some(out.contexts.child(above, scope)), ..Innermost::default() };
    PathState { logical: root, physical: root, partial: Some(cause), ..PathState::default() }
}
