//! The life of a pool: whatever is spawned into it runs, by whichever handler and however early its
//! handle is dropped, and then its threads end.
//!
//! The threads are the tests' own, and begin when the test says so. What could hang runs on a
//! thread of its own ([`ends`]), so that a lost task is a failed test.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use work_stealing_rt::{
    ThreadBuilder, ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder, broadcast, current_thread_index,
    in_place_scope, join, scope, spawn, spawn_broadcast, spawn_fifo, yield_now,
};

/// Far more than any of the programs takes.
const LONG: Duration = Duration::from_secs(60);

/// The program's result, on a thread of its own, which must end.
fn ends<R: Send + 'static>(program: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || {
        let result = program();
        // Nobody waits for it any more if it is late.
        let _ = sender.send(());
        result
    });
    if receiver.recv_timeout(LONG) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("it hangs");
    }
    thread.join().unwrap_or_else(|payload| resume_unwind(payload))
}

/// A pool whose threads have not begun: one for each of the builders.
fn without_threads(
    builder: ThreadPoolBuilder,
    accept: impl Fn(usize) -> bool,
) -> (Result<ThreadPool, ThreadPoolBuildError>, Vec<ThreadBuilder>) {
    let mut threads = Vec::new();
    let pool = builder
        .spawn_handler(|thread| {
            if !accept(thread.index()) {
                return Err(io::Error::other("refused"));
            }
            threads.push(thread);
            Ok(())
        })
        .build();
    (pool, threads)
}

/// Runs the workers until all have ended.
fn run(threads: Vec<ThreadBuilder>) {
    ends(|| {
        let threads: Vec<_> = threads.into_iter().map(|worker| thread::spawn(|| worker.run())).collect();
        for thread in threads {
            thread.join().expect("a worker does not panic");
        }
    });
}

/// What was sent until the last sender was dropped, in order.
fn sorted<T: Ord>(receiver: Receiver<T>) -> Vec<T> {
    let mut all: Vec<T> = receiver.try_iter().collect();
    assert_eq!(receiver.try_recv().err(), Some(mpsc::TryRecvError::Disconnected), "a task is left");
    all.sort_unstable();
    all
}

/// A sender for handlers, which several threads call.
fn shared<T>(sender: Sender<T>) -> Mutex<Sender<T>> {
    Mutex::new(sender)
}

fn send<T>(to: &Mutex<Sender<T>>, value: T) {
    to.lock().expect("free").send(value).expect("a receiver");
}

fn clone<T>(of: &Mutex<Sender<T>>) -> Sender<T> {
    of.lock().expect("free").clone()
}

/// All ways to make tasks, from a handler of worker `index`: 1 from a task of its own, which makes
/// another one; 10 each from a task in order, a join and a scope.
fn spawn_all(index: usize, to: &Mutex<Sender<(usize, usize)>>) {
    let (first, second, third) = (clone(to), clone(to), clone(to));
    spawn(move || {
        spawn(move || second.send((index, 1)).expect("a receiver"));
        first.send((index, 1)).expect("a receiver");
    });
    spawn_fifo(move || third.send((index, 10)).expect("a receiver"));
    let (a, b) = join(|| 4, || 6);
    send(to, (index, a + b));
    scope(|s| s.spawn(|_| send(to, (index, 10))));
}

/// What [`spawn_all`] sends.
fn all_of(index: usize) -> [(usize, usize); 5] {
    [(index, 1), (index, 1), (index, 10), (index, 10), (index, 10)]
}

/// What a handler sends, as the start handler and then as the exit handler of a pool whose handle is dropped
/// before its threads begin.
fn sent_by<T: Ord + Send + 'static>(workers: usize, handler: fn(usize, &Mutex<Sender<T>>)) -> [Vec<T>; 2] {
    [true, false].map(|is_start| {
        let (sender, receiver) = channel();
        let to = shared(sender);
        let handler = move |index| handler(index, &to);
        let builder = ThreadPoolBuilder::new().num_threads(workers);
        let builder = match is_start {
            true => builder.start_handler(handler),
            false => builder.exit_handler(handler),
        };
        let (pool, threads) = without_threads(builder, |_| true);
        drop(pool.expect("no thread is refused"));
        run(threads);
        sorted(receiver)
    })
}

