//! Models of the runtime, for loom: small programs in all orders of their steps.
//!
//! They run the shipped code (the pool, its workers' loop, join, scope and broadcast) on loom's atomics and
//! threads. Three things differ: the queues of spawned tasks (`queue`), which guarantee no more than
//! crossbeam's; a worker's patience, which is one round; and sizes. A lost wake-up shows as a deadlock, a
//! missing ordering as a racing access to [`Cell`] or a failed assertion.
//!
//! Run by `RUSTFLAGS="--cfg loom" cargo test -p work-stealing-rt --lib --release`; together they take some 25
//! seconds of processor time. Each model states in how many orders it runs, and which changes to the code
//! make it fail. All models in which a worker sleeps fail without `announce_sleep`.
//!
//! Not covered: the fences of `stop_searching` and `wake`, which matter in longer programs of three workers;
//! and that in `notify_after_rmw` sequentially consistent accesses replace the fence that loom needs there.
//! `sleep/README.md` argues for these.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::latch::ThreadLatch;
use crate::{ThreadBuilder, ThreadPool, ThreadPoolBuilder, broadcast, join, scope, spawn};

/// Runs the program with at most `preemptions` forced switches.
fn model(preemptions: usize, program: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(program);
}

/// A pool of workers that have no threads yet.
fn without_threads(
    workers: usize,
    set_up: impl FnOnce(ThreadPoolBuilder) -> ThreadPoolBuilder,
) -> (ThreadPool, Vec<ThreadBuilder>) {
    let mut threads = Vec::new();
    let pool = set_up(ThreadPoolBuilder::new().num_threads(workers))
        .spawn_handler(|thread| {
            threads.push(thread);
            Ok(())
        })
        .build()
        .unwrap();
    (pool, threads)
}

/// Runs all the workers, worker 0 on the calling thread, until they have ended.
fn run(mut threads: Vec<ThreadBuilder>) {
    let others: Vec<_> = threads.drain(1..).map(|worker| thread::spawn(|| worker.run())).collect();
    threads.pop().unwrap().run();
    for other in others {
        other.join().unwrap();
    }
}

/// A model of a pool whose handle is dropped at once, and whose worker 0 runs the program when the last
/// worker has begun: unless they are interrupted, the others sleep then.
fn on_worker(workers: usize, preemptions: usize, program: fn()) {
    model(preemptions, move || {
        let begun = Arc::new(ThreadLatch::new());
        let start = move |index| {
            if index == workers - 1 {
                set(&begun);
            }
            if index == 0 {
                begun.wait();
                program();
            }
        };
        let (pool, threads) = without_threads(workers, |builder| builder.start_handler(start));
        drop(pool);
        run(threads);
    });
}

/// What tasks write and others read, without any order of its own.
struct Cell(UnsafeCell<usize>);

// SAFETY: loom checks each access for races.
unsafe impl Sync for Cell {}

impl Cell {
    fn new() -> Self {
        Cell(UnsafeCell::new(0))
    }

    fn set(&self, value: usize) {
        // SAFETY: loom checks that nobody else has access.
        self.0.with_mut(|cell| unsafe { *cell = value });
    }

    fn get(&self) -> usize {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.0.with(|cell| unsafe { *cell })
    }
}

/// Sets a latch that outlives the call.
fn set(latch: &ThreadLatch) {
    // SAFETY: the reference is valid.
    unsafe { ThreadLatch::set(latch) };
}

/// Spawner and thief of one join. The second half runs wherever it is found: private, shared or stolen.
///
/// 34,306 orders. Fails if `publish`, both orderings of `steal`, `Latch::set` or `Latch::probe` are relaxed.
#[test]
fn a_join_ends_with_both_halves() {
    on_worker(2, 3, || {
        let b = Cell::new();
        join(|| (), || b.set(2));
        assert_eq!(b.get(), 2);
    });
}

