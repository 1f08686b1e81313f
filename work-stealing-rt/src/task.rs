//! What a task is to those who queue it, find it and enter it: a header that leads to its code.
//!
//! One duty: the types that all of these share. `job` has the tasks themselves.

use core::ffi::c_void;
use core::mem::offset_of;

use hpcrun_abi::{SpawnSite, TaskHeader};

/// Runs the task with this header on the given worker, the caller's; catches every panic. The worker is a
/// `Worker`, which knows of tasks.
pub(crate) type Entry = unsafe extern "C" fn(*const TaskHeader, *const c_void);
/// Ends the task with this header after its entry has returned.
pub(crate) type Finish = unsafe extern "C" fn(*const TaskHeader);

/// A spawn site as the runtime sees it: [`SpawnSite`] with typed entry points.
#[repr(C)]
pub(crate) struct Site {
    pub(crate) ip: usize,
    pub(crate) entry: Entry,
    pub(crate) finish: Finish,
}

const _: () = assert!(
    offset_of!(Site, ip) == offset_of!(SpawnSite, ip)
        && offset_of!(Site, entry) == offset_of!(SpawnSite, entry)
);

/// A type of task. Its first field is a [`TaskHeader`].
pub(crate) trait Task {
    /// See [`Entry`].
    ///
    /// # Safety
    /// `header` is that of a live `Self` which runs once; `worker` is the calling thread's.
    unsafe extern "C" fn entry(header: *const TaskHeader, worker: *const c_void);

    /// See [`Finish`].
    ///
    /// # Safety
    /// `header` is that of a live `Self` whose entry has returned; it may be gone afterwards.
    unsafe extern "C" fn finish(header: *const TaskHeader);

    /// The site of tasks without a stack context.
    const SITE: &'static Site = &Site { ip: 0, entry: Self::entry, finish: Self::finish };
}

/// A task that some worker must run once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct TaskRef(pub(crate) *const TaskHeader);

// SAFETY: a task is made of `Send` parts (see the constructors), and the reference is used by
// one thread at a time.
unsafe impl Send for TaskRef {}

impl TaskRef {
    /// The task's site.
    ///
    /// # Safety
    /// The task is live.
    #[inline(always)]
    pub(crate) unsafe fn site(self) -> &'static Site {
        // SAFETY: every header's site points to a static `Site` (`boundary::record`, `Task::SITE`).
        unsafe { &*(*self.0).site.cast::<Site>() }
    }
}
