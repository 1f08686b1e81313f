//! An agent is one file: this test has one of its own, for a runtime of three instructions. And a walk goes
//! on where a task was made, with the backtrace cache as without.

use hpcrun_core::activity;
use hpcrun_core::logical::{BacktraceCache, Note, PathBuffer, PathRoot, Walk, agents};
use hpcrun_core::session;
use hpcrun_core::tasks::{Boundary, Chain, Context, Task};
use hpcrun_core::threads::{self, OwnThread};
use hpcrun_core::unwind::registers::number;
use hpcrun_core::unwind::{Cursor, Registers, Unwind, loadmap, stack};
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::Once;

/// The agent: its frames are those of a runtime.
mod toy {
    use super::Walk;

    std::arch::global_asm!(
        ".text",
        ".p2align 4",
        ".globl toy_run, toy_end",
        "toy_run:",
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "call rsi",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        "toy_end:",
    );
    unsafe extern "C" {
        pub(super) fn toy_run(argument: *mut super::c_void, call: extern "C" fn(*mut super::c_void));
        static toy_end: u8;
    }

    pub(super) fn owns(lookup: u64) -> bool {
        (toy_run as *const () as u64..&raw const toy_end as u64).contains(&lookup)
    }

    pub(super) fn step(walk: &mut Walk<'_>) {
        walk.runtime_frame();
    }
}

/// The toy's number as an owner.
const TOY: u8 = 0xf0;

fn owner_of(lookup: u64, module: hpc_formats::address::ModuleId) -> u8 {
    if toy::owns(lookup) { TOY } else { agents::owner_of(lookup, module) }
}

fn step(walk: &mut Walk<'_>, owner: u8) {
    match owner {
        TOY => toy::step(walk),
        _ => agents::step(walk, owner),
    }
}

struct Walker {
    thread: OwnThread,
    unwind: Unwind,
    path: PathBuffer,
    cache: BacktraceCache,
    /// The paths so far, innermost note first.
    seen: Vec<(PathRoot, Vec<Note>)>,
    context: Context,
}

impl Walker {
    fn new() -> Walker {
        static ATTACHED: Once = Once::new();
        ATTACHED.call_once(|| assert!(activity::attach(None)));
        loadmap::refresh(|| true);
        let new = threads::acquire().expect("memory");
        let bounds = session::pthread_stack().expect("bounds");
        let thread = threads::begin(new, (0, 0), bounds, true);
        Walker {
            thread,
            unwind: Unwind::new(owner_of).expect("memory"),
            path: PathBuffer::new().expect("memory"),
            cache: BacktraceCache::new().expect("memory"),
            seen: vec![],
            context: Context::Unknown,
        }
    }

    /// Walks without the cache and twice with it.
    #[inline(never)]
    fn walk(&mut self) {
        let registers = Registers::here();
        let mut paths = vec![];
        for is_whole in [true, false, false] {
            // SAFETY: nobody refreshes the load map now.
            let pinned = unsafe { loadmap::Pinned::new() };
            let snapshot = pinned.snapshot().expect("a snapshot was taken");
            let bounds = stack::bounds_from(registers.sp());
            let physical = Cursor::new(&mut self.unwind, snapshot, &registers, bounds);
            let mut none = BacktraceCache::new().expect("memory");
            let cache = if is_whole { &mut none } else { &mut self.cache };
            let tasks = Chain::at(self.thread.task());
            let root = Walk::new(physical, tasks, &mut self.path, cache).run(step);
            let mut notes = self.path.notes().to_vec();
            let before = self.seen.last().map_or(&[][..], |(_, notes)| notes);
            let last = paths.last().map_or(before, |(_, notes): &(_, Vec<Note>)| notes);
            notes.extend_from_slice(&last[last.len() - self.path.outer()..]);
            paths.push((root.expect("the thread works"), notes));
        }
        assert_eq!(paths[0], paths[1]);
        assert_eq!(paths[0], paths[2]);
        self.seen.extend(paths.pop());
    }
}

#[inline(never)]
extern "C" fn body(walker: *mut c_void) {
    // SAFETY: the tests pass their walker, and use it after this call.
    unsafe { (*walker.cast::<Walker>()).walk() };
    black_box(());
}

/// What the runtime calls for a task, in its own call.
#[inline(never)]
extern "C" fn run_task(walker: *mut c_void) {
    // SAFETY: as above.
    let (thread, context) =
        unsafe { ((*walker.cast::<Walker>()).thread, (*walker.cast::<Walker>()).context) };
    let task = Task::new(context, Boundary::Record, false);
    // SAFETY: the task ends in this call.
    unsafe { thread.begin_task(&task) };
    body(walker);
    thread.end_task(&task);
    assert_eq!(thread.task(), task.outer());
}

fn logical(notes: &[Note]) -> Vec<u64> {
    notes.iter().map(|note| note.lip.0).filter(|lip| *lip != 0).collect()
}

#[test]
fn an_agent_hides_the_frames_of_its_runtime() {
    let mut walker = Walker::new();
    body((&raw mut walker).cast());
    // SAFETY: `body` takes the walker.
    unsafe { toy::toy_run((&raw mut walker).cast(), body) };
    let [(_, direct), (root, through)] = &walker.seen[..] else { panic!() };
    assert_eq!(*root, PathRoot::Entry);
    assert_eq!(through.len(), direct.len() + 1);
    assert_eq!(through.iter().filter(|note| note.lip.0 == 0).count(), 1);
    assert_eq!(logical(through).len(), logical(direct).len());
}

#[test]
fn a_task_is_under_its_place_or_its_captured_context() {
    let mut walker = Walker::new();
    walker.walk();
    let here = walker.seen[0].1.clone();
    let registers = Registers::here();
    let fp = registers.get(number::RBP).expect("a register");
    let site = [registers.ip(), registers.sp(), fp];
    walker.context = Context::Site { registers: site, tasks: std::ptr::null() };
    // SAFETY: `run_task` takes the walker.
    unsafe { toy::toy_run((&raw mut walker).cast(), run_task) };
    let (root, notes) = walker.seen.pop().expect("a path");
    assert_eq!(root, PathRoot::Entry);
    // `walk`, `body`, `run_task`, and from here on as before, but for this function's own instruction.
    let path = logical(&notes);
    assert_eq!(path.len(), here.len() + 2);
    assert_eq!(path[4..], logical(&here)[2..]);

    walker.context = Context::Captured { thread: 3, node: 4 };
    // SAFETY: as above.
    unsafe { toy::toy_run((&raw mut walker).cast(), run_task) };
    let (root, notes) = walker.seen.pop().expect("a path");
    assert_eq!(root, PathRoot::Anchor { thread: 3, node: 4 });
    assert_eq!(logical(&notes), path[..3]);
    // A task in another one: the inner one decides.
    walker.context = Context::Site { registers: site, tasks: std::ptr::null() };
    let outer = Task::new(Context::Unknown, Boundary::None, false);
    // SAFETY: it ends below.
    unsafe { walker.thread.begin_task(&outer) };
    // SAFETY: as above.
    unsafe { toy::toy_run((&raw mut walker).cast(), run_task) };
    walker.thread.end_task(&outer);
    assert_eq!(walker.seen.pop().map(|(root, _)| root), Some(PathRoot::Entry));
}