/// Joins in each other and one after the other: slots are used again while a thief looks at them.
///
/// 20,561 orders. Fails for the same changes, and if only the claim of `steal` is relaxed.
#[test]
fn a_slot_is_used_again() {
    on_worker(2, 2, || {
        let cells = [(); 4].map(|()| Cell::new());
        join(
            || {
                join(|| (), || cells[0].set(1));
                join(|| (), || cells[1].set(1));
            },
            || cells[2].set(1),
        );
        join(|| (), || cells[3].set(1));
        assert_eq!(cells.map(|cell| cell.get()), [1; 4]);
    });
}

/// More joins in each other than there are slots.
///
/// 14,283 orders. Fails if `publish`, `steal` or `Latch::set` are relaxed.
#[test]
fn a_full_deque_refuses_and_goes_on() {
    fn nest(cells: &[Cell]) {
        if let [first, others @ ..] = cells {
            join(|| nest(others), || first.set(1));
        }
    }
    on_worker(2, 2, || {
        let cells = [(); 5].map(|()| Cell::new());
        nest(&cells);
        assert_eq!(cells.map(|cell| cell.get()), [1; 5]);
    });
}

/// A fork wakes the other worker, whose end of the task wakes the spawner.
///
/// 45,575 orders. Fails without the fence of `notify_after_rmw` or of `park`, without the look of `park`, and
/// if `announce` wakes nobody.
#[test]
fn a_sleeping_thief_gets_a_published_join() {
    on_worker(2, 3, || {
        let begun = ThreadLatch::new();
        let b = Cell::new();
        join(
            || begun.wait(),
            || {
                set(&begun);
                b.set(2);
            },
        );
        assert_eq!(b.get(), 2);
    });
}

/// Both deques, and each worker asleep in a slot of its own: the second half is stolen and forks, its
/// own second half is stolen by the first worker, which waits for it.
///
/// 28,243 orders. Fails for the same changes, and if `wake` counts no searcher.
#[test]
fn a_waiting_spawner_steals_from_its_thief() {
    on_worker(2, 2, || {
        let (outer, inner) = (ThreadLatch::new(), ThreadLatch::new());
        let (a, b) = (Cell::new(), Cell::new());
        join(
            || outer.wait(),
            || {
                set(&outer);
                join(
                    || inner.wait(),
                    || {
                        set(&inner);
                        b.set(2);
                    },
                );
                a.set(b.get() + 1);
            },
        );
        assert_eq!(a.get(), 3);
    });
}

/// Two tasks of a scope, one spawned by the other; the last one wakes the scope's worker.
///
/// 32,048 orders. Fails without the fence of `notify` or of `park`, and if the count of `CountLatch`
/// is relaxed.
#[test]
fn a_scope_waits_for_all_its_tasks() {
    on_worker(2, 3, || {
        let begun = ThreadLatch::new();
        let (a, b) = (Cell::new(), Cell::new());
        scope(|s| {
            s.spawn(|s| {
                set(&begun);
                s.spawn(|_| b.set(2));
                a.set(1);
            });
            begun.wait();
        });
        assert_eq!(a.get() + b.get(), 3);
    });
}

/// A worker that waits in a scope takes its own open half of a join, or the other worker does: the
/// scope's task, which one of them runs, waits for it.
///
/// 7,598 orders. Fails without the look at the own half, and if `ThreadLatch::set` is relaxed.
#[test]
fn a_half_is_open_while_the_other_waits_in_a_scope() {
    on_worker(2, 2, || {
        let ran = ThreadLatch::new();
        let b = Cell::new();
        join(
            || {
                scope(|s| {
                    s.spawn(|_| {
                        ran.wait();
                        assert_eq!(b.get(), 2);
                    })
                })
            },
            || {
                b.set(2);
                set(&ran);
            },
        );
    });
}

