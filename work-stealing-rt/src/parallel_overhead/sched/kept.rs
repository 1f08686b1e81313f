//! Frame slots for the values that a join needs after a closure.
//!
//! A value that lives in a register across a call needs a callee-saved register. The function saves that
//! register on entry and restores it on return, even on paths without a fork; in a fine-grained recursion
//! that is every second call. A frame slot costs one store and one load, on the forking path only.

use core::mem::{self, MaybeUninit};
use core::ptr;

/// Room for one value, in the caller's frame.
pub(crate) struct Place<T>(MaybeUninit<T>);

impl<T> Place<T> {
    /// Larger values are in memory anyway.
    const IS_SMALL: bool = mem::size_of::<T>() <= 2 * mem::size_of::<usize>();

    #[inline(always)]
    pub(crate) fn new() -> Self {
        Place(MaybeUninit::uninit())
    }

    /// Stores `value` here until it is taken, or dropped with the guard.
    #[inline(always)]
    pub(crate) fn keep(&mut self, value: T) -> Kept<'_, T> {
        if Self::IS_SMALL {
            // SAFETY: `&mut self` is exclusive, and the place has the layout of a `T`. A volatile write goes
            // to memory.
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
        // SAFETY: `keep` has written the value, and a `Copy` type may be read any number of times.
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
    /// `T` is `Copy`, or the value is not read again.
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
            // SAFETY: a guard is dropped once. If the value's destructor panics, the value is not
            // dropped again.
            drop(unsafe { self.read() });
        }
    }
}