#[test]
fn what_a_handler_spawns_runs_although_the_pool_was_dropped_before() {
    for workers in [1, 2, 3] {
        let expected: Vec<_> = (0..workers).flat_map(all_of).collect();
        for sent in sent_by(workers, spawn_all) {
            assert_eq!(sent, expected, "{workers} workers");
        }
    }
}

/// Sends who ran the tasks of two broadcasts by worker 1 of 3.
fn broadcast_twice(index: usize, to: &Mutex<Sender<usize>>) {
    if index != 1 {
        return;
    }
    let later = clone(to);
    spawn_broadcast(move |context| later.send(10 + context.index()).expect("a receiver"));
    for index in broadcast(|context| context.index()) {
        send(to, index);
    }
    scope(|s| {
        s.spawn_broadcast(|_, context| send(to, 20 + context.index()));
    });
}

#[test]
fn a_handler_can_broadcast_while_the_pool_ends() {
    for sent in sent_by(3, broadcast_twice) {
        assert_eq!(sent, [0, 1, 2, 10, 11, 12, 20, 21, 22]);
    }
}

#[test]
fn every_exit_handler_is_called_once_after_all_tasks() {
    let (tasks, order) = (Arc::new(AtomicUsize::new(0)), channel());
    let (count, to) = (Arc::clone(&tasks), shared(order.0));
    let builder = ThreadPoolBuilder::new()
        .num_threads(3)
        .exit_handler(move |index| send(&to, (index, count.load(SeqCst))));
    let (pool, threads) = without_threads(builder, |_| true);
    let pool = pool.expect("no thread is refused");
    for _ in 0..50 {
        let tasks = Arc::clone(&tasks);
        pool.spawn(move || {
            tasks.fetch_add(1, SeqCst);
        });
    }
    drop(pool);
    run(threads);
    assert_eq!(sorted(order.1), [(0, 50), (1, 50), (2, 50)]);
}

#[test]
fn a_refused_thread_leaves_no_other_behind() {
    // Workers 0 and 1 begin, 2 is refused, 3 is not asked for.
    let (tasks, exits) = (channel(), channel());
    let (to, exit) = (shared(tasks.0), shared(exits.0));
    let builder = ThreadPoolBuilder::new()
        .num_threads(4)
        .start_handler(move |index| spawn_all(index, &to))
        .exit_handler(move |index| send(&exit, index));
    let (pool, threads) = without_threads(builder, |index| index < 2);
    let error = pool.expect_err("a thread was refused");
    assert!(error.to_string().contains("refused"), "{error}");
    assert_eq!(threads.len(), 2);
    run(threads);
    assert_eq!(sorted(tasks.1), [all_of(0), all_of(1)].concat());
    assert_eq!(sorted(exits.1), [0, 1]);
}

#[test]
fn a_worker_that_is_never_run_keeps_no_other_from_its_end() {
    let (pool, mut threads) = without_threads(ThreadPoolBuilder::new().num_threads(3), |_| true);
    drop(threads.remove(1));
    let (sender, receiver) = channel();
    pool.expect("no thread is refused").spawn(move || sender.send(1).expect("a receiver"));
    run(threads);
    assert_eq!(sorted(receiver), [1]);
    // `build_scoped` waits for its threads.
    let ran = ends(|| {
        ThreadPoolBuilder::new().num_threads(3).build_scoped(
            |worker| {
                if worker.index() != 1 {
                    worker.run();
                }
            },
            |pool| pool.install(|| 5),
        )
    });
    assert_eq!(ran.expect("no thread is refused"), 5);
}

