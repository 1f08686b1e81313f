//! Critical paths of small programs on this runtime.
//!
//! Activity is CPU time of known spins, which other programs do not change, so results hold to some percent
//! on a busy machine.
#![cfg(all(target_os = "linux", not(miri), feature = "context"))]

#[path = "support/profiler.rs"]
mod profiler;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use ::critical_path::{Edge, ProcedureTimes, Report};
use hpcrun_api as critical_path;
use work_stealing_rt::{
    ThreadPool, ThreadPoolBuilder, broadcast, join, par_for_grain, scope, spawn, yield_now,
};

/// One tracking at a time; again if a host took the cores away meanwhile, whose time clocks count
/// differently.
fn undisturbed(test: impl Fn()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..4 {
        EXTRA.store(0, SeqCst);
        let before = stolen();
        match catch_unwind(AssertUnwindSafe(&test)) {
            Ok(()) => return,
            Err(failure) if stolen() == before => resume_unwind(failure),
            Err(_) => eprintln!("the host had the cores meanwhile: again"),
        }
    }
    EXTRA.store(0, SeqCst);
    test();
}

/// What a host has taken from all cores, in ticks of the clock.
fn stolen() -> Option<u64> {
    let cores = std::fs::read_to_string("/proc/stat").ok()?;
    cores.split_whitespace().nth(8)?.parse().ok()
}

fn pool(threads: usize) -> ThreadPool {
    let builder = ThreadPoolBuilder::new().num_threads(threads);
    builder.build().expect("threads")
}

/// CPU time of the calling thread in nanoseconds.
fn thread_time() -> u64 {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn cpu_time(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the result.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

const UNIT: u64 = 400_000;

fn spin(name: &'static str, units: u64) {
    critical_path::procedure(name, || {
        let start = thread_time();
        let mut time = 0;
        while time < units * UNIT {
            time = thread_time() - start;
        }
        EXTRA.fetch_add(time - units * UNIT, SeqCst);
    });
}

/// What spins of the test took beyond their times: an interrupt, or a hypervisor, may have the core for long.
static EXTRA: AtomicU64 = AtomicU64::new(0);

/// The report of a program in a pool.
fn track<R: Send>(pool: &ThreadPool, program: impl FnOnce() -> R + Send) -> Report {
    critical_path::start();
    pool.install(program);
    stop()
}

#[track_caller]
fn stop() -> Report {
    assert!(critical_path::stop().is_some());
    profiler::tracker().report()
}

fn of<'a>(report: &'a Report, name: &str) -> &'a ProcedureTimes {
    let found = report.procedures.iter().find(|p| p.name == name);
    found.unwrap_or_else(|| panic!("{name} is not in {report:?}"))
}

/// Whether `time` is `units`, or more by what the machine and the runtime add.
#[track_caller]
fn about(time: u64, units: u64) {
    let expected = units * UNIT;
    let most = expected + expected / 8 + UNIT + EXTRA.load(SeqCst);
    assert!((expected - expected / 25..=most).contains(&time), "{time} instead of {expected}");
}

fn sums_agree(report: &Report) {
    let sum: u64 = report.segments.iter().map(|s| s.time).sum();
    assert_eq!(sum, report.span);
    assert!(report.span <= report.work);
    assert!(report.quality.lost_edges.is_empty(), "{report:?}");
}

