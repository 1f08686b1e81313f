//! A profiler inside the program, which only tracks the critical path: what the runtime tells it is the truth
//! that the tests compare with known graphs.
//!
//! The runtime finds it as it finds the real one, by its exported symbol (`build.rs`).

use std::cell::RefCell;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed};

use critical_path::table::{self, Host, Tracked};
use critical_path::{Settings, Tracker};
use hpcrun_abi::{ABI_VERSION, PathTable, ProfilerTable, RuntimeTable, TaskRecord};

struct Program;

impl Host for Program {
    fn tracker() -> &'static Tracker {
        static TRACKER: OnceLock<Tracker> = OnceLock::new();
        TRACKER.get_or_init(|| {
            let mut settings = Settings::default();
            settings.grain = 20_000;
            Tracker::new(settings)
        })
    }

    fn active() -> &'static AtomicU8 {
        static ACTIVE: AtomicU8 = AtomicU8::new(0);
        &ACTIVE
    }

    fn changed() {
        // SAFETY: null, or the table that the runtime has registered for ever.
        let runtime = unsafe { RUNTIME.load(Relaxed).as_ref() };
        if let Some(changed) = runtime.and_then(|runtime| runtime.tracking_changed) {
            changed();
        }
    }

    fn enter<R>(first: impl FnOnce() -> Tracked, change: impl FnOnce(&mut Tracked) -> R) -> Option<R> {
        thread_local! {
            static THREAD: RefCell<Option<Box<Tracked>>> = const { RefCell::new(None) };
        }
        let access = |thread: &RefCell<Option<Box<Tracked>>>| {
            let mut thread = thread.try_borrow_mut().ok()?;
            Some(change(thread.get_or_insert_with(|| Box::new(first()))))
        };
        THREAD.try_with(access).ok().flatten()
    }
}

static RUNTIME: AtomicPtr<RuntimeTable> = AtomicPtr::new(ptr::null_mut());

/// See [`hpcrun_abi::RegisterRuntime`].
#[unsafe(no_mangle)]
unsafe extern "C" fn hpcrun_rt_register(runtime: *const RuntimeTable) -> *const ProfilerTable {
    unsafe extern "C" fn worker(_: *const AtomicU8) {}
    unsafe extern "C" fn capture_context() -> usize {
        0
    }
    unsafe extern "C" fn task_begin(_: *mut TaskRecord, _: usize) {}
    unsafe extern "C" fn task_end(_: *mut TaskRecord) {}
    extern "C" fn wait() {}
    RUNTIME.store(runtime.cast_mut(), Relaxed);
    Box::leak(Box::new(ProfilerTable {
        size: size_of::<ProfilerTable>() as u32,
        version: ABI_VERSION,
        worker_enter: worker,
        worker_leave: worker,
        capture_context,
        path: hpcrun_critical_path(),
        task_begin,
        task_end,
        wait_begin: wait,
        wait_end: wait,
    }))
}

/// See [`hpcrun_abi::CriticalPath`].
#[unsafe(no_mangle)]
extern "C" fn hpcrun_critical_path() -> *const PathTable {
    Box::leak(Box::new(table::table::<Program>()))
}

/// What it has tracked.
pub(crate) fn tracker() -> &'static Tracker {
    Program::tracker()
}
