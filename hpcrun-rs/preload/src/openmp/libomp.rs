//! LLVM's and Intel's runtime, by the tools interface of OpenMP 5 (OMPT). The runtime looks for
//! `ompt_start_tool`, finds ours first, and calls us at each event. Each copy of it does so.
//!
//! A region's record is in the word that the runtime keeps for us in the region, a task's in the task's. An
//! explicit task that has not begun has its captured context there, or the region's record.

use super::copies::Entry;
use super::edges::{self, Spawned, Team};
use super::libgomp::{Arguments, Stack, call, interpose};
use super::loops::{self, Loop};
use super::spare::Spare;
use super::{captured, creation};
use crate::start;
use hpc_formats::process::DirectiveKind;
use hpcrun_core::tasks::{Boundary, Context, OnPath, Task};
use hpcrun_core::threads::{self, OwnThread};
use hpcrun_core::unwind::Registers;
use hpcrun_core::{directives, path, session};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

type Data = *mut u64;
type LookUp = unsafe extern "C" fn(*const c_char) -> *const c_void;
type SetCallback = unsafe extern "C" fn(c_int, *const c_void) -> c_int;
type TaskInfo =
    unsafe extern "C" fn(c_int, *mut c_int, *mut Data, *mut *const Frame, *mut Data, *mut c_int) -> c_int;

/// Where a task's frames end and begin.
#[repr(C)]
struct Frame {
    /// In the frame that calls the task; 0 before.
    exit: u64,
    /// In the frame of the runtime that the task has called.
    enter: *const u64,
    flags: [c_int; 2],
}

#[repr(C)]
struct StartResult {
    initialize: unsafe extern "C" fn(LookUp, c_int, Data) -> c_int,
    finalize: unsafe extern "C" fn(Data),
    tool_data: u64,
}

const BEGIN: c_int = 1;
const END: c_int = 2;
/// A flag of an implicit task: that of the program's first thread.
const INITIAL: c_int = 1;
/// A flag of an explicit task, and one that only its creation runs.
const EXPLICIT: c_int = 4;
const UNDEFERRED: c_int = 0x0800_0000;
/// A region, as long as it lasts.
#[repr(C)]
struct Region {
    context: Context,
    team: Team,
    /// The return address of its call.
    from: usize,
    /// The thread that has begun it.
    owner: u32,
}

/// A task that has not begun, where critical paths are tracked.
struct New {
    word: u64,
    spawned: Spawned,
}

/// Marks a word that points to a [`New`].
const NEW: u64 = 1 << 62;
/// Marks a word that is a captured context.
const CAPTURED: u64 = 1 << 63;
/// A task without a known context, in such a word.
const NO_CONTEXT: u64 = CAPTURED;
/// The word of a task that goes on at its caller.
const THROUGH: u64 = u64::MAX;

/// `ompt_get_task_info` of each copy.
static TASK_INFO: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

