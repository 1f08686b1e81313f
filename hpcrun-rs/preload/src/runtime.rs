//! The registration of cooperating runtimes (`hpcrun-abi`).

use crate::events;
use critical_path::table::{self, Host, Tracked};
use critical_path::{Site, Tracker};
use hpc_formats::process::DirectiveKind;
use hpcrun_abi::{
    ABI_VERSION, PATH_START, PATH_STOP, POLL, PathTable, ProfilerTable, RuntimeTable, TaskHeader, TaskRecord,
};
use hpcrun_core::activity::{self, MAX_RUNTIMES, Refusal};
use hpcrun_core::tasks::{Boundary, Context, Task};
use hpcrun_core::threads::OwnThread;
use hpcrun_core::unwind::Registers;
use hpcrun_core::{arch, directives, path, session, threads};
use std::io::Write as _;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Instant;

fn profiler_table() -> &'static ProfilerTable {
    static TABLE: OnceLock<&'static ProfilerTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        Box::leak(Box::new(ProfilerTable {
            size: size_of::<ProfilerTable>() as u32,
            version: ABI_VERSION,
            worker_enter,
            worker_leave,
            capture_context: hpcrun_capture,
            path: path_table(),
            task_begin: hpcrun_task_begin,
            task_end,
            wait_begin,
            wait_end,
        }))
    })
}

/// The critical path's functions; null if this run does not track.
fn path_table() -> *const PathTable {
    static TABLE: OnceLock<&'static PathTable> = OnceLock::new();
    match path::is_configured() {
        true => *TABLE.get_or_init(|| Box::leak(Box::new(table::table::<Process>()))),
        false => ptr::null(),
    }
}

/// What the functions act on. They exist only in a run that tracks.
struct Process;

impl Host for Process {
    fn tracker() -> &'static Tracker {
        path::tracker().expect("the run tracks")
    }

    fn active() -> &'static AtomicU8 {
        path::active()
    }

    fn starts() {
        threads::live().for_each(|thread| thread.start_path());
    }

    fn changed() {
        for (_, runtime) in activity::runtimes() {
            runtime.tracking_changed.inspect(|changed| changed());
        }
    }

    fn context(task: Option<*const TaskHeader>) -> Option<Site> {
        threads::current()?.context(task)
    }

    fn enter<R>(first: impl FnOnce() -> Tracked, change: impl FnOnce(&mut Tracked) -> R) -> Option<R> {
        let thread = threads::current()?;
        events::keeping_errno(|| {
            thread.path().with_first(
                || Some(first()),
                |tracked| {
                    tracked.has_tasks = true;
                    change(&mut tracked.thread)
                },
            )
        })
    }
}

/// Starts to track, or stops. Not in a run that does not.
pub(crate) fn control_path(start: bool) {
    // SAFETY: null, or a table that was leaked.
    if let Some(table) = unsafe { path_table().as_ref() } {
        (table.control)(if start { PATH_START } else { PATH_STOP });
    }
}

/// The entry point of a program that tells of its own synchronisation; see [`hpcrun_abi::CriticalPath`].
#[unsafe(no_mangle)]
pub extern "C" fn hpcrun_critical_path() -> *const PathTable {
    if session::is_running() { path_table() } else { ptr::null() }
}

/// The entry point of a runtime; see [`hpcrun_abi::RegisterRuntime`].
///
/// # Safety
/// As for [`hpcrun_abi::RegisterRuntime`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpcrun_rt_register(table: *const RuntimeTable) -> *const ProfilerTable {
    // SAFETY: the caller's promise: the table is null, or valid until the process ends.
    let Some(table) = (unsafe { table.as_ref() }) else {
        return ptr::null();
    };
    if !session::is_running() {
        return ptr::null();
    }
    if let Err(refusal) = activity::register_runtime(table) {
        warn(refusal);
        return ptr::null();
    }
    session::forget_owners();
    cycle_ns();
    profiler_table()
}

/// Warns once about what the measurement will lack. Not called by the handler: a runtime registers when its
/// first pool starts.
fn warn(refusal: Refusal) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let (why, remedy) = match refusal {
        Refusal::Version(version) if version <= ABI_VERSION => (
            format!("was built for an older profiler (table {version}, not {ABI_VERSION})"),
            "build it with this release's work-stealing-rt",
        ),
        Refusal::Version(version) => (
            format!("was built for a newer profiler (table {version}, not {ABI_VERSION})"),
            "update hpcrun-rs",
        ),
        Refusal::TooMany => (
            format!("is one of more than {MAX_RUNTIMES} in this process"),
            "build the program with fewer copies of work-stealing-rt",
        ),
    };
    // A closed standard error is ignored: a panic would end the program.
    let _ = writeln!(
        std::io::stderr(),
        "hpcrun-rs: warning: the program's task runtime {why}: its tasks have no logical callers, and its \
         workers count as ordinary threads; {remedy}"
    );
}

