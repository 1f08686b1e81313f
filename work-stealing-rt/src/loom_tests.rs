//! Models of the deque's hand-off, the latches and the sleep protocol, for loom.
//!
//! One duty: drive the real `deque`, `latch` and `sleep` through all interleavings of small
//! programs. The worker loop here is that of `parallel_overhead::sync` with no patience. Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p work-stealing-rt --lib --release`; a lost wake-up shows
//! as a deadlock, a missing ordering as a failed assertion or a racing access.

use std::cell::Cell;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;

use crate::deque::{NONE, SlotPtr, SplitDeque, Steal};
use crate::latch::{Latch, ThreadLatch};
use crate::sleep::Sleep;

/// Runs the model with at most `preemptions` forced switches.
fn model(preemptions: usize, program: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(program);
}

/// A task: data that its spawner writes before and frees after, and a count of its runs.
struct Job {
    data: UnsafeCell<usize>,
    runs: AtomicUsize,
}

/// A pool of one owner (worker 0) and some thieves.
struct Model {
    joins: SplitDeque,
    sleep: Sleep,
    terminate: Vec<Latch>,
    jobs: Vec<Job>,
}

impl Model {
    fn new(workers: usize, jobs: usize) -> Arc<Self> {
        Arc::new(Model {
            joins: SplitDeque::new(2),
            sleep: Sleep::new(workers),
            terminate: (0..workers).map(|_| Latch::new()).collect(),
            jobs: (0..jobs)
                .map(|_| Job {
                    data: UnsafeCell::new(0),
                    runs: AtomicUsize::new(0),
                })
                .collect(),
        })
    }

    /// Owner: writes job `job` and pushes it.
    fn fork(&self, job: usize) -> SlotPtr {
        // SAFETY: loom checks that nobody else has access.
        self.jobs[job]
            .data
            .with_mut(|data| unsafe { *data = job + 100 });
        // Addresses are multiples of 4.
        match self.joins.push(job * 4) {
            Ok(slot) => slot,
            Err(slot) => {
                let slot = self.joins.attend(slot);
                self.sleep.notify_after_rmw();
                slot
            }
        }
    }

    fn push(&self, job: usize) -> Result<SlotPtr, SlotPtr> {
        // SAFETY: loom checks that nobody else has access.
        self.jobs[job]
            .data
            .with_mut(|data| unsafe { *data = job + 100 });
        // Addresses are multiples of 4.
        self.joins.push(job * 4)
    }

    fn run(&self, job: usize) {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.jobs[job]
            .data
            .with(|data| assert_eq!(unsafe { *data }, job + 100));
        self.jobs[job].runs.fetch_add(1, Relaxed);
    }

    /// Owner: takes the job back and runs it, or waits for its thief; then frees its data.
    fn join(&self, slot: SlotPtr, job: usize) {
        if self.joins.pop_private(slot) || self.joins.pop_shared(slot) {
            self.run(job);
        } else {
            self.wait_for_thief(slot);
        }
        self.free(job);
    }

    fn wait_for_thief(&self, slot: SlotPtr) {
        // SAFETY: the slots live as long as the deque.
        while !unsafe { &*slot }.probe() {
            thread::yield_now();
        }
        self.joins.forget_stolen(slot);
    }

    fn free(&self, job: usize) {
        assert_eq!(self.jobs[job].runs.load(Relaxed), 1);
        // SAFETY: loom checks that nobody else has access.
        self.jobs[job].data.with_mut(|data| unsafe { *data = 0 });
    }

    fn find(&self) -> Option<SlotPtr> {
        match self.joins.steal() {
            Steal::Taken(slot) => Some(slot),
            Steal::Empty => {
                self.joins.raise_attention();
                None
            }
        }
    }

    /// Thief `index`: works until it is told to terminate.
    fn thief(&self, index: usize, run: impl Fn(usize)) {
        let searching = Cell::new(false);
        let stop_searching = || {
            if searching.replace(false) {
                self.sleep.stop_searching(|| self.joins.has_shared());
            }
        };
        let latch = &self.terminate[index];
        while !latch.probe() {
            let found = self.find().or_else(|| {
                let was = searching.replace(true);
                self.sleep.park(index, was, latch, || self.find())
            });
            if let Some(slot) = found {
                stop_searching();
                // SAFETY: the slots live as long as the deque.
                let slot = unsafe { &*slot };
                run(slot.payload() / 4);
                // The owner polls in this model.
                let _ = slot.set();
            }
        }
        stop_searching();
    }

    fn finish(&self) {
        for (index, latch) in self.terminate.iter().enumerate() {
            if latch.set() {
                self.sleep.wake(index);
            }
        }
    }
}

#[test]
fn a_task_is_run_once_and_seen_whole() {
    model(4, || {
        let pool = Model::new(1, 4);
        let other = Arc::clone(&pool);
        let thief = thread::spawn(move || {
            for _ in 0..2 {
                if let Some(slot) = other.find() {
                    // SAFETY: the slots live as long as the deque.
                    let slot = unsafe { &*slot };
                    other.run(slot.payload() / 4);
                    let _ = slot.set();
                }
            }
        });
        // join(0, join(1); join(2)); join(3): nested, and with slots used again.
        let outer = pool.fork(0);
        let inner = pool.fork(1);
        pool.join(inner, 1);
        let inner = pool.fork(2);
        pool.join(inner, 2);
        pool.join(outer, 0);
        let last = pool.fork(3);
        pool.join(last, 3);
        thief.join().unwrap();
    });
}