/// A worker alone: it takes its own open half in the middle of the other.
///
/// One order. Fails without the look at the own half, and if `share_all` shares nothing.
#[test]
fn a_worker_alone_takes_its_own_half_while_it_waits() {
    on_worker(1, 2, || {
        let b = Cell::new();
        join(
            || {
                scope(|s| s.spawn(|_| ()));
                while crate::yield_now() == Some(crate::Yield::Executed) {}
                assert_eq!(b.get(), 2);
            },
            || b.set(2),
        );
    });
}

/// Who sleeps is woken for what only it may run.
///
/// 18,499 orders. Fails without the fence of `notify_one` or of `park`, and if the count of `CountLatch` is
/// relaxed.
#[test]
fn a_broadcast_reaches_every_worker() {
    on_worker(2, 3, || {
        let cells = [Cell::new(), Cell::new()];
        let indices = broadcast(|context| {
            cells[context.index()].set(1);
            context.index()
        });
        assert_eq!(indices, [0, 1]);
        assert_eq!(cells[0].get() + cells[1].get(), 2);
    });
}

/// Two tasks that wait for each other while the scope's worker blocks: both thieves are needed, although
/// the first one that is woken still searches when the second task comes.
///
/// 3,326 orders. Fails if `stop_searching` sends nobody, and if `wake` counts no searcher.
#[test]
fn a_thief_that_finds_work_sends_another_for_the_rest() {
    on_worker(3, 1, || {
        let [first, second, both] = [(); 3].map(|()| ThreadLatch::new());
        scope(|s| {
            s.spawn(|_| {
                set(&first);
                second.wait();
                set(&both);
            });
            s.spawn(|_| {
                set(&second);
                first.wait();
            });
            both.wait();
        });
    });
}

/// A closure from outside, and a task that outlives the handle.
///
/// 1,915 orders. Fails without the fence of `notify`, and if `ThreadLatch` is relaxed.
#[test]
fn a_pool_serves_a_thread_from_outside_and_ends() {
    model(3, || {
        let (pool, threads) = without_threads(1, |builder| builder);
        let worker = thread::spawn(move || run(threads));
        let (a, b) = (Arc::new(Cell::new()), Cell::new());
        let task = Arc::clone(&a);
        pool.install(|| {
            b.set(2);
            spawn(move || task.set(1));
        });
        assert_eq!(b.get(), 2);
        drop(pool);
        worker.join().unwrap();
        assert_eq!(a.get(), 1);
    });
}

/// A worker of one pool waits for a worker of another, which may end right after.
///
/// 2,771 orders. Fails without the fence of `notify`, and if `Latch::set` is relaxed.
#[test]
fn a_worker_waits_for_another_pool() {
    model(3, || {
        let (other, others) = without_threads(1, |builder| builder);
        let other = std::sync::Mutex::new(Some(other));
        let start = move |_| {
            let other = other.lock().unwrap().take().unwrap();
            let b = Cell::new();
            other.install(|| b.set(2));
            assert_eq!(b.get(), 2);
        };
        let (pool, threads) = without_threads(1, |builder| builder.start_handler(start));
        drop(pool);
        let other = thread::spawn(move || run(others));
        run(threads);
        other.join().unwrap();
    });
}

/// Tasks of all exit handlers are over when the workers have ended, whoever runs them.
///
/// 29,436 orders. Fails if `Pool::release` is relaxed, and if workers terminate before all
/// exit handlers' tasks are over.
#[test]
fn what_exit_handlers_spawn_runs_before_the_pool_ends() {
    model(3, || {
        let cells = Arc::new([Cell::new(), Cell::new()]);
        let all = Arc::clone(&cells);
        let exit = move |index: usize| {
            let cells = Arc::clone(&all);
            spawn(move || cells[index].set(1));
        };
        let (pool, threads) = without_threads(2, |builder| builder.exit_handler(exit));
        drop(pool);
        run(threads);
        assert_eq!(cells[0].get() + cells[1].get(), 2);
    });
}
