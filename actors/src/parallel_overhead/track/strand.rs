//! What the calling thread does now, and how long its path is.
//!
//! One duty: keep what handlers and programs the thread is in, and measure their tasks by the thread's clock.
//! A task begins at the greatest of the paths that lead to it; a part ends at each message that the task
//! sends and at its end. One reading of the clock serves the end of a task and the begin of the next one, so
//! the way through the scheduler belongs to the task that it leads to.
//!
//! Paths are handed on in registers, never as a part of a larger value: a processor waits long for a value
//! that was stored in halves and is loaded at once.
//!
//! A task that waits inside of its handler (a fork of work-stealing-rt) may run others on top of its stack:
//! they are tasks of their own, and the outer one's time stands still.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use critical_path::{Clock, Edge, ThreadClock};

use crate::names::{self, Entry};
use crate::ready::Turn;
use crate::table::{Part, Path, Reference, Table};

/// Makes a worker's clock.
pub(crate) type NewClock = dyn Fn() -> Box<dyn Clock> + Send + Sync;

/// What a system's workers share for their paths.
pub(crate) struct Tables {
    /// One for each worker.
    pub(crate) of: Box<[Table]>,
    /// Whether an actor's tasks depend on each other in the order in which they ran.
    pub(crate) actor_order: bool,
    /// `None`: [`ThreadClock`].
    pub(crate) clock: Option<Arc<NewClock>>,
}

impl Tables {
    /// Of all workers: work, messages, readings of the system's clock.
    pub(crate) fn sums(&self) -> [u64; 3] {
        let sum = |of: fn(&Table) -> &AtomicU64| -> u64 {
            let each = self.of.iter().map(of);
            each.map(|n| n.load(Ordering::Relaxed)).sum()
        };
        [sum(|t| &t.work), sum(|t| &t.messages), sum(|t| &t.resyncs)]
    }
}

/// What a thread runs for actors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Current {
    /// Nothing: a sender may block it.
    Other,
    /// A program on a worker: a sender may run handlers meanwhile.
    Program,
    /// A handler: its sender must not wait here.
    Handler,
    /// The same, and receivers had no room for what it sent: those from this place of [`FULL`] on.
    Full(u32),
}

#[derive(Clone, Copy)]
struct Task {
    /// The address of its system's [`Tables`]; 0: there is no task.
    tables: usize,
    worker: usize,
    /// The part that is open, with its time until the task went on after others.
    open: Part,
    /// The clock when the part began or went on. Without a task: what the next one begins with.
    since: u64,
}

/// [`Task::since`] if the next task does not follow the last one at once.
const UNKNOWN: u64 = u64::MAX;

enum Timer {
    Cpu(ThreadClock),
    Other(Box<dyn Clock>),
}

struct Thread {
    clock: Timer,
    task: Task,
    /// Those below it on the stack.
    outer: Vec<Task>,
}

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(Current::Other) };
    /// Receivers without room: those of inner handlers follow those of outer ones.
    static FULL: RefCell<Vec<Arc<dyn Turn>>> = const { RefCell::new(Vec::new()) };
    /// Taken within this module only, where no foreign code but a clock is called.
    static THREAD: Cell<Option<Box<Thread>>> = const { Cell::new(None) };
}

/// Calls the closure for the calling thread.
#[inline(always)]
fn with<R>(tables: &Tables, closure: impl FnOnce(&mut Thread) -> R) -> R {
    let known = THREAD.with(Cell::take);
    let mut thread = known.unwrap_or_else(|| Thread::new(tables));
    let result = closure(&mut thread);
    THREAD.with(|place| place.set(Some(thread)));
    result
}

impl Thread {
    #[cold]
    fn new(tables: &Tables) -> Box<Self> {
        let task = Task { tables: 0, worker: 0, open: Part::default(), since: UNKNOWN };
        Box::new(Thread {
            clock: match &tables.clock {
                None => Timer::Cpu(ThreadClock::new()),
                Some(new) => Timer::Other(new()),
            },
            task,
            outer: Vec::new(),
        })
    }

    #[inline]
    fn read(&mut self) -> u64 {
        match &mut self.clock {
            Timer::Cpu(clock) => clock.now(),
            Timer::Other(clock) => clock.now(),
        }
    }

    /// Ends the open part of the current task, and begins the next one.
    #[inline]
    fn cut(&mut self, tables: &Tables) -> Path {
        let now = self.read();
        let task = &mut self.task;
        let open = &mut task.open;
        open.time += now - task.since;
        task.since = now;
        let path = tables.of[task.worker].push(open);
        (open.begin, open.time) = (path, 0);
        (open.other, open.edge) = (Reference::default(), None);
        path
    }
}

