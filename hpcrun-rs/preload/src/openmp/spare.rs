//! A record that a thread keeps for the next time: the library's heap has one lock.

use std::cell::Cell;
use std::ptr;

/// Room for one. [`Spare::clear`] it before the thread ends.
pub(crate) struct Spare<T>(Cell<*mut T>);

impl<T> Spare<T> {
    pub(crate) const fn new() -> Spare<T> {
        Spare(Cell::new(ptr::null_mut()))
    }

    /// The value in a place of its own.
    pub(crate) fn take(&self, value: T) -> *mut T {
        let kept = self.0.replace(ptr::null_mut());
        if kept.is_null() {
            return Box::into_raw(Box::new(value));
        }
        // SAFETY: a box whose value was dropped, and that nobody else has.
        unsafe { kept.write(value) };
        kept
    }

    /// Drops the value of a place that [`Self::take`] has given, which nobody uses any more.
    ///
    /// # Safety
    /// As said.
    pub(crate) unsafe fn give(&self, place: *mut T) {
        // SAFETY: the caller's promise; then the place is kept, or freed as the box that it was.
        unsafe {
            place.drop_in_place();
            self.clear();
        }
        self.0.set(place);
    }

    /// Frees the place that is kept.
    pub(crate) fn clear(&self) {
        let kept = self.0.replace(ptr::null_mut()).cast::<std::mem::MaybeUninit<T>>();
        if !kept.is_null() {
            // SAFETY: a box without its value.
            drop(unsafe { Box::from_raw(kept) });
        }
    }
}
