//! Values that stay in the frame while foreign code runs.
//!
//! One duty: keep what a join needs after a closure out of registers. A value in a register
//! outlives a call only in one that the function has to save when it is entered and to restore when it
//! returns, also where it forks nothing: in a fine-grained recursion that is every second call. In the frame it
//! costs one store and one load, on the way that needs it.

use core::mem::{self, MaybeUninit};
use core::ptr;

/// Room for one value, in the frame that holds it.
pub(crate) struct Place<T>(MaybeUninit<T>);

impl<T> Place<T> {
    /// Larger values lie in memory anyway.
    const IS_SMALL: bool = mem::size_of::<T>() <= 2 * mem::size_of::<usize>();

    #[inline(always)]
    pub(crate) fn new() -> Self {
        Place(MaybeUninit::uninit())
    }

    /// Puts `value` here until it is taken, or dropped with the guard.
    #[inline(always)]
    pub(crate) fn keep(&mut self, value: T) -> Kept<'_, T> {
        if Self::IS_SMALL {
            // SAFETY: the place is ours alone, and fit for a `T`. Volatile, that is: in memory.
            unsafe { ptr::write_volatile(self.0.as_mut_ptr(), value) };
        } else {
            self.0.write(value);
        }
        Kept(self)
    }
}

/// A value in its place.
pub(crate) struct Kept<'a, T>(&'a mut Place<T>);

impl<T> Kept<'_, T> {
    /// A copy of the value.
    #[inline(always)]
    pub(crate) fn get(&self) -> T
    where
        T: Copy,
    {
        // SAFETY: the value stays where it is; a copy of a `Copy` type is a value of its own.
        unsafe { self.read() }
    }

    /// Takes the value out.
    #[inline(always)]
    pub(crate) fn take(self) -> T {
        let kept = mem::ManuallyDrop::new(self);
        // SAFETY: the guard's destructor does not run, and the guard is gone.
        unsafe { kept.read() }
    }

    /// # Safety
    /// What is read is a copy, or nobody reads the value again.
    #[inline(always)]
    unsafe fn read(&self) -> T {
        // SAFETY: `keep` has written the value; the rest is this function's contract.
        unsafe {
            if Place::<T>::IS_SMALL {
                ptr::read_volatile(self.0.0.as_ptr())
            } else {
                self.0.0.assume_init_read()
            }
        }
    }
}

impl<T> Drop for Kept<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if mem::needs_drop::<T>() {
            // SAFETY: a guard is dropped once. Should the value's destructor panic, the value is
            // not dropped again.
            drop(unsafe { self.read() });
        }
    }
}
