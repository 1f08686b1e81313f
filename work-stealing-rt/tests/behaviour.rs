//! What the public operations promise: results, panics, pools, sleep.
//!
//! Inputs: small programs. Each assertion is on an effect that a broken runtime would miss:
//! sums, drop counts, panic payloads, CPU time. Under Miri, which is thousands of times slower and
//! looks at every access, the programs are smaller.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use work_stealing_rt::{
    Scope, ThreadPool, ThreadPoolBuilder, current_num_threads, current_thread_index, join, par_for,
    par_for_grain, scope, spawn,
};

/// How often something is done: less often under Miri.
const fn times(often: usize) -> usize {
    if cfg!(miri) { often.div_ceil(40) } else { often }
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).build().expect("threads")
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

/// Waits until `flag` is set by another worker; false after ten seconds.
fn await_flag(flag: &AtomicBool) -> bool {
    let start = Instant::now();
    while !flag.load(SeqCst) {
        if start.elapsed() > Duration::from_secs(10) {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

fn payload(result: thread::Result<impl Sized>) -> &'static str {
    let payload = result.err().expect("a panic");
    payload.downcast_ref::<&'static str>().expect("a literal message")
}

#[test]
fn join_computes_on_pools_of_all_sizes() {
    for threads in [1, 2, 3, 8] {
        let pool = pool(threads);
        let (n, value) = if cfg!(miri) { (9, 34) } else { (22, 17711) };
        assert_eq!(pool.install(|| fib(n)), value);
        assert_eq!(pool.install(current_num_threads), threads);
        assert_eq!(pool.current_num_threads(), threads);
    }
}

#[test]
fn indices_tell_workers_from_others() {
    let pool = pool(3);
    assert_eq!(current_thread_index(), None);
    assert!(pool.install(current_thread_index).expect("a worker") < 3);
    assert_eq!(pool.current_thread_index(), None);
    assert!(pool.install(|| pool.current_thread_index()).is_some());
}

#[test]
fn the_global_pool_serves_calls_from_outside() {
    assert_eq!(fib(15), 610);
    assert!(current_num_threads() >= 1);
    let error = ThreadPoolBuilder::new().build_global().expect_err("it exists");
    assert!(error.to_string().contains("already been initialized"), "{error}");
}

#[test]
fn the_number_of_threads_is_limited() {
    assert_eq!(work_stealing_rt::max_num_threads(), 65_535);
}

#[test]
fn a_panic_in_the_first_closure_leaves_nothing_behind() {
    let pool = pool(1);
    let dropped = AtomicUsize::new(0);
    struct CountDrop<'a>(&'a AtomicUsize);
    impl Drop for CountDrop<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    pool.install(|| {
        for _ in 0..times(100) {
            let guard = CountDrop(&dropped);
            let result = catch_unwind(AssertUnwindSafe(|| {
                join(|| resume_unwind(Box::new("first")), move || drop(guard))
            }));
            assert_eq!(payload(result), "first");
        }
        assert_eq!(fib(10), 55);
    });
    assert_eq!(dropped.load(SeqCst), times(100));
}

#[test]
fn a_panic_in_the_second_closure_run_inline_leaves_nothing_behind() {
    let pool = pool(1);
    pool.install(|| {
        for _ in 0..times(100) {
            let result = catch_unwind(AssertUnwindSafe(|| {
                join(|| fib(3), || -> u64 { resume_unwind(Box::new("second")) })
            }));
            assert_eq!(payload(result), "second");
        }
        assert_eq!(fib(10), 55);
    });
}

#[test]
fn a_panic_in_a_stolen_closure_goes_to_the_joiner() {
    let pool = pool(2);
    pool.install(|| {
        for _ in 0..times(50) {
            let started = AtomicBool::new(false);
            let result = catch_unwind(AssertUnwindSafe(|| {
                join(
                    || assert!(await_flag(&started)),
                    || {
                        started.store(true, SeqCst);
                        resume_unwind(Box::new("stolen"))
                    },
                )
            }));
            assert_eq!(payload(result), "stolen");
            assert!(started.load(SeqCst));
        }
        assert_eq!(fib(10), 55);
    });
}

#[test]
fn a_panic_in_the_first_closure_waits_for_a_stolen_second_one() {
    let pool = pool(2);
    pool.install(|| {
        for _ in 0..times(20) {
            let (started, ended) = (AtomicBool::new(false), AtomicBool::new(false));
            let result = catch_unwind(AssertUnwindSafe(|| {
                join(
                    || {
                        assert!(await_flag(&started));
                        resume_unwind(Box::new("first"))
                    },
                    || {
                        started.store(true, SeqCst);
                        thread::sleep(Duration::from_millis(2));
                        ended.store(true, SeqCst);
                        String::from("dropped by the joiner")
                    },
                )
            }));
            assert_eq!(payload(result), "first");
            assert!(ended.load(SeqCst), "the frame was left while the thief ran");
        }
    });
}

#[test]
fn when_both_halves_panic_the_first_one_wins() {
    let pool = pool(2);
    pool.install(|| {
        let started = AtomicBool::new(false);
        let result = catch_unwind(AssertUnwindSafe(|| {
            join(
                || {
                    assert!(await_flag(&started));
                    resume_unwind(Box::new("first"))
                },
                || {
                    started.store(true, SeqCst);
                    resume_unwind(Box::new("second"))
                },
            )
        }));
        assert_eq!(payload(result), "first");
    });
}

#[test]
fn install_passes_results_and_panics_to_many_threads() {
    let pool = pool(2);
    thread::scope(|threads| {
        for seed in 0..8_u64 {
            let pool = &pool;
            threads.spawn(move || {
                for round in 0..times(50) as u64 {
                    assert_eq!(pool.install(|| fib(10) + seed + round), 55 + seed + round);
                }
                let result =
                    catch_unwind(AssertUnwindSafe(|| pool.install(|| resume_unwind(Box::new("installed")))));
                assert_eq!(payload(result), "installed");
            });
        }
    });
}

#[test]
fn pools_nest_and_call_each_other() {
    let (outer, inner) = (pool(2), pool(2));
    let total = outer.install(|| {
        let (a, b) =
            join(|| inner.install(|| fib(12) + outer.install(|| fib(11))), || inner.install(|| fib(12)));
        a + b
    });
    assert_eq!(total, 144 + 89 + 144);
    let result = catch_unwind(AssertUnwindSafe(|| {
        outer.install(|| inner.install(|| resume_unwind(Box::new("inner"))))
    }));
    assert_eq!(payload(result), "inner");
}

#[test]
fn a_worker_that_waits_for_another_pool_works_on() {
    let (one, other) = (pool(1), pool(1));
    let flag = AtomicBool::new(false);
    // The only worker of `one` waits for `other`, whose task waits for a task of `one`.
    one.install(|| {
        scope(|s| {
            s.spawn(|_| flag.store(true, SeqCst));
            assert!(other.install(|| await_flag(&flag)));
        });
    });
}

#[test]
fn a_scope_runs_thousands_of_tasks() {
    for threads in [1, 2, 4] {
        let pool = pool(threads);
        let sum = AtomicUsize::new(0);
        pool.scope(|s| {
            for i in 0..times(5_000) {
                let sum = &sum;
                s.spawn(move |s| {
                    s.spawn(move |_| {
                        sum.fetch_add(i, SeqCst);
                    });
                });
            }
        });
        assert_eq!(sum.into_inner(), times(5_000) * (times(5_000) - 1) / 2);
    }
}

#[test]
fn a_scope_collects_panics_and_waits_for_all() {
    let pool = pool(2);
    let ran = AtomicUsize::new(0);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.scope(|s| {
            for i in 0..100 {
                let ran = &ran;
                s.spawn(move |_| {
                    ran.fetch_add(1, SeqCst);
                    if i % 10 == 0 {
                        resume_unwind(Box::new("task"));
                    }
                });
            }
        })
    }));
    assert_eq!(payload(result), "task");
    assert_eq!(ran.load(SeqCst), 100);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.scope(|s: &Scope<'_>| {
            s.spawn(|_| {
                ran.fetch_add(1, SeqCst);
            });
            resume_unwind(Box::new("body"))
        })
    }));
    assert_eq!(payload(result), "body");
    assert_eq!(ran.load(SeqCst), 101);
}

