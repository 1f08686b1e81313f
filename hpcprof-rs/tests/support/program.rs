//! A small program with known structure: `main` calls `serial` and `caller`; `caller` joins a
//! closure that calls `leaf`; the closure is run in place or stolen. `serial` has a loop that calls
//! `memcpy`, `leaf` one over an inlined iterator of the standard library.

use super::{Run, StructureBuilder, ThreadBuilder, at};
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::structure::Origin::{Runtime, System, User};

pub const APP: u16 = 1;
pub const LIBC: u16 = 2;

pub const APP_FILE: &str = "/src/app/src/main.rs";
const JOIN_FILE: &str = "/src/work-stealing-rt/src/join.rs";
const SCHED_FILE: &str = "/src/work-stealing-rt/src/parallel_overhead/sched.rs";

pub const START: CodeAddress = at(APP, 0x1000);
pub const MAIN: CodeAddress = at(APP, 0x1100);
/// `main` where it calls `serial`.
pub const MAIN_SERIAL: CodeAddress = at(APP, 0x1110);
pub const CALLER: CodeAddress = at(APP, 0x1200);
/// In `caller`: the inlined join, at the spawn.
pub const CALLER_JOIN: CodeAddress = at(APP, 0x1210);
/// In `caller`: the closure, inlined through the inlined join.
pub const CALLER_JOIN_CLOSURE: CodeAddress = at(APP, 0x1220);
/// In `caller`: the runtime's inlined push, tagged `sched`.
pub const CALLER_PUSH: CodeAddress = at(APP, 0x1230);
pub const LEAF: CodeAddress = at(APP, 0x1300);
/// In `leaf`: an inlined iterator step of the standard library, in a loop.
pub const LEAF_ITERATOR: CodeAddress = at(APP, 0x1310);
/// The runtime's entry of a stolen job.
pub const EXECUTE: CodeAddress = at(APP, 0x1400);
/// The closure inlined into the runtime's entry of a stolen job.
pub const EXECUTE_CLOSURE: CodeAddress = at(APP, 0x1410);
/// The closure with code of its own.
pub const CLOSURE: CodeAddress = at(APP, 0x1500);
pub const CALL_ONCE: CodeAddress = at(APP, 0x1600);
/// The scheduler, tagged `sched` as a whole.
pub const SCHEDULER: CodeAddress = at(APP, 0x1700);
pub const SERIAL: CodeAddress = at(APP, 0x1800);
pub const MEMCPY: CodeAddress = at(LIBC, 0x500);
pub const FUTEX: CodeAddress = at(LIBC, 0x600);

/// The structures of both modules.
pub fn structures() -> Vec<hpc_formats::structure::Structure> {
    let mut app = StructureBuilder::new("/opt/app", &[1, 2, 3]);
    let p = app.procedure("_start", None, User);
    app.span(0x1000, p, None, ("", 0), None);
    let p = app.procedure("app::main", Some((APP_FILE, 10)), User);
    app.span(0x1100, p, None, (APP_FILE, 12), None);
    app.span(0x1110, p, None, (APP_FILE, 13), None);
    let p = app.procedure("app::caller", Some((APP_FILE, 20)), User);
    app.span(0x1200, p, None, (APP_FILE, 21), None);
    let (name, at) = ("work_stealing_rt::join", (APP_FILE, 22));
    let join = app.inlined(p, None, name, Some((JOIN_FILE, 5)), at, Runtime);
    app.span(0x1210, p, Some(join), (JOIN_FILE, 7), None);
    // The declaration is on the out-of-line body only.
    let name = "app::caller::{closure#0}";
    let inner = app.inlined(p, Some(join), name, None, (JOIN_FILE, 9), User);
    app.span(0x1220, p, Some(inner), (APP_FILE, 23), None);
    let name = "work_stealing_rt::parallel_overhead::sched::push";
    let (declared, at) = (Some((SCHED_FILE, 3)), (JOIN_FILE, 8));
    let push = app.inlined(p, Some(join), name, declared, at, Runtime);
    app.span(0x1230, p, Some(push), (SCHED_FILE, 4), Some("sched"));
    let p = app.procedure("app::leaf", Some((APP_FILE, 40)), User);
    app.span(0x1300, p, None, (APP_FILE, 41), None);
    let over = app.looping(p, None, (APP_FILE, 42), User);
    let declared = Some(("/rustc/core/iter.rs", 800));
    let (name, at) = ("core::iter::Range::next", (APP_FILE, 42));
    let next = app.inlined(p, Some(over), name, declared, at, System);
    app.span(0x1310, p, Some(next), ("/rustc/core/iter.rs", 801), None);
    let name = "work_stealing_rt::job::execute";
    let p = app.procedure(name, Some((JOIN_FILE, 50)), Runtime);
    app.span(0x1400, p, None, (JOIN_FILE, 51), None);
    let name = "app::caller::{closure#0}";
    let inner = app.inlined(p, None, name, None, (JOIN_FILE, 52), User);
    app.span(0x1410, p, Some(inner), (APP_FILE, 23), None);
    let p = app.procedure("app::caller::{closure#0}", Some((APP_FILE, 22)), User);
    app.span(0x1500, p, None, (APP_FILE, 23), None);
    let (name, at) = ("core::ops::function::FnOnce::call_once", ("/rustc/core/function.rs", 250));
    let p = app.procedure(name, Some(at), System);
    app.span(0x1600, p, None, at, None);
    let name = "work_stealing_rt::worker::main_loop";
    let p = app.procedure(name, Some((SCHED_FILE, 60)), Runtime);
    app.span(0x1700, p, None, (SCHED_FILE, 61), Some("sched"));
    let p = app.procedure("app::serial", Some((APP_FILE, 60)), User);
    let over = app.looping(p, None, (APP_FILE, 61), User);
    app.span(0x1800, p, Some(over), (APP_FILE, 61), None);

    let mut libc = StructureBuilder::new("/lib/libc.so.6", &[9]);
    let p = libc.procedure("memcpy", None, System);
    libc.span(0x500, p, None, ("", 0), None);
    let p = libc.procedure("syscall", None, System);
    libc.span(0x600, p, None, ("", 0), None);
    vec![app.structure, libc.structure]
}

