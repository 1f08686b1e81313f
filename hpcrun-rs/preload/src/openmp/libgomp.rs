//! GCC's runtime, whose entry points are interposed.
//!
//! | entry points | what happens |
//! |---|---|
//! | regions | the runtime gets our function and a record; this begins a task in each thread of the region |
//! | regions of old compilers | the same, for the other threads: the caller itself calls the function |
//! | tasks | the runtime copies our block, which has the record and the program's data |
//! | waits | the thread pauses |
//!
//! Whoever starts a region waits in the runtime but within the region's function, and so does the pool.

use super::copies::{Entry, Function};
use super::edges::{self, Spawned, Team};
use super::{captured, creation, loops, site};
use hpc_formats::process::DirectiveKind;
use hpcrun_abi::host::Stacked;
use hpcrun_core::tasks::{Boundary, Context, OnPath, Task};
use hpcrun_core::threads::{self, OwnThread};
use hpcrun_core::unwind::Registers;
use hpcrun_core::{directives, session};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

/// The arguments in registers.
pub(crate) type Arguments = [usize; 6];
/// A function that the compiler has made of a region or task.
type Outlined = unsafe extern "C-unwind" fn(*mut c_void);
/// Copies the data of a task: to, from.
type CopyData = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

/// The arguments on the stack, as far as there are any.
pub(crate) type Stack = Stacked<6>;

type Real = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize, Stack) -> usize;

#[inline]
pub(crate) unsafe fn call(function: Function, [a, b, c, d, e, f]: Arguments, stack: Stack) -> usize {
    // SAFETY: the entry point for which the hook stands; it uses as many of the arguments as it has.
    unsafe { std::mem::transmute::<usize, Real>(function.address)(a, b, c, d, e, f, stack) }
}

/// The calling thread, if it is to observe a function of the runtime.
#[inline]
fn observed(function: Function) -> Option<OwnThread> {
    threads::current().filter(|_| !function.tells && session::is_running())
}

/// Interposes entry points; `$act` gets the entry, the return address, and the arguments.
macro_rules! interpose {
    ($act:ident: $($name:ident)*) => { $(
        /// Interposed; see the module.
        ///
        /// # Safety
        /// As for the runtime's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
            stack: $crate::openmp::libgomp::Stack,
        ) -> usize {
            static ENTRY: $crate::openmp::copies::Entry = $crate::openmp::copies::Entry::new(
                match std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => panic!(),
                },
            );
            // SAFETY: the caller's arguments for the function of this name.
            unsafe { $act(&ENTRY, stack.return_address(0), [a, b, c, d, e, f], stack) }
        }
    )* };
}
pub(crate) use interpose;

interpose! { region:
    GOMP_parallel GOMP_parallel_reductions GOMP_parallel_sections
    GOMP_parallel_loop_static GOMP_parallel_loop_dynamic GOMP_parallel_loop_guided
    GOMP_parallel_loop_runtime GOMP_parallel_loop_nonmonotonic_dynamic
    GOMP_parallel_loop_nonmonotonic_guided GOMP_parallel_loop_nonmonotonic_runtime
    GOMP_parallel_loop_maybe_nonmonotonic_runtime
}

interpose! { start_region:
    GOMP_parallel_start GOMP_parallel_sections_start GOMP_parallel_loop_static_start
    GOMP_parallel_loop_dynamic_start GOMP_parallel_loop_guided_start
    GOMP_parallel_loop_runtime_start
}

interpose! { end_region: GOMP_parallel_end }
interpose! { task: GOMP_task }
interpose! { task_loop: GOMP_taskloop GOMP_taskloop_ull }

interpose! { barrier:
    GOMP_barrier GOMP_barrier_cancel GOMP_barrier_ext GOMP_barrier_cancel_ext
    GOMP_loop_end GOMP_loop_end_cancel GOMP_sections_end GOMP_sections_end_cancel
    GOMP_workshare_task_reduction_unregister
}

interpose! { wait_for_tasks: GOMP_taskwait GOMP_taskwait_depend GOMP_taskgroup_end }

interpose! { wait:
    GOMP_single_copy_start GOMP_single_copy_end GOMP_ordered_start
    __kmpc_ordered GOMP_doacross_wait GOMP_doacross_ull_wait
}

/// The thread waits in the runtime, or may do so.
pub(super) unsafe fn wait(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    let real = entry.of_call(from);
    let thread = threads::current().filter(|_| session::is_running());
    thread.inspect(|thread| thread.begin_pause());
    // SAFETY: the caller's arguments.
    let result = unsafe { call(real, arguments, stack) };
    thread.inspect(|thread| thread.end_pause());
    result
}

/// A barrier of all threads of the region.
unsafe fn barrier(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    let thread = observed(entry.of_call(from));
    thread.inspect(|thread| edges::arrive(thread, from));
    // SAFETY: the caller's arguments.
    let result = unsafe { wait(entry, from, arguments, stack) };
    thread.inspect(|thread| edges::pass(thread, from));
    result
}

