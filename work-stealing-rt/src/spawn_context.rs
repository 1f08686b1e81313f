//! Logical contexts for runtimes on top of this one, whose tasks are not this runtime's tasks.
//!
//! One duty: let such a runtime keep where a message was sent, and show it to a profiler as the caller of the
//! message's handler.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use hpcrun_abi::TaskHeader;

use crate::boundary;
use crate::job::call_task;
use crate::profiler;
use crate::task::Task;
use crate::worker::Worker;

/// A logical call path, kept for a profiler. Without one it is empty, and costs a load.
///
/// ```
/// let sender = work_stealing_rt::SpawnContext::capture();
/// let length = sender.enter(|| "message".len());
/// assert_eq!(length, 7);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SpawnContext(usize);

impl SpawnContext {
    /// That of the caller.
    #[inline(always)]
    pub fn capture() -> Self {
        SpawnContext(profiler::capture_context())
    }

    /// Calls the closure. If a profiler is there and the calling thread is a worker, the closure's callers
    /// are, for the profiler, those of the kept path. A panic of the closure resumes in the caller.
    #[inline(always)]
    pub fn enter<R>(self, closure: impl FnOnce() -> R) -> R {
        if self.0 == 0 {
            return closure();
        }
        self.enter_boundary(closure)
    }

    #[cold]
    #[inline(never)]
    fn enter_boundary<R>(self, closure: impl FnOnce() -> R) -> R {
        let worker = Worker::current();
        if worker.is_null() {
            return closure();
        }
        Call::new(self, closure).run(worker)
    }
}

/// A closure to be called through the boundary, in the frame of its caller.
#[repr(C)]
struct Call<F, R> {
    header: TaskHeader,
    closure: UnsafeCell<ManuallyDrop<F>>,
    outcome: UnsafeCell<Option<thread::Result<R>>>,
}

impl<F: FnOnce() -> R, R> Call<F, R> {
    fn new(context: SpawnContext, closure: F) -> Self {
        Call {
            header: TaskHeader { site: core::ptr::from_ref(Self::SITE).cast(), sp: context.0, fp: 0 },
            closure: UnsafeCell::new(ManuallyDrop::new(closure)),
            outcome: UnsafeCell::new(None),
        }
    }

    fn run(self, worker: *const Worker) -> R {
        // Derived from the whole call: the entry reaches the rest through the header's address.
        let header = core::ptr::from_ref(&self).cast::<TaskHeader>();
        // SAFETY: the call lives in this frame until the entry has returned, runs once, and `worker` is the
        // calling thread's. The entry catches every panic.
        unsafe { boundary::enter(header, worker.cast(), Self::entry) };
        match self.outcome.into_inner() {
            Some(Ok(result)) => result,
            Some(Err(payload)) => resume_unwind(payload),
            None => unreachable!("the entry writes the outcome"),
        }
    }
}

impl<F: FnOnce() -> R, R> Task for Call<F, R> {
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
    unsafe extern "C" fn entry(header: *const TaskHeader, _: *const c_void) {
        // SAFETY: the header is the first field of a live `Self` (`run`), which nobody else uses meanwhile.
        // The closure is taken once. A panic of it is caught and becomes the outcome.
        unsafe {
            let this = &*header.cast::<Self>();
            let closure = ManuallyDrop::take(&mut *this.closure.get());
            let outcome = catch_unwind(AssertUnwindSafe(|| call_task(closure)));
            *this.outcome.get() = Some(outcome);
        }
    }

    unsafe extern "C" fn finish(_: *const TaskHeader) {}
}
