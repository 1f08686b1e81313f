//! Tasks in memory: a header that the profiler can read, a closure, an outcome.
//!
//! One duty: store a closure where another worker can find and run it, and return its result or its panic.
//! [`StackTask`] lives in the frame of a spawner that waits for it (join, install); [`HeapTask`] owns its
//! memory (scope, spawn).
//!
//! Life of a task that its spawner does not run inline: `entry` runs it, below the boundary's frame. After
//! that frame is gone, `finish` publishes that the task has ended and gives up its memory. In between, the
//! worker's state is already *idle*, so a profiler never follows a header into a frame that its owner may
//! have left.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::panic::Location;
use core::ptr;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use hpcrun_abi::TaskHeader;

use crate::boundary;
use crate::sched::prefetch::prefetch_for_write;
use crate::sched::state::{begin_work, end_work};
use crate::task::{Task, TaskRef};
use crate::track::{self, Strand, link::Link};
use crate::worker::Worker;

/// Calls the user's closure from a frame outside the runtime's code range: code inlined here is user code.
#[inline(never)]
pub(crate) fn call_task<R>(closure: impl FnOnce() -> R) -> R {
    closure()
}

/// Drops a user's value where a panic must not propagate.
pub(crate) fn discard<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // The payload's destructor might panic too.
        mem::forget(payload);
    }
}

/// The event that ends a [`StackTask`].
pub(crate) trait Event {
    /// Where the critical path goes along with the task; `None`: with the deque's slot.
    #[inline(always)]
    fn link(&self) -> Option<&Link> {
        None
    }

    /// The event happens.
    ///
    /// # Safety
    /// `this` is valid until the waiter is told, and may be gone right after.
    unsafe fn happen(this: *const Self);
}

/// The event is the deque's slot, which the dispatcher sets.
pub(crate) struct InSlot;

impl Event for InSlot {
    #[inline(always)]
    unsafe fn happen(_: *const Self) {}
}

/// A task in the frame of a spawner that outlives it.
#[repr(C)]
pub(crate) struct StackTask<F, R, E> {
    header: UnsafeCell<MaybeUninit<TaskHeader>>,
    closure: UnsafeCell<ManuallyDrop<F>>,
    outcome: UnsafeCell<MaybeUninit<thread::Result<R>>>,
    pub(crate) event: E,
}

impl<F, R, E> StackTask<F, R, E>
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
    E: Event,
{
    /// A task whose header is not recorded yet. The closure is dropped only by one of the
    /// `unsafe` methods, or by running.
    #[inline(always)]
    pub(crate) fn new(closure: F, event: E) -> Self {
        StackTask {
            header: UnsafeCell::new(MaybeUninit::uninit()),
            closure: UnsafeCell::new(ManuallyDrop::new(closure)),
            outcome: UnsafeCell::new(MaybeUninit::uninit()),
            event,
        }
    }

    /// Records the calling frame as the spawner.
    #[inline(always)]
    pub(crate) fn record(&self) -> TaskRef {
        // Derived from the whole task: whoever has the header's address reaches the rest through it.
        let header = ptr::from_ref(self).cast::<TaskHeader>();
        // SAFETY: the header lies in an `UnsafeCell`, is ours until the task is handed out, and
        // belongs to this type.
        unsafe { boundary::record::<Self>(header.cast_mut()) };
        TaskRef(header)
    }

    /// Takes the closure, to run or to drop it.
    ///
    /// # Safety
    /// The task is the caller's (never handed out, or taken back), and this is called once.
    #[inline(always)]
    pub(crate) unsafe fn take_closure(&self) -> F {
        // SAFETY: nobody else runs the task, and the closure is still there.
        unsafe { ManuallyDrop::take(&mut *self.closure.get()) }
    }

    /// Takes what became of the task.
    ///
    /// # Safety
    /// The task's event has happened, and this is called once.
    #[inline(always)]
    pub(crate) unsafe fn take_outcome(&self) -> thread::Result<R> {
        // SAFETY: the entry wrote the outcome before the event, and nobody touches it any more.
        unsafe { (*self.outcome.get()).assume_init_read() }
    }
}