/// The thread waits for the tasks that its task has made.
unsafe fn wait_for_tasks(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    // SAFETY: the caller's arguments.
    let result = unsafe { wait(entry, from, arguments, stack) };
    threads::current().inspect(|thread| edges::join_tasks(thread, from));
    result
}

/// What the threads of a region get instead of the program's data.
#[repr(C)]
struct Region {
    /// The data's first word, which the runtime reads for reductions.
    first: usize,
    function: Outlined,
    data: *mut c_void,
    context: Context,
    /// The return address of the call.
    from: usize,
    team: Team,
    /// The step of its loop, if it begins with one.
    step: usize,
    /// The region around it that the same thread has started in the old way.
    around: *mut Region,
}

impl Region {
    unsafe fn new(thread: OwnThread, arguments: Arguments, context: Context, from: usize) -> Region {
        directives::count(thread, from, DirectiveKind::GompRegion, false);
        let data = arguments[1] as *mut c_void;
        // SAFETY: a region's arguments begin with its function and data, null if it has none.
        unsafe {
            Region {
                first: data.cast::<usize>().as_ref().map_or(0, |first| *first),
                function: std::mem::transmute::<usize, Outlined>(arguments[0]),
                data,
                context,
                from,
                team: Team::fork(from),
                step: arguments[5],
                around: ptr::null_mut(),
            }
        }
    }
}

#[inline(never)] // this frame is the region's place
unsafe fn region(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    let real = entry.of_call(from);
    let Some(thread) = observed(real) else {
        // SAFETY: the caller's arguments.
        return unsafe { call(real, arguments, stack) };
    };
    // SAFETY: as above; the record lives until the runtime returns, after the region's last use of it.
    unsafe {
        let region = Region::new(thread, arguments, site(thread, Registers::here()), from);
        let [_, _, rest @ ..] = arguments;
        let [a, b, c, d] = rest;
        let record = &raw const region as usize;
        thread.expect_pause();
        let result = call(real, [run_region as *const () as usize, record, a, b, c, d], stack);
        thread.end_pause();
        region.team.join(from);
        result
    }
}

unsafe extern "C-unwind" fn run_region(region: *mut c_void) {
    // SAFETY: the record that `region` or `start_region` has passed.
    unsafe {
        let region = &*region.cast::<Region>();
        let begin = |task: &Task, path: &OnPath| region.team.begin(task, path, region.from);
        let around = loops::enter(region.step);
        run(region.context, region.from, region.function, region.data, begin);
        loops::leave(around);
    }
}

/// The return address of the call of the region that the calling thread is in.
pub(super) fn innermost_region() -> Option<usize> {
    let task = threads::current()?.task();
    // SAFETY: null, or the record of a task that this thread is in; who calls a loop is in a region's.
    unsafe { task.as_ref() }.map(|task| task.id.get())
}

/// Runs a function of the program as a task of the calling thread.
#[inline(always)] // the record lies in the frame that calls the function
unsafe fn run(
    context: Context,
    from: usize,
    function: Outlined,
    data: *mut c_void,
    begin: impl FnOnce(&Task, &OnPath),
) {
    let thread = threads::current();
    let task = Task::new(context, Boundary::Record, false);
    let path = OnPath::default();
    task.id.set(from);
    // SAFETY: the record stays in this frame until the function has returned; the function gets its data.
    unsafe {
        thread.inspect(|thread| thread.begin_task(&task));
        begin(&task, &path);
        function(data);
    }
    edges::end(&task, from, true);
    thread.inspect(|thread| thread.end_task(&task));
}

thread_local! {
    /// The regions that the thread has started in the old way, innermost first.
    static STARTED: Cell<*mut Region> = const { Cell::new(ptr::null_mut()) };
}

unsafe fn start_region(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    let real = entry.of_call(from);
    let Some(thread) = observed(real) else {
        // SAFETY: the caller's arguments.
        return unsafe { call(real, arguments, stack) };
    };
    let context = captured(thread, Registers::here());
    // SAFETY: as above; `end_region` frees the record.
    unsafe {
        let region = Box::into_raw(Box::new(Region::new(thread, arguments, context, from)));
        (*region).around = STARTED.replace(region);
        let [_, _, a, b, c, d] = arguments;
        thread.begin_pause();
        let start = [run_region as *const () as usize, region as usize, a, b, c, d];
        let result = call(real, start, stack);
        thread.end_pause();
        result
    }
}

unsafe fn end_region(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    // SAFETY: the caller's arguments. The region is over: the runtime uses its record no more.
    unsafe {
        let result = wait(entry, from, arguments, stack);
        let region = STARTED.get();
        if !region.is_null() {
            STARTED.set((*region).around);
            (*region).team.join(from);
            drop(Box::from_raw(region));
        }
        result
    }
}

/// The beginning of a task's block. The program's data follow.
#[derive(Clone, Copy)]
#[repr(C)]
struct Made {
    /// Those of the data that the runtime writes or reads: the bounds of a part of a loop or the event of a
    /// detached task, and what is reduced.
    words: [usize; 3],
    function: Outlined,
    context: Context,
    /// The context is the task's own.
    is_own: bool,
    from: usize,
    spawned: Spawned,
    copy: Option<CopyData>,
    data: *mut c_void,
    size: usize,
    /// Where the program's data begin in the block.
    offset: usize,
    is_loop: bool,
    is_detached: bool,
}

