//! oneTBB: its tasks are under who spawned them, and its waits are known.
//!
//! | what | is told by | gives |
//! |---|---|---|
//! | a group of tasks gets its first one; a task begins; it ends | TBB, to its collector | records of tasks |
//! | an algorithm waits for its tasks | interposed entry points | the place of the tasks; the wait |
//! | a task is spawned, not by a task of its group | the same | a captured context |
//!
//! TBB calls a group a context, and what a collector knows a group's caller by, a caller. A worker waits but
//! for its tasks. A task that throws does not end: it is over when the thread begins another task where it
//! was, or leaves the algorithm.

use crate::openmp::copies::{Entry, module_of};
use crate::openmp::libgomp::{Arguments, Stack, call, interpose};
use crate::openmp::{captured, creation};
use hpc_formats::address::ModuleId;
use hpc_formats::process::DirectiveKind;
use hpcrun_core::tasks::{Boundary, Context, Task};
use hpcrun_core::threads::{self, OwnThread};
use hpcrun_core::unwind::{Registers, stack};
use hpcrun_core::{directives, session};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};

/// The caller of a group's tasks. TBB keeps its address in the group.
struct Caller {
    /// Where the group got its first task; unknown, if in an algorithm.
    first: Context,
    /// The algorithms that run in the group now.
    algorithms: AtomicU32,
    /// Odd while the words change.
    version: AtomicU32,
    /// Where tasks of the group are made now: [`Context::words`].
    words: [AtomicU64; 4],
    /// Some tasks of the group have contexts of their own.
    has_others: AtomicBool,
}

impl Caller {
    fn context(&self) -> Context {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let words = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version % 2 == 0 && version == self.version.load(Ordering::Relaxed) {
                return Context::of(words);
            }
            std::hint::spin_loop();
        }
    }

    fn set(&self, context: Context) {
        let free = |version| (version % 2 == 0).then_some(version + 1);
        while self.version.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_err() {
            std::hint::spin_loop();
        }
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(context.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// An algorithm runs in the group. Of two at once, nobody knows whose a task is.
    fn begin(&self, site: Context) {
        let is_first = self.algorithms.fetch_add(1, Ordering::Relaxed) == 0;
        self.set(if is_first { site } else { Context::Unknown })
    }

    fn end(&self) {
        let less = |count: u32| count.checked_sub(1);
        if self.algorithms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) == Ok(1) {
            self.set(self.first);
        }
    }
}

/// A call of TBB that waits, in the frame of `hpcrun_tbb_call`.
#[repr(C)]
struct Call {
    around: *mut Call,
    /// The group that the algorithm runs in; null: none.
    group: *const Group,
    /// Number of the thread's tasks before.
    depth: usize,
    is_observed: bool,
    /// The frame pointer and return address of the caller.
    frame: [u64; 2],
}

/// What is known of TBB's `task_group_context`, a type of its binary interface.
#[repr(C)]
struct Group {
    others: [usize; 7],
    caller: *const Caller,
}

/// The records of a thread's tasks, by depth. A box stays in its place.
#[derive(Default)]
#[allow(clippy::vec_box)]
struct Records {
    all: Vec<Box<Task>>,
    depth: usize,
}

thread_local! {
    /// The calls that the thread is in, innermost first.
    static CALLS: Cell<*mut Call> = const { Cell::new(ptr::null_mut()) };
    /// The context of the next group that gets its first task.
    static FIRST: Cell<Option<Context>> = const { Cell::new(None) };
    /// The caller of the task that begins, and an address in the frame that runs it.
    static ENTERED: Cell<(*const Caller, u64)> = const { Cell::new((ptr::null(), 0)) };
    /// Null: none.
    static RECORDS: Cell<*mut Records> = const { Cell::new(ptr::null_mut()) };
}