/// Called by a runtime that starts.
#[unsafe(no_mangle)]
pub extern "C" fn ompt_start_tool(_: c_uint, _: *const c_char) -> *const c_void {
    #[repr(transparent)]
    struct Shared(#[allow(dead_code)] StartResult);
    // SAFETY: constant.
    unsafe impl Sync for Shared {}
    static RESULT: Shared = Shared(StartResult { initialize, finalize, tool_data: 0 });
    start::ensure(start::arguments);
    match session::is_running() && !has_other_tool() {
        true => (&raw const RESULT).cast(),
        false => ptr::null(),
    }
}

/// Whether the user has a tool of their own.
fn has_other_tool() -> bool {
    // SAFETY: reads the environment, which the runtime's start does as well.
    let named = unsafe { libc::getenv(c"OMP_TOOL_LIBRARIES".as_ptr()) };
    // SAFETY: null, or a NUL-terminated text.
    !named.is_null() && unsafe { *named } != 0
}

unsafe extern "C" fn initialize(look_up: LookUp, _: c_int, _: Data) -> c_int {
    let find = |name: &CStr| {
        // SAFETY: the runtime's function, with a NUL-terminated name.
        unsafe { look_up(name.as_ptr()) }
    };
    let (set, info) = (find(c"ompt_set_callback"), find(c"ompt_get_task_info"));
    let free = TASK_INFO.iter().find(|known| {
        let set = known.compare_exchange(0, info as usize, Ordering::AcqRel, Ordering::Relaxed);
        set.is_ok()
    });
    if set.is_null() || info.is_null() || free.is_none() {
        return 0;
    }
    let callbacks: [(c_int, *const c_void); 7] = [
        (1, begin_thread as *const c_void),
        (3, begin_region as *const c_void),
        (4, end_region as *const c_void),
        (5, create_task as *const c_void),
        (6, schedule_task as *const c_void),
        (7, implicit_task as *const c_void),
        (16, wait as *const c_void),
    ];
    for (event, callback) in callbacks {
        // SAFETY: the runtime's function; each callback has the signature of its event.
        unsafe { std::mem::transmute::<*const c_void, SetCallback>(set)(event, callback) };
    }
    if path::is_configured() {
        let callback = depend as *const c_void;
        // SAFETY: as above.
        unsafe { std::mem::transmute::<*const c_void, SetCallback>(set)(18, callback) };
    }
    1
}

unsafe extern "C" fn finalize(_: Data) {}

/// A thread of the runtime, which waits until it has a task. Its creator has waited, so it does already.
unsafe extern "C" fn begin_thread(kind: c_int, _: Data) {
    const WORKER: c_int = 2;
    let waits = |thread: &OwnThread| kind == WORKER && !thread.working().is_paused();
    if let Some(thread) = threads::current().filter(waits) {
        thread.begin_pause();
    }
}

unsafe extern "C" fn begin_region(
    _: Data,
    around: *const Frame,
    region: Data,
    _: c_uint,
    _: c_int,
    return_address: u64,
) {
    let Some(thread) = threads::current() else { return };
    let from = return_address as usize;
    directives::count(thread, from, DirectiveKind::OmpRegion, false);
    // SAFETY: the runtime's frame of the task that has called it, and its word for us.
    unsafe {
        thread.task().as_ref().inspect(|task| task.settle());
        let context = match place(around, return_address) {
            Some(registers) => Context::Site { registers, tasks: thread.task() },
            None => captured(thread, Registers::here()),
        };
        let record = Region { context, team: Team::fork(from), from, owner: thread.ordinal() };
        *region = REGION.with(|spare| spare.take(record)) as u64;
    }
    thread.expect_pause();
}

/// The registers of the runtime's caller: the runtime's entry has a frame pointer, and names it. Not so for
/// all regions; then its return address is another one.
unsafe fn place(around: *const Frame, return_address: u64) -> Option<[u64; 3]> {
    // SAFETY: null, or in the frame of a function of the runtime that this thread is in.
    unsafe {
        let frame = around.as_ref()?.enter;
        if frame.is_null() || frame as usize % 8 != 0 {
            return None;
        }
        let (fp, ip) = (frame.read(), frame.add(1).read());
        (ip == return_address && ip != 0).then_some([ip - 1, frame as u64 + 16, fp])
    }
}

unsafe extern "C" fn end_region(region: Data, _: Data, _: c_int, _: u64) {
    let Some(thread) = threads::current() else { return };
    thread.end_pause();
    // SAFETY: the word of a region that has ended, so its threads wait and use the record no more.
    unsafe {
        let record = std::mem::replace(&mut *region, 0) as *mut Region;
        if !record.is_null() {
            (*record).team.join((*record).from);
            REGION.with(|spare| spare.give(record));
        }
    }
}

thread_local! {
    /// A region ends on the thread that has begun it, and so does each part of a task.
    static REGION: Spare<Region> = const { Spare::new() };
    static BEGUN: Spare<Begun> = const { Spare::new() };
    /// The thread's part in the innermost region that it works for.
    static PART: Cell<*const Begun> = const { Cell::new(ptr::null()) };
}

/// Frees what the calling thread keeps.
pub(crate) fn end_thread() {
    REGION.with(Spare::clear);
    BEGUN.with(Spare::clear);
}

unsafe extern "C" fn implicit_task(
    endpoint: c_int,
    region: Data,
    task: Data,
    _: c_uint,
    _: c_uint,
    flags: c_int,
) {
    let Some(thread) = threads::current() else { return };
    if flags & INITIAL != 0 || task.is_null() {
        return;
    }
    // SAFETY: the runtime's words for us; a record lives from here to the end of its task.
    unsafe {
        match endpoint {
            BEGIN => {
                let region = region.as_ref().map_or(ptr::null(), |word| *word as *const Region);
                let Some(region) = region.as_ref() else { return };
                let record = begin(thread, task, region.context, boundary_of(task));
                (*record).is_owner.set(region.owner == thread.ordinal());
                (*record).around.set(Some((loops::enter(0), PART.replace(record))));
                region.team.begin(&(*record).task, &(*record).path, region.from);
            }
            // A thread that sleeps between regions is told with a word that is not the task's.
            END => {
                let part = PART.get();
                if !part.is_null() && ptr::eq(part.cast(), thread.task()) {
                    end(thread, part);
                }
            }
            _ => {}
        }
    }
}

/// The record of a task on a thread.
#[repr(C)]
struct Begun {
    task: Task,
    path: OnPath,
    /// Whoever waits for its end does so after it has told of its end: it is no other thread's part in a
    /// region, which the runtime ends late.
    is_owner: Cell<bool>,
    /// Of a thread's part in a region, the loop and the part around it.
    around: Cell<Option<(Loop, *const Begun)>>,
}

/// Begins a task on the calling thread.
unsafe fn begin(thread: OwnThread, task: Data, context: Context, boundary: Boundary) -> *const Begun {
    let record = Task::new(context, boundary, true);
    let (path, is_owner) = (OnPath::default(), Cell::new(true));
    let record =
        BEGUN.with(|spare| spare.take(Begun { task: record, path, is_owner, around: Cell::new(None) }));
    // SAFETY: the record lives until `end`.
    unsafe {
        (*record).task.id.set(task as usize);
        thread.begin_task(&(*record).task);
    }
    record
}

/// Ends a task, if the thread is in it.
unsafe fn end_if_in(thread: OwnThread, task: Data) {
    // SAFETY: null, or the innermost record, which `begin` has made if it is this task's.
    unsafe {
        if thread.task().as_ref().is_some_and(|record| record.id.get() == task as usize) {
            end(thread, thread.task().cast());
        }
    }
}

/// Ends the task with this record, the calling thread's innermost.
unsafe fn end(thread: OwnThread, record: *const Begun) {
    // SAFETY: `begin` has made it, and nobody uses it after this.
    unsafe {
        edges::end(&(*record).task, 0, (*record).is_owner.get());
        let around = (*record).around.take();
        match around {
            // Its region ends now.
            Some(_) if (*record).is_owner.get() => thread.end_last_task(&(*record).task),
            _ => thread.end_task(&(*record).task),
        }
        if let Some((around, part)) = around {
            loops::leave(around);
            PART.set(part);
        }
        BEGUN.with(|spare| spare.give(record.cast_mut()));
    }
}

/// The frame of the task that the calling thread is in, and the region's word, as the copy of the runtime
/// knows them whose task it is.
unsafe fn info_of(task: Data) -> Option<(*const Frame, Data)> {
    for info in &TASK_INFO {
        let info = info.load(Ordering::Acquire);
        if info == 0 {
            break;
        }
        let (mut flags, mut number) = (0, 0);
        let (mut found, mut region) = (ptr::null_mut(), ptr::null_mut());
        let mut frame = ptr::null();
        // SAFETY: a runtime's function, which writes to our variables.
        let known = unsafe {
            let info = std::mem::transmute::<usize, TaskInfo>(info);
            info(0, &mut flags, &mut found, &mut frame, &mut region, &mut number)
        };
        if known == 2 && found == task {
            return Some((frame, region));
        }
    }
    None
}

/// The return address of the call of the region that the calling thread is in.
pub(super) fn innermost_region() -> Option<usize> {
    let task = threads::current()?.task();
    // SAFETY: null, or the record of a task that this thread is in; the word of its region, whose record
    // lives.
    unsafe {
        let (_, region) = info_of(task.as_ref()?.id.get() as Data)?;
        (*region.as_ref()? as *const Region).as_ref().map(|region| region.from)
    }
}

/// The boundary of the task that the calling thread begins.
unsafe fn boundary_of(task: Data) -> Boundary {
    // SAFETY: the runtime's frame of the task.
    unsafe {
        match info_of(task) {
            Some((frame, _)) if !frame.is_null() => Boundary::Word(&raw const (*frame).exit),
            _ => Boundary::None,
        }
    }
}

thread_local! {
    /// The return address of the `taskloop` that the thread is in; 0: none.
    static TASK_LOOP: Cell<usize> = const { Cell::new(0) };
}

interpose! { task_loop: __kmpc_taskloop __kmpc_taskloop_5 }

/// Older runtimes tell of the tasks of a loop with a return address of their own.
unsafe fn task_loop(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    let around = TASK_LOOP.replace(from);
    // SAFETY: the caller's arguments.
    let result = unsafe { call(entry.of_call(from), arguments, stack) };
    TASK_LOOP.set(around);
    result
}

/// The return address of the call that makes a task, by what the runtime says it is.
fn maker(said: usize) -> usize {
    let is_runtimes = || {
        let own = session::module_of(TASK_INFO[0].load(Ordering::Relaxed) as u64);
        own.is_some() && own == session::module_of(said as u64)
    };
    match TASK_LOOP.get() {
        0 => said,
        from => {
            if is_runtimes() {
                from
            } else {
                said
            }
        }
    }
}

unsafe extern "C" fn create_task(
    around: Data,
    _: *const Frame,
    task: Data,
    flags: c_int,
    _: c_int,
    return_address: u64,
) {
    let Some(thread) = threads::current() else { return };
    let from = maker(return_address as usize);
    // SAFETY: the word of the new task; null, or the record of the task that makes it.
    unsafe {
        thread.task().as_ref().inspect(|task| task.settle());
        let word = match flags {
            flags if flags & EXPLICIT == 0 => 0,
            flags if flags & UNDEFERRED != 0 => THROUGH,
            _ => {
                let (context, is_own) = creation(thread);
                directives::count(thread, from, DirectiveKind::OmpTask, !is_own);
                match context {
                    Context::Captured { thread, node } => {
                        CAPTURED | u64::from(thread) << 32 | u64::from(node)
                    }
                    // The region's record outlives its tasks.
                    _ => match info_of(around) {
                        Some((_, region)) if !region.is_null() && *region != 0 => *region,
                        _ => NO_CONTEXT,
                    },
                }
            }
        };
        *task = match path::is_active() && word != 0 {
            true => {
                let spawned = Spawned::new(&thread, from, false, word != THROUGH);
                Box::into_raw(Box::new(New { word, spawned })) as u64 | NEW
            }
            false => word,
        };
    }
}

/// What a task depends on that was made.
#[repr(C)]
struct Dependence {
    address: usize,
    kind: c_int,
}

unsafe extern "C" fn depend(task: Data, all: *const Dependence, count: c_int) {
    const READS: c_int = 1;
    // SAFETY: the word of a task, and the runtime's list.
    unsafe {
        let word = task.as_ref().map_or(0, |word| *word);
        if word & (CAPTURED | NEW) == NEW && count > 0 && !all.is_null() {
            let all = std::slice::from_raw_parts(all, count as usize);
            let new = (word & !NEW) as *mut New;
            (*new).spawned.depend(all.iter().map(|d| (d.address, d.kind == READS)));
        }
    }
}

unsafe extern "C" fn schedule_task(prior: Data, status: c_int, next: Data) {
    const COMPLETE: c_int = 1;
    const CANCEL: c_int = 3;
    const DETACH: c_int = 4;
    const SWITCHES: [c_int; 2] = [2, 7];
    let Some(thread) = threads::current() else { return };
    // SAFETY: the words of tasks of this thread; null if there is none.
    unsafe {
        match status {
            COMPLETE | CANCEL | DETACH => end_if_in(thread, prior),
            _ if SWITCHES.contains(&status) => switch(thread, next),
            _ => {}
        }
    }
}

unsafe fn switch(thread: OwnThread, next: Data) {
    // SAFETY: the innermost record and the one around it, or null; the word of the next task.
    unsafe {
        let current = thread.task().as_ref();
        let outer = current.and_then(|task| task.outer().as_ref());
        if let (Some(current), Some(outer)) = (current, outer) {
            if outer.id.get() == next as usize {
                // It goes on later, as a task that begins anew.
                return end_if_in(thread, current.id.get() as Data);
            }
        }
        let Some(word) = next.as_mut().filter(|word| **word != 0) else { return };
        let spawned = (*word & (CAPTURED | NEW) == NEW).then(|| {
            let new = Box::from_raw((*word & !NEW) as *mut New);
            *word = new.word;
            new.spawned
        });
        let kept = *word & !CAPTURED;
        let context = match kept {
            0 => Context::Unknown,
            _ if kept == *word => *(kept as *const Context),
            _ => Context::Captured { thread: (kept >> 32) as u32, node: kept as u32 },
        };
        let record = match *word {
            THROUGH => begin(thread, next, Context::Unknown, Boundary::None),
            _ => begin(thread, next, context, boundary_of(next)),
        };
        spawned.inspect(|spawned| spawned.begin(&(*record).task, &(*record).path, 0));
    }
}

unsafe extern "C" fn wait(kind: c_int, endpoint: c_int, region: Data, _: Data, from: u64) {
    /// Waits for tasks.
    const TASKS: [c_int; 2] = [5, 6];
    let Some(thread) = threads::current() else { return };
    let (waits_for_tasks, from) = (TASKS.contains(&kind), from as usize);
    match endpoint {
        BEGIN => {
            if !waits_for_tasks {
                edges::arrive(&thread, from);
            }
            thread.begin_pause();
        }
        END => {
            // Of the region's last barrier, others than its owner are told with the next region: they have
            // waited since. The task's end follows.
            if region.is_null() && !waits_for_tasks {
                return;
            }
            thread.end_pause();
            match waits_for_tasks {
                true => edges::join_tasks(&thread, from),
                false => edges::pass(&thread, from),
            }
        }
        _ => {}
    }
}
