//! Registration with a profiler.
//!
//! Finds a profiler once per process, describes the runtime to it, and passes its services on. The counters
//! are kept with and without a profiler: they change only where a worker starts or ends a stolen task or a
//! wait.
//!
//! Invariant: the table and the counters are never freed or moved, since the profiler's signal handler reads
//! them.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use hpcrun_abi::{WORKER_IDLE, WORKER_WORKING};

/// Workers in the state [`WORKER_WORKING`], over all pools.
static N_WORKING: AtomicU32 = AtomicU32::new(0);
/// Workers alive, over all pools.
static N_WORKERS: AtomicU32 = AtomicU32::new(0);

/// The worker with this state starts to work. `is_counted`: it still counts as working since its last task.
#[inline(always)]
pub(crate) fn begin_work(state: &AtomicU8, is_counted: bool) {
    if !is_counted {
        N_WORKING.fetch_add(1, Ordering::Relaxed);
    }
    state.store(WORKER_WORKING, Ordering::Relaxed);
}

/// The worker with this state has ended its task. It still counts as working until
/// [`count_one_less_working`]: between two tasks that are both ready, no core is idle for want of work.
#[inline(always)]
pub(crate) fn end_work(state: &AtomicU8) {
    state.store(WORKER_IDLE, Ordering::Relaxed);
}

/// A worker that counted as working has no task, and none is ready.
#[inline(always)]
pub(crate) fn count_one_less_working() {
    N_WORKING.fetch_sub(1, Ordering::Relaxed);
}

/// A worker's registration, by its state; ends when dropped, on the same thread.
pub(crate) struct Enrolment<'a>(&'a AtomicU8);

impl<'a> Enrolment<'a> {
    /// The calling thread is a worker with this state.
    pub(crate) fn new(state: &'a AtomicU8) -> Self {
        N_WORKERS.fetch_add(1, Ordering::Relaxed);
        registry::enter(state);
        Enrolment(state)
    }
}

impl Drop for Enrolment<'_> {
    fn drop(&mut self) {
        registry::leave(self.0);
        N_WORKERS.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) use registry::{attach, capture_context, counts, path, path_is_active};

#[cfg(all(feature = "context", target_os = "linux"))]
mod registry {
    //! Where a profiler can be looked up at run time.

    use core::ffi::c_void;
    use core::ptr;
    use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
    use std::sync::Once;

    use hpcrun_abi::{
        ABI_VERSION, CountedSite, PathTable, ProfilerTable, REGISTER_SYMBOL, RegisterRuntime, RuntimeTable,
        TaskHeader, host,
    };

    use crate::boundary;