/// Name, time on the path, span without it.
type Times = (&'static str, u64, u64);

/// A program, its work and span, and its procedures.
type Graph = (fn(), u64, u64, &'static [Times]);

fn tree(depth: u32) {
    if depth == 0 {
        return spin("leaf", 4);
    }
    join(|| tree(depth - 1), || tree(depth - 1));
    spin("merge", 2);
}

fn spins(times: &[(&'static str, u64)]) {
    times.iter().for_each(|(name, units)| spin(name, *units));
}

const GRAPHS: [Graph; 8] = [
    (
        || {
            spin("pre", 10);
            join(|| spin("A", 30), || spin("B", 50));
            spin("post", 5);
        },
        95,
        65,
        &[("pre", 10, 55), ("A", 0, 65), ("B", 50, 45), ("post", 5, 60)],
    ),
    (|| tree(4), 94, 12, &[("leaf", 4, 8), ("merge", 8, 4)]),
    (
        || {
            spin("P", 20);
            scope(|scope| {
                scope.spawn(|_| spin("D", 28));
                spin("A", 30);
            });
            spin("E", 25);
        },
        103,
        75,
        &[("P", 20, 55), ("A", 30, 73), ("D", 0, 75), ("E", 25, 50)],
    ),
    (
        || _ = join(|| spins(&[("f", 40), ("g", 5)]), || spins(&[("f", 10), ("h", 30)])),
        85,
        45,
        &[("f", 40, 30), ("g", 5, 40), ("h", 0, 45)],
    ),
    (
        || {
            let ab = || join(|| spin("a", 100), || spin("b", 98));
            join(ab, || join(|| spin("c", 95), || spin("d", 50)));
        },
        343,
        100,
        &[("a", 100, 98), ("b", 0, 100), ("c", 0, 100), ("d", 0, 100)],
    ),
    (
        || {
            scope(|scope| {
                scope.spawn(|_| spins(&[("x0", 10), ("x1", 70)]));
                scope.spawn(|scope| {
                    spin("y0", 10);
                    (0..16).for_each(|_| scope.spawn(|_| spin("leaf", 5)));
                });
            });
        },
        170,
        80,
        &[("x0", 10, 70), ("x1", 70, 15), ("y0", 0, 80), ("leaf", 0, 80)],
    ),
    (|| scope(|scope| (0..4).for_each(|_| scope.spawn(|_| spin("task", 50)))), 200, 50, &[("task", 50, 0)]),
    // On one worker, too, where nobody ever asks for tasks.
    (
        || {
            spin("before", 10);
            par_for_grain(0..64, 2, |_| spin("body", 2));
        },
        138,
        14,
        &[("before", 10, 4), ("body", 4, 10)],
    ),
];

#[test]
fn graphs_have_their_answers_whoever_runs_them() {
    undisturbed(|| {
        for workers in [1, 2, 4] {
            let pool = pool(workers);
            for (program, work, span, procedures) in GRAPHS {
                EXTRA.store(0, SeqCst);
                let report = track(&pool, program);
                sums_agree(&report);
                about(report.work, work);
                about(report.span, span);
                for (name, on_path, zeroed) in procedures {
                    about(of(&report, name).on_path, *on_path);
                    about(of(&report, name).zeroed_span, *zeroed);
                }
            }
        }
    });
}

#[test]
fn a_path_goes_from_the_start_through_the_longer_half() {
    undisturbed(|| {
        let report = track(&pool(2), GRAPHS[0].0);
        assert_eq!(report.procedures[0].name, "B");
        assert_eq!(report.segments[0].edge, Edge::Start);
        // To the fork, the second half, what follows.
        let large = report.segments.iter().filter(|s| s.time > UNIT);
        let large: Vec<Edge> = large.map(|s| s.edge).collect();
        assert_eq!(large[1..], [Edge::Spawn, Edge::Join]);
    });
}

/// The same numbers if the second half is certainly stolen.
#[test]
fn a_stolen_half_is_a_strand_of_its_own() {
    undisturbed(|| {
        let pool = pool(2);
        let barrier = Barrier::new(2);
        let report = track(&pool, || {
            spin("before", 10);
            join(
                || {
                    barrier.wait();
                    spin("first", 20);
                },
                || {
                    barrier.wait();
                    spin("second", 40);
                },
            );
        });
        sums_agree(&report);
        about(report.work, 70);
        about(report.span, 50);
        about(of(&report, "second").zeroed_span, 30);
        let threads: Vec<_> = report.segments.iter().filter(|s| s.time > UNIT).collect();
        assert_ne!(threads[0].thread, threads[1].thread);
    });
}

fn fib(n: u64, leaves: &AtomicU64) -> u64 {
    if n < 2 {
        // Now and then a leaf is long.
        if leaves.fetch_add(1, SeqCst) % 20_011 == 0 {
            spin("long", 1);
        }
        return n;
    }
    let (a, b) = join(|| fib(n - 1, leaves), || fib(n - 2, leaves));
    a + b
}

/// Forks that are too short to follow those inside of them: nothing is lost, and the span has two bounds.
#[test]
fn short_forks_are_grains() {
    undisturbed(|| {
        for threads in [1, 2, 4] {
            let (pool, leaves) = (pool(threads), AtomicU64::new(1));
            let report = track(&pool, || {
                for _ in 0..12 {
                    assert_eq!(fib(20, &leaves), 6765);
                    assert_eq!(join(|| fib(12, &leaves), || fib(12, &leaves)), (144, 144));
                }
            });
            sums_agree(&report);
            assert!(report.quality.grains > 100, "{report:?}");
            let followed = report.quality.exact_edges / 2;
            assert!(followed < 12 * 10_946 / 2, "{followed} on {threads}");
            assert!(report.span_at_least <= report.span);
            let long = of(&report, "long");
            assert!(long.on_path <= long.work, "{report:?}");
            about(long.work, leaves.load(SeqCst) / 20_011);
        }
    });
}

#[test]
fn scopes_broadcasts_and_loops_are_followed() {
    undisturbed(|| {
        let pool = pool(2);
        let report = track(&pool, || {
            scope(|scope| {
                scope.spawn(|scope| {
                    spin("outer", 10);
                    scope.spawn(|_| spin("inner", 20));
                });
                spin("body", 15);
            });
            broadcast(|_| spin("each", 10));
            par_for_grain(0..8, 1, |_| spin("iteration", 4));
        });
        sums_agree(&report);
        about(report.work, 10 + 20 + 15 + 2 * 10 + 32);
        about(report.span, 10 + 20 + 10 + 4);
        about(of(&report, "body").zeroed_span, 44);
        // Then the body is the longest.
        about(of(&report, "inner").zeroed_span, 15 + 10 + 4);
        let spawned = report.segments.iter().find(|s| s.time / UNIT >= 20);
        let place = profiler::tracker().place(spawned.expect("the inner task").begin);
        assert!(place.file.ends_with("tests/critical_path.rs"), "{place:?}");
        assert!(place.line > 0);
        // The path begins where the tracking was started, and ends where it was stopped.
        let first = profiler::tracker().place(report.segments[0].begin);
        let last = profiler::tracker().place(report.segments[report.segments.len() - 1].end);
        assert!(first.file.ends_with("tests/critical_path.rs"), "{first:?}");
        assert_eq!(last.file, first.file);
        assert_eq!(last.line, first.line + 2);
    });
}

/// A task belongs to the procedure that has spawned it, stolen or not.
#[test]
fn tasks_inherit_the_procedure() {
    undisturbed(|| {
        let spin_unmarked = |units: u64| {
            let start = thread_time();
            while thread_time() - start < units * UNIT {}
        };
        for workers in [1, 3] {
            let report = track(&pool(workers), || {
                critical_path::procedure("around", || {
                    join(|| spin_unmarked(10), || spin_unmarked(10));
                    scope(|scope| scope.spawn(|_| spin_unmarked(10)));
                    spin("inside", 10);
                });
                spin_unmarked(10);
            });
            about(of(&report, "around").work, 30);
            about(of(&report, "around").on_path, 20);
            about(of(&report, "inside").work, 10);
            about(report.span, 40);
        }
    });
}

#[test]
fn a_detached_task_counts_when_it_has_ended() {
    undisturbed(|| {
        let pool = pool(1);
        let ended = AtomicBool::new(false);
        // The task uses it only until it has said so.
        let ended: &'static AtomicBool = Box::leak(Box::new(ended));
        let report = track(&pool, || {
            spawn(move || {
                spin("detached", 30);
                ended.store(true, SeqCst);
            });
            spin("main", 10);
            while !ended.load(SeqCst) {
                yield_now();
            }
            // The task's strand ends after its closure: another task on this worker comes later.
            scope(|scope| scope.spawn(|_| ()));
        });
        about(report.work, 40);
        about(report.span, 30);
        assert_eq!(report.procedures[0].name, "detached");
    });
}

/// Whatever panics, the strands that wait below it go on.
#[test]
fn panics_leave_the_tracking_intact() {
    undisturbed(|| {
        let pool = pool(2);
        let report = track(&pool, || {
            for _ in 0..20 {
                let panics = |program: &(dyn Fn() + Sync)| {
                    let result = catch_unwind(AssertUnwindSafe(program));
                    assert!(result.is_err());
                };
                panics(&|| _ = join(|| panic!("first"), || spin("half", 1)));
                panics(&|| _ = join(|| spin("half", 1), || panic!("second")));
                panics(&|| scope(|scope| scope.spawn(|_| panic!("task"))));
                panics(&|| critical_path::procedure("panicking", || panic!("procedure")));
            }
            join(|| spin("last", 20), || spin("last", 10));
        });
        sums_agree(&report);
        about(of(&report, "half").work, 40);
        about(of(&report, "last").on_path, 20);
        assert!(of(&report, "panicking").work < 20 * UNIT);
    });
}

/// Started and stopped anywhere, in the middle of forks, by any thread.
#[test]
fn it_starts_and_stops_in_the_middle_of_tasks() {
    undisturbed(|| {
        fn tree(depth: u32) {
            if depth == 0 {
                return;
            }
            join(|| tree(depth - 1), || tree(depth - 1));
        }
        let pool = pool(3);
        let over = AtomicBool::new(false);
        thread::scope(|threads| {
            threads.spawn(|| {
                while !over.load(SeqCst) {
                    pool.install(|| tree(8));
                }
            });
            for _ in 0..200 {
                critical_path::start();
                pool.install(|| tree(6));
                let report = stop();
                let sum: u64 = report.segments.iter().map(|s| s.time).sum();
                assert_eq!(sum, report.span);
            }
            over.store(true, SeqCst);
        });
        // Nothing of that is left.
        let report = track(&pool, || join(|| spin("a", 20), || spin("b", 10)));
        sums_agree(&report);
        about(report.span, 20);
        about(report.work, 30);
    });
}

/// A fork whose half was forked before the start is a part of its spawner.
#[test]
fn a_start_inside_of_forks() {
    undisturbed(|| {
        let report = pool(1).install(|| {
            let (report, ()) = join(
                || {
                    critical_path::start();
                    join(|| spin("a", 20), || spin("b", 10));
                    stop()
                },
                || spin("later", 1),
            );
            report
        });
        about(report.span, 20);
        about(report.work, 30);
        assert!(report.procedures.iter().all(|p| p.name != "later" || p.work == 0));
    });
}

/// A worker that looks for tasks spins; that is no activity, whoever has started the tracking where.
#[test]
fn a_worker_without_a_task_is_not_active() {
    undisturbed(|| {
        let handler = |_| _ = join(|| (), || ());
        let builder = ThreadPoolBuilder::new().num_threads(2);
        let pool = builder.start_handler(handler).build().expect("threads");
        pool.install(critical_path::start);
        let clocks = || [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_THREAD_CPUTIME_ID].map(cpu_time);
        let [process, own] = clocks();
        for _ in 0..300 {
            thread::sleep(std::time::Duration::from_micros(200));
            pool.install(|| ());
        }
        let [process, own] = [clocks()[0] - process, clocks()[1] - own];
        let report = pool.install(stop);
        // This thread is active while it installs. The workers mostly search.
        let workers = process - own;
        let active = report.work.saturating_sub(own);
        assert!(active < workers / 2, "{active} of {workers}");
    });
}

#[test]
fn untracked_programs_report_nothing() {
    undisturbed(|| {
        critical_path::start();
        let before = stop();
        pool(2).install(|| join(|| spin("a", 2), || spin("a", 2)));
        assert!(critical_path::report().is_some());
        let after = profiler::tracker().report();
        assert_eq!(before.work, after.work);
        assert_eq!(before.quality, after.quality);
    });
}
