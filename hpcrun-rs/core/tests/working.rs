//! n_working for all roles of a thread: ordinary, worker of one or two runtimes, blocked in a task, asleep in
//! a scheduling loop. The runtimes are simulated by two counters each.

use hpcrun_abi::{ABI_VERSION, CountedSite, RuntimeTable, WORKER_IDLE, WORKER_WORKING};
use hpcrun_core::activity::{self, Slot, State};
use hpcrun_core::arch::call_on_stack;
use hpcrun_core::source::Sample;
use hpcrun_core::threads::{self, OwnThread};
use hpcrun_core::unwind::Registers;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, Once, PoisonError};

const CORES: u32 = 64;

/// A sample that stands for a nanosecond.
fn sample() -> Sample {
    Sample { registers: Registers::here(), now: 0, weight: 1, held_back: 0, period: 1 }
}

/// A runtime with at most one worker, as the profiler sees it.
struct Runtime {
    working: &'static AtomicU32,
    workers: &'static AtomicU32,
    state: &'static AtomicU8,
}

fn runtime() -> Runtime {
    let [working, workers] = [(); 2].map(|()| &*Box::leak(Box::new(AtomicU32::new(0))));
    let none: *const CountedSite = ptr::null();
    let table = Box::leak(Box::new(RuntimeTable {
        size: size_of::<RuntimeTable>() as u32,
        version: ABI_VERSION,
        name: c"stand-in".as_ptr(),
        n_working: working,
        n_workers: workers,
        text_start: 0,
        text_end: 0,
        boundary_return: 0,
        task_slot: 0,
        sites_start: none,
        sites_end: none,
        tracking_changed: None,
        tells: 0,
    }));
    assert_eq!(activity::register_runtime(table), Ok(()));
    let state = Box::leak(Box::new(AtomicU8::new(WORKER_IDLE)));
    Runtime { working, workers, state }
}

impl Runtime {
    fn enter(&self, thread: OwnThread) {
        self.workers.fetch_add(1, Relaxed);
        thread.working().enter_runtime(self.state);
    }

    fn leave(&self, thread: OwnThread) {
        thread.working().leave_runtime(self.state);
        self.workers.fetch_sub(1, Relaxed);
    }

    fn begin_task(&self) {
        self.working.fetch_add(1, Relaxed);
        self.state.store(WORKER_WORKING, Relaxed);
    }

    fn end_task(&self) {
        self.state.store(WORKER_IDLE, Relaxed);
        self.working.fetch_sub(1, Relaxed);
    }
}

/// n_working at a sample. A sampled thread counts as at least one, so a further thread is counted, to
/// distinguish none from one.
fn working() -> u32 {
    let other = Slot::default();
    other.move_to(State::Working, 0);
    let charge = activity::charge(&other, 0, 1_000_000);
    other.release();
    let ratio = charge.idleness / 1e6;
    (f64::from(CORES) / (1.0 + ratio)).round() as u32 - 1
}

fn wait<T>(thread: OwnThread, during: impl FnOnce() -> T) -> T {
    thread.working().begin_wait();
    let result = during();
    thread.working().end_wait();
    result
}

/// Runs the test on a thread with a state, alone in the process. Afterwards the thread is no longer counted.
fn on_a_thread(test: impl FnOnce(OwnThread) + Send) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    static ATTACHED: Once = Once::new();
    ATTACHED.call_once(|| assert!(activity::attach(None)));
    activity::set_cores(CORES);
    assert_eq!(working(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let thread = threads::acquire().expect("memory");
            let thread = threads::begin(thread, (0, 0), (0, 0), false);
            test(thread);
            thread.retire();
        });
    });
    assert_eq!(working(), 0, "the thread has ended");
}

#[test]
fn an_ordinary_thread_works_unless_it_waits() {
    on_a_thread(|thread| {
        assert_eq!(working(), 1);
        wait(thread, || {
            assert_eq!(working(), 0);
            wait(thread, || assert_eq!(working(), 0, "in a wait in a wait"));
            assert_eq!(working(), 0);
        });
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
        thread.working().begin_yield();
        assert_eq!((working(), thread.is_idle(&sample())), (0, true));
        thread.working().end_yield();
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
    });
}

#[test]
fn a_worker_that_is_blocked_in_a_task_is_not_counted() {
    on_a_thread(|thread| {
        let runtime = runtime();
        runtime.enter(thread);
        assert_eq!((working(), thread.is_idle(&sample())), (0, true));
        wait(thread, || assert_eq!(working(), 0, "asleep without a task"));
        assert_eq!(working(), 0);
        runtime.begin_task();
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
        wait(thread, || {
            assert_eq!(working(), 0);
            thread.charge(&sample());
            assert_eq!(working(), 1, "found running, it counts");
        });
        assert_eq!(working(), 1);
        thread.working().begin_yield();
        assert_eq!((working(), thread.is_idle(&sample())), (0, true));
        thread.working().end_yield();
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
        runtime.end_task();
        assert_eq!((working(), thread.is_idle(&sample())), (0, true));
        runtime.leave(thread);
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
    });
}

