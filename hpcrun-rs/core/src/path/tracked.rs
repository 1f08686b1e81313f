//! What the events of a thread do to its strand, and what they leave at objects.
//!
//! Whoever reports events does so in an order in which no edge is missed: a release, a signal or a post
//! before libc's own function, an acquisition or the end of a wait after it.
//!
//! An object's events by others between these two may lead to a wrong partner: two semaphore waits that end
//! at the same time may take each other's post. Only who waited for whom is then confused, not how many.

use super::objects::{Lock, Object, Queue, Sent};
use super::{Contexts, OwnThread, Path, ThreadSamples};
use critical_path::{Edge, Event, Lost, Site, Strand};
use hpcrun_abi::RemoteStrand;
use std::sync::Arc;

/// Messages that a semaphore or a futex keeps.
const MOST_SENT: usize = 1 << 16;

pub struct Tracked {
    /// Its operations without an object.
    pub thread: OwnThread,
    path: &'static Path,
    samples: Arc<ThreadSamples>,
    /// The strand that the thread had before its own, for `Thread::end`.
    left: Option<Strand>,
    /// Where it will end: its start routine.
    routine: Site,
    /// The thread has run tasks, each of which is a strand of its own.
    pub has_tasks: bool,
    waits: bool,
}

impl Tracked {
    pub(super) fn new(path: &'static Path, mut thread: OwnThread, ordinal: u32) -> Tracked {
        let samples = ThreadSamples::new(ordinal, thread.samples(), &path.captured);
        thread.set_sampler(Box::new(Contexts(Arc::clone(&samples))));
        Tracked { thread, path, samples, left: None, routine: Site(0), has_tasks: false, waits: false }
    }

    pub(super) fn samples(&self) -> *mut ThreadSamples {
        Arc::as_ptr(&self.samples).cast_mut()
    }

    /// The thread, which was spawned at `at`, begins with its start routine. `None`: its spawner's strand is
    /// not known. Others join it by its name.
    pub fn begin(&mut self, spawned: Option<Strand>, name: usize, at: Site, routine: Site) {
        self.forget_ends(name);
        let left = self.thread.begin(spawned, at);
        self.routine = routine;
        if let Some(old) = self.left.replace(left) {
            self.thread.discard(old);
        }
    }

    pub(super) fn end(&mut self, name: usize) {
        self.end_wait();
        let ended = match self.left.take() {
            Some(left) => self.thread.end(left, self.routine),
            // It has begun before the session.
            None => self.thread.copy(self.routine),
        };
        let copy = self.thread.share(&ended);
        self.thread.finish(copy);
        self.leave_at(name, ended, |thread, object, ended| {
            object.ends(|old| thread.discard(old)).strands.push_back(ended);
            None
        });
    }

    /// A wait for others begins: what follows is no activity.
    pub fn begin_wait(&mut self) {
        self.waits = true;
        self.thread.pause();
    }

