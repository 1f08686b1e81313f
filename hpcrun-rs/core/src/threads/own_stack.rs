//! Stacks of the profiler: the one that a thread's signal handler runs on, and the one on which a hook works
//! where the program's has little room, as coroutines' and the smallest threads' have.
//!
//! Invariant of the second: who takes it has it alone until it is put back. A handler of the program that
//! interrupts the hook, and calls another, finds none and maps one more.

use super::OwnThread;
use crate::arch::{call_on_stack, stack_pointer};
use crate::memory::{self, PAGE};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The room that the deepest work of a hook has, on either stack.
const ROOM: usize = 64 << 10;

pub struct OwnStack {
    top: usize,
}

impl OwnStack {
    /// Maps the memory. `None` when it cannot be allocated.
    pub(super) fn map() -> Option<OwnStack> {
        let guard = memory::map_anonymous(PAGE + ROOM)?.as_ptr() as usize;
        // SAFETY: the mapping is fresh and ours; its lowest page becomes a guard.
        unsafe { libc::mprotect(guard as *mut c_void, PAGE, libc::PROT_NONE) };
        Some(OwnStack { top: guard + PAGE + ROOM })
    }

    /// The stack's upper end, which is aligned to a page.
    #[inline]
    pub fn top(&self) -> usize {
        self.top
    }

    fn unmap(self) {
        if let Some(base) = NonNull::new((self.top - ROOM - PAGE) as *mut u8) {
            // SAFETY: `map` has mapped it with this size, and nobody runs on it.
            unsafe { memory::unmap(base, PAGE + ROOM) };
        }
    }
}

/// The stack of a thread's hooks, once it has needed one.
#[derive(Default)]
pub(super) struct Spare(AtomicUsize);

impl Spare {
    fn take(&self) -> Option<OwnStack> {
        match self.0.swap(0, Ordering::Relaxed) {
            0 => None,
            top => Some(OwnStack { top }),
        }
    }

    fn put_back(&self, stack: OwnStack) {
        match self.0.swap(stack.top, Ordering::Relaxed) {
            0 => {}
            top => OwnStack { top }.unmap(),
        }
    }
}

/// Runs `act`, which may go deep: on a stack of ours where the program's has little room. If none can be
/// mapped, on the program's. Keeps errno.
#[inline]
pub fn with_room<R>(act: impl FnOnce() -> R) -> R {
    // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
    let errno = unsafe { &mut *libc::__errno_location() };
    let before = *errno;
    let result = match super::current() {
        Some(thread) if !thread.stack.has_room(stack_pointer() as u64, ROOM as u64) => {
            on_own_stack(thread, act)
        }
        _ => act(),
    };
    *errno = before;
    result
}

#[cold]
fn on_own_stack<R, F: FnOnce() -> R>(thread: OwnThread, act: F) -> R {
    // A child of `vfork` has its parent's state, but the parent waits meanwhile. A thread without
    // thread-local storage of its own has it, too, and the parent does not.
    let spare = thread.is_own().then_some(&thread.spare_stack);
    let Some(stack) = spare.and_then(Spare::take).or_else(OwnStack::map) else { return act() };
    let mut call = Call { act: Some(act), result: None };
    // SAFETY: the stack is ours alone, and has room; `run` gets the call that it is made for, which lives.
    unsafe { call_on_stack(ptr::from_mut(&mut call).cast(), run::<R, F>, stack.top()) };
    match spare {
        Some(spare) => spare.put_back(stack),
        None => stack.unmap(),
    }
    call.result.expect("the call has returned")
}

struct Call<R, F> {
    act: Option<F>,
    result: Option<R>,
}

unsafe extern "C" fn run<R, F: FnOnce() -> R>(call: *mut c_void) {
    // SAFETY: `on_own_stack` passes its call, which nobody else uses meanwhile.
    let call = unsafe { &mut *call.cast::<Call<R, F>>() };
    call.result = call.act.take().map(|act| act());
}