#[test]
fn a_worker_of_two_runtimes_counts_once_and_idles_where_one_of_them_looks_for_work() {
    on_a_thread(|thread| {
        let [outer, inner] = [runtime(), runtime()];
        outer.enter(thread);
        outer.begin_task();
        inner.enter(thread);
        assert_eq!((working(), thread.is_idle(&sample())), (0, true));
        inner.begin_task();
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
        wait(thread, || assert_eq!(working(), 0));
        // The task waits for a task of the outer runtime. Meanwhile its worker runs another task, which waits
        // for a task of the inner runtime.
        outer.end_task();
        assert_eq!((working(), thread.is_idle(&sample())), (0, true));
        wait(thread, || assert_eq!(working(), 0, "asleep without a task"));
        outer.begin_task();
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
        inner.end_task();
        assert_eq!((working(), thread.is_idle(&sample())), (0, true));
        inner.leave(thread);
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
        outer.end_task();
        outer.leave(thread);
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
    });
}

#[test]
fn a_worker_may_leave_the_runtime_that_it_entered_first() {
    on_a_thread(|thread| {
        let [first, second] = [runtime(), runtime()];
        first.enter(thread);
        first.begin_task();
        second.enter(thread);
        second.begin_task();
        first.end_task();
        first.leave(thread);
        assert_eq!((working(), thread.is_idle(&sample())), (1, false));
        first.state.store(WORKER_IDLE, Relaxed);
        assert!(!thread.is_idle(&sample()), "what it left is not looked at");
        wait(thread, || assert_eq!(working(), 0));
        second.end_task();
        assert_eq!((working(), thread.is_idle(&sample())), (0, true));
        second.leave(thread);
        assert_eq!(working(), 1);
    });
}

#[test]
fn an_ended_thread_is_not_counted_even_if_its_runtime_does_not_know() {
    // Like a thread that registered itself as worker of a pool, and never leaves it.
    on_a_thread(|thread| {
        let runtime = runtime();
        runtime.enter(thread);
        runtime.begin_task();
        assert_eq!(working(), 1);
    });
}

#[test]
fn a_forked_child_has_one_thread_whatever_its_runtimes_count() {
    on_a_thread(|thread| {
        let runtime = runtime();
        runtime.working.fetch_add(3, Relaxed);
        assert_eq!(working(), 4);
        thread.renew_after_fork();
        assert_eq!(working(), 1);
        wait(thread, || assert_eq!(working(), 0));
        // The simulated workers do exist in this process, so undo their correction.
        runtime.working.fetch_sub(3, Relaxed);
        activity::enter_child(0);
        thread.renew_after_fork();
    });
}

/// Two stacks that nobody knows, and a thread that uses them.
struct Stacks {
    thread: OwnThread,
    higher: usize,
    within: u32,
}

/// A wait on the lower stack, in which a signal handler runs on the higher one and waits, too.
unsafe extern "C" fn wait_and_be_interrupted(stacks: *mut c_void) {
    // SAFETY: the test passes its stacks, which nobody else uses meanwhile.
    let (thread, higher) = unsafe { ((*stacks.cast::<Stacks>()).thread, (*stacks.cast::<Stacks>()).higher) };
    thread.working().begin_wait();
    // SAFETY: the stack is the test's, and unused.
    unsafe { call_on_stack(stacks, wait_shortly, higher) };
    // SAFETY: as above.
    unsafe { (*stacks.cast::<Stacks>()).within = working() };
    thread.working().end_wait();
}

unsafe extern "C" fn wait_shortly(stacks: *mut c_void) {
    // SAFETY: as above.
    let thread = unsafe { (*stacks.cast::<Stacks>()).thread };
    thread.working().begin_wait();
    thread.working().end_wait();
}

#[test]
fn a_handler_on_a_stack_of_its_own_ends_no_wait_that_it_interrupts() {
    const SIZE: usize = 1 << 18;
    on_a_thread(|thread| {
        let memory = Box::leak(Box::new([0_u128; 2 * SIZE / 16]));
        let low = memory.as_ptr() as usize;
        let mut stacks = Stacks { thread, higher: low + 2 * SIZE, within: u32::MAX };
        // SAFETY: the stack is ours, and unused.
        unsafe {
            call_on_stack((&raw mut stacks).cast(), wait_and_be_interrupted, low + SIZE);
        }
        assert_eq!((stacks.within, working()), (0, 1));
    });
}
