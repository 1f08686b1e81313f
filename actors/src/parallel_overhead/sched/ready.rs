//! Actors that have a message and wait for a worker, the most urgent first.
//!
//! One duty: hand out scheduled actors, and see to it that as many workers as are useful ask for them. A
//! *helper* is a task of the pool that runs actors until none is ready. Number of helpers and queue change
//! under one lock, so:
//!
//! * while an actor is ready there is a helper, which will find it: a helper leaves only when the queue is
//!   empty, and whoever adds an actor while there are fewer helpers than workers adds a helper;
//! * no helper and no open program mean that no message is handled or waiting, but in actors that wait for
//!   room elsewhere: *quiescence*.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::priority::Priority;

/// See the module. `T` is a scheduled actor.
pub(crate) struct Ready<T: ?Sized> {
    queue: Mutex<Queue<T>>,
    /// The levels with ready actors, as in the queue; a hint without the lock.
    occupied: AtomicU64,
    quiet: Condvar,
    workers: usize,
}

struct Queue<T: ?Sized> {
    levels: [VecDeque<Arc<T>>; Priority::LEVELS],
    /// One bit for each level that is not empty.
    occupied: u64,
    helpers: usize,
    /// Programs that still send their first messages.
    programs: usize,
}

impl<T: ?Sized> Queue<T> {
    #[inline]
    fn pop(&mut self) -> Option<Arc<T>> {
        let level = self.occupied.checked_ilog2()? as usize;
        let actor = self.levels[level].pop_front();
        if self.levels[level].is_empty() {
            self.occupied &= !(1 << level);
        }
        actor
    }

    fn is_quiet(&self) -> bool {
        self.helpers == 0 && self.programs == 0
    }
}

impl<T: ?Sized> Ready<T> {
    pub(crate) fn new(workers: usize) -> Self {
        Ready {
            queue: Mutex::new(Queue {
                levels: std::array::from_fn(|_| VecDeque::new()),
                occupied: 0,
                helpers: 0,
                programs: 0,
            }),
            occupied: AtomicU64::new(0),
            quiet: Condvar::new(),
            workers,
        }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // Nothing panics under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The actor has a message. True: the caller must start a helper.
    #[inline]
    #[must_use]
    pub(crate) fn push(&self, actor: Arc<T>, priority: Priority) -> bool {
        let mut queue = self.lock();
        queue.levels[priority.index()].push_back(actor);
        queue.occupied |= 1 << priority.index();
        self.occupied.store(queue.occupied, Ordering::Relaxed);
        let more = queue.helpers < self.workers;
        queue.helpers += usize::from(more);
        more
    }

    /// The most urgent actor. `None`: the helper must end.
    #[inline]
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        let mut queue = self.lock();
        let actor = queue.pop();
        if actor.is_none() {
            queue.helpers -= 1;
            if queue.is_quiet() {
                self.quiet.notify_all();
            }
        }
        self.occupied.store(queue.occupied, Ordering::Relaxed);
        actor
    }

    /// The most urgent actor, for a worker that waits for something; it is a helper until
    /// [`Ready::leave`], if there is one.
    pub(crate) fn take_one(&self) -> Option<Arc<T>> {
        let mut queue = self.lock();
        let actor = queue.pop();
        queue.helpers += usize::from(actor.is_some());
        self.occupied.store(queue.occupied, Ordering::Relaxed);
        actor
    }

    /// After [`Ready::take_one`]. True: the caller must start a helper in its place.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        let mut queue = self.lock();
        let more = queue.occupied != 0;
        queue.helpers -= usize::from(!more);
        more
    }

    /// Whether ready actors are at least as urgent (`more`: more urgent).
    #[inline]
    pub(crate) fn has(&self, priority: Priority, more: bool) -> bool {
        let above = self.occupied.load(Ordering::Relaxed) >> priority.index();
        above > u64::from(more)
    }

    /// Whether no helper is there: what is not ready now will not be so by itself.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().helpers == 0
    }

    /// A program begins: no quiescence until [`Ready::end_program`].
    pub(crate) fn begin_program(&self) {
        self.lock().programs += 1;
    }

    pub(crate) fn end_program(&self) {
        let mut queue = self.lock();
        queue.programs -= 1;
        if queue.is_quiet() {
            self.quiet.notify_all();
        }
    }

    /// Waits for quiescence.
    pub(crate) fn wait(&self) {
        let mut queue = self.lock();
        while !queue.is_quiet() {
            let woken = self.quiet.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_comes_first_and_equals_in_order() {
        let ready = Ready::new(2);
        let levels = [0, -3, 5, 0, 31, -32, 5];
        let helpers = levels.iter().enumerate();
        let helpers = helpers.filter(|(n, level)| ready.push(Arc::new(*n), Priority::new(**level)));
        assert_eq!(helpers.count(), 2, "one for each worker");
        assert!(ready.has(Priority::new(31), false) && !ready.has(Priority::new(31), true));
        let order: Vec<usize> = std::iter::from_fn(|| ready.take().map(|n| *n)).collect();
        assert_eq!(order, [4, 2, 6, 0, 3, 1, 5]);
        assert!(
            !ready.is_idle(),
            "the other helper has not seen the empty queue"
        );
        assert!(ready.take().is_none());
        assert!(ready.is_idle() && !ready.has(Priority::new(-32), false));
        ready.wait();
    }
}