/// A flag of `GOMP_task`.
const DETACHED: usize = 1 << 13;
/// Another: it has dependences.
const DEPENDS: usize = 1 << 3;

/// The addresses that a task depends on, of the caller's list, and whether it only reads there. The list
/// begins with numbers: of all, of those that are written; or 0 and of all, of those that are written, of
/// those that are changed by one task at a time, of those that are read.
unsafe fn dependences(list: *const usize) -> impl Iterator<Item = (usize, bool)> {
    // SAFETY: the caller's list.
    let at = move |index: usize| unsafe { *list.add(index) };
    let (first, all, changed) = match at(0) {
        0 => (5, at(2) + at(3) + at(4), at(2) + at(3)),
        all => (2, all, at(1)),
    };
    (0..all).map(move |index| (at(first + index), index >= changed))
}

/// A flag of `GOMP_taskloop`: its condition holds. That of `GOMP_task` is an argument.
const DEFERRED_LOOP: usize = 1 << 10;

unsafe fn task(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    let is_detached = stack.0[0] & DETACHED != 0;
    // SAFETY: the caller's arguments.
    unsafe { make(entry, from, arguments, stack, false, is_detached) }
}

unsafe fn task_loop(entry: &Entry, from: usize, arguments: Arguments, stack: Stack) -> usize {
    // SAFETY: the caller's arguments.
    unsafe { make(entry, from, arguments, stack, true, false) }
}

#[inline(always)]
unsafe fn make(
    entry: &Entry,
    from: usize,
    arguments: Arguments,
    stack: Stack,
    is_loop: bool,
    is_detached: bool,
) -> usize {
    let real = entry.of_call(from);
    let Some(thread) = observed(real) else {
        // SAFETY: the caller's arguments.
        return unsafe { call(real, arguments, stack) };
    };
    let [function, data, copy, size, align, rest] = arguments;
    let (data, align) = (data as *mut c_void, align.max(align_of::<Made>()));
    let is_deferred = if is_loop { rest & DEFERRED_LOOP != 0 } else { rest & 1 != 0 };
    let offset = size_of::<Made>().next_multiple_of(align);
    // SAFETY: function, data, copy function, size and alignment of a task. The data have the words that the
    // runtime reads of them. It copies the block in this call.
    unsafe {
        let mut words = [0; 3];
        let known = (size / size_of::<usize>()).min(3);
        ptr::copy_nonoverlapping(data.cast::<usize>(), words.as_mut_ptr(), known);
        let (context, is_own) = creation(thread);
        // Each task of a loop is counted when it begins.
        if !is_loop {
            directives::count(thread, from, DirectiveKind::GompTask, !is_own);
        }
        let mut spawned = Spawned::new(&thread, from, is_loop, is_deferred);
        if !is_loop && stack.0[0] & DEPENDS != 0 {
            spawned.depend(dependences(stack.0[1] as *const usize));
        }
        let made = Made {
            words,
            function: std::mem::transmute::<usize, Outlined>(function),
            context,
            is_own,
            from,
            spawned,
            copy: std::mem::transmute::<usize, Option<CopyData>>(copy),
            data,
            size,
            offset,
            is_loop,
            is_detached,
        };
        let block = &raw const made as usize;
        let (run, copy) = (run_task as *const () as usize, copy_task as *const () as usize);
        let result = call(real, [run, block, copy, offset + size, align, rest], stack);
        if is_loop {
            edges::join_tasks(&thread, from);
            made.spawned.forget();
        }
        result
    }
}

unsafe extern "C-unwind" fn copy_task(block: *mut c_void, made: *mut c_void) {
    // SAFETY: the runtime's block has the size and alignment that `make` has asked for, and `made` is its
    // record. The program's function copies its own data.
    unsafe {
        let made = &*made.cast::<Made>();
        block.cast::<Made>().write(*made);
        if made.is_detached && made.size >= size_of::<usize>() {
            made.data.cast::<usize>().write(made.words[0]);
        }
        let data = block.byte_add(made.offset);
        match made.copy {
            Some(copy) => copy(data, made.data),
            None => ptr::copy_nonoverlapping(made.data.cast::<u8>(), data.cast(), made.size),
        }
    }
}

unsafe extern "C-unwind" fn run_task(block: *mut c_void) {
    // SAFETY: a block of `copy_task`, with the bounds that the runtime has written.
    unsafe {
        let made = &*block.cast::<Made>();
        let data = block.byte_add(made.offset);
        if made.is_loop {
            data.cast::<[usize; 2]>().write([made.words[0], made.words[1]]);
            threads::current().inspect(|thread| {
                directives::count(*thread, made.from, DirectiveKind::GompTask, !made.is_own);
            });
        }
        let begin = |task: &Task, path: &OnPath| made.spawned.begin(task, path, made.from);
        run(made.context, made.from, made.function, data, begin);
    }
}
