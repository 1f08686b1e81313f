//! Actors that have a message and wait for a worker, the most urgent first.
//!
//! One duty: hand out scheduled actors, and see to it that as many workers as are useful ask for them. A
//! *helper* is a task of the pool that runs actors until none is ready. Then it looks for some time whether
//! one comes, if no other helper does so: to start a helper takes longer than to handle a message.
//!
//! * While an actor is ready there is a helper that will find it: a helper leaves only when the queue is
//!   empty, and whoever adds an actor while no helper looks and not all workers help adds a helper.
//! * No actor is ready, none runs and no program is open: no message is handled or waiting, but in actors
//!   that wait for room elsewhere. That is *quiescence*.
//! * A helper that looks leaves an actor that has just been added alone to the worker that has added it,
//!   which may be about to ask: so a chain of messages stays on one worker.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::names::lock;
use crate::priority::Priority;

/// How often a helper looks before it leaves, and the pauses between: a few tens of microseconds in all.
const LOOKS: u32 = 40;
const PAUSES: u32 = 16;

/// See the module. `T` is a scheduled actor.
pub(crate) struct Ready<T: ?Sized> {
    queue: Mutex<Queue<T>>,
    /// One bit for each level with ready actors, changed under the lock.
    occupied: AtomicU64,
    quiet: Condvar,
    workers: usize,
}

struct Queue<T: ?Sized> {
    levels: [VecDeque<Arc<T>>; Priority::LEVELS],
    /// Actors so far, and now.
    added: u64,
    len: usize,
    helpers: usize,
    /// One of them looks for actors.
    looks: bool,
    /// Actors that run, and programs.
    running: usize,
    programs: usize,
}

impl<T: ?Sized> Ready<T> {
    pub(crate) fn new(workers: usize) -> Self {
        Ready {
            queue: Mutex::new(Queue {
                levels: std::array::from_fn(|_| VecDeque::new()),
                added: 0,
                len: 0,
                helpers: 0,
                looks: false,
                running: 0,
                programs: 0,
            }),
            occupied: AtomicU64::new(0),
            quiet: Condvar::new(),
            workers,
        }
    }

    #[inline]
    fn pop(&self, queue: &mut Queue<T>) -> Option<Arc<T>> {
        let occupied = self.occupied.load(Ordering::Relaxed);
        let level = occupied.checked_ilog2()? as usize;
        let actor = queue.levels[level].pop_front();
        if queue.levels[level].is_empty() {
            self.occupied
                .store(occupied & !(1 << level), Ordering::Relaxed);
        }
        queue.len -= 1;
        queue.running += 1;
        actor
    }

    fn ended(&self, queue: &Queue<T>) {
        if queue.running + queue.programs + queue.len == 0 {
            self.quiet.notify_all();
        }
    }

    /// Whether there should be one more helper; it counts already.
    #[inline]
    fn more(&self, queue: &mut Queue<T>) -> bool {
        let more = queue.len != 0 && queue.helpers < self.workers && !queue.looks;
        queue.helpers += usize::from(more);
        more
    }

    /// The actor has a message. True: the caller must start a helper.
    #[inline]
    #[must_use]
    pub(crate) fn push(&self, actor: Arc<T>, priority: Priority) -> bool {
        let mut queue = lock(&self.queue);
        queue.levels[priority.index()].push_back(actor);
        let occupied = self.occupied.load(Ordering::Relaxed) | 1 << priority.index();
        self.occupied.store(occupied, Ordering::Relaxed);
        queue.added += 1;
        queue.len += 1;
        self.more(&mut queue)
    }

    /// The most urgent actor, which runs until the next call. `after`: one has run until now.
    #[inline]
    pub(crate) fn take(&self, after: bool) -> Option<Arc<T>> {
        let mut queue = lock(&self.queue);
        queue.running -= usize::from(after);
        let actor = self.pop(&mut queue);
        if actor.is_none() {
            self.ended(&queue);
        }
        actor
    }

    /// An actor that [`Ready::take`] has returned has run.
    pub(crate) fn leave(&self) {
        let mut queue = lock(&self.queue);
        queue.running -= 1;
        self.ended(&queue);
    }

    /// For a helper that has found none: an actor, after some time of looking if it `may_look`, and whether
    /// the caller must start a further helper. `None`: the helper must end.
    pub(crate) fn look(&self, may_look: bool) -> Option<(Arc<T>, bool)> {
        let mut queue = lock(&self.queue);
        if may_look && !queue.looks {
            queue.looks = true;
            for _ in 0..LOOKS {
                let before = queue.added;
                drop(queue);
                (0..PAUSES).for_each(|_| spin_loop());
                queue = lock(&self.queue);
                if queue.len > usize::from(queue.added != before) {
                    break;
                }
            }
            queue.looks = false;
        }
        let Some(actor) = self.pop(&mut queue) else {
            queue.helpers -= 1;
            return None;
        };
        Some((actor, self.more(&mut queue)))
    }

    /// Whether ready actors are at least as urgent (`more`: more urgent).
    #[inline]
    pub(crate) fn has(&self, priority: Priority, more: bool) -> bool {
        let above = self.occupied.load(Ordering::Relaxed) >> priority.index();
        above > u64::from(more)
    }

    /// Whether nothing runs but programs: what is not ready now will not be so by itself.
    pub(crate) fn is_idle(&self) -> bool {
        let queue = lock(&self.queue);
        queue.running + queue.len == 0
    }

    /// A program begins: no quiescence until [`Ready::end_program`].
    pub(crate) fn begin_program(&self) {
        lock(&self.queue).programs += 1;
    }

    pub(crate) fn end_program(&self) {
        let mut queue = lock(&self.queue);
        queue.programs -= 1;
        self.ended(&queue);
    }

    /// Waits for quiescence.
    pub(crate) fn wait(&self) {
        let is_busy = |queue: &mut Queue<T>| queue.running + queue.programs + queue.len != 0;
        let queue = self.quiet.wait_while(lock(&self.queue), is_busy);
        drop::<MutexGuard<'_, _>>(queue.unwrap_or_else(PoisonError::into_inner));
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
        let mut last = false;
        let next = || ready.take(std::mem::replace(&mut last, true)).map(|n| *n);
        let order: Vec<usize> = std::iter::from_fn(next).collect();
        assert_eq!(order, [4, 2, 6, 0, 3, 1, 5]);
        assert!(ready.is_idle() && !ready.has(Priority::new(-32), false));
        ready.wait();
        assert!(ready.look(true).is_none() && ready.look(true).is_none());
        assert!(ready.push(Arc::new(7), Priority::default()));
        assert!(matches!(ready.look(true), Some((_, false))));
    }
}
