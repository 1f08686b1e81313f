//! The C-layout tables through which a task runtime and the profiler find each other.
//!
//! One duty: fix the memory layout that both sides agree on. A runtime looks up
//! [`REGISTER_SYMBOL`] once with `dlsym(RTLD_DEFAULT, …)`; when it is absent no profiler is
//! present and nothing else of this crate is used. When it is present, the runtime passes its
//! [`RuntimeTable`] and gets a [`ProfilerTable`] back. Neither side links the other.
//!
//! Nearly everything here is data, with [`client`] and `host` for callers in Rust: the profiler's signal
//! handler reads a runtime's atomics and the memory of its tasks, but never calls into the runtime.
//!
//! Versions: a field is only ever added at the end of a table. A reader checks `version` for
//! equality and `size` for at least the size that it knows.

#![no_std]

pub mod client;
#[cfg(unix)]
pub mod host;

use core::ffi::c_char;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Version of all tables. Changes when the meaning of a field changes.
pub const ABI_VERSION: u32 = 6;

/// Name under which the profiler exports its [`CriticalPath`] function (NUL-terminated), for programs that
/// tell it of their own synchronisation.
pub const CRITICAL_PATH_SYMBOL: &core::ffi::CStr = c"hpcrun_critical_path";

/// `hpcrun_critical_path`: the functions that follow the critical path; null if this run does not track one.
pub type CriticalPath = unsafe extern "C" fn() -> *const PathTable;

/// Name under which the profiler exports its [`RegisterRuntime`] function (NUL-terminated).
pub const REGISTER_SYMBOL: &core::ffi::CStr = c"hpcrun_rt_register";

/// `hpcrun_rt_register`: registers a runtime for the rest of the process's life.
///
/// Returns null when the profiler cannot serve the table (unknown version, too many runtimes,
/// profiling already over); the runtime then behaves as if no profiler were present.
///
/// # Safety
/// The table, and everything it points to, must stay valid and in place until the process ends.
pub type RegisterRuntime = unsafe extern "C" fn(*const RuntimeTable) -> *const ProfilerTable;

/// State of a worker: in its scheduling loop, waiting, stealing or asleep.
pub const WORKER_IDLE: u8 = 0;
/// State of a worker: between acquiring a task and returning to its scheduling loop.
pub const WORKER_WORKING: u8 = 1;

/// What a cooperating work-stealing runtime tells the profiler.
#[repr(C)]
#[derive(Debug)]
pub struct RuntimeTable {
    /// `size_of::<RuntimeTable>()` on the runtime's side.
    pub size: u32,
    /// [`ABI_VERSION`] on the runtime's side.
    pub version: u32,
    /// The runtime's name, NUL-terminated.
    pub name: *const c_char,
    /// Number of workers, over all pools, whose state is [`WORKER_WORKING`], or that have just ended a task
    /// and not yet looked for one beyond their own queues. One that is blocked in a task stays counted: the
    /// profiler knows of such waits and takes it off.
    pub n_working: *const AtomicU32,
    /// Number of workers alive, over all pools.
    pub n_workers: *const AtomicU32,
    /// First address of the runtime's own out-of-line code (scheduler, task entry shims).
    /// A frame in `text_start..text_end` is runtime code: it has no user-level frame.
    pub text_start: usize,
    /// One past the last address of that code; equal to `text_start` when there is none.
    pub text_end: usize,
    /// The return address of the one call through which every task that is not run inline is
    /// entered (the *boundary*).
    pub boundary_return: usize,
    /// Where the boundary's frame keeps the address of its [`TaskHeader`]: at
    /// `stack pointer + task_slot`, with the stack pointer as it is at `boundary_return`.
    pub task_slot: usize,
    /// The first of the runtime's [`CountedSite`]s, which lie side by side.
    pub sites_start: *const CountedSite,
    /// One past the last of them; equal to `sites_start` when there is none.
    pub sites_end: *const CountedSite,
    /// The critical path is tracked from now on, or no longer: [`PathTable::active`] has changed. The one
    /// function of a runtime that the profiler calls, on whatever thread, but never in its signal handler; or
    /// null.
    pub tracking_changed: Option<extern "C" fn()>,
    /// 1: the runtime's threads tell of their tasks and waits ([`ProfilerTable::task_begin`]), and beside its
    /// name nothing of this table is used. Else 0.
    pub tells: u32,
}

