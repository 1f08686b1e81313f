//! The C-layout tables through which a task runtime and the profiler find each other.
//!
//! One duty: fix the memory layout that both sides agree on. A runtime looks up
//! [`REGISTER_SYMBOL`] once with `dlsym(RTLD_DEFAULT, …)`; when it is absent no profiler is
//! present and nothing else of this crate is used. When it is present, the runtime passes its
//! [`RuntimeTable`] and gets a [`ProfilerTable`] back. Neither side links the other.
//!
//! Everything here is data: the profiler's signal handler reads a runtime's atomics and the
//! memory of its tasks, but never calls into the runtime.
//!
//! Versions: a field is only ever added at the end of a table. A reader checks `version` for
//! equality and `size` for at least the size that it knows.

#![no_std]

use core::ffi::c_char;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Version of both tables. Changes when the meaning of a field changes.
pub const ABI_VERSION: u32 = 2;

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
}

// SAFETY: the table is immutable after construction and its pointers lead to statics (the
// contract of `RegisterRuntime`), whose mutable parts are atomics. Nothing here can panic.
unsafe impl Sync for RuntimeTable {}

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
}