#[test]
fn a_full_deque_refuses_and_goes_on() {
    model(2, || {
        let pool = Model::new(1, 5);
        let other = Arc::clone(&pool);
        let thief = thread::spawn(move || {
            if let Some(slot) = other.find() {
                // SAFETY: the slots live as long as the deque.
                let slot = unsafe { &*slot };
                other.run(slot.payload() / 4);
                let _ = slot.set();
            }
        });
        assert!(pool.joins.is_hungry());
        let slots: Vec<SlotPtr> = (0..5).map(|job| pool.fork(job)).collect();
        assert_eq!(slots[3..], [NONE, NONE]);
        for job in (0..5).rev() {
            pool.join(slots[job], job);
        }
        thief.join().unwrap();
    });
}

#[test]
fn a_waiter_that_sleeps_is_woken_by_its_latch() {
    model(4, || {
        let sleep = Arc::new((Sleep::new(1), Latch::new(), UnsafeCell::new(0)));
        let other = Arc::clone(&sleep);
        let setter = thread::spawn(move || {
            let (sleep, latch, data) = &*other;
            // SAFETY: loom checks that nobody else has access.
            data.with_mut(|data| unsafe { *data = 7 });
            if latch.set() {
                sleep.wake(0);
            }
        });
        let (sleep, latch, data) = &*sleep;
        let mut searching = false;
        while !latch.probe() {
            sleep.park(0, searching, latch, || None::<()>);
            searching = true;
        }
        // SAFETY: loom checks that nobody writes meanwhile.
        data.with(|data| assert_eq!(unsafe { *data }, 7));
        setter.join().unwrap();
    });
}

#[test]
fn a_thread_that_blocks_is_woken() {
    model(4, || {
        let latch = Arc::new((ThreadLatch::new(), UnsafeCell::new(0)));
        let other = Arc::clone(&latch);
        let setter = thread::spawn(move || {
            // SAFETY: loom checks that nobody else has access.
            other.1.with_mut(|data| unsafe { *data = 7 });
            // SAFETY: the `Arc` keeps the latch.
            unsafe { ThreadLatch::set(&raw const other.0) };
        });
        latch.0.wait();
        // SAFETY: loom checks that nobody writes meanwhile.
        latch.1.with(|data| assert_eq!(unsafe { *data }, 7));
        setter.join().unwrap();
    });
}

#[test]
fn a_sleeping_thief_gets_each_published_task() {
    model(3, || {
        let pool = Model::new(2, 2);
        let other = Arc::clone(&pool);
        let thief = thread::spawn(move || other.thief(1, |job| other.run(job)));
        // The first one the owner may take back itself, the second one it never does: unless
        // the thief is woken, the owner waits for ever.
        let slot = pool.fork(0);
        pool.join(slot, 0);
        let slot = pool.fork(1);
        pool.wait_for_thief(slot);
        pool.free(1);
        pool.finish();
        thief.join().unwrap();
    });
}

#[test]
fn a_sleeping_worker_gets_what_is_posted_to_it() {
    model(4, || {
        // A mailbox for one message, which only worker 1 looks into.
        let state = Arc::new((Sleep::new(2), Latch::new(), AtomicUsize::new(0)));
        let taken = Arc::new(ThreadLatch::new());
        let worker = {
            let (state, taken) = (Arc::clone(&state), Arc::clone(&taken));
            thread::spawn(move || {
                let (sleep, terminate, mailbox) = &*state;
                let look = || {
                    let found = mailbox.load(Relaxed) != 0;
                    if found {
                        mailbox.store(0, Relaxed);
                    }
                    found.then_some(())
                };
                let searching = Cell::new(false);
                while !terminate.probe() {
                    let found = look().or_else(|| {
                        let was = searching.replace(true);
                        sleep.park(1, was, terminate, look)
                    });
                    if found.is_some() {
                        if searching.replace(false) {
                            sleep.stop_searching(|| false);
                        }
                        // SAFETY: the `Arc` keeps the latch.
                        unsafe { ThreadLatch::set(&raw const *taken) };
                    }
                }
            })
        };
        let (sleep, terminate, mailbox) = &*state;
        mailbox.store(1, Relaxed);
        sleep.notify_one(1);
        // Were the worker asleep with its message, this would wait for ever.
        taken.wait();
        if terminate.set() {
            sleep.wake(1);
        }
        worker.join().unwrap();
    });
}

#[test]
fn a_thief_that_finds_work_sends_another_for_the_rest() {
    model(2, || {
        let pool = Model::new(3, 2);
        // All waiting is blocking here, so that a lost wake-up is a deadlock.
        let latches = || Arc::new([ThreadLatch::new(), ThreadLatch::new()]);
        let (begun, ended) = (latches(), latches());
        // SAFETY: the `Arc`s keep the latches.
        let set = |latches: &[ThreadLatch; 2], job| unsafe { ThreadLatch::set(&latches[job]) };
        let thieves: Vec<_> = (1..3)
            .map(|index| {
                let pool = Arc::clone(&pool);
                let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
                thread::spawn(move || {
                    pool.thief(index, |job| {
                        pool.run(job);
                        // Neither task ends before both have begun, so both thieves are needed.
                        set(&begun, job);
                        begun[1 - job].wait();
                        set(&ended, job);
                    });
                })
            })
            .collect();
        // Both become available at once, with one notification, while both thieves sleep.
        while pool.sleep.sleepers() < 2 {
            thread::yield_now();
        }
        let slot = |pushed: Result<SlotPtr, SlotPtr>| pushed.unwrap_or_else(|slot| slot);
        let (first, second) = (slot(pool.push(0)), slot(pool.push(1)));
        assert!(pool.joins.publish_all());
        pool.sleep.notify();
        ended[0].wait();
        ended[1].wait();
        pool.wait_for_thief(second);
        pool.wait_for_thief(first);
        pool.free(0);
        pool.free(1);
        pool.finish();
        for thief in thieves {
            thief.join().unwrap();
        }
    });
}