impl<F, R, E> Task for StackTask<F, R, E>
where
    F: FnOnce(bool) -> R + Send,
    R: Send,
    E: Event,
{
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
    unsafe extern "C" fn entry(header: *const TaskHeader, worker: *const c_void) {
        // SAFETY: the header is the first field of a live `Self` in the spawner's frame, which
        // stays until the event; `worker` is the calling thread's. A panic of the closure is
        // caught and becomes the outcome.
        unsafe {
            let worker = &*worker.cast::<Worker>();
            begin_work(worker);
            let this = &*header.cast::<Self>();
            // The spawner's core owns the cache line; it arrives while the closure runs.
            prefetch_for_write(this.outcome.get());
            let closure = this.take_closure();
            let link = this.event.link();
            let paused = link.and_then(|link| link.begin());
            let migrated = !worker.own.in_order.replace(false);
            let outcome = catch_unwind(AssertUnwindSafe(|| call_task(|| closure(migrated))));
            (*this.outcome.get()).write(outcome);
            if let Some(link) = link {
                link.end(paused);
            }
            end_work(worker);
        }
    }

    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
    unsafe extern "C" fn finish(header: *const TaskHeader) {
        // SAFETY: the task is live until its event happens; only raw pointers are passed on.
        unsafe { E::happen(&raw const (*header.cast::<Self>()).event) }
    }
}

/// What happens when a [`HeapTask`] ends.
pub(crate) trait CompletionHook {
    /// The closure's strand has ended; before `completed`.
    fn ended(&self, strand: Strand);
    /// The closure has panicked with this payload.
    fn panicked(&self, payload: Box<dyn Any + Send>);
    /// The task has ended. Called once, last.
    fn completed(self);
}

/// A task on the heap, which frees itself. The closure borrows the hook, so that data both need is stored
/// once.
#[repr(C)]
pub(crate) struct HeapTask<F, H> {
    header: TaskHeader,
    closure: UnsafeCell<ManuallyDrop<F>>,
    hook: H,
    /// The strand of the spawn, for the entry to take.
    spawned: UnsafeCell<Option<Strand>>,
    location: &'static Location<'static>,
}

impl<F: FnOnce(&H) + Send, H: CompletionHook + Send> HeapTask<F, H> {
    /// A task in the given captured context (0: unknown), spawned at `location`. It must be run.
    #[inline(always)]
    pub(crate) fn boxed(
        closure: F,
        hook: H,
        context: usize,
        location: &'static Location<'static>,
    ) -> TaskRef {
        let task = Box::new(HeapTask {
            header: TaskHeader { site: ptr::from_ref(Self::SITE).cast(), sp: context, fp: 0 },
            closure: UnsafeCell::new(ManuallyDrop::new(closure)),
            hook,
            spawned: UnsafeCell::new(track::spawn(location)),
            location,
        });
        TaskRef(Box::into_raw(task).cast_const().cast::<TaskHeader>())
    }
}

impl<F: FnOnce(&H) + Send, H: CompletionHook + Send> Task for HeapTask<F, H> {
    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
    unsafe extern "C" fn entry(header: *const TaskHeader, worker: *const c_void) {
        // SAFETY: the header is the first field of a live boxed `Self` that runs once, and is
        // freed by `finish` only. A panic of the closure goes to the hook.
        unsafe {
            let worker = &*worker.cast::<Worker>();
            begin_work(worker);
            let this = &*header.cast::<Self>();
            let closure = ManuallyDrop::take(&mut *this.closure.get());
            let site = track::at(this.location);
            let paused = track::begin((*this.spawned.get()).take(), site);
            let call = || call_task(|| closure(&this.hook));
            if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
                this.hook.panicked(payload);
            }
            if let Some(strand) = paused.and_then(|paused| track::end(paused, site)) {
                this.hook.ended(strand);
            }
            end_work(worker);
        }
    }

    #[inline(never)]
    #[cfg_attr(target_os = "linux", unsafe(link_section = "wsrt_text"))]
    unsafe extern "C" fn finish(header: *const TaskHeader) {
        // SAFETY: made by `boxed`, and nobody refers to it any more. The closure has been taken,
        // and `ManuallyDrop` keeps the box from dropping it again.
        let task = unsafe { Box::from_raw(header.cast::<Self>().cast_mut()) };
        let HeapTask { hook, .. } = *task;
        hook.completed();
    }
}