/// A run without threads, with both modules.
pub fn run() -> Run {
    let mut run = Run::new();
    run.module(APP, "/opt/app", &[1, 2, 3]);
    run.module(LIBC, "/lib/libc.so.6", &[9]);
    run.structures = structures();
    run
}

/// A run of one thread, whose profile `build` makes from its entry on.
pub fn run_of(build: impl FnOnce(&mut ThreadBuilder, u32)) -> Run {
    let mut run = run();
    let mut thread = ThreadBuilder::new(1);
    let entry = thread.entry();
    build(&mut thread, entry);
    run.threads = vec![thread];
    run
}

/// A run with stolen tasks, support frames, anchors, partial paths, overhead and losses.
pub fn full_run() -> Run {
    let mut run = run();
    let mut first = ThreadBuilder::new(1);
    let entry = first.entry();
    let in_main = first.natives(entry, &[START, MAIN]);
    // Serial work: the other core idles.
    let in_serial = first.natives(entry, &[START, MAIN_SERIAL, SERIAL]);
    first.sample(in_serial, 100, 1.0);
    let copy = first.native(in_serial, MEMCPY);
    first.sample(copy, 20, 1.0);
    // The task run in place.
    let in_caller = first.native(in_main, CALLER);
    first.sample(in_caller, 3, 0.0);
    let inline = first.natives(in_main, &[CALLER_JOIN_CLOSURE, LEAF]);
    first.sample(inline, 60, 0.0);
    let iterator = first.natives(in_main, &[CALLER_JOIN_CLOSURE, LEAF_ITERATOR]);
    first.sample(iterator, 40, 0.0);
    // The runtime's own code, and what it calls in the system.
    let push = first.native(in_main, CALLER_PUSH);
    first.sample(push, 10, 0.0);
    let wait = first.native(push, FUTEX);
    first.sample(wait, 5, 0.5);
    first.losses.push((LossCause::TreeFull, 2));

    let mut second = ThreadBuilder::new(2);
    let entry = second.entry();
    let spawner = [START, MAIN, CALLER_JOIN];
    let stolen = second.spawner(entry, SCHEDULER, &spawner);
    let shim = second.support(stolen, EXECUTE);
    let once = second.native(shim, CALL_ONCE);
    let task = second.natives(once, &[CLOSURE, LEAF]);
    second.sample(task, 80, 0.0);
    // The closure inlined into the runtime's entry.
    let shim = second.support(stolen, EXECUTE_CLOSURE);
    let task = second.native(shim, LEAF);
    second.sample(task, 20, 0.0);
    // The runtime's code under the spawner's context.
    let shim = second.support(stolen, SCHEDULER);
    second.sample(shim, 4, 0.0);
    // A thread created by `serial`, and a path that could not be unwound.
    let anchor = second.anchor(1, in_serial);
    let task = second.native(anchor, LEAF);
    second.values(task, 6, 7, 0.25);
    let partial = second.partial(LossCause::NoUnwindInfo);
    let task = second.native(partial, LEAF);
    second.sample(task, 2, 0.0);
    second.losses.push((LossCause::NoUnwindInfo, 2));
    second.oversubscribed = 3.0;
    run.threads = vec![first, second];
    run
}
