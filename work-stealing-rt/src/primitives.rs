//! Atomics and futexes: the real ones, or loom's models of them under `cfg(loom)`.
//!
//! All other modules compile unchanged for both. A [`Futex`] is a word on which a thread sleeps while the
//! word has a given value. A wait may end spuriously, so callers loop. A wake may arrive after the futex's
//! memory was reused; then it wakes nobody, or ends one wait spuriously.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

pub(crate) use core::sync::atomic::Ordering;

#[cfg(not(loom))]
use crate::system;

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
        system::wait(&self.0, value);
    }

    /// Wakes a thread that sleeps here, even after the futex is gone.
    #[inline(always)]
    pub(crate) fn waker(&self) -> Waker {
        Waker(&raw const self.0)
    }
}

/// See [`Futex::waker`].
#[cfg(not(loom))]
pub(crate) struct Waker(*const AtomicU32);

#[cfg(not(loom))]
impl Waker {
    /// Wakes one thread that sleeps on the futex.
    #[inline(always)]
    pub(crate) fn wake(self) {
        // The address is only a key for the kernel.
        system::wake_one(self.0);
    }
}

/// loom's replacement: a condition variable beside the word.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Futex {
    word: AtomicU32,
    sleepers: std::sync::Arc<Sleepers>,
}

#[cfg(loom)]
#[derive(Debug)]
struct Sleepers {
    lock: loom::sync::Mutex<()>,
    changed: loom::sync::Condvar,
}

#[cfg(loom)]
impl Futex {
    pub(crate) fn new(value: u32) -> Self {
        Futex {
            word: AtomicU32::new(value),
            sleepers: std::sync::Arc::new(Sleepers {
                lock: loom::sync::Mutex::new(()),
                changed: loom::sync::Condvar::new(),
            }),
        }
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }

    pub(crate) fn wait(&self, value: u32) {
        let guard = self.sleepers.lock.lock().unwrap();
        // The kernel compares with sequential consistency under the bucket's lock.
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::SeqCst) == value {
            drop(self.sleepers.changed.wait(guard).unwrap());
        }
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(std::sync::Arc::clone(&self.sleepers))
    }
}

#[cfg(loom)]
pub(crate) struct Waker(std::sync::Arc<Sleepers>);

#[cfg(loom)]
impl Waker {
    pub(crate) fn wake(self) {
        drop(self.0.lock.lock().unwrap());
        self.0.changed.notify_one();
    }
}
