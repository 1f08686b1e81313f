//! What the calling thread does now, and how long its path is.
//!
//! One duty: measure a task's parts by the thread's clock and record them. A task begins at the greatest of
//! the paths that lead to it; a part ends at each message that the task sends and at its end. One reading of
//! the clock serves the end of a task and the begin of the next one, so the way through the scheduler belongs
//! to the task that it leads to.
//!
//! A task that waits inside of its handler (a fork of work-stealing-rt) may run others on top of its stack:
//! they are strands of their own, and the outer one's time stands still.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use critical_path::{Clock, ThreadClock};

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

enum Timer {
    Cpu(ThreadClock),
    Other(Box<dyn Clock>),
}

impl Timer {
    fn new(tables: &Tables) -> Self {
        match &tables.clock {
            None => Timer::Cpu(ThreadClock::new()),
            Some(new) => Timer::Other(new()),
        }
    }

    #[inline]
    fn now(&mut self) -> u64 {
        match self {
            Timer::Cpu(clock) => clock.now(),
            Timer::Other(clock) => clock.now(),
        }
    }
}

/// A recorded task.
pub(crate) struct Task {
    /// The address of its system's [`Tables`].
    tables: usize,
    worker: usize,
    what: What,
    /// The length where the open part began, and the clock then.
    base: u64,
    since: u64,
    before: Reference,
    other: Reference,
    link: Link,
}

struct Strand {
    clock: Option<Timer>,
    /// The last reading, if the next task begins with it.
    last: Option<u64>,
    task: Option<Task>,
}

thread_local! {
    /// Borrowed within this module only, where no foreign code but a clock is called.
    static STRAND: RefCell<Strand> = const {
        RefCell::new(Strand { clock: None, last: None, task: None })
    };
}

impl Strand {
    #[inline]
    fn read(&mut self, tables: &Tables) -> u64 {
        self.clock.get_or_insert_with(|| Timer::new(tables)).now()
    }

    /// Ends the open part of the current task.
    #[inline]
    fn cut(&mut self, tables: &Tables) -> Option<Path> {
        if self.task.as_ref()?.tables != address(tables) {
            return None;
        }
        let now = self.read(tables);
        self.last = Some(now);
        let task = self.task.as_mut()?;
        let time = now - task.since;
        let length = task.base + time;
        let from = tables.of[task.worker].push(&Part {
            length,
            time,
            before: task.before,
            other: task.other,
            what: task.what,
            link: task.link,
        });
        (task.base, task.since) = (length, now);
        (task.before, task.other, task.link) = (from, Reference::default(), Link::Same);
        Some(Path { length, from })
    }
}

fn address(tables: &Tables) -> usize {
    std::ptr::from_ref(tables).addr()
}

/// How a recorded task begins.
pub(crate) struct Begin {
    pub(crate) worker: usize,
    pub(crate) what: What,
    /// The path of its message, or of the program.
    pub(crate) message: Path,
    /// That of its actor's last task.
    pub(crate) actor: Path,
}

/// A task begins on the calling worker. The result is for [`end`].
#[inline]
pub(crate) fn begin(tables: &Tables, begin: &Begin) -> Option<Task> {
    STRAND.with_borrow_mut(|strand| {
        let mut outer = strand.task.take();
        let last = strand.last.take().filter(|_| outer.is_none());
        let now = last.unwrap_or_else(|| strand.read(tables));
        if let Some(outer) = &mut outer {
            outer.base += now - outer.since;
        }
        let (longest, other) = begin.message.order(begin.actor);
        strand.task = Some(Task {
            tables: address(tables),
            worker: begin.worker,
            what: begin.what,
            base: longest.length,
            since: now,
            before: longest.from,
            other: other.from,
            link: if longest == begin.message {
                Link::Message
            } else {
                Link::Actor
            },
        });
        outer
    })
}

/// The current task ends, and `outer`, what [`begin`] returned, goes on. Returns the task's path.
#[inline]
pub(crate) fn end(tables: &Tables, outer: Option<Task>) -> Path {
    STRAND.with_borrow_mut(|strand| {
        let path = strand.cut(tables).unwrap_or_default();
        if let Some(task) = &strand.task {
            tables.of[task.worker].end(path);
        }
        strand.task = outer;
        if strand.task.is_some() {
            strand.last = None;
            let now = strand.read(tables);
            if let Some(outer) = &mut strand.task {
                outer.since = now;
            }
        }
        path
    })
}

/// What the calling worker does next does not follow the last task at once.
pub(crate) fn rest(tables: &Tables, worker: usize) {
    STRAND.with_borrow_mut(|strand| {
        strand.last = None;
        if let Some(Timer::Cpu(clock)) = &strand.clock {
            tables.of[worker]
                .resyncs
                .store(clock.resyncs(), Ordering::Relaxed);
        }
    });
}

/// The path up to here, for a message; `None` outside of the system's recorded tasks.
#[inline]
pub(crate) fn path(tables: &Tables) -> Option<Path> {
    STRAND.with_borrow_mut(|strand| strand.cut(tables))
}

/// What follows in the current task also depends on `other`.
pub(crate) fn merge(tables: &Tables, other: Path) {
    STRAND.with_borrow_mut(|strand| {
        let Some(own) = strand.cut(tables) else {
            return;
        };
        let (longest, shorter) = own.order(other);
        if let Some(task) = &mut strand.task {
            (task.base, task.before, task.other) = (longest.length, longest.from, shorter.from);
            if longest != own {
                task.link = Link::Merge;
            }
        }
    });
}

/// The path of what depends on both: recorded as a part without time.
pub(crate) fn join(tables: &Tables, one: Path, other: Path) -> Path {
    let (longest, shorter) = one.order(other);
    STRAND.with_borrow(|strand| match &strand.task {
        Some(task) if task.tables == address(tables) && shorter != Path::default() => Path {
            length: longest.length,
            from: tables.of[task.worker].push(&Part {
                length: longest.length,
                time: 0,
                before: longest.from,
                other: shorter.from,
                what: task.what,
                link: Link::Merge,
            }),
        },
        _ => longest,
    })
}