// SAFETY: the table is immutable after construction and its pointers lead to statics (the
// contract of `RegisterRuntime`), whose mutable parts are atomics. Nothing here can panic.
unsafe impl Sync for RuntimeTable {}
// SAFETY: as above.
unsafe impl Sync for ProfilerTable {}
// SAFETY: as above.
unsafe impl Sync for PathTable {}
// SAFETY: as above.
unsafe impl Sync for MessageTable {}

/// Static description of one spawn site: emitted once per inlined call site.
#[repr(C)]
#[derive(Debug)]
pub struct SpawnSite {
    /// Code address of the spawn in the spawner's function, from which the spawner's stack can
    /// be unwound with the recorded stack and frame pointers.
    /// Zero means: not a stack context; see [`TaskHeader`].
    pub ip: usize,
    /// The runtime's own entry for tasks of this site. The profiler does not read it.
    pub entry: usize,
}

/// A [`SpawnSite`] whose tasks are counted while a profiler is present. Sites that differ in
/// their code address may belong to one place in the source: code is inlined and copied.
#[repr(C)]
#[derive(Debug)]
pub struct CountedSite {
    /// As [`SpawnSite::ip`]; not zero.
    pub ip: usize,
    /// As [`SpawnSite::entry`].
    pub entry: usize,
    /// The runtime's own.
    pub finish: usize,
    /// How often the site forked a task that may be split further (`join_context`, by which
    /// parallel iterators split their work). Other forks are not counted: they cost too little.
    pub forks: AtomicU64,
    /// How many of the site's tasks were run by another than their spawner's own call.
    pub steals: AtomicU64,
    /// The time in those tasks, in nanoseconds of wall time.
    pub stolen_ns: AtomicU64,
    /// How many of its forks began the execution of a parallel iterator, in code that is no task's; those in
    /// an iterator that the worker executes itself are among them. Forks outside of a pool have sites of
    /// their own, which count nothing else.
    pub executions: AtomicU64,
}

/// The first three words of every task that may run through the boundary: its spawner's context.
///
/// * `site.ip != 0`: the *stack context* `(site.ip, sp, fp)` of a suspended spawner. The runtime
///   guarantees that this stack stays in place while the boundary's frame exists.
/// * `site.ip == 0`: `sp` holds a context captured earlier by [`ProfilerTable::capture_context`],
///   or 0 when none was captured (the task then has no known spawner).
#[repr(C)]
#[derive(Debug)]
pub struct TaskHeader {
    /// The spawn site.
    pub site: *const SpawnSite,
    /// The spawner's stack pointer at `site.ip`, or a captured context.
    pub sp: usize,
    /// The spawner's frame pointer register at `site.ip`.
    pub fp: usize,
}

/// What the profiler offers a runtime.
#[repr(C)]
#[derive(Debug)]
pub struct ProfilerTable {
    /// `size_of::<ProfilerTable>()` on the profiler's side.
    pub size: u32,
    /// [`ABI_VERSION`] on the profiler's side.
    pub version: u32,
    /// The calling thread is a worker from now on; its state is in the given byte, which must
    /// outlive the registration, and be [`WORKER_IDLE`] at that moment. A thread may be a worker of several
    /// runtimes, one of each; only the innermost, in whose task it is, has it in its scheduling loop.
    pub worker_enter: unsafe extern "C" fn(state: *const AtomicU8),
    /// The calling thread is no longer the worker that was entered with this byte, which is [`WORKER_IDLE`]
    /// and counted no more.
    pub worker_leave: unsafe extern "C" fn(state: *const AtomicU8),
    /// Keeps the calling thread's current logical call path and returns a handle for it, valid
    /// until the process ends; 0 when it could not be kept. Costs about as much as a sample.
    pub capture_context: unsafe extern "C" fn() -> usize,
    /// The functions that follow the critical path; null if this run does not track one.
    pub path: *const PathTable,
    /// The calling function begins a task, with the context that was captured where the task was made, or 0
    /// if that is unknown. The task is what the function calls, until [`task_end`](Self::task_end): it is on
    /// the logical call path, and the function itself is not. The record stays in place until then. With
    /// [`POLL`] in the context, the task is a part of one that is to give its thread back soon.
    pub task_begin: unsafe extern "C" fn(record: *mut TaskRecord, context: usize),
    /// Ends the task that was begun last, by the same function.
    pub task_end: unsafe extern "C" fn(record: *mut TaskRecord),
    /// The calling thread waits from now on, or looks for work, whatever it does meanwhile, but in tasks.
    pub wait_begin: extern "C" fn(),
    /// The wait is over. Waits may be nested.
    pub wait_end: extern "C" fn(),
}

