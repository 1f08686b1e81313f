//! What the calling thread does now, and how long its path is.
//!
//! One duty: keep what handlers and programs the thread is in, and measure their tasks by the thread's clock.
//! A task begins at the greatest of the paths that lead to it; a part ends at each message that the task sends
//! and at its end. One reading of the clock serves the end of a task and the begin of the next one, so the way
//! through the scheduler belongs to the task that it leads to.
//!
//! A task that waits inside of its handler (a fork of work-stealing-rt) may run others on top of its stack:
//! they are frames of their own, and the outer one's time stands still.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
        let values =
            |t: &Table| [&t.work, &t.messages, &t.resyncs].map(|n| n.load(Ordering::Relaxed));
        let add = |one: [u64; 3], other: [u64; 3]| std::array::from_fn(|n| one[n] + other[n]);
        self.of.iter().map(values).fold([0; 3], add)
    }

    /// The length of the longest path.
    pub(crate) fn longest(&self) -> u64 {
        let lengths = self
            .of
            .iter()
            .map(|table| table.longest.load(Ordering::Relaxed));
        lengths.max().unwrap_or(0)
    }
}

enum Timer {
    Cpu(ThreadClock),
    Other(Box<dyn Clock>),
}

/// What a frame of the thread's stack is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A program on a worker: a sender may run handlers meanwhile.
    Program,
    /// A handler: its sender must not wait here.
    Handler,
}

/// A task that is to be recorded.
pub(crate) struct Begin {
    pub(crate) worker: usize,
    pub(crate) what: What,
    /// The path of its message, and of its actor's last task.
    pub(crate) message: Path,
    pub(crate) actor: Path,
}

struct Task {
    /// The address of its system's [`Tables`].
    tables: usize,
    worker: usize,
    /// The part that is open: its length where it began, its time until the task went on after others.
    open: Part,
    /// The clock when it began or went on.
    since: u64,
}

struct Frame {
    kind: Kind,
    /// Receivers that had no room for what the handler sent.
    full: Vec<Arc<dyn Turn>>,
    task: Option<Task>,
}

struct Thread {
    clock: Option<Timer>,
    /// The last reading, if the next task begins with it.
    last: Option<u64>,
    frames: Vec<Frame>,
}

thread_local! {
    /// Borrowed within this module only, where no foreign code but a clock is called.
    static THREAD: RefCell<Thread> = const {
        RefCell::new(Thread { clock: None, last: None, frames: Vec::new() })
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

    #[inline]
    fn task(&mut self) -> Option<&mut Task> {
        self.frames.last_mut()?.task.as_mut()
    }

    /// Ends the open part of the current task, if that belongs to the system.
    #[inline]
    fn cut(&mut self, tables: &Tables) -> Option<Path> {
        let address = std::ptr::from_ref(tables).addr();
        self.task().filter(|task| task.tables == address)?;
        let now = self.read(tables);
        self.last = Some(now);
        let Task {
            worker,
            open,
            since,
            ..
        } = self.task()?;
        open.time += now - *since;
        open.length += open.time;
        let from = tables.of[*worker].push(open);
        (*since, open.time, open.link) = (now, 0, Link::Same);
        (open.before, open.other) = (from, Reference::default());
        Some(Path {
            length: open.length,
            from,
        })
    }
}

/// A handler or program begins on the calling thread.
#[inline]
pub(crate) fn begin(tables: &Tables, kind: Kind, recorded: Option<Begin>) {
    THREAD.with_borrow_mut(|thread| {
        let last = thread.last.take();
        let task = recorded.map(
            |Begin {
                 worker,
                 what,
                 message,
                 actor,
             }| {
                let is_outermost = thread.task().is_none();
                let since = last
                    .filter(|_| is_outermost)
                    .unwrap_or_else(|| thread.read(tables));
                if let Some(outer) = thread.task() {
                    outer.open.time += since - outer.since;
                }
                let actor = if tables.actor_order {
                    actor
                } else {
                    Path::default()
                };
                let (longest, other) = message.order(actor);
                let (length, before, other, time) = (longest.length, longest.from, other.from, 0);
                let link = if longest == message {
                    Link::Message
                } else {
                    Link::Actor
                };
                let open = Part {
                    length,
                    time,
                    before,
                    other,
                    what,
                    link,
                };
                Task {
                    tables: std::ptr::from_ref(tables).addr(),
                    worker,
                    open,
                    since,
                }
            },
        );
        thread.frames.push(Frame {
            kind,
            full: Vec::new(),
            task,
        });
    });
}

/// The current handler or program ends. Returns its path, and receivers without room for what it sent.
#[inline]
pub(crate) fn end(tables: &Tables) -> (Path, Vec<Arc<dyn Turn>>) {
    THREAD.with_borrow_mut(|thread| {
        let path = thread.cut(tables).unwrap_or_default();
        let full = thread
            .frames
            .pop()
            .map_or_else(Vec::new, |frame| frame.full);
        if thread.task().is_some() {
            let now = thread.read(tables);
            thread.last = None;
            thread
                .task()
                .into_iter()
                .for_each(|outer| outer.since = now);
        }
        (path, full)
    })
}

/// What the calling worker does next does not follow the last task at once.
pub(crate) fn rest(tables: &Tables, worker: usize) {
    THREAD.with_borrow_mut(|thread| {
        thread.last = None;
        if let Some(Timer::Cpu(clock)) = &thread.clock {
            tables.of[worker]
                .resyncs
                .store(clock.resyncs(), Ordering::Relaxed);
        }
    });
}

/// What the calling thread runs; `None`: nothing of a system's.
#[inline]
pub(crate) fn current() -> Option<Kind> {
    THREAD.with_borrow(|thread| thread.frames.last().map(|frame| frame.kind))
}

/// There was no room for a message that the calling thread has sent; a handler keeps the receiver.
#[cold]
pub(crate) fn note_full(receiver: Arc<dyn Turn>) {
    THREAD.with_borrow_mut(|thread| {
        let handler = thread
            .frames
            .last_mut()
            .filter(|frame| frame.kind == Kind::Handler);
        handler
            .into_iter()
            .for_each(|frame| frame.full.push(Arc::clone(&receiver)));
    });
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
        if let (Some(own), Some(Task { open, .. })) = (own, thread.task()) {
            let (longest, shorter) = own.order(other);
            (open.length, open.before, open.other) = (longest.length, longest.from, shorter.from);
            if longest != own {
                open.link = Link::Merge;
            }
        }
    });
}