#[test]
fn a_join_half_is_open_while_the_other_waits_in_a_scope() {
    // The second half must be taken by the other worker although the first never pushes again.
    let pool = pool(2);
    let flag = AtomicBool::new(false);
    pool.install(|| join(|| scope(|s| s.spawn(|_| assert!(await_flag(&flag)))), || flag.store(true, SeqCst)));
}

#[test]
fn a_panic_in_a_broadcast_drops_the_other_results() {
    struct CountDrop<'a>(&'a AtomicUsize);
    impl Drop for CountDrop<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let pool = pool(4);
    for bad in 0..4 {
        let dropped = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.broadcast(|context| {
                if context.index() == bad {
                    resume_unwind(Box::new("one of them"));
                }
                CountDrop(&dropped)
            })
        }));
        assert_eq!(payload(result), "one of them");
        assert_eq!(dropped.into_inner(), 3);
    }
}

#[test]
fn par_for_visits_each_index_once() {
    let most = if cfg!(miri) { 200 } else { 100_000 };
    for threads in [1, 2, 5] {
        let pool = pool(threads);
        for range in [0..0, 5..5, 3..4, 0..7, 10..10 + times(1_000), 0..most] {
            let visits: Vec<AtomicUsize> = (0..range.end).map(|_| AtomicUsize::new(0)).collect();
            let visit = |i: usize| {
                visits[i].fetch_add(1, SeqCst);
            };
            pool.install(|| par_for(range.clone(), visit));
            for grain in [0, 1, 7, 1 << 40] {
                pool.install(|| par_for_grain(range.clone(), grain, visit));
            }
            for (i, visits) in visits.iter().enumerate() {
                let expected = if range.contains(&i) { 5 } else { 0 };
                assert_eq!(visits.load(SeqCst), expected, "index {i} of {range:?}");
            }
        }
    }
    #[expect(clippy::reversed_empty_ranges)]
    par_for(7..3, |_| panic!("an empty range has no index"));
}

