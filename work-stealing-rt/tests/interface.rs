//! The parts of rayon's interface beside join, scope and spawn: orders, broadcasts, yields, handlers,
//! threads of the user's own, and what `join_context` tells its closures.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use work_stealing_rt::{
    ThreadPool, ThreadPoolBuilder, Yield, broadcast, current_thread_has_pending_tasks, current_thread_index,
    in_place_scope, in_place_scope_fifo, is_nested, join, join_context, scope, scope_fifo, spawn,
    spawn_broadcast, spawn_fifo, yield_local, yield_now,
};

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).build().expect("threads")
}

#[test]
fn migrated_is_told_exactly() {
    let told = |pool: &ThreadPool| pool.install(|| join_context(|a| a.migrated(), |b| b.migrated()));
    assert_eq!(told(&pool(1)), (false, false));
    // Each half waits for the other, so the second one is stolen.
    let barrier = Barrier::new(2);
    let thread = || thread::current().id();
    let ((a, on_a), (b, on_b)) = pool(2).install(|| {
        join_context(
            |a| {
                barrier.wait();
                (a.migrated(), thread())
            },
            |b| {
                barrier.wait();
                (b.migrated(), thread())
            },
        )
    });
    assert!(!a && b && on_a != on_b);
    // From outside of a pool both halves migrate to it.
    assert_eq!(join_context(|a| a.migrated(), |b| b.migrated()), (true, true));
}

#[test]
fn every_half_of_a_shallow_recursion_can_be_stolen() {
    // Four leaves that wait for each other: no worker forks again before all have begun.
    let barrier = Barrier::new(4);
    let leaf = || barrier.wait().is_leader() as usize;
    let leaders = pool(4).install(|| {
        let (a, b) = join(|| join(leaf, leaf), || join(leaf, leaf));
        a.0 + a.1 + b.0 + b.1
    });
    assert_eq!(leaders, 1);
}

#[test]
fn tasks_start_in_the_order_of_their_kind() {
    let pool = pool(1);
    let order = |run: &(dyn Fn(&Mutex<Vec<usize>>) + Sync)| {
        let seen = Mutex::new(Vec::new());
        pool.install(|| run(&seen));
        seen.into_inner().expect("no panic")
    };
    let youngest_first = order(&|seen| {
        scope(|s| (0..5).for_each(|i| s.spawn(move |_| seen.lock().expect("free").push(i))));
    });
    assert_eq!(youngest_first, [4, 3, 2, 1, 0]);
    let oldest_first = order(&|seen| {
        scope_fifo(|s| {
            (0..5).for_each(|i| s.spawn_fifo(move |_| seen.lock().expect("free").push(i)));
        });
    });
    assert_eq!(oldest_first, [0, 1, 2, 3, 4]);

    let (sender, receiver) = channel();
    pool.install(move || {
        for i in 0..3 {
            let (first, second) = (sender.clone(), sender.clone());
            spawn(move || first.send(("lifo", i)).expect("received"));
            spawn_fifo(move || second.send(("fifo", i)).expect("received"));
        }
    });
    let all: Vec<_> = receiver.iter().collect();
    let of = |kind| all.iter().filter(|e| e.0 == kind).map(|e| e.1).collect();
    let (lifo, fifo): (Vec<i32>, Vec<i32>) = (of("lifo"), of("fifo"));
    assert_eq!((lifo, fifo), (vec![2, 1, 0], vec![0, 1, 2]));
}

#[test]
#[allow(deprecated)]
fn breadth_first_pools_begin_with_the_oldest() {
    let pool = ThreadPoolBuilder::new().num_threads(1).breadth_first().build().expect("a thread");
    let (seen, all) = (&Mutex::new(Vec::new()), 0..4);
    pool.scope(|s| all.for_each(|i| s.spawn(move |_| seen.lock().expect("free").push(i))));
    let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    assert_eq!(seen, [0, 1, 2, 3]);
}

