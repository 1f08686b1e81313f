//! What the calling thread does now, and how long its path is.
//!
//! One duty: keep what handlers and programs the thread is in, and measure their tasks by the thread's clock.
//! A task begins at the greatest of the paths that lead to it; a part ends at each message that the task
//! sends and at its end. One reading of the clock serves the end of a task and the begin of the next one, so
//! the way through the scheduler belongs to the task that it leads to.
//!
//! A task that waits inside of its handler (a fork of work-stealing-rt) may run others on top of its stack:
//! they are tasks of their own, and the outer one's time stands still.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use critical_path::{Clock, ThreadClock};

use crate::ready::Turn;
use crate::table::{Link, Part, Path, Reference, Table, What};

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

    /// The length of the longest path.
    pub(crate) fn longest(&self) -> u64 {
        let each = self.of.iter().map(|table| &table.longest);
        each.map(|n| n.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

enum Timer {
    Cpu(ThreadClock),
    Other(Box<dyn Clock>),
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
    Full(usize),
}

/// A task that is to be recorded: its worker, what it is, the paths of its message and of its actor's last
/// task.
pub(crate) type Begin = (usize, What, Path, Path);

struct Task {
    /// The address of its system's [`Tables`].
    tables: usize,
    worker: usize,
    /// The part that is open, with its time until the task went on after others.
    open: Part,
    /// The clock when it began or went on.
    since: u64,
}

struct Thread {
    clock: Option<Timer>,
    /// The last reading, if the next task begins with it.
    last: Option<u64>,
    task: Option<Task>,
    /// Those below it on the stack.
    outer: Vec<Task>,
}

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(Current::Other) };
    /// Receivers without room: those of inner handlers follow those of outer ones.
    static FULL: RefCell<Vec<Arc<dyn Turn>>> = const { RefCell::new(Vec::new()) };
    /// Borrowed within this module only, where no foreign code but a clock is called.
    static THREAD: RefCell<Thread> = const {
        RefCell::new(Thread { clock: None, last: None, task: None, outer: Vec::new() })
    };
}

impl Thread {
    #[inline]
    fn read(&mut self, tables: &Tables) -> u64 {
        let new = || match &tables.clock {
            None => Timer::Cpu(ThreadClock::new()),
            Some(new) => Timer::Other(new()),
        };
        match self.clock.get_or_insert_with(new) {
            Timer::Cpu(clock) => clock.now(),
            Timer::Other(clock) => clock.now(),
        }
    }

    /// Ends the open part of the current task, if that belongs to the system.
    #[inline]
    fn cut(&mut self, tables: &Tables) -> Option<Path> {
        self.task
            .as_ref()
            .filter(|task| task.tables == address(tables))?;
        let now = self.read(tables);
        self.last = Some(now);
        let task = self.task.as_mut()?;
        let part = &mut task.open;
        part.time += now - task.since;
        let path = tables.of[task.worker].push(part);
        (part.begin, part.time, task.since) = (path, 0, now);
        (part.other, part.link) = (Reference::default(), Link::Same);
        Some(path)
    }

    #[inline]
    fn begin(&mut self, tables: &Tables, (worker, what, message, actor): Begin) {
        let last = self.last.take().filter(|_| self.task.is_none());
        let since = last.unwrap_or_else(|| self.read(tables));
        if let Some(mut outer) = self.task.take() {
            outer.open.time += since - outer.since;
            self.outer.push(outer);
        }
        let actor = Some(actor).filter(|_| tables.actor_order);
        let (begin, other) = message.order(actor.unwrap_or_default());
        let links = [Link::Actor, Link::Message];
        let open = Part {
            begin,
            time: 0,
            other: other.from,
            what,
            link: links[usize::from(begin == message)],
        };
        self.task = Some(Task {
            tables: address(tables),
            worker,
            open,
            since,
        });
    }
}

#[inline]
fn address(tables: &Tables) -> usize {
    std::ptr::from_ref(tables).addr()
}

/// A handler or program begins on the calling thread. The result is for [`end`].
#[inline]
pub(crate) fn begin(tables: &Tables, now: Current, recorded: Option<Begin>) -> (Current, bool) {
    let is_recorded = recorded.is_some();
    if let Some(task) = recorded {
        THREAD.with_borrow_mut(|thread| thread.begin(tables, task));
    }
    (CURRENT.replace(now), is_recorded)
}

/// It ends. Returns its path, and what was current until now.
#[inline]
pub(crate) fn end(tables: &Tables, begun: (Current, bool)) -> (Path, Current) {
    let (outer, is_recorded) = begun;
    let ended = CURRENT.replace(outer);
    if !is_recorded {
        return (Path::default(), ended);
    }
    THREAD.with_borrow_mut(|thread| {
        let path = thread.cut(tables).unwrap_or_default();
        thread.task = thread.outer.pop();
        if thread.task.is_some() {
            let now = thread.read(tables);
            thread.last = None;
            if let Some(outer) = &mut thread.task {
                outer.since = now;
            }
        }
        (path, ended)
    })
}

/// What the calling worker does next does not follow the last task at once.
pub(crate) fn rest(tables: &Tables, worker: usize) {
    THREAD.with_borrow_mut(|thread| {
        thread.last = None;
        if let Some(Timer::Cpu(clock)) = &thread.clock {
            let resyncs = &tables.of[worker].resyncs;
            resyncs.store(clock.resyncs(), Ordering::Relaxed);
        }
    });
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
                CURRENT.set(Current::Full(full.len()));
            }
            full.push(receiver);
        });
    }
}

/// The receivers without room from this place on.
#[cold]
pub(crate) fn take_full(from: usize) -> Vec<Arc<dyn Turn>> {
    FULL.with_borrow_mut(|full| full.split_off(from))
}

/// The path up to here, for a message; `None` outside of the system's recorded tasks.
#[inline]
pub(crate) fn path(tables: &Tables) -> Option<Path> {
    THREAD.with_borrow_mut(|thread| thread.cut(tables))
}

/// What follows in the current task also depends on `other`.
pub(crate) fn merge(tables: &Tables, other: Path) {
    THREAD.with_borrow_mut(|thread| {
        let own = thread.cut(tables);
        if let (Some(own), Some(Task { open, .. })) = (own, &mut thread.task) {
            let (longest, shorter) = own.order(other);
            (open.begin, open.other) = (longest, shorter.from);
            if longest != own {
                open.link = Link::Merge;
            }
        }
    });
}