#[test]
fn a_pool_that_cannot_be_made_leaves_the_current_thread_free() {
    ends(|| {
        let builder = || ThreadPoolBuilder::new().num_threads(2).use_current_thread();
        let (pool, _) = without_threads(builder(), |_| false);
        pool.expect_err("a thread was refused");
        assert_eq!(current_thread_index(), None);
        let pool = builder().build().expect("the thread is free");
        assert_eq!(current_thread_index(), Some(0));
        assert_eq!(pool.broadcast(|context| context.index()), [0, 1]);
    });
}

#[test]
fn the_current_thread_works_on_when_the_others_have_ended() {
    let exits = channel();
    let to = shared(exits.0);
    ends(move || {
        let builder = ThreadPoolBuilder::new()
            .num_threads(2)
            .use_current_thread()
            .exit_handler(move |index| send(&to, index));
        let (pool, threads) = without_threads(builder, |_| true);
        drop(pool.expect("no thread is refused"));
        run(threads);
        // Alone in its pool, for the rest of its life.
        let (a, b) = join(|| 1, || 2);
        let ran = AtomicUsize::new(a + b);
        scope(|s| s.spawn(|_| _ = ran.fetch_add(1, SeqCst)));
        let (sender, receiver) = channel();
        spawn(move || sender.send(5).expect("a receiver"));
        while yield_now() == Some(work_stealing_rt::Yield::Executed) {}
        assert_eq!((ran.into_inner(), receiver.try_recv()), (4, Ok(5)));
    });
    assert_eq!(exits.1.try_iter().collect::<Vec<_>>(), [1]);
}

#[test]
fn handlers_that_panic_end_no_worker() {
    let panics = channel();
    let to = shared(panics.0);
    let builder = ThreadPoolBuilder::new()
        .num_threads(2)
        .start_handler(|index| resume_unwind(Box::new(index)))
        .exit_handler(|index| {
            spawn(move || resume_unwind(Box::new(20 + index)));
            resume_unwind(Box::new(10 + index))
        })
        .panic_handler(move |payload| send(&to, *payload.downcast::<usize>().expect("ours")));
    let (pool, threads) = without_threads(builder, |_| true);
    let pool = pool.expect("no thread is refused");
    let sum = thread::spawn(move || pool.install(|| join(|| 1, || 2)));
    run(threads);
    assert_eq!(sum.join().expect("no panic"), (1, 2));
    assert_eq!(sorted(panics.1), [0, 1, 10, 11, 20, 21]);
}

#[test]
fn a_task_can_drop_its_own_pool() {
    let (sender, receiver) = channel();
    ends(move || {
        let pool = Arc::new(ThreadPoolBuilder::new().num_threads(2).build().expect("threads"));
        let own = Arc::clone(&pool);
        pool.spawn(move || {
            spawn(move || sender.send(1).expect("a receiver"));
            drop(own);
        });
        drop(pool);
        receiver.recv().expect("it runs");
        assert!(receiver.recv().is_err(), "and is freed");
    });
}

/// A payload that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new("bomb"));
    }
}

#[test]
fn a_scope_is_not_left_early_by_a_payload_that_panics() {
    let pool = ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let ran = AtomicBool::new(false);
    let result = pool.install(|| {
        catch_unwind(AssertUnwindSafe(|| {
            in_place_scope(|s| {
                s.spawn(|_| resume_unwind(Box::new("first")));
                assert!(yield_now().is_some());
                s.spawn(|_| resume_unwind(Box::new(Bomb)));
                s.spawn(|_| ran.store(true, SeqCst));
                resume_unwind(Box::new(Bomb))
            })
        }))
    });
    assert!(ran.load(SeqCst), "a task outlives its scope");
    let payload = result.expect_err("a panic");
    assert_eq!(payload.downcast_ref(), Some(&"first"));
}

#[test]
fn the_first_half_of_a_join_wins_over_a_payload_that_panics() {
    let pool = ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let result = pool.install(|| {
        catch_unwind(|| join(|| resume_unwind(Box::new("first")), || resume_unwind(Box::new(Bomb))))
    });
    let payload = result.expect_err("a panic");
    assert_eq!(payload.downcast_ref(), Some(&"first"));
}