/// In a context: see [`ProfilerTable::task_begin`].
pub const POLL: usize = 1 << 63;

/// The profiler's record of a task that runs, in the memory of whoever runs it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct TaskRecord([u64; 12]);

/// A strand in [`PathTable`]'s functions: a copy of a thread's or task's path on its way along an edge. 0
/// stands for none. Every other one is given back to exactly one function, [`PathTable::share`] aside.
pub type Strand = usize;
/// No strand: stands for the task of a fork that is not followed. If the spawner's thread runs it, nothing is
/// told of it. Another one gives this to [`PathTable::begin`]. Nothing is to be given back.
pub const SERIAL: Strand = 1;

/// A place in [`PathTable`]'s functions. 0: unknown. With [`SITE_SOURCE`]: from [`PathTable::source`]. With
/// [`SITE_CONTEXT`]: from [`ProfilerTable::capture_context`]. With [`SITE_TASK`]: where a task was spawned.
/// Else a code address.
pub type Site = u64;

/// Marks a [`Site`] that is a place in the source.
pub const SITE_SOURCE: Site = 1 << 63;
/// Marks a [`Site`] that is a captured context.
pub const SITE_CONTEXT: Site = 1 << 62;
/// Marks a [`Site`] that is the address of the [`TaskHeader`] of a live task with a stack context, for those
/// functions that are unsafe.
pub const SITE_TASK: Site = 1 << 61;
/// Marks a [`Site`] in another process: the rank in bits 32 to 59, and the number of its export below.
pub const SITE_REMOTE: Site = 1 << 60;

/// Edge: the end of a thread or task, and whoever waited for it.
pub const EDGE_JOIN: u32 = 2;
/// Edge: a value from a channel, or room in one.
pub const EDGE_CHANNEL: u32 = 3;
/// Edge: the release of a lock, and its next acquisition.
pub const EDGE_LOCK: u32 = 4;
/// Edge: a signalled condition.
pub const EDGE_CONDITION: u32 = 5;
/// Edge: the arrivals at a barrier, and whoever leaves it.
pub const EDGE_BARRIER: u32 = 6;
/// Edge: a wake-up, where the operation that caused it was not seen.
pub const EDGE_WAKE: u32 = 7;
/// Edge: a message from another process, or to an event handler.
pub const EDGE_MESSAGE: u32 = 8;

/// Cause of a lost edge: it is not known which event the other side was.
pub const LOST_UNKNOWN: u32 = 2;
/// No edge, but a name: a procedure beyond the most that are kept.
pub const LOST_PROCEDURE: u32 = 3;
/// Cause of a lost edge: what orders the threads is one of more objects or messages than are kept.
pub const LOST_ROOM: u32 = 4;
/// Cause of a lost edge: the receiver's part in a synchronous send.
pub const LOST_SYNCHRONOUS: u32 = 6;

/// Command of [`PathTable::control`]: stop tracking.
pub const PATH_STOP: u32 = 0;
/// Command of [`PathTable::control`]: forget what was measured, and track from now on.
pub const PATH_START: u32 = 1;

