//! The queues of spawned tasks: crossbeam's, or a model that loom and Miri can follow.
//!
//! All other modules compile unchanged for both. loom does not see crossbeam's atomics, and crossbeam-epoch
//! violates the borrow rules that Miri checks; both crates have tests of their own.
//!
//! The model guarantees no more than crossbeam: whoever takes a task sees everything written before it was
//! queued, and nothing else is ordered. Code that needs a fence with crossbeam's queues needs it with the
//! model too.

#[cfg(not(any(loom, miri)))]
pub(crate) use crossbeam_deque::{Injector, Steal, Stealer, Worker};

#[cfg(any(loom, miri))]
pub(crate) use crossbeam_deque::Steal;
#[cfg(any(loom, miri))]
pub(crate) use model::{Injector, Stealer, Worker};

#[cfg(any(loom, miri))]
mod model {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use super::Steal;
    use crate::primitives::{AtomicUsize, Ordering};

    /// See [`crossbeam_deque::Injector`]. A task is taken in two steps: the right to one, then it itself.
    pub(crate) struct Injector<T> {
        /// Tasks to which nobody has the right. All that others can know of the queue.
        free: AtomicUsize,
        /// At least as many tasks. Never waited for under loom, which switches at its own atomics only.
        tasks: Mutex<VecDeque<T>>,
    }

    impl<T> Injector<T> {
        pub(crate) fn new() -> Self {
            Injector { free: AtomicUsize::new(0), tasks: Mutex::new(VecDeque::new()) }
        }

        pub(crate) fn push(&self, task: T) {
            self.tasks.lock().expect("nothing panics").push_back(task);
            self.free.fetch_add(1, Ordering::Release);
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.free.load(Ordering::Relaxed) == 0
        }

        fn take(&self, choose: impl FnOnce(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
            let mut free = self.free.load(Ordering::Relaxed);
            while free != 0 {
                match self.free.compare_exchange(free, free - 1, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return choose(&mut self.tasks.lock().expect("nothing panics")),
                    Err(now) => free = now,
                }
            }
            None
        }

        pub(crate) fn steal(&self) -> Steal<T> {
            self.take(VecDeque::pop_front).map_or(Steal::Empty, Steal::Success)
        }
    }

    /// See [`crossbeam_deque::Stealer`].
    pub(crate) type Stealer<T> = Arc<Injector<T>>;

    /// See [`crossbeam_deque::Worker`].
    pub(crate) struct Worker<T> {
        queue: Stealer<T>,
        next: fn(&mut VecDeque<T>) -> Option<T>,
    }

    impl<T> Worker<T> {
        pub(crate) fn new_fifo() -> Self {
            Worker { queue: Arc::new(Injector::new()), next: VecDeque::pop_front }
        }

        pub(crate) fn new_lifo() -> Self {
            Worker { queue: Arc::new(Injector::new()), next: VecDeque::pop_back }
        }

        pub(crate) fn stealer(&self) -> Stealer<T> {
            Arc::clone(&self.queue)
        }

        pub(crate) fn push(&self, task: T) {
            self.queue.push(task);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.queue.take(self.next)
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.queue.is_empty()
        }
    }
}