#[test]
fn par_for_shares_slow_iterations() {
    let pool = pool(2);
    let met = AtomicUsize::new(0);
    // Two iterations that can only end together.
    pool.install(|| {
        par_for(0..2, |_| {
            met.fetch_add(1, SeqCst);
            let start = Instant::now();
            while met.load(SeqCst) < 2 {
                assert!(start.elapsed() < Duration::from_secs(10), "the halves never met");
            }
        });
    });
}

#[test]
fn a_panic_in_par_for_goes_to_the_caller() {
    let pool = pool(2);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.install(|| {
            par_for(0..1_000, |i| {
                if i == 321 {
                    resume_unwind(Box::new("iteration"));
                }
            });
        })
    }));
    assert_eq!(payload(result), "iteration");
}

#[test]
fn detached_tasks_run_even_when_the_pool_is_dropped() {
    let (sender, receiver) = mpsc::channel();
    let pool = pool(2);
    for i in 0..100_usize {
        let sender = sender.clone();
        pool.spawn(move || {
            let nested = sender.clone();
            spawn(move || nested.send(1_000 + i).expect("a receiver"));
            sender.send(i).expect("a receiver");
        });
    }
    drop((pool, sender));
    let mut got: Vec<usize> = receiver.iter().collect();
    got.sort_unstable();
    assert_eq!(got, (0..100).chain(1_000..1_100).collect::<Vec<_>>());
}

#[test]
#[cfg_attr(miri, ignore = "too many joins for Miri's speed and stacks")]
fn deep_recursion_beyond_the_deque_runs_inline() {
    const DEPTH: usize = 200_000;
    fn nest(depth: usize) -> usize {
        if depth == 0 {
            return 0;
        }
        let (below, one) = join(|| nest(depth - 1), || 1);
        below + one
    }
    for threads in [1, 2] {
        let pool =
            ThreadPoolBuilder::new().num_threads(threads).stack_size(1 << 30).build().expect("threads");
        assert_eq!(pool.install(|| nest(DEPTH)), DEPTH);
        assert_eq!(pool.install(|| fib(15)), 610);
    }
}

/// A random tree of joins, scopes, loops and panics; returns its number of leaves.
fn tree(seed: u64, depth: u32) -> usize {
    let next = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let (left, right) = (next ^ 0x5555, next.rotate_left(17));
    if depth == 0 {
        return 1;
    }
    match (next >> 33) % 8 {
        0 => tree(left, depth - 1),
        1 => {
            let sum = AtomicUsize::new(0);
            scope(|s| {
                for child in [left, right] {
                    let sum = &sum;
                    s.spawn(move |_| {
                        sum.fetch_add(tree(child, depth - 1), SeqCst);
                    });
                }
            });
            sum.into_inner()
        }
        2 => {
            let sum = AtomicUsize::new(0);
            par_for(0..3, |i| {
                sum.fetch_add(tree(left ^ i as u64, depth.saturating_sub(2)), SeqCst);
            });
            sum.into_inner()
        }
        3 => {
            let result = catch_unwind(AssertUnwindSafe(|| {
                join(|| tree(left, depth - 1), || -> usize { resume_unwind(Box::new(right)) })
            }));
            assert_eq!(*result.expect_err("the panic").downcast::<u64>().expect("ours"), right);
            1
        }
        _ => {
            let (a, b) = join(|| tree(left, depth - 1), || tree(right, depth - 1));
            a + b
        }
    }
}

#[test]
fn random_trees_give_the_same_answer_on_all_pools() {
    let alone = pool(1);
    let pools = [pool(2), pool(3), pool(8)];
    let depth = if cfg!(miri) { 5 } else { 12 };
    for seed in 0..times(60) as u64 {
        let expected = alone.install(|| tree(seed, depth));
        for pool in &pools {
            assert_eq!(pool.install(|| tree(seed, depth)), expected, "seed {seed}");
        }
    }
}

#[test]
fn workers_wake_from_sleep_again_and_again() {
    let pool = pool(4);
    for round in 0..times(300) {
        if round % 3 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let started = AtomicBool::new(false);
        // Only another worker can set the flag, so somebody must have been woken.
        pool.install(|| {
            join(|| assert!(await_flag(&started), "nobody woke"), || started.store(true, SeqCst))
        });
    }
}
