//! What all parts of a system share: the pool, the queue of ready actors, the recorded paths, and the account
//! of what went wrong.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use hpcrun_api::{Edge, Strand};
use work_stealing_rt::ThreadPool;

use crate::graph::{Graph, Window};
use crate::names::{self, Entry, Groups, lock};
use crate::priority::Priority;
use crate::ready::{Ready, Turn};
use crate::strand::{self, Current, Tables};
use crate::table::{Ended, Path, What};
use crate::tuner::Tuner;

/// Why a program did not end as it should. All other actors have handled all their messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunError {
    /// Handlers that panicked, the first 100.
    pub panics: Vec<Panic>,
    /// How many more did.
    pub more_panics: u64,
    /// Circles of actors, each of which waited for room in the mailbox of the next; they are stopped.
    pub deadlocks: Vec<Vec<String>>,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DEADLOCK: &str = "deadlock, each waits for room in the next one's mailbox; enlarge one";
        let deadlock = |circle: &Vec<String>| format!("{DEADLOCK}: {}", circle.join(" -> "));
        let deadlocks = self.deadlocks.iter().map(deadlock);
        let panics = self.panics.iter().map(Panic::to_string);
        let more = (self.more_panics != 0).then(|| format!("{} more panics", self.more_panics));
        let all: Vec<String> = deadlocks.chain(panics).chain(more).collect();
        f.write_str(&all.join("; "))
    }
}

impl std::error::Error for RunError {}

/// A panic of a handler. The actor is stopped, all others go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// The actor.
    pub actor: String,
    /// The entry method.
    pub entry: String,
    /// What the panic said, if it was text.
    pub message: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Panic { actor, entry, message } = self;
        write!(f, "{actor} panicked in {entry}: {message}")
    }
}

/// Panics that are kept; further ones are counted.
const MOST_PANICS: usize = 100;

pub(crate) struct Shared {
    pub(crate) ready: Ready,
    pub(crate) tables: Tables,
    pub(crate) groups: Groups,
    pub(crate) tuner: Tuner,
    pool: ThreadPool,
    is_recording: AtomicBool,
    /// Length of all paths when the open phase began.
    base: AtomicU64,
    window: Mutex<Window>,
    actors: Mutex<Vec<Weak<dyn Turn>>>,
    /// Actors that others hold.
    pub(crate) held: AtomicUsize,
    pub(crate) undelivered: AtomicU64,
    /// What went wrong since a program ended.
    pub(crate) error: Mutex<RunError>,
    /// For the profiler's critical path: the begin of the last program, and the ends of all tasks.
    origin: Mutex<Option<Strand>>,
    ends: Mutex<Option<Strand>>,
}