/// The functions by which a program tells the profiler who waits for whom, all about the calling thread. None
/// of them is for signal handlers. Each may be called whether the path is tracked or not, but costs less if
/// [`active`](Self::active) is asked first.
///
/// A thread runs one strand at a time. Activity is its CPU time between [`begin`](Self::begin) or
/// [`resume`](Self::resume) and [`end`](Self::end) or [`pause`](Self::pause); a thread that has called none
/// of these is active.
///
/// # Safety
/// Of those that are unsafe: a [`Strand`] is 0, or comes from one of them and has not been given back; the
/// task of a [`SITE_TASK`] lives, and its spawner's stack stays in place; texts and buffers are as long as
/// said.
#[repr(C)]
#[derive(Debug)]
pub struct PathTable {
    /// `size_of::<PathTable>()` on the profiler's side.
    pub size: u32,
    /// [`ABI_VERSION`] on the profiler's side.
    pub version: u32,
    /// 1 while the path is tracked, else 0.
    pub active: *const AtomicU8,
    /// A copy of the current strand at an event for which another one may wait: a fork, a send, a release, an
    /// arrival. 0: the thread cannot be tracked, since it ends.
    pub copy: unsafe extern "C" fn(at: Site) -> Strand,
    /// As [`copy`](Self::copy), for a fork whose task this strand joins, and those of later forks before.
    /// [`SERIAL`]: the fork is part of so little activity that it is not followed. With the bit [`SERIAL`]:
    /// none of the forks in its two halves need be told.
    pub fork: unsafe extern "C" fn(at: Site) -> Strand,
    /// The current strand has waited for another one: the longer of both goes on. The edge: `EDGE_…`.
    pub merge: unsafe extern "C" fn(strand: Strand, at: Site, edge: u32),
    /// Leaves the current strand and begins a spawned one, from its spawner's copy. 0: the spawner is
    /// unknown, a lost edge. The result is for [`end`](Self::end).
    pub begin: unsafe extern "C" fn(spawned: Strand, at: Site) -> Strand,
    /// Ends the current strand and goes on with the one that was left for it. The result is for whoever waits
    /// for the end, or for [`finish`](Self::finish).
    pub end: unsafe extern "C" fn(left: Strand, at: Site) -> Strand,
    /// As [`end`](Self::end), for the strand that was left waits.
    pub end_and_merge: unsafe extern "C" fn(left: Strand, at: Site),
    /// Of two strands for which the same one waits, leaves one.
    pub both: unsafe extern "C" fn(Strand, Strand) -> Strand,
    /// The same strand once more.
    pub share: unsafe extern "C" fn(Strand) -> Strand,
    /// Forgets a strand for which nobody waits.
    pub discard: unsafe extern "C" fn(Strand),
    /// A strand has ended for which nobody waits.
    pub finish: unsafe extern "C" fn(Strand),
    /// The current strand ends here as far as a report now is concerned.
    pub publish: extern "C" fn(at: Site),
    /// What follows is no activity: a wait, or the search for work.
    pub pause: extern "C" fn(),
    /// What follows is activity again.
    pub resume: extern "C" fn(),
    /// The thread's strand begins here, and is active, unless it has begun since the last
    /// [`PATH_START`].
    pub restart: extern "C" fn(at: Site),
    /// The thread enters the procedure with this number (0: none) until it enters another one. Returns that
    /// of the one that it leaves. Spawned tasks inherit it.
    pub enter: extern "C" fn(procedure: u32) -> u32,
    /// The number of the procedure with this name (UTF-8); 0 if there are too many.
    pub procedure: unsafe extern "C" fn(name: *const u8, length: usize) -> u32,
    /// The site of a place in the source, by the file's name (UTF-8); 0 if there are too many. For callers
    /// that keep the result: it takes a lock.
    pub source: unsafe extern "C" fn(file: *const u8, length: usize, line: u32) -> Site,
    /// Counts an edge to this thread that is not known, by its cause: `LOST_…`.
    pub lose: extern "C" fn(cause: u32),
    /// `PATH_…`; other commands do nothing.
    pub control: extern "C" fn(command: u32),
    /// Writes the path so far, as the JSON of `hpcprof-rs critical-path`, if it fits into the buffer. Returns
    /// its length in bytes.
    pub report: unsafe extern "C" fn(buffer: *mut u8, size: usize) -> usize,
}

/// Name under which the profiler exports its [`Messages`] function (NUL-terminated), for the library that
/// interposes a message-passing library.
pub const MESSAGES_SYMBOL: &core::ffi::CStr = c"hpcrun_messages";