    /// The wait is over, or was left by a long jump.
    pub fn end_wait(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.thread.resume();
        }
    }

    /// The strand for another process.
    pub fn export(&mut self, at: Event) -> &RemoteStrand {
        self.thread.export(at, super::rank())
    }

    /// Has acquired a lock, with others if it is `shared`. Returns whether somebody had it before.
    #[inline]
    pub fn acquire(&mut self, lock: usize, shared: bool, edge: Edge, at: Event) -> bool {
        let left = self.at(lock, |thread, object| {
            let lock = object.lock(|old| thread.discard(old));
            if shared {
                return [lock.last.as_ref().map(|last| thread.share(last)), None];
            }
            lock.is_exclusive = true;
            [lock.last.take(), lock.shared.take()]
        });
        let [last, shared] = left.unwrap_or([None, None]);
        let known = last.is_some() || shared.is_some();
        if let Some(last) = last {
            self.merge(last, at, edge);
        }
        if let Some(shared) = shared {
            self.thread.merge(shared, at, edge);
        }
        known
    }

    /// The thread has waited for the event that `strand` is a copy at, unless it was its own.
    #[inline]
    fn merge(&mut self, strand: Strand, at: Event, edge: Edge) {
        match strand.thread() == self.thread.number() && !self.has_tasks {
            true => self.thread.discard(strand),
            false => self.thread.merge(strand, at, edge),
        }
    }

    /// Has released a lock, or leaves a copy of the strand at an object for all that [follow](Self::follow).
    #[inline]
    pub fn release(&mut self, lock: usize, at: Event) {
        let copy = self.thread.copy(at);
        self.leave_at(lock, copy, |thread, object, copy| {
            let lock = object.lock(|old| thread.discard(old));
            if std::mem::take(&mut lock.is_exclusive) {
                return lock.last.replace(copy);
            }
            lock.share(thread, copy);
            None
        });
    }

    /// Waits for all that was left at an object so far, which stays there.
    pub fn follow(&mut self, object: usize, edge: Edge, at: Event) {
        if let Some(all) = self.left_at(object) {
            self.thread.merge(all, at, edge);
        }
    }

    /// What was left at an object so far.
    fn left_at(&mut self, object: usize) -> Option<Strand> {
        let all = self.at(object, |thread, object| {
            let left = object.lock(|old| thread.discard(old));
            left.shared.as_ref().map(|all| thread.share(all))
        });
        all.flatten()
    }

    /// Begins a task after all that was left at an object. The result is for [`Self::end_task`].
    pub fn begin_task(&mut self, object: usize, at: Event) -> Strand {
        self.has_tasks = true;
        let spawned = self.left_at(object);
        self.thread.begin(spawned, at)
    }

    /// The task ends, before all that follow these objects.
    pub fn end_task(&mut self, left: Strand, objects: impl IntoIterator<Item = usize>, at: Event) {
        let ended = self.thread.end(left, at);
        for object in objects {
            let copy = self.thread.share(&ended);
            self.leave_at(object, copy, |thread, object, copy| {
                object.lock(|old| thread.discard(old)).share(thread, copy);
                None
            });
        }
        self.thread.discard(ended);
    }

    /// Signals a condition, to one or all that wait.
    pub fn signal(&mut self, condition: usize, at: Event) {
        let copy = self.thread.copy(at);
        self.leave_at(condition, copy, |thread, object, copy| {
            let condition = object.condition(|old| thread.discard(old));
            condition.signals += 1;
            condition.last.replace(copy)
        });
    }

    /// Waits for a condition from now on, and releases the mutex. The result is for
    /// [`Self::end_condition`].
    pub fn begin_condition(&mut self, condition: usize, mutex: usize, at: Event) -> u64 {
        self.release(mutex, at);
        let signals =
            self.at(condition, |thread, object| object.condition(|old| thread.discard(old)).signals);
        signals.unwrap_or(0)
    }

    /// The wait is over, and the thread has the mutex, which orders it after all signals that were sent with
    /// the mutex held. Of others it is known who it was if there was one since the wait began.
    pub fn end_condition(&mut self, condition: usize, mutex: usize, before: u64, signalled: bool, at: Event) {
        self.end_wait();
        let edge = if signalled { Edge::Condition } else { Edge::Lock };
        let has_edge = self.acquire(mutex, false, edge, at);
        if !signalled {
            return;
        }
        let signal = self.at(condition, |thread, object| {
            let condition = object.condition(|old| thread.discard(old));
            let last = condition.last.as_ref().filter(|_| condition.signals == before + 1);
            last.map(|last| thread.share(last))
        });
        match signal.flatten() {
            Some(signal) => self.merge(signal, at, Edge::Condition),
            None if has_edge => {}
            None => self.thread.lose(Lost::Unknown),
        }
    }

    /// Arrives at a barrier. The result is for [`Self::leave`]; `None`: it is not known how many it waits
    /// for.
    pub fn arrive(&mut self, barrier: usize, at: Event) -> Option<u64> {
        let mut copy = Some(self.thread.copy(at));
        let round = self.at(barrier, |thread, object| {
            let barrier = object.barrier(|old| thread.discard(old));
            let copy = copy.take_if(|_| barrier.count != 0)?;
            let round = barrier.round;
            let all = both(thread, barrier.arrivals.take(), copy);
            barrier.arrived += 1;
            if barrier.arrived < barrier.count {
                barrier.arrivals = Some(all);
            } else {
                barrier.arrived = 0;
                barrier.round += 1;
                if let Some(old) = barrier.last.replace(all) {
                    thread.discard(old);
                }
            }
            Some(round)
        });
        if let Some(copy) = copy {
            self.thread.discard(copy);
            self.thread.lose(Lost::Unknown);
        }
        round.flatten()
    }

    /// Leaves the barrier, at which it has arrived in this round.
    pub fn leave(&mut self, barrier: usize, round: u64, at: Event) {
        let all = self.at(barrier, |thread, object| {
            let barrier = object.barrier(|old| thread.discard(old));
            // If a thread has slept through a whole further round, its own is gone.
            let last = barrier.last.as_ref().filter(|_| barrier.round == round + 1);
            last.map(|all| thread.share(all))
        });
        match all.flatten() {
            Some(all) => self.thread.merge(all, at, Edge::Barrier),
            None => self.thread.lose(Lost::Unknown),
        }
    }

    /// Sends something to whoever receives it, at most `receivers` of them. The result is for
    /// [`Self::settle`].
    pub fn send(&mut self, queue: usize, receivers: u64, at: Event) -> Option<u64> {
        let mut copy = Some(self.thread.copy(at));
        let number = self.at(queue, |thread, object| {
            let queue = object.queue(|old| thread.discard(old));
            if queue.sent.len() >= MOST_SENT {
                queue.free += receivers;
                return None;
            }
            let strand = copy.take()?;
            let number = queue.next;
            queue.next += 1;
            queue.sent.push_back(Sent { number, strand, receivers, received: 0 });
            Some(number)
        });
        if let Some(copy) = copy {
            self.thread.discard(copy);
            self.thread.lose(Lost::Room);
        }
        number.flatten()
    }

    /// It is known now how many receive what was sent.
    pub fn settle(&mut self, queue: usize, number: u64, receivers: u64) {
        let unreceived = self.at(queue, |thread, object| {
            let queue = object.queue(|old| thread.discard(old));
            let place = queue.sent.iter().position(|sent| sent.number == number)?;
            let sent = queue.sent.get_mut(place)?;
            sent.receivers = receivers;
            if sent.received < receivers {
                return None;
            }
            queue.sent.remove(place).map(|sent| sent.strand)
        });
        if let Some(strand) = unreceived.flatten() {
            self.thread.discard(strand);
        }
    }

    /// Has received what was sent first.
    pub fn receive(&mut self, queue: usize, edge: Edge, at: Event) {
        let received = self.at(queue, |thread, object| {
            let queue = object.queue(|old| thread.discard(old));
            take_first(thread, queue)
        });
        match received.flatten() {
            Some(Some(strand)) => self.merge(strand, at, edge),
            Some(None) => {}
            None => self.thread.lose(Lost::Untracked),
        }
    }

    /// Begins to wait for the end of the thread of this name.
    pub fn begin_join(&mut self, name: usize) {
        self.at(name, |thread, object| {
            object.ends(|old| thread.discard(old)).joiners += 1;
        });
    }

    /// The wait is over, for that thread has `ended` or not.
    pub fn end_join(&mut self, name: usize, ended: bool, at: Event) {
        let strand = self.at(name, |thread, object| {
            let ends = object.ends(|old| thread.discard(old));
            ends.joiners = ends.joiners.saturating_sub(1);
            ended.then(|| ends.strands.pop_front()).flatten()
        });
        match strand.flatten() {
            Some(strand) => self.thread.merge(strand, at, Edge::Join),
            None if ended => self.thread.lose(Lost::Untracked),
            None => {}
        }
    }

    /// Forgets those threads of this name that nobody has joined, or will.
    fn forget_ends(&mut self, name: usize) {
        self.at(name, |thread, object| {
            let ends = object.ends(|old| thread.discard(old));
            if ends.joiners == 0 {
                ends.strands.drain(..).for_each(|old| thread.discard(old));
            }
        });
    }

    /// The object is destroyed, or a new one begins at its address.
    pub fn forget(&mut self, object: usize) {
        for strand in self.path.objects.take(object).into_iter().flat_map(Object::strands) {
            self.thread.discard(strand);
        }
    }

    /// A barrier for so many threads begins at an address.
    pub fn begin_barrier(&mut self, barrier: usize, count: u64) {
        self.forget(barrier);
        self.at(barrier, |_, object| object.barrier(drop).count = count);
    }

    /// A semaphore with this value begins at an address.
    pub fn begin_semaphore(&mut self, semaphore: usize, value: u64) {
        self.forget(semaphore);
        self.at(semaphore, |_, object| object.queue(drop).free = value);
    }

    /// Calls `act` with the thread and an object. `None`, counted: there is no room for it.
    #[inline]
    fn at<R>(&mut self, object: usize, act: impl FnOnce(&mut OwnThread, &mut Object) -> R) -> Option<R> {
        let thread = &mut self.thread;
        let result = self.path.objects.with(object, |object| act(thread, object));
        if result.is_none() {
            self.thread.lose(Lost::Room);
        }
        result
    }

    /// Leaves a strand at an object, and discards the one that it replaces.
    #[inline]
    fn leave_at(
        &mut self,
        object: usize,
        strand: Strand,
        act: impl FnOnce(&mut OwnThread, &mut Object, Strand) -> Option<Strand>,
    ) {
        let mut strand = Some(strand);
        let old = self.at(object, |thread, object| act(thread, object, strand.take()?));
        for strand in old.flatten().into_iter().chain(strand) {
            self.thread.discard(strand);
        }
    }
}

impl Lock {
    /// One more thread that has shared it leaves its strand.
    fn share(&mut self, thread: &mut OwnThread, copy: Strand) {
        self.shared = Some(both(thread, self.shared.take(), copy));
    }
}

fn both(thread: &mut OwnThread, earlier: Option<Strand>, copy: Strand) -> Strand {
    match earlier {
        Some(earlier) => thread.both(earlier, copy),
        None => copy,
    }
}

/// What a receive finds; no strand if it needs no send. `None`: its send was not seen.
fn take_first(thread: &mut OwnThread, queue: &mut Queue) -> Option<Option<Strand>> {
    if queue.free > 0 {
        queue.free -= 1;
        return Some(None);
    }
    let first = queue.sent.front_mut()?;
    first.received += 1;
    if first.received < first.receivers {
        return Some(Some(thread.share(&first.strand)));
    }
    queue.sent.pop_front().map(|first| Some(first.strand))
}
