//! Atomics and futexes: the real ones, or loom's models of them under `cfg(loom)`.
//!
//! One duty: let `latch`, `deque` and `sleep` be compiled unchanged for both. A [`Futex`] is a
//! word on which a thread sleeps while it has a given value. A wait may end for no reason, so
//! callers loop; a wake may name a futex whose memory is already reused, which wakes nobody or
//! causes one such wait to end.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

pub(crate) use core::sync::atomic::Ordering;

/// A 32-bit word on which threads can sleep.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Futex(AtomicU32);

#[cfg(not(loom))]
impl Futex {
    pub(crate) const fn new(value: u32) -> Self {
        Futex(AtomicU32::new(value))
    }

    #[inline(always)]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps while the word is `value`; may return early.
    #[inline(always)]
    pub(crate) fn wait(&self, value: u32) {
        atomic_wait::wait(&self.0, value);
    }

    /// Wakes one thread that sleeps on the futex at `this`, which may already be gone.
    #[inline(always)]
    pub(crate) fn wake(this: *const Futex) {
        // A `Futex` begins with (and is) its word; the address is only a key for the kernel.
        atomic_wait::wake_one(this.cast::<AtomicU32>());
    }
}

/// loom's stand-in: a condition variable beside the word. Its memory must outlive the wake.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Futex {
    word: AtomicU32,
    lock: loom::sync::Mutex<()>,
    changed: loom::sync::Condvar,
}

#[cfg(loom)]
impl Futex {
    pub(crate) fn new(value: u32) -> Self {
        Futex {
            word: AtomicU32::new(value),
            lock: loom::sync::Mutex::new(()),
            changed: loom::sync::Condvar::new(),
        }
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    pub(crate) fn wait(&self, value: u32) {
        let guard = self.lock.lock().unwrap();
        // The kernel compares with sequential consistency under the bucket's lock.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::SeqCst) == value {
            drop(self.changed.wait(guard).unwrap());
        }
    }

    pub(crate) fn wake(this: *const Futex) {
        // SAFETY: under loom the futex is owned by an `Arc` that both threads hold. Nothing here
        // unwinds except loom itself, which ends the model.
        let this = unsafe { &*this };
        drop(this.lock.lock().unwrap());
        this.changed.notify_one();
    }
}