/// `hpcrun_messages`: the functions for calls of a message-passing library; null if the process is not
/// measured. `own`: an address in the caller's code, whose frames then are the profiler's.
pub type Messages = unsafe extern "C" fn(own: usize) -> *const MessageTable;

/// Procedures of which a message says what zeroing them saves: marks of the program first.
pub const SAVINGS: usize = 16;

/// In the number of a procedure: it is a mark of the program.
pub const MARK: u64 = 1 << 63;

/// What the path is shorter by if a procedure takes no time, in nanoseconds. The procedure: a hash of its
/// name, equal in all processes, with [`MARK`] set for a mark of the program.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Saving {
    /// Which procedure.
    pub procedure: u64,
    /// How much.
    pub time: u64,
}

/// A strand on its way to another process.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteStrand {
    /// The longest chain of activity, in nanoseconds.
    pub length: u64,
    /// The rank that exported it.
    pub rank: u32,
    /// Its number among the exports of that rank.
    pub export: u32,
    /// The length with the costs of edges. Not beside it: a processor cannot load at once what it has just
    /// stored in two parts, but waits for all stores before.
    pub burdened: u64,
    /// The tracker's session there; 0: it was not tracked.
    pub session: u32,
    /// How many of `savings` are used.
    pub count: u32,
    /// The largest savings: of marks, then of others.
    pub savings: [Saving; SAVINGS],
}

impl RemoteStrand {
    /// Of a thread that is not tracked.
    pub const UNTRACKED: RemoteStrand = RemoteStrand {
        length: 0,
        burdened: 0,
        rank: 0,
        export: 0,
        session: 0,
        count: 0,
        savings: [Saving { procedure: 0, time: 0 }; SAVINGS],
    };

    /// The site that stands for it at the receiver.
    pub const fn site(&self) -> Site {
        SITE_REMOTE | (self.rank as u64) << 32 | self.export as u64
    }

    /// The savings of marks.
    #[inline]
    pub fn marks(&self) -> &[Saving] {
        self.split().0
    }

    /// The savings of other procedures.
    #[inline]
    pub fn functions(&self) -> &[Saving] {
        self.split().1
    }

    #[inline]
    fn split(&self) -> (&[Saving], &[Saving]) {
        let used = &self.savings[..SAVINGS.min(self.count as usize)];
        let is_mark = |saving: &&Saving| saving.procedure & MARK != 0;
        used.split_at(used.iter().take_while(is_mark).count())
    }
}

/// What [`MessageTable::enter`] returns.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Entered {
    /// Where the call is, or one of the constants below.
    pub site: Site,
    /// The thread's strand, until its next call; null if it is not tracked, or was not asked for.
    pub strand: *const RemoteStrand,
}

/// In place of a site: a call within another one, which is not to be reported.
pub const CALL_NESTED: Site = 0;
/// In place of a site: a call that is not tracked.
pub const CALL_UNTRACKED: Site = 1;

/// The functions for calls of a message-passing library, all about the calling thread. None of them is for
/// signal handlers.
///
/// # Safety
/// Of those that are unsafe: the pointers are valid.
#[repr(C)]
#[derive(Debug)]
pub struct MessageTable {
    /// `size_of::<MessageTable>()` on the profiler's side.
    pub size: u32,
    /// [`ABI_VERSION`] on the profiler's side.
    pub version: u32,
    /// Whether the critical path is tracked in this run, now or at another time.
    pub tracks: bool,
    /// The process has this rank among so many in a job, whose id is the same for all ranks.
    pub join: extern "C" fn(job: u64, rank: u32, ranks: u32),
    /// A call from this address begins: no activity until [`leave`](Self::leave), which gets the site unless
    /// it is [`CALL_NESTED`]. `sends`: the strand is needed for other processes. `waits`: the call may wait
    /// for other processes.
    pub enter: extern "C" fn(address: u64, sends: bool, waits: bool) -> Entered,
    /// The call has waited for a strand of another process, unless that is null, and ends if it `is_over`.
    pub leave: unsafe extern "C" fn(at: Site, from: *const RemoteStrand, is_over: bool),
    /// As [`PathTable::lose`].
    pub lose: extern "C" fn(cause: u32),
}