impl Shared {
    pub(crate) fn new(pool: ThreadPool, tables: Tables, records: bool, tuner: Tuner) -> Arc<Self> {
        Arc::new(Shared {
            ready: Ready::new(pool.current_num_threads()),
            groups: Groups::default(),
            tuner,
            pool,
            is_recording: AtomicBool::new(records),
            base: AtomicU64::new(0),
            window: Mutex::new(Window::new(&tables, 0)),
            tables,
            actors: Mutex::default(),
            held: AtomicUsize::new(0),
            undelivered: AtomicU64::new(0),
            error: Mutex::default(),
            origin: Mutex::default(),
            ends: Mutex::default(),
        })
    }

    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.is_recording.load(Ordering::Relaxed)
    }

    /// The path of a message that is sent now.
    #[inline]
    pub(crate) fn path(&self) -> Path {
        match self.is_recording() {
            true => strand::path_or(&self.tables, self.base.load(Ordering::Relaxed)),
            false => Path::default(),
        }
    }

    /// The current task as far as it got, for whoever depends on it.
    #[inline]
    #[track_caller]
    pub(crate) fn here(&self) -> Ended {
        let ended = Ended(self.path(), Strand::copy());
        if ended.1.is_some() {
            strand::leave_out(&self.tables);
        }
        ended
    }

    /// What follows in the current task has waited for the end, or for a value, of another one.
    #[cold]
    #[track_caller]
    pub(crate) fn depend_on(&self, Ended(path, strand): Ended, edge: Edge) {
        if self.is_recording() {
            strand::merge(&self.tables, path);
        }
        if strand.is_some() {
            Strand::merge(strand, edge);
        }
    }

    /// A new actor.
    pub(crate) fn register(&self, actor: Weak<dyn Turn>) {
        let mut actors = lock(&self.actors);
        if actors.len() == actors.capacity() {
            actors.retain(|actor| actor.strong_count() != 0);
            let alive = actors.len();
            actors.reserve(alive.max(1024));
        }
        actors.push(actor);
    }

    /// Ends all actors, which may refer to each other for ever otherwise.
    pub(crate) fn stop_all(&self) {
        let all = std::mem::take(&mut *lock(&self.actors));
        let all = all.iter().filter_map(Weak::upgrade);
        all.for_each(|actor| actor.stop());
    }

    /// The actor has a message.
    #[inline]
    pub(crate) fn schedule(self: &Arc<Self>, actor: Arc<dyn Turn>, priority: Priority) {
        if self.ready.push(actor, priority) {
            self.start_helper();
        }
    }

    fn start_helper(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.apart(|| self.pool.spawn(move || this.help()));
    }

    /// For the profiler: what helpers do between tasks follows nothing but the program's begin, neither each
    /// other nor what they did before.
    fn apart<R>(&self, part: impl FnOnce() -> R) -> R {
        let is_active = hpcrun_api::is_active();
        let begin = is_active.then(|| lock(&self.origin).as_ref().and_then(Strand::share)).flatten();
        let left = begin.and_then(|begin| Strand::begin(Some(begin)));
        let result = part();
        drop(left.and_then(Strand::end));
        result
    }

    /// The body of a helper.
    fn help(self: Arc<Self>) {
        let (worker, is_nested) = (self.worker(), work_stealing_rt::is_nested());
        // Nobody sends while the only worker looks.
        let may_look = !is_nested && self.tables.of.len() > 1;
        strand::rest(&self.tables, worker);
        let mut next = self.ready.take(false);
        loop {
            while let Some(actor) = next {
                next = self.apart(|| {
                    actor.run(worker, is_nested);
                    if is_nested { None } else { self.ready.take(true) }
                });
                if is_nested {
                    return self.leave(1);
                }
            }
            strand::rest(&self.tables, worker);
            let found = work_stealing_rt::idle(|| self.ready.look(may_look));
            let Some((actor, more)) = found else {
                return;
            };
            if more {
                self.start_helper();
            }
            next = Some(actor);
        }
    }

    /// Runs one ready actor in the middle of a program; false if there is none.
    pub(crate) fn help_once(self: &Arc<Self>) -> bool {
        let actor = self.ready.take(false);
        let is_some = actor.map(|actor| actor.run(self.worker(), true)).is_some();
        if is_some {
            self.leave(0);
        }
        is_some
    }

    /// An actor has run, and so many helpers end.
    fn leave(self: &Arc<Self>, helpers: usize) {
        if self.ready.leave(helpers) {
            self.start_helper();
        }
    }

    fn worker(&self) -> usize {
        // Helpers and programs run on the pool's workers.
        self.pool.current_thread_index().unwrap_or(0)
    }

    /// Calls `program` on a worker as a task of its own; its panic resumes here.
    pub(crate) fn program<R: Send>(&self, program: impl FnOnce() -> R + Send) -> R {
        *lock(&self.origin) = Strand::copy();
        self.pool.install(|| {
            let worker = self.worker();
            strand::rest(&self.tables, worker);
            let is_recorded = self.is_recording();
            if is_recorded {
                let of: (u64, Entry) = (names::PROGRAM, || "program".to_owned());
                strand::begin(&self.tables, worker, of, &self.path(), &Path::default());
            }
            let outer = strand::replace(Current::Program);
            let result = catch_unwind(AssertUnwindSafe(program));
            strand::replace(outer);
            if is_recorded {
                strand::end(&self.tables);
            }
            result.unwrap_or_else(|payload| resume_unwind(payload))
        })
    }

    /// Whether the calling thread is one of the pool's workers.
    pub(crate) fn is_worker(&self) -> bool {
        self.pool.current_thread_index().is_some()
    }

    /// A phase begins after a path; `None`: after everything so far.
    pub(crate) fn begin_phase(&self, after: Option<Path>) {
        let mut window = lock(&self.window);
        // No path is longer than all work.
        let base = after.map_or_else(|| self.tables.sums()[0], |path| path.length);
        *window = Window::new(&self.tables, base);
        self.base.store(base, Ordering::Relaxed);
        self.is_recording.store(self.tuner.begin_phase(), Ordering::Relaxed);
    }

    /// The open phase has ended with a path, or with all.
    pub(crate) fn end_phase(&self, end: Option<Path>) {
        let (wall, [_, messages, _]) = self.so_far();
        let graph = || self.graph(end);
        let graph = self.is_recording().then_some(graph);
        self.tuner.end_phase(wall, messages, graph);
    }

    /// Since the open phase began: nanoseconds, and the sums of all workers; see [`Window`].
    pub(crate) fn so_far(&self) -> (u64, [u64; 3]) {
        let (window, now) = (lock(&self.window), self.tables.sums());
        let since = std::array::from_fn(|n| now[n].saturating_sub(window.sums[n]));
        (window.begun.elapsed().as_nanos() as u64, since)
    }

    /// The graph of the open phase up to now, or up to the calling thread's task.
    pub(crate) fn graph(&self, end: Option<Path>) -> Graph {
        Graph::new(&self.tables, &lock(&self.window), end)
    }

    /// The names of an actor and an entry method.
    pub(crate) fn name(&self, what: What) -> (String, String) {
        (self.groups.name(what.actor), names::of_entry(what.entry))
    }

    #[cold]
    pub(crate) fn note_panic(&self, actor: u64, entry: String, payload: Box<dyn Any + Send>) {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        // The payload's destructor might panic too.
        std::mem::forget(payload);
        let mut error = lock(&self.error);
        if error.panics.len() >= MOST_PANICS {
            error.more_panics += 1;
            return;
        }
        error.panics.push(Panic {
            actor: self.groups.name(actor),
            entry,
            message: text.unwrap_or("(not a text)".into()),
        });
    }

    /// A task has ended, for the profiler.
    pub(crate) fn add_end(&self, ended: &Strand) {
        let mut ends = lock(&self.ends);
        *ends = match (ends.take(), ended.share()) {
            (Some(one), Some(other)) => one.both(other),
            (one, other) => one.or(other),
        };
    }

    /// The caller has waited for all tasks.
    pub(crate) fn join_ends(&self) {
        if let Some(ends) = lock(&self.ends).take() {
            Strand::merge(Some(ends), Edge::Join);
        }
    }

    /// At quiescence: actors that wait for each other, in order, the first one again at the end. They are
    /// stopped. An actor is held only by one without room; that one is held too, or it would make room.
    pub(crate) fn break_deadlock(&self) -> Option<Vec<String>> {
        if self.held.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let all = lock(&self.actors).clone();
        let mut all = all.iter().filter_map(Weak::upgrade);
        let mut way = vec![all.find(|actor| actor.holder().is_some())?];
        let start = loop {
            let next = way.last()?.holder()?;
            let met = way.iter().position(|actor| actor.number() == next.number());
            way.push(next);
            if let Some(start) = met {
                break start;
            }
        };
        let circle = &way[start..];
        let names = circle.iter().map(|actor| self.groups.name(actor.number()));
        let names = names.collect();
        circle.iter().for_each(|actor| actor.stop());
        Some(names)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").finish_non_exhaustive()
    }
}