#[test]
fn a_broadcast_runs_once_on_every_worker() {
    let pool = pool(5);
    let indices = pool.broadcast(|context| {
        assert_eq!(current_thread_index(), Some(context.index()));
        (context.index(), context.num_threads())
    });
    assert!(indices.into_iter().eq((0..5).map(|i| (i, 5))));
    // From one of the workers, and to another pool.
    let inside = pool.install(|| broadcast(|context| context.index()));
    assert_eq!(inside, [0, 1, 2, 3, 4]);
    let other = pool.install(|| self::pool(3).broadcast(|context| context.index()));
    assert_eq!(other, [0, 1, 2]);

    let counts: Vec<AtomicUsize> = (0..5).map(|_| AtomicUsize::new(0)).collect();
    pool.scope(|s| {
        s.spawn_broadcast(|s, context| {
            counts[context.index()].fetch_add(1, SeqCst);
            if context.index() == 0 {
                s.spawn_broadcast(|_, context| {
                    counts[context.index()].fetch_add(10, SeqCst);
                });
            }
        });
    });
    assert!(counts.iter().all(|count| count.load(SeqCst) == 11));

    let (sender, receiver) = channel();
    pool.install(|| spawn_broadcast(move |context| sender.send(context.index()).expect("received")));
    let mut indices: Vec<_> = receiver.iter().collect();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2, 3, 4]);
}

#[test]
fn a_panic_in_a_broadcast_goes_on_after_all_have_run() {
    let pool = pool(4);
    let runs = AtomicUsize::new(0);
    let result = catch_unwind(AssertUnwindSafe(|| {
        pool.broadcast(|context| {
            runs.fetch_add(1, SeqCst);
            if context.index() % 2 == 1 {
                resume_unwind(Box::new(context.index()));
            }
        })
    }));
    let payload = result.expect_err("two of them panic");
    assert_eq!(payload.downcast_ref::<usize>(), Some(&1), "the first by worker");
    assert_eq!(runs.load(SeqCst), 4);
}

#[test]
fn a_yield_runs_one_task() {
    assert_eq!(yield_now(), None, "not a worker");
    assert!(!is_nested());
    assert_eq!(current_thread_has_pending_tasks(), None);
    for yields in [yield_now, yield_local] {
        let pool = pool(1);
        pool.install(|| {
            assert_eq!(yields(), Some(Yield::Idle));
            assert_eq!(current_thread_has_pending_tasks(), Some(false));
            let done = Arc::new(AtomicUsize::new(0));
            for _ in 0..2 {
                let done = Arc::clone(&done);
                spawn(move || {
                    done.fetch_add(usize::from(is_nested()), SeqCst);
                });
            }
            assert_eq!(current_thread_has_pending_tasks(), Some(true));
            assert_eq!(yields(), Some(Yield::Executed));
            assert!(!is_nested());
            assert_eq!(done.load(SeqCst), 1);
            assert_eq!(yields(), Some(Yield::Executed));
            assert_eq!(yields(), Some(Yield::Idle));
            assert_eq!(done.load(SeqCst), 2);
        });
        assert_eq!(pool.yield_now(), None, "not one of its workers");
    }
}

#[test]
fn a_yield_may_run_the_other_half_of_an_outer_join() {
    let pool = pool(1);
    let order = Mutex::new(Vec::new());
    let note = |text| order.lock().expect("free").push(text);
    pool.install(|| {
        join_context(
            |_| {
                note("first begins");
                assert_eq!(yield_local(), Some(Yield::Executed));
                note("first ends");
            },
            |b| {
                assert!(b.migrated(), "it runs out of its order");
                note("second");
            },
        )
    });
    assert_eq!(order.into_inner().expect("no panic"), ["first begins", "second", "first ends"]);
}

#[test]
fn an_in_place_scope_runs_its_body_in_the_caller() {
    let caller = thread::current().id();
    let sum = AtomicUsize::new(0);
    let pool = pool(2);
    pool.in_place_scope(|s| {
        assert_eq!(thread::current().id(), caller);
        for i in 0..100 {
            let sum = &sum;
            s.spawn(move |_| {
                assert_ne!(thread::current().id(), caller);
                sum.fetch_add(i, SeqCst);
            });
        }
    });
    assert_eq!(sum.load(SeqCst), 4950);
    // In a worker of another pool, which works meanwhile; and in the global pool.
    let other = self::pool(1);
    other.install(|| pool.in_place_scope_fifo(|s| s.spawn_fifo(|_| _ = sum.fetch_add(50, SeqCst))));
    in_place_scope(|s| s.spawn(|_| _ = sum.fetch_add(1, SeqCst)));
    in_place_scope_fifo(|s| s.spawn_fifo(|_| _ = sum.fetch_add(1, SeqCst)));
    assert_eq!(sum.load(SeqCst), 5002);
}

