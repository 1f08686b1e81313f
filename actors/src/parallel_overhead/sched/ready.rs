//! Actors that have a message and wait for a worker, the most urgent first.
//!
//! One duty: hand out scheduled actors, and see to it that as many workers as are useful ask for them. A
//! *helper* is a task of the pool that runs actors until none is ready. Then one of them looks for some time
//! whether one comes, and at last sleeps a little: to start a helper takes longer than to handle a message.
//! In the middle of a task that waits for something else, a helper handles one message, and the next one is
//! up to a new helper.
//!
//! * While an actor is ready there is a helper that will find it: a helper leaves only when the queue is
//!   empty, and whoever adds an actor while no helper looks and not all workers help adds a helper.
//! * No actor is ready, none runs and no program is open: no message is handled or waiting, but in actors
//!   that wait for room elsewhere. That is *quiescence*.
//! * A helper that looks leaves an actor that has just been added alone to the worker that has added it,
//!   which may be about to ask: so a chain of messages stays on one worker. A second one wakes it.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::names::lock;
use crate::priority::Priority;
use crate::table::Ended;

/// How often a helper looks, and the pauses between: a few tens of microseconds in all.
const LOOKS: u32 = 40;
const PAUSES: u32 = 16;
/// How long it sleeps before its last look: an actor whose worker is kept by a handler may wait so long.
const NAP: Duration = Duration::from_micros(100);

/// An actor as the scheduler and other actors see it.
pub(crate) trait Turn: Send + Sync {
    /// The actor's number; see `names`.
    fn number(&self) -> u64;

    /// Handles waiting messages, at least one if the actor is scheduled, on worker `worker`. Only one in the
    /// middle of another task, which may be able to go on.
    fn run(self: Arc<Self>, worker: usize, is_nested: bool);

    /// Ends the actor. Its waiting messages are undelivered.
    fn stop(&self);

    /// `sender` has sent a message for which there was no room. True: it must wait until it gets
    /// [`Turn::resume`].
    fn hold(&self, sender: Arc<dyn Turn>) -> bool;

    /// The actor that held this one has room again, since a task of it has ended.
    fn resume(self: Arc<Self>, after: Ended);

    /// The actor that holds this one.
    fn holder(&self) -> Option<Arc<dyn Turn>>;
}

/// See the module.
pub(crate) struct Ready {
    queue: Mutex<Queue>,
    /// One bit for each level with ready actors, changed under the lock.
    occupied: AtomicU64,
    quiet: Condvar,
    /// For the helper that sleeps.
    several: Condvar,
    workers: usize,
}

#[derive(Default)]
struct Queue {
    levels: Vec<VecDeque<Arc<dyn Turn>>>,
    /// Actors so far, and now.
    added: u64,
    len: usize,
    helpers: usize,
    /// One of them looks for actors, and sleeps.
    looks: bool,
    sleeps: bool,
    /// Actors that run, and programs.
    running: usize,
    programs: usize,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.running + self.len == 0
    }

    /// Whether there should be one more helper; it counts already.
    #[inline]
    fn more(&mut self, workers: usize) -> bool {
        let more = self.len != 0 && self.helpers < workers && !self.looks;
        self.helpers += usize::from(more);
        more
    }
}

impl Ready {
    pub(crate) fn new(workers: usize) -> Self {
        let levels = (0..Priority::LEVELS).map(|_| VecDeque::new()).collect();
        Ready {
            queue: Mutex::new(Queue { levels, ..Queue::default() }),
            occupied: AtomicU64::new(0),
            quiet: Condvar::new(),
            several: Condvar::new(),
            workers,
        }
    }

    #[inline]
    fn pop(&self, queue: &mut Queue) -> Option<Arc<dyn Turn>> {
        let occupied = self.occupied.load(Ordering::Relaxed);
        let level = occupied.checked_ilog2()? as usize;
        let actor = queue.levels[level].pop_front();
        if queue.levels[level].is_empty() {
            self.occupied.store(occupied & !(1 << level), Ordering::Relaxed);
        }
        queue.len -= 1;
        queue.running += 1;
        actor
    }

    fn ended(&self, queue: &Queue) {
        if queue.is_idle() && queue.programs == 0 {
            self.quiet.notify_all();
        }
    }

    /// The actor has a message. True: the caller must start a helper.
    #[inline]
    #[must_use]
    pub(crate) fn push(&self, actor: Arc<dyn Turn>, priority: Priority) -> bool {
        let mut queue = lock(&self.queue);
        queue.levels[priority.index()].push_back(actor);
        let occupied = self.occupied.load(Ordering::Relaxed) | 1 << priority.index();
        self.occupied.store(occupied, Ordering::Relaxed);
        queue.added += 1;
        queue.len += 1;
        if queue.sleeps && queue.len > 1 {
            queue.sleeps = false;
            self.several.notify_one();
        }
        queue.more(self.workers)
    }

    /// The most urgent actor, which runs until the next call. `after`: one has run until now.
    #[inline]
    pub(crate) fn take(&self, after: bool) -> Option<Arc<dyn Turn>> {
        let mut queue = lock(&self.queue);
        queue.running -= usize::from(after);
        let actor = self.pop(&mut queue);
        if actor.is_none() {
            self.ended(&queue);
        }
        actor
    }

    /// An actor that [`Ready::take`] has returned has run, and so many helpers end (1 or 0). True: the caller
    /// must start a helper.
    #[must_use]
    pub(crate) fn leave(&self, helpers: usize) -> bool {
        let mut queue = lock(&self.queue);
        queue.running -= 1;
        queue.helpers -= helpers;
        self.ended(&queue);
        queue.more(self.workers)
    }

    /// For a helper that has found none: an actor, after some time of looking if it `may_look`, and whether
    /// the caller must start a further helper. `None`: the helper must end.
    pub(crate) fn look(&self, may_look: bool) -> Option<(Arc<dyn Turn>, bool)> {
        let mut queue = lock(&self.queue);
        if may_look && !queue.looks {
            queue.looks = true;
            for look in 1..=LOOKS {
                let before = queue.added;
                if look < LOOKS {
                    drop(queue);
                    (0..PAUSES).for_each(|_| spin_loop());
                    queue = lock(&self.queue);
                } else if queue.running != 0 {
                    queue.sleeps = true;
                    let woken = self.several.wait_timeout(queue, NAP);
                    queue = woken.unwrap_or_else(PoisonError::into_inner).0;
                    queue.sleeps = false;
                }
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
        Some((actor, queue.more(self.workers)))
    }

    /// Whether ready actors are at least as urgent (`more`: more urgent).
    #[inline]
    pub(crate) fn has(&self, priority: Priority, more: bool) -> bool {
        let above = self.occupied.load(Ordering::Relaxed) >> priority.index();
        above > u64::from(more)
    }

    /// Whether nothing runs but programs: what is not ready now will not be so by itself.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.queue).is_idle()
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
        let is_busy = |queue: &mut Queue| !queue.is_idle() || queue.programs != 0;
        let queue = self.quiet.wait_while(lock(&self.queue), is_busy);
        drop::<MutexGuard<'_, _>>(queue.unwrap_or_else(PoisonError::into_inner));
    }
}