unsafe extern "C" fn worker_enter(state: *const AtomicU8) {
    if let Some(thread) = threads::current() {
        thread.working().enter_runtime(state);
    }
}

unsafe extern "C" fn worker_leave(state: *const AtomicU8) {
    if let Some(thread) = threads::current() {
        thread.working().leave_runtime(state);
    }
}

unsafe extern "C" fn capture_context(from: usize) -> usize {
    let Some(thread) = threads::current() else { return 0 };
    let kept = thread.capture(Registers::here());
    directives::count(thread, from, DirectiveKind::PoolTask, false);
    kept.map_or(0, |(thread, node)| (thread as usize) << 32 | node as usize)
}

// Add the return address, or its place: the caller's frame lies above it, and those that it calls do not.
core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".hidden hpcrun_capture",
    ".globl hpcrun_capture",
    ".type hpcrun_capture,@function",
    "hpcrun_capture:",
    "mov rdi, [rsp]",
    "jmp {capture}",
    ".size hpcrun_capture, . - hpcrun_capture",
    ".hidden hpcrun_task_begin",
    ".globl hpcrun_task_begin",
    ".type hpcrun_task_begin,@function",
    "hpcrun_task_begin:",
    "mov rdx, rsp",
    "jmp {begin}",
    ".size hpcrun_task_begin, . - hpcrun_task_begin",
    begin = sym task_begin,
    capture = sym capture_context,
);

unsafe extern "C" {
    fn hpcrun_capture() -> usize;
    fn hpcrun_task_begin(record: *mut TaskRecord, context: usize);
}

/// What a runtime's record has.
struct Begun {
    task: Task,
    /// The cycle counter at the beginning of a poll; 0: it is none.
    since: u64,
}

const _: () = assert!(size_of::<Begun>() <= size_of::<TaskRecord>());

unsafe extern "C" fn task_begin(record: *mut TaskRecord, context: usize, mark: u64) {
    let since = if context & POLL != 0 { arch::counter() } else { 0 };
    let context = Context::of([0, (context & !POLL) as u64, 0, 0]);
    let task = Task::new(context, Boundary::At(mark), false);
    let record = record.cast::<Begun>();
    // SAFETY: the caller's record, which has room for ours and stays until the task ends.
    unsafe {
        record.write(Begun { task, since });
        if let Some(thread) = threads::current() {
            (*record).task.id.set(record as usize);
            thread.begin_task(&(*record).task);
        }
    }
}

unsafe extern "C" fn task_end(record: *mut TaskRecord) {
    /// Fewer cycles than 10 ms have.
    const SHORT: u64 = 1 << 23;
    // SAFETY: as `task_begin` has written it.
    let Begun { task, since } = unsafe { &*record.cast::<Begun>() };
    let Some(thread) = threads::current().filter(|_| task.id.get() != 0) else { return };
    if *since != 0 && arch::counter().wrapping_sub(*since) > SHORT {
        tell_of_poll(thread, *since);
    }
    thread.end_task(task);
}

/// Tells of the poll that the thread is in, by the context of its task, if it has taken long.
#[cold]
fn tell_of_poll(thread: OwnThread, since: u64) {
    const LONG_NS: f64 = 1e7;
    let spent = arch::counter().wrapping_sub(since) as f64 * cycle_ns();
    if spent >= LONG_NS {
        thread.charge_metric(Registers::here(), |image| image.long_poll, spent as u64);
    }
}

/// How long a cycle of the counter takes, by the clock since the first call.
fn cycle_ns() -> f64 {
    static FIRST: OnceLock<(u64, Instant)> = OnceLock::new();
    let (counter, clock) = FIRST.get_or_init(|| (arch::counter(), Instant::now()));
    let cycles = arch::counter().wrapping_sub(*counter).max(1);
    clock.elapsed().as_nanos() as f64 / cycles as f64
}

extern "C" fn wait_begin() {
    threads::current().inspect(|thread| thread.begin_pause());
}

extern "C" fn wait_end() {
    threads::current().inspect(|thread| thread.end_pause());
}