    /// The profiler's table; null when there is none.
    static PROFILER: AtomicPtr<ProfilerTable> = AtomicPtr::new(ptr::null_mut());
    /// Its functions for the critical path; null when it does not track.
    static PATH: AtomicPtr<PathTable> = AtomicPtr::new(ptr::null_mut());
    /// [`PathTable::active`], or a byte that stays 0.
    static PATH_ACTIVE: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const INACTIVE).cast_mut());
    static INACTIVE: AtomicU8 = AtomicU8::new(0);

    #[inline(always)]
    fn profiler() -> Option<&'static ProfilerTable> {
        // SAFETY: null, or a table that the profiler keeps until the process ends.
        unsafe { PROFILER.load(Ordering::Acquire).as_ref() }
    }

    #[inline(always)]
    pub(crate) fn path() -> Option<&'static PathTable> {
        // SAFETY: as in `profiler`.
        unsafe { PATH.load(Ordering::Acquire).as_ref() }
    }

    /// Whether the critical path is tracked now.
    #[inline(always)]
    pub(crate) fn path_is_active() -> bool {
        // SAFETY: `INACTIVE`, or a byte of the profiler's, which stays as its table does.
        !cfg!(loom) && unsafe { &*PATH_ACTIVE.load(Ordering::Relaxed) }.load(Ordering::Relaxed) != 0
    }

    /// Looks for a profiler, the first time it is called. `tracking_changed`: for
    /// [`RuntimeTable::tracking_changed`].
    pub(crate) fn attach(tracking_changed: extern "C" fn()) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let symbol = host::symbol(REGISTER_SYMBOL);
            if symbol.is_null() {
                return;
            }
            // SAFETY: whoever exports this name promises this type (hpcrun-abi).
            let register = unsafe { core::mem::transmute::<*mut c_void, RegisterRuntime>(symbol) };
            // SAFETY: our table is leaked, and leads to statics only; the profiler's stays.
            let table = unsafe { host::known(register(Box::leak(Box::new(describe(tracking_changed))))) };
            let Some(table) = table else {
                return;
            };
            PROFILER.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
            // SAFETY: as above.
            if let Some(path) = unsafe { host::known(table.path) } {
                PATH.store(ptr::from_ref(path).cast_mut(), Ordering::Release);
                PATH_ACTIVE.store(path.active.cast_mut(), Ordering::Release);
            }
        });
    }

    fn describe(tracking_changed: extern "C" fn()) -> RuntimeTable {
        let (text_start, text_end) = boundary::text_range();
        let (sites_start, sites_end) = boundary::sites();
        RuntimeTable {
            size: size_of::<RuntimeTable>() as u32,
            version: ABI_VERSION,
            name: c"work-stealing-rt".as_ptr(),
            n_working: &raw const super::N_WORKING,
            n_workers: &raw const super::N_WORKERS,
            text_start,
            text_end,
            boundary_return: boundary::return_address(),
            task_slot: boundary::TASK_SLOT,
            sites_start,
            sites_end,
            tracking_changed: Some(tracking_changed),
            tells: 0,
        }
    }

    pub(super) fn enter(state: &AtomicU8) {
        if let Some(profiler) = profiler() {
            // SAFETY: the state outlives the enrolment, and the worker is idle.
            unsafe { (profiler.worker_enter)(ptr::from_ref(state)) }
        }
    }

    pub(super) fn leave(state: &AtomicU8) {
        if let Some(profiler) = profiler() {
            // SAFETY: on the thread that entered, with the same state.
            unsafe { (profiler.worker_leave)(ptr::from_ref(state)) }
        }
    }

    /// Where the tasks of this one's site are counted; `None` without a profiler, or if the task
    /// has no stack context.
    ///
    /// # Safety
    /// The header is that of a live task.
    #[inline(always)]
    pub(crate) unsafe fn counts(header: *const TaskHeader) -> Option<&'static CountedSite> {
        profiler()?;
        // SAFETY: live by contract. A site with an address was emitted by `boundary::record`,
        // which emits whole counted sites; they are static.
        unsafe {
            let site = (*header).site;
            if (*site).ip == 0 {
                return None;
            }
            Some(&*site.cast::<CountedSite>())
        }
    }

    /// The calling thread's logical context, for a task to keep; 0 without a profiler.
    #[inline(always)]
    pub(crate) fn capture_context() -> usize {
        match profiler() {
            None => 0,
            // SAFETY: no precondition.
            Some(profiler) => unsafe { (profiler.capture_context)() },
        }
    }
}

#[cfg(not(all(feature = "context", target_os = "linux")))]
mod registry {
    //! Targets and builds without a profiler.

    use core::sync::atomic::AtomicU8;

    use hpcrun_abi::{CountedSite, PathTable, TaskHeader};

    pub(crate) fn attach(_: extern "C" fn()) {}
    #[inline(always)]
    pub(crate) fn path() -> Option<&'static PathTable> {
        None
    }
    #[inline(always)]
    pub(crate) fn path_is_active() -> bool {
        false
    }
    #[inline(always)]
    pub(crate) unsafe fn counts(_: *const TaskHeader) -> Option<&'static CountedSite> {
        None
    }
    pub(super) fn enter(_: &AtomicU8) {}
    pub(super) fn leave(_: &AtomicU8) {}
    #[inline(always)]
    pub(crate) fn capture_context() -> usize {
        0
    }
}
