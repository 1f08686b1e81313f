//! The tasks that a thread is in, of all runtimes whose tasks are known: those of OpenMP and TBB.
//!
//! A runtime's hook makes a record when a task begins on a thread, and ends it with the task. The records of
//! a thread form one chain, innermost first, since runtimes nest. A record says where on the stack its task
//! begins, and where a logical call path goes on from there: at the place on another thread's stack that made
//! the task and waits for it, or in a context that was captured when the task was made.
//!
//! Only the thread and its handler change a chain. A walk that goes on at another thread's place reads that
//! thread's records from there outwards. They stay, because the thread waits there.
//!
//! Async-signal-safe.

use critical_path::Strand;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the frames of a task begin on its stack.
#[derive(Clone, Copy, Debug)]
pub enum Boundary {
    /// Above the record itself, which lies in the frame that calls the task.
    Record,
    /// Above this address.
    At(u64),
    /// Above the address in this word of the runtime, which writes it when the task begins.
    Word(*const u64),
    /// Nowhere: whoever made the task runs it in its own call, so the path goes on at the caller.
    None,
}

/// Where a path goes on from a task.
#[derive(Clone, Copy, Debug)]
pub enum Context {
    /// At a place of a stack, in these tasks.
    Site {
        /// Instruction pointer, stack pointer and frame pointer there.
        registers: [u64; 3],
        tasks: *const Task,
    },
    Captured {
        /// Thread ordinal.
        thread: u32,
        /// Record index in its tree.
        node: u32,
    },
    Unknown,
}

impl Context {
    pub fn words(self) -> [u64; 4] {
        match self {
            Context::Site { registers: [ip, sp, fp], tasks } => [ip, sp, fp, tasks as u64],
            Context::Captured { thread, node } => [0, u64::from(thread) << 32 | u64::from(node), 0, 0],
            Context::Unknown => [0; 4],
        }
    }

    pub fn of(words: [u64; 4]) -> Context {
        match words {
            [0, 0, ..] => Context::Unknown,
            [0, kept, ..] => Context::Captured { thread: (kept >> 32) as u32, node: kept as u32 },
            [ip, sp, fp, tasks] => Context::Site { registers: [ip, sp, fp], tasks: tasks as *const Task },
        }
    }
}

/// The mark of a task without a boundary.
const NOWHERE: u64 = u64::MAX;

pub struct Task {
    /// Instruction pointer, stack pointer and frame pointer of the place, and its tasks; or zero, and the
    /// captured context.
    words: [u64; 4],
    outer: Cell<*const Task>,
    /// An address in the frame that calls the task; 0: in `word`, if that is not 0 either.
    mark: AtomicU64,
    word: *const u64,
    /// The waits that the thread was in when the task began.
    pauses: Cell<u32>,
    is_kept: bool,
    /// What the runtime knows the task by.
    pub id: Cell<usize>,
    /// The task on the critical path; null if that is not tracked. It lives as long as this record.
    pub path: Cell<*const OnPath>,
}

/// Objects of the critical path, and whether a task shares each.
pub type Dependences = Vec<(usize, bool)>;

/// What a task's hooks keep for the critical path.
#[derive(Default)]
pub struct OnPath {
    /// The number of the region that the task is a thread of.
    pub team: Cell<u64>,
    /// The barriers of the region that the thread has left.
    pub round: Cell<u32>,
    pub number: Cell<u64>,
    /// The number of the task that has made it, and of the region around that.
    pub parent: Cell<u64>,
    /// See `parent`.
    pub around: Cell<u64>,
    /// The strand that the thread goes on with after the task.
    pub left: Cell<Option<Strand>>,
    pub dependences: Cell<Option<Box<Dependences>>>,
}

impl Task {
    /// A task that has not begun. `is_kept`: its memory stays readable for ever.
    pub fn new(context: Context, boundary: Boundary, is_kept: bool) -> Task {
        let words = context.words();
        let (mark, word) = match boundary {
            Boundary::Record => (0, ptr::null()),
            Boundary::At(mark) => (mark, ptr::null()),
            Boundary::Word(word) => (0, word),
            Boundary::None => (NOWHERE, ptr::null()),
        };
        Task {
            words,
            outer: Cell::new(ptr::null()),
            mark: AtomicU64::new(mark),
            word,
            pauses: Cell::new(0),
            is_kept,
            id: Cell::new(0),
            path: Cell::new(ptr::null()),
        }
    }

