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

impl Tables {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

enum Timer {
    Cpu(ThreadClock),
    Other(Box<dyn Clock>),
}

impl Timer {
    #[cold]
    fn new(tables: &Tables) -> Self {
        let own = || Timer::Cpu(ThreadClock::new());
        tables
            .clock
            .as_ref()
            .map_or_else(own, |new| Timer::Other(new()))
    }
}

/// A recorded task.
pub(crate) struct Task {
    /// The address of its system's [`Tables`].
    tables: usize,
    worker: usize,
    /// The part that is open: its length where it began, its time until the task went on after others.
    open: Part,
    /// The clock when it began or went on.
    since: u64,
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
        match self.clock.get_or_insert_with(|| Timer::new(tables)) {
            Timer::Cpu(clock) => clock.now(),
            Timer::Other(clock) => clock.now(),
        }
    }

    /// Ends the open part of the current task.
    #[inline]
    fn cut(&mut self, tables: &Tables) -> Option<Path> {
        if self.task.as_ref()?.tables != tables.address() {
            return None;
        }
        let now = self.read(tables);
        self.last = Some(now);
        let task = self.task.as_mut()?;
        let (since, open) = (task.since, &mut task.open);
        open.time += now - since;
        open.length += open.time;
        let from = tables.of[task.worker].push(open);
        (task.since, open.time, open.link) = (now, 0, Link::Same);
        (open.before, open.other) = (from, Reference::default());
        Some(Path {
            length: open.length,
            from,
        })
    }
}

/// A task begins on the calling worker, after the path of its message, or of the program, and that of its
/// actor's last task. The result is for [`end`].
#[inline]
pub(crate) fn begin(
    tables: &Tables,
    worker: usize,
    what: What,
    message: Path,
    actor: Path,
) -> Option<Task> {
    STRAND.with_borrow_mut(|strand| {
        let mut outer = strand.task.take();
        let last = strand.last.take().filter(|_| outer.is_none());
        let since = last.unwrap_or_else(|| strand.read(tables));
        if let Some(outer) = &mut outer {
            outer.open.time += since - outer.since;
        }
        let (longest, other) = message.order(actor);
        let is_message = longest == message;
        let open = Part {
            length: longest.length,
            time: 0,
            before: longest.from,
            other: other.from,
            what,
            link: if is_message {
                Link::Message
            } else {
                Link::Actor
            },
        };
        let tables = tables.address();
        strand.task = Some(Task {
            tables,
            worker,
            open,
            since,
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
            let now = strand.read(tables);
            strand.last = None;
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
            let resyncs = &tables.of[worker].resyncs;
            resyncs.store(clock.resyncs(), Ordering::Relaxed);
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
        if let Some(Task { open, .. }) = &mut strand.task {
            (open.length, open.before, open.other) = (longest.length, longest.from, shorter.from);
            if longest != own {
                open.link = Link::Merge;
            }
        }
    });
}

/// The path of what depends on both: recorded as a part without time.
pub(crate) fn join(tables: &Tables, one: Path, other: Path) -> Path {
    let (Path { length, from }, shorter) = one.order(other);
    STRAND.with_borrow(|strand| match &strand.task {
        Some(task) if task.tables == tables.address() && shorter != Path::default() => {
            let from = tables.of[task.worker].push(&Part {
                length,
                time: 0,
                before: from,
                other: shorter.from,
                what: task.open.what,
                link: Link::Merge,
            });
            Path { length, from }
        }
        _ => Path { length, from },
    })
}