#[test]
fn handlers_see_starts_ends_and_panics() {
    let (started, ended, panics) = (channel(), channel(), channel());
    let (start, end, panic) = (Mutex::new(started.0), Mutex::new(ended.0), Mutex::new(panics.0));
    let send = |to: &Mutex<std::sync::mpsc::Sender<usize>>, value| {
        to.lock().expect("free").send(value).expect("received");
    };
    let pool = ThreadPoolBuilder::new()
        .num_threads(3)
        .start_handler(move |index| {
            assert_eq!(current_thread_index(), Some(index));
            // The pool is at work already.
            let (a, b) = join(|| 1, || 2);
            send(&start, index * 10 + a + b);
        })
        .exit_handler(move |index| send(&end, index))
        .panic_handler(move |payload| {
            let value = *payload.downcast::<usize>().expect("ours");
            send(&panic, value);
        })
        .build()
        .expect("threads");
    pool.spawn(|| resume_unwind(Box::new(7_usize)));
    pool.spawn_broadcast(|context| {
        if context.index() == 2 {
            resume_unwind(Box::new(8_usize));
        }
    });
    drop(pool);
    let sorted = |receiver: std::sync::mpsc::Receiver<usize>| {
        let mut all: Vec<_> = receiver.iter().collect();
        all.sort_unstable();
        all
    };
    assert_eq!(sorted(started.1), [3, 13, 23]);
    assert_eq!(sorted(ended.1), [0, 1, 2]);
    assert_eq!(sorted(panics.1), [7, 8]);
}

#[test]
fn threads_can_be_the_users_own() {
    // Borrowed from the caller, and ended before `build_scoped` returns.
    let (greeting, seen) = ("hello", AtomicUsize::new(0));
    let length = ThreadPoolBuilder::new()
        .num_threads(2)
        .thread_name(|index| format!("own-{index}"))
        .build_scoped(
            |worker| {
                assert_eq!(thread::current().name(), worker.name());
                seen.fetch_add(worker.index() + 1, SeqCst);
                worker.run();
                assert_eq!(current_thread_index(), None);
                seen.fetch_add(100, SeqCst);
            },
            |pool| pool.install(|| greeting.len()),
        )
        .expect("threads");
    assert_eq!((length, seen.load(SeqCst)), (5, 203));
    // One thread for two workers is refused where it is tried, and nowhere else.
    let refused = thread::spawn(|| {
        let inner = Mutex::new(None);
        let pool = ThreadPoolBuilder::new()
            .num_threads(1)
            .spawn_handler(|worker| {
                *inner.lock().expect("free") = Some(worker);
                Ok(())
            })
            .build()
            .expect("no thread is needed yet");
        let worker = inner.into_inner().expect("free").expect("handed out");
        let outer = self::pool(1);
        let refused = outer.install(|| catch_unwind(AssertUnwindSafe(|| worker.run())).is_err());
        drop(pool);
        refused
    });
    assert!(refused.join().expect("no panic goes out"));
}

#[test]
fn the_current_thread_can_be_a_worker() {
    thread::spawn(|| {
        let build = || ThreadPoolBuilder::new().num_threads(2).use_current_thread().build();
        let pool = build().expect("a thread");
        assert_eq!(current_thread_index(), Some(0));
        let error = build().expect_err("it has a pool");
        assert_eq!(error.to_string(), "The current thread is already part of another thread pool.");
        // The other worker takes what this one spawns, for this one only waits.
        let (sender, receiver) = channel();
        pool.spawn(move || sender.send(current_thread_index()).expect("received"));
        assert_eq!(receiver.recv(), Ok(Some(1)));
        let (a, b) = join(|| 1, || 2);
        assert_eq!(a + b, 3);
    })
    .join()
    .expect("all as asserted");
}