    /// Where a path goes on.
    pub fn context(&self) -> Context {
        Context::of(self.words)
    }

    /// The task of the same thread that this one began in.
    pub fn outer(&self) -> *const Task {
        self.outer.get()
    }

    /// The words that [`Self::context`] depends on.
    pub(crate) fn words(&self) -> &[u64; 4] {
        &self.words
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Begins the task in another one, while the thread is in so many waits.
    pub(crate) fn begin(&self, outer: *const Task, pauses: u32) {
        self.outer.set(outer);
        self.pauses.set(pauses);
        if self.mark.load(Ordering::Relaxed) == 0 && self.word.is_null() {
            self.mark.store(ptr::from_ref(self) as u64, Ordering::Relaxed);
        }
    }

    /// The waits that the thread is in again when the task has ended.
    pub(crate) fn pauses(&self) -> u32 {
        self.pauses.get()
    }

    /// The address above which a task with [`Boundary::At`] has its frames.
    pub fn mark_at(&self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }

    /// Reads the mark, while the task lives.
    pub fn settle(&self) {
        if self.mark.load(Ordering::Relaxed) == 0 && !self.word.is_null() {
            // SAFETY: a word of the runtime that lives as long as the task (`Boundary::Word`).
            let mark = unsafe { self.word.read_volatile() };
            self.mark.store(mark, Ordering::Relaxed);
        }
    }

    fn mark(&self, peek: impl FnOnce(u64) -> Option<u64>) -> Option<u64> {
        let mark = match self.mark.load(Ordering::Relaxed) {
            0 if self.word.is_null() => NOWHERE,
            0 => peek(self.word as u64).unwrap_or(0),
            mark => mark,
        };
        (mark != NOWHERE && mark != 0).then_some(mark)
    }
}

/// The tasks from a point of a stack outwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The innermost task with a boundary; null if there is none.
    task: *const Task,
    /// The frames of the task have no higher stack pointer.
    mark: u64,
}

impl Chain {
    pub const NONE: Chain = Chain { task: ptr::null(), mark: NOWHERE };

    /// A task of the calling thread and those around it. Not for the handler, which trusts no memory.
    pub fn at(task: *const Task) -> Chain {
        Chain::of(task, |address| {
            // SAFETY: a word of the runtime that lives as long as the task (`Boundary::Word`).
            Some(unsafe { (address as *const u64).read_volatile() })
        })
    }

    /// A task and those around it. `peek` reads any memory.
    #[inline]
    pub(crate) fn of(task: *const Task, peek: impl FnMut(u64) -> Option<u64>) -> Chain {
        if task.is_null() { Chain::NONE } else { Chain::search(task, peek) }
    }

    fn search(mut task: *const Task, mut peek: impl FnMut(u64) -> Option<u64>) -> Chain {
        // SAFETY: null, or a record of a thread's chain from where the thread runs or waits; see the module.
        while let Some(record) = unsafe { task.as_ref() } {
            if let Some(mark) = record.mark(&mut peek) {
                return Chain { task, mark };
            }
            task = record.outer();
        }
        Chain::NONE
    }

    /// Whether a frame with this stack pointer belongs to the innermost task.
    #[inline]
    pub(crate) fn contains(&self, sp: u64) -> bool {
        sp <= self.mark
    }

    /// An address on the stack of the innermost task.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// The innermost task, and those around it.
    pub(crate) fn leave(&self, peek: impl FnMut(u64) -> Option<u64>) -> Option<(&'static Task, Chain)> {
        // SAFETY: as in `search`; the caller uses the record within its walk.
        let task = unsafe { self.task.as_ref() }?;
        Some((task, Chain::of(task.outer(), peek)))
    }

    /// The tasks around a frame at this stack pointer, where `is_same` tells whether two addresses are on one
    /// stack. None are known on a stack that is not the tasks'.
    pub(crate) fn outside_of(
        mut self,
        sp: u64,
        is_same: impl Fn(u64, u64) -> bool,
        mut peek: impl FnMut(u64) -> Option<u64>,
    ) -> Chain {
        if self.task.is_null() || !is_same(sp, self.mark) {
            return Chain::NONE;
        }
        while !self.contains(sp) {
            let Some((_, outer)) = self.leave(&mut peek) else { break };
            self = outer;
        }
        self
    }
}