/// TBB, which has found its collector; 0: not yet.
static LIBRARY: AtomicU16 = AtomicU16::new(0);
/// Tasks of unknown groups have contexts of their own.
static HAS_ENQUEUED: AtomicBool = AtomicBool::new(false);
/// The captured context of a task that has not begun, by the task's address; 0: none. It is written before
/// the task is spawned, and read when that begins.
struct New {
    task: AtomicUsize,
    context: [AtomicU64; 4],
}

/// Room for as many as most programs have at once.
static SPAWNED: [New; 1 << 13] =
    [const { New { task: AtomicUsize::new(0), context: [const { AtomicU64::new(0) }; 4] } }; 1 << 13];
/// Those for which there was no room.
static MORE: Mutex<BTreeMap<usize, [u64; 4]>> = Mutex::new(BTreeMap::new());
static HAS_MORE: AtomicBool = AtomicBool::new(false);

/// Where a task may be.
fn places(task: usize) -> impl Iterator<Item = &'static New> {
    const TRIED: usize = 8;
    let first = (task / 64).wrapping_mul(0x9e37_79b9) >> 7;
    (first..first + TRIED).map(|at| &SPAWNED[at % SPAWNED.len()])
}

fn insert(task: usize, context: Context) {
    let words = context.words();
    let is_free = |new: &&New| {
        new.task.load(Ordering::Relaxed) == 0
            && new.task.compare_exchange(0, task, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    match places(task).find(is_free) {
        Some(new) => {
            let each = new.context.iter().zip(words);
            each.for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        }
        None => {
            HAS_MORE.store(true, Ordering::Relaxed);
            MORE.lock().unwrap_or_else(PoisonError::into_inner).insert(task, words);
        }
    }
}

fn remove(task: usize) -> Option<[u64; 4]> {
    match places(task).find(|new| new.task.load(Ordering::Relaxed) == task) {
        Some(new) => {
            let words = new.context.each_ref().map(|word| word.load(Ordering::Relaxed));
            new.task.store(0, Ordering::Release);
            Some(words)
        }
        None if HAS_MORE.load(Ordering::Relaxed) => {
            MORE.lock().unwrap_or_else(PoisonError::into_inner).remove(&task)
        }
        None => None,
    }
}

/// Whether code at this address is TBB's.
pub(crate) fn owns(address: u64) -> bool {
    let library = LIBRARY.load(Ordering::Relaxed);
    library != 0 && session::module_of(address) == Some(ModuleId(library))
}

/// Frees what the calling thread has had.
pub(crate) fn end_thread() {
    let records = RECORDS.replace(ptr::null_mut());
    if !records.is_null() {
        // SAFETY: boxed by `begin_task`; the thread is in no task any more.
        unsafe {
            (*records).end_to(threads::current(), 0);
            drop(Box::from_raw(records));
        }
    }
}

/// A function that a library tells its collector by.
#[repr(C)]
struct Told {
    name: *const c_char,
    pointer: *mut *const c_void,
    at_first: *const c_void,
    nothing: *const c_void,
    group: c_int,
}

/// What a library hands to its collector.
#[repr(C)]
pub struct Global {
    magic: [u8; 8],
    version: [c_ulong; 3],
    state: [c_long; 3],
    mutex: libc::pthread_mutex_t,
    collector: *const c_void,
    on_error: *const c_void,
    path: *const c_void,
    functions: *mut Told,
}

/// Called by each library that looks for its collector. Only TBB gets functions.
///
/// # Safety
/// The library's own list, which is not used meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __itt_api_init(global: *mut Global, _: c_int) {
    const FUNCTIONS: [(&CStr, *const ()); 5] = [
        (c"__itt_stack_caller_create", create_caller as *const ()),
        (c"__itt_stack_caller_destroy", destroy_caller as *const ()),
        (c"__itt_stack_callee_enter", hpcrun_tbb_enter as *const ()),
        (c"__itt_stack_callee_leave", leave as *const ()),
        (c"__itt_sync_acquired", acquired as *const ()),
    ];
    let is_served = is_tbb(global.cast()) && session::is_running();
    // SAFETY: the caller's promise; the list ends with a null name.
    unsafe {
        let mut told = (*global).functions;
        while !(*told).name.is_null() {
            let name = CStr::from_ptr((*told).name);
            let known = FUNCTIONS.iter().find(|(known, _)| is_served && *known == name);
            *(*told).pointer = known.map_or((*told).nothing, |(_, function)| function.cast());
            told = told.add(1);
        }
        if is_served {
            session::refresh_loadmap();
            let library = session::module_of(global as u64);
            library.inspect(|library| LIBRARY.store(library.0, Ordering::Relaxed));
            // It looks in its first call.
            if let Some(call) = CALLS.get().as_mut() {
                call.observe();
            }
        }
    }
}

/// Whether an address is in oneTBB, rather than another library that has collectors.
fn is_tbb(address: *const c_void) -> bool {
    let path = module_of(address as usize).map_or(&[][..], CStr::to_bytes);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let is_one_of = |names: [&[u8]; 2]| names.iter().any(|part| name.starts_with(part));
    let is_twelve = name.windows(6).any(|part| part == b".so.12");
    name.starts_with(b"libtbb") && is_twelve && !is_one_of([b"libtbbmalloc", b"libtbbbind"])
}

// `hpcrun_tbb_call` calls a function of TBB, which may throw: its personality routine ends the call then.
// `hpcrun_tbb_enter` adds the place of its return address.
core::arch::global_asm!(
    ".text",
    ".p2align 4",
    ".hidden hpcrun_tbb_call",
    ".globl hpcrun_tbb_call",
    ".type hpcrun_tbb_call,@function",
    "hpcrun_tbb_call:",
    ".cfi_startproc",
    ".cfi_personality 0x9b, hpcrun_tbb_personality",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 80",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], rcx",
    "mov [rsp + 32], r8",
    "lea rdi, [rbp - {call}]",
    "mov rsi, r9",
    "call {begin}",
    "mov rdi, [rsp]",
    "mov rsi, [rsp + 8]",
    "mov rdx, [rsp + 16]",
    "mov rcx, [rsp + 24]",
    "call [rsp + 32]",
    "call {end}",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size hpcrun_tbb_call, . - hpcrun_tbb_call",
    ".hidden hpcrun_tbb_enter",
    ".globl hpcrun_tbb_enter",
    ".type hpcrun_tbb_enter,@function",
    "hpcrun_tbb_enter:",
    "mov rsi, rsp",
    "jmp {enter}",
    ".size hpcrun_tbb_enter, . - hpcrun_tbb_enter",
    ".section .data.rel.ro,\"aw\"",
    ".p2align 3",
    "hpcrun_tbb_personality:",
    ".quad {personality}",
    ".text",
    call = const std::mem::offset_of!(Call, frame),
    begin = sym begin_call,
    end = sym end_call,
    enter = sym enter,
    personality = sym unwind_call,
);

const _: () = assert!(std::mem::offset_of!(Call, frame) == 32);

unsafe extern "C" {
    /// Not declared as unwinding, since the hooks around it have nothing to do then.
    fn hpcrun_tbb_call(a: usize, b: usize, c: usize, d: usize, function: usize, group: usize);
    fn hpcrun_tbb_enter();
}

interpose! { algorithm:
    _ZN3tbb6detail2r116execute_and_waitERNS0_2d14taskERNS2_18task_group_contextERNS2_12wait_contextES6_
}
interpose! { pipeline:
    _ZN3tbb6detail2r117parallel_pipelineERNS0_2d118task_group_contextEmRKNS2_11filter_nodeE
}
interpose! { wait:
    _ZN3tbb6detail2r14waitERNS0_2d112wait_contextERNS2_18task_group_contextE
    _ZN3tbb6detail2r14waitERNS0_2d115task_arena_baseE
}
interpose! { spawn:
    _ZN3tbb6detail2r15spawnERNS0_2d14taskERNS2_18task_group_contextE
    _ZN3tbb6detail2r15spawnERNS0_2d14taskERNS2_18task_group_contextEt
    _ZN3tbb6detail2r16submitERNS0_2d14taskERNS2_18task_group_contextEPNS1_5arenaEm
}
interpose! { enqueue: _ZN3tbb6detail2r17enqueueERNS0_2d14taskEPNS2_15task_arena_baseE }
interpose! { enqueue_in:
    _ZN3tbb6detail2r17enqueueERNS0_2d14taskERNS2_18task_group_contextEPNS2_15task_arena_baseE
}

unsafe fn algorithm(entry: &Entry, from: usize, arguments: Arguments, _: Stack) -> usize {
    // SAFETY: the caller's arguments, the second of which is the group.
    unsafe { run(entry, from, arguments, arguments[1]) }
}

unsafe fn pipeline(entry: &Entry, from: usize, arguments: Arguments, _: Stack) -> usize {
    // SAFETY: the caller's arguments, the first of which is the group.
    unsafe { run(entry, from, arguments, arguments[0]) }
}

/// Runs an algorithm in a group. The first call makes TBB known.
#[inline(always)]
unsafe fn run(entry: &Entry, from: usize, arguments: Arguments, group: usize) -> usize {
    let count = || observed().map(|thread| count(thread, from, DirectiveKind::TbbAlgorithm));
    let is_counted = count().is_some();
    // SAFETY: the caller's arguments.
    unsafe { wait_in(entry, from, arguments, group) };
    if !is_counted {
        count();
    }
    0
}

fn count(thread: OwnThread, from: usize, kind: DirectiveKind) {
    directives::count(thread, from, kind, false);
}

unsafe fn wait(entry: &Entry, from: usize, arguments: Arguments, _: Stack) -> usize {
    // SAFETY: the caller's arguments.
    unsafe { wait_in(entry, from, arguments, 0) }
}

#[inline(always)]
unsafe fn wait_in(entry: &Entry, from: usize, [a, b, c, d, ..]: Arguments, group: usize) -> usize {
    let function = entry.of_call(from).address;
    // SAFETY: the function with the caller's arguments. It returns nothing.
    unsafe { hpcrun_tbb_call(a, b, c, d, function, group) };
    0
}

unsafe extern "C" fn begin_call(call: *mut Call, group: *const Group) {
    let around = CALLS.replace(call);
    // SAFETY: the words below the caller's in the frame of `hpcrun_tbb_call`.
    unsafe {
        let frame = (*call).frame;
        call.write(Call { around, group, depth: depth(), is_observed: false, frame });
        if LIBRARY.load(Ordering::Relaxed) != 0 {
            (*call).observe();
        }
    }
}

impl Call {
    /// The call's tasks will be told of, so their caller waits from now on.
    fn observe(&mut self) {
        let Some(thread) = threads::current().filter(|_| session::is_running()) else { return };
        let [fp, return_address] = self.frame;
        let sp = &raw const self.frame as u64 + 16;
        let registers = [return_address - 1, sp, fp];
        let site = Context::Site { registers, tasks: thread.task() };
        // SAFETY: null, or the caller's group, which lives; its caller is one of ours.
        match unsafe { self.group.as_ref().map(|group| group.caller.as_ref()) } {
            Some(Some(caller)) => caller.begin(site),
            Some(None) => FIRST.set(Some(site)),
            None => {}
        }
        self.is_observed = true;
        // An algorithm begins with a task of its own.
        if self.group.is_null() { thread.begin_pause() } else { thread.expect_pause() }
    }
}

unsafe extern "C" fn end_call() {
    // SAFETY: a call of this thread, which ends, so its group still lives.
    let call = unsafe { &*CALLS.get() };
    CALLS.set(call.around);
    if !call.is_observed {
        return;
    }
    FIRST.set(None);
    // SAFETY: as above; null, or the thread's own records.
    unsafe {
        let caller = call.group.as_ref().and_then(|group| group.caller.as_ref());
        caller.inspect(|caller| caller.end());
        if let Some(records) = RECORDS.get().as_mut() {
            records.end_to(threads::current(), call.depth);
        }
    }
    threads::current().inspect(|thread| thread.end_pause());
}

/// The personality routine of `hpcrun_tbb_call`, of which only the innermost call can be left.
unsafe extern "C" fn unwind_call(_: c_int, actions: c_int, _: u64, _: *mut c_void, _: *mut c_void) -> c_int {
    const CLEANUP: c_int = 2;
    const GO_ON: c_int = 8;
    if actions & CLEANUP != 0 {
        // SAFETY: the call's frame is left now.
        unsafe { end_call() };
    }
    GO_ON
}

/// Whether the calling thread is in a task of the group with this caller, which it made by itself.
fn is_inside(thread: OwnThread, caller: *const Caller, task: usize) -> bool {
    // SAFETY: null, or the record of a task that this thread is in.
    let current = unsafe { thread.task().as_ref() };
    current.is_some_and(|current| current.id.get() == caller as usize) && !is_run(task)
}

/// Whether a task is one that the program has given to a `task_group`, by the name of its type.
fn is_run(task: usize) -> bool {
    // SAFETY: an object of a C++ class with virtual functions. Above them is its type, if the program has
    // such, and in that the name.
    unsafe {
        let table = *(task as *const *const *const [*const c_char; 2]);
        let Some(kind) = (*table.sub(1)).as_ref() else { return false };
        let name = CStr::from_ptr(kind[1]).to_bytes();
        let name = name.strip_prefix(b"*").unwrap_or(name);
        name.starts_with(b"N3tbb6detail2d1") && name[15..].starts_with(b"13function_task")
    }
}

unsafe fn spawn(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    // SAFETY: the caller's arguments.
    unsafe { make(entry, from, arguments, stack, is_inside) }
}

unsafe fn enqueue_in(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    // SAFETY: the caller's arguments.
    unsafe { make(entry, from, arguments, stack, |_, _, _| false) }
}

/// Makes a task; `is_part` tells whether it has the context of the task that makes it.
#[inline(always)] // the registers are those of the caller
unsafe fn make(
    entry: &Entry,
    from: usize,
    arguments: Arguments,
    stack: Stack,
    is_part: impl FnOnce(OwnThread, *const Caller, usize) -> bool,
) -> usize {
    let real = entry.of_call(from);
    // SAFETY: the caller's arguments: a task, its group, and others.
    unsafe {
        let [task, group, ..] = arguments;
        let caller = (*(group as *const Group)).caller;
        if let Some(thread) = observed() {
            count(thread, from, DirectiveKind::TbbTask);
            if caller.is_null() || !is_part(thread, caller, task) {
                keep(thread, task, caller);
            }
        }
        let result = call(real, arguments, stack);
        FIRST.set(None);
        result
    }
}

unsafe fn enqueue(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    let real = entry.of_call(from);
    if let Some(thread) = observed() {
        count(thread, from, DirectiveKind::TbbTask);
        HAS_ENQUEUED.store(true, Ordering::Relaxed);
        insert(arguments[0], kept(thread));
    }
    // SAFETY: the caller's arguments.
    unsafe { call(real, arguments, stack) }
}

/// The calling thread, if TBB tells of its tasks.
fn observed() -> Option<OwnThread> {
    let is_served = LIBRARY.load(Ordering::Relaxed) != 0 && session::is_running();
    threads::current().filter(|_| is_served)
}

/// The context of a task that is spawned here, which may outlive what it is spawned in.
#[inline(always)] // the registers are those of the caller
fn kept(thread: OwnThread) -> Context {
    match creation(thread).0 {
        Context::Site { .. } => Context::Unknown,
        kept => kept,
    }
}

/// Keeps the context of a task that is spawned here: as that of its group, if the group has none, else as its
/// own.
#[inline(always)] // as above
unsafe fn keep(thread: OwnThread, task: usize, caller: *const Caller) {
    let context = kept(thread);
    // SAFETY: null, or the caller of the task's group.
    match unsafe { caller.as_ref() } {
        None => FIRST.set(Some(context)),
        Some(caller) => {
            caller.has_others.store(true, Ordering::Relaxed);
            insert(task, context);
        }
    }
}

/// A group gets its first task.
unsafe extern "C" fn create_caller() -> *mut Caller {
    let Some(thread) = threads::current() else { return ptr::null_mut() };
    let context = FIRST.take().unwrap_or_else(|| captured(thread, Registers::here()));
    let (first, algorithms) = match context {
        Context::Site { .. } => (Context::Unknown, 1),
        _ => (context, 0),
    };
    Box::into_raw(Box::new(Caller {
        first,
        algorithms: AtomicU32::new(algorithms),
        version: AtomicU32::new(0),
        words: context.words().map(AtomicU64::new),
        has_others: AtomicBool::new(false),
    }))
}

unsafe extern "C" fn destroy_caller(caller: *mut Caller) {
    if !caller.is_null() {
        // SAFETY: boxed by `create_caller`; the group and its tasks are over.
        drop(unsafe { Box::from_raw(caller) });
    }
}

/// A task of a group with this caller is about to begin, in the frame that has called us.
unsafe extern "C" fn enter(caller: *const Caller, return_address: u64) {
    ENTERED.set((caller, return_address));
}

/// The task that begins; or some object of the program's has been acquired.
unsafe extern "C" fn acquired(task: usize) {
    let (caller, mark) = ENTERED.replace((ptr::null(), 0));
    // SAFETY: null, or the caller of the task's group.
    let (Some(known), Some(thread)) = (unsafe { caller.as_ref() }, threads::current()) else {
        return;
    };
    let has_own = known.has_others.load(Ordering::Relaxed) || HAS_ENQUEUED.load(Ordering::Relaxed);
    let own = has_own.then(|| remove(task)).flatten();
    let context = own.map_or_else(|| known.context(), Context::of);
    begin_task(thread, context, mark, caller as usize);
}

fn depth() -> usize {
    // SAFETY: null, or the thread's own records.
    unsafe { RECORDS.get().as_ref() }.map_or(0, |records| records.depth)
}

fn begin_task(thread: OwnThread, context: Context, mark: u64, id: usize) {
    if RECORDS.get().is_null() {
        RECORDS.set(Box::into_raw(Box::default()));
    }
    // SAFETY: the thread's own records. A record stays in its box until the thread ends.
    unsafe {
        let records = &mut *RECORDS.get();
        records.end_thrown(thread, mark);
        let task = Task::new(context, Boundary::At(mark), true);
        task.id.set(id);
        match records.all.get_mut(records.depth) {
            Some(record) => **record = task,
            None => records.all.push(Box::new(task)),
        }
        thread.begin_task(&records.all[records.depth]);
        records.depth += 1;
    }
}

unsafe extern "C" fn leave(caller: *const Caller) {
    let Some(thread) = threads::current() else { return };
    // SAFETY: null, or the thread's own records.
    let Some(records) = (unsafe { RECORDS.get().as_mut() }) else { return };
    if records.innermost().is_some_and(|task| task.id.get() == caller as usize) {
        records.end_to(Some(thread), records.depth - 1);
    }
}

impl Records {
    fn innermost(&self) -> Option<&Task> {
        self.all.get(self.depth.checked_sub(1)?).map(|task| &**task)
    }

    /// Ends all tasks but so many.
    fn end_to(&mut self, thread: Option<OwnThread>, depth: usize) {
        while self.depth > depth {
            self.depth -= 1;
            thread.inspect(|thread| thread.end_task(&self.all[self.depth]));
        }
    }

    /// Ends the tasks that have thrown: a task begins at this address of the stack, and theirs is no higher.
    fn end_thrown(&mut self, thread: OwnThread, mark: u64) {
        let stack_of = |address| stack::bounds_from(address).high;
        let is_over = |task: &Task| {
            let there = task.mark_at();
            there <= mark && stack_of(mark) != 0 && stack_of(there) == stack_of(mark)
        };
        while self.innermost().is_some_and(is_over) {
            self.end_to(Some(thread), self.depth - 1);
        }
    }
}