/// A task of an actor begins on the calling thread, which is this worker's: after its message, and after the
/// actor's last task.
pub(crate) fn begin(
    tables: &Tables,
    worker: usize,
    (actor, entry): (u64, Entry),
    message: &Path,
    last: &Path,
) {
    with(tables, |thread| {
        let is_nested = thread.task.tables != 0;
        if is_nested || thread.task.since == UNKNOWN {
            let now = thread.read();
            if is_nested {
                thread.task.open.time += now - thread.task.since;
                thread.outer.push(thread.task);
            }
            thread.task.since = now;
        }
        let is_first = tables.actor_order && last.length > message.length;
        let (begin, other, edge) = match is_first {
            true => (last, message.from, Edge::Lock),
            false if tables.actor_order => (message, last.from, Edge::Message),
            false => (message, Reference::default(), Edge::Message),
        };
        let task = &mut thread.task;
        (task.tables, task.worker) = (std::ptr::from_ref(tables).addr(), worker);
        (task.open.begin, task.open.time) = (*begin, 0);
        (task.open.other, task.open.edge) = (other, Some(edge));
        task.open.what.entry = names::number(entry);
        task.open.what.actor = actor;
    });
}

/// It ends. Returns its path.
pub(crate) fn end(tables: &Tables) -> Path {
    with(tables, |thread| {
        let path = thread.cut(tables);
        thread.task.tables = 0;
        if let Some(outer) = thread.outer.pop() {
            let since = thread.read();
            thread.task = Task { since, ..outer };
        }
        path
    })
}

/// What the calling worker does next does not follow the last task at once.
pub(crate) fn rest(tables: &Tables, worker: usize) {
    with(tables, |thread| {
        if thread.task.tables == 0 {
            thread.task.since = UNKNOWN;
        }
        if let Timer::Cpu(clock) = &thread.clock {
            let resyncs = &tables.of[worker].resyncs;
            resyncs.store(clock.resyncs(), Ordering::Relaxed);
        }
    });
}

/// The path up to here; outside of the system's recorded tasks, one of this length.
pub(crate) fn path_or(tables: &Tables, length: u64) -> Path {
    let from = Reference::default();
    with(tables, |thread| match thread.task.tables == std::ptr::from_ref(tables).addr() {
        true => thread.cut(tables),
        false => Path { length, from },
    })
}

/// The path up to here; `None` outside of the system's recorded tasks.
pub(crate) fn path(tables: &Tables) -> Option<Path> {
    Some(path_or(tables, 0)).filter(|path| path.from != Reference::default())
}

/// What the calling thread has done since the current task's last part was the profiler's work.
#[cold]
pub(crate) fn leave_out(tables: &Tables) {
    with(tables, |thread| {
        if thread.task.tables != 0 {
            thread.task.since = thread.read();
        }
    });
}

/// What follows in the current task also depends on `other`.
pub(crate) fn merge(tables: &Tables, other: Path) {
    let Some(own) = path(tables) else { return };
    with(tables, |thread| {
        let open = &mut thread.task.open;
        open.other = other.from;
        if other.length > own.length {
            (open.begin, open.other) = (other, own.from);
            open.edge = Some(Edge::Join);
        }
    });
}

/// What follows in the current task depends on an earlier point of it, and not on what came after that,
/// unless an actor's tasks depend on each other anyway.
pub(crate) fn go_back(tables: &Tables, to: Option<Path>) {
    let Some(begin) = to.filter(|_| !tables.actor_order && path(tables).is_some()) else { return };
    with(tables, |thread| {
        let open = &mut thread.task.open;
        (open.begin, open.other, open.edge) = (begin, Reference::default(), Some(Edge::Join));
    });
}

/// The calling thread runs something else now. Returns what it has run.
#[inline]
pub(crate) fn replace(now: Current) -> Current {
    CURRENT.replace(now)
}

/// What the calling thread runs now.
#[inline]
pub(crate) fn current() -> Current {
    CURRENT.get()
}

/// There was no room for a message that the calling thread has sent; a handler keeps the receiver.
#[cold]
pub(crate) fn note_full(receiver: Arc<dyn Turn>) {
    if matches!(current(), Current::Handler | Current::Full(_)) {
        FULL.with_borrow_mut(|full| {
            if current() == Current::Handler {
                CURRENT.set(Current::Full(full.len() as u32));
            }
            full.push(receiver);
        });
    }
}

/// The receivers without room from this place on.
#[cold]
pub(crate) fn take_full(from: u32) -> Vec<Arc<dyn Turn>> {
    FULL.with_borrow_mut(|full| full.split_off(from as usize))
}
