//! Strands that are left at objects, which addresses name, until others have waited for them there.
//!
//! Objects are found by a hash table of a fixed number of lists. Whoever uses an object holds the list's
//! lock, for some tens of nanoseconds. An object that
//! is destroyed, or initialised again, is forgotten. Beyond [`MOST`] objects none is added.

use critical_path::Strand;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects that can have strands.
const MOST: usize = 1 << 20;
/// Lists, as a power of two.
const LIST_BITS: u32 = 12;

pub(super) struct Objects {
    lists: Box<[List]>,
    count: AtomicUsize,
}

/// Some objects, on a cache line of their own.
#[repr(align(64))]
#[derive(Default)]
struct List(Mutex<Vec<(usize, Object)>>);

/// What is known of an object; by what is done to it, it shows what it is.
#[derive(Default)]
pub(super) enum Object {
    #[default]
    New,
    /// A lock, or a once.
    Lock(Lock),
    /// Threads of one name, one after another.
    Ends(Ends),
    Condition(Condition),
    Barrier(Barrier),
    /// A semaphore or a futex.
    Queue(Queue),
}

/// Whoever has it alone waits for `last` and `shared`; whoever shares it, for `last`.
#[derive(Default)]
pub(super) struct Lock {
    /// Left by the last one that had it alone.
    pub(super) last: Option<Strand>,
    /// Left by those that shared it since.
    pub(super) shared: Option<Strand>,
    pub(super) is_exclusive: bool,
}

/// The name of a thread is that of another one as soon as the join has returned, before the joiner can say
/// so.
#[derive(Default)]
pub(super) struct Ends {
    /// Threads in a join, or just behind one.
    pub(super) joiners: u64,
    /// Strands of those that have ended, in order.
    pub(super) strands: VecDeque<Strand>,
}

/// Strands of those that signal.
#[derive(Default)]
pub(super) struct Condition {
    pub(super) signals: u64,
    pub(super) last: Option<Strand>,
}

/// Strands of those that arrive.
#[derive(Default)]
pub(super) struct Barrier {
    /// Arrivals that make a round; 0: its initialisation was not seen.
    pub(super) count: u64,
    pub(super) arrived: u64,
    pub(super) round: u64,
    /// Those that have arrived in this round.
    pub(super) arrivals: Option<Strand>,
    /// Those of the round before.
    pub(super) last: Option<Strand>,
}

/// Strands of those that send, in order.
#[derive(Default)]
pub(super) struct Queue {
    /// Receives that need no send.
    pub(super) free: u64,
    pub(super) sent: VecDeque<Sent>,
    pub(super) next: u64,
}

pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) strand: Strand,
    /// How many will receive it.
    pub(super) receivers: u64,
    /// How many have.
    pub(super) received: u64,
}

macro_rules! kinds {
    ($($name:ident, $kind:ident;)*) => { $(
        /// The object as one of this kind. One of another kind was freed without being destroyed: its strands
        /// go to `discard`.
        #[inline]
        pub(super) fn $name(&mut self, mut discard: impl FnMut(Strand)) -> &mut $kind {
            if !matches!(self, Object::$kind(_)) {
                std::mem::replace(self, Object::$kind($kind::default())).strands().for_each(&mut discard);
            }
            match self {
                Object::$kind(inner) => inner,
                _ => unreachable!(),
            }
        }
    )* };
}

impl Object {
    kinds! {
        lock, Lock;
        ends, Ends;
        condition, Condition;
        barrier, Barrier;
        queue, Queue;
    }

    /// All strands that are left at it.
    pub(super) fn strands(self) -> impl Iterator<Item = Strand> {
        let (mut few, mut ended, mut sent) = ([None, None], VecDeque::new(), VecDeque::new());
        match self {
            Object::New => {}
            Object::Lock(lock) => few = [lock.last, lock.shared],
            Object::Ends(ends) => ended = ends.strands,
            Object::Condition(condition) => few = [condition.last, None],
            Object::Barrier(barrier) => few = [barrier.arrivals, barrier.last],
            Object::Queue(queue) => sent = queue.sent,
        }
        let sent = sent.into_iter().map(|sent| sent.strand);
        few.into_iter().flatten().chain(ended).chain(sent)
    }
}

impl Objects {
    pub(super) fn new() -> Objects {
        let lists = (0..1 << LIST_BITS).map(|_| List::default()).collect();
        Objects { lists, count: AtomicUsize::new(0) }
    }

    /// Calls `act` with the object at an address. `None`: there is no room for it.
    #[inline]
    pub(super) fn with<R>(&self, address: usize, act: impl FnOnce(&mut Object) -> R) -> Option<R> {
        let mut objects = self.list(address);
        let place = match objects.iter().position(|(known, _)| *known == address) {
            Some(place) => place,
            None => {
                if self.count.fetch_add(1, Ordering::Relaxed) >= MOST {
                    self.count.fetch_sub(1, Ordering::Relaxed);
                    return None;
                }
                objects.push((address, Object::New));
                objects.len() - 1
            }
        };
        objects.get_mut(place).map(|(_, object)| act(object))
    }

    /// Forgets the object at an address, and returns it.
    pub(super) fn take(&self, address: usize) -> Option<Object> {
        let mut objects = self.list(address);
        let place = objects.iter().position(|(known, _)| *known == address)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(objects.swap_remove(place).1)
    }

    #[inline]
    fn list(&self, address: usize) -> MutexGuard<'_, Vec<(usize, Object)>> {
        // The golden ratio's multiplicative hash (Knuth, volume 3, section 6.4).
        let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let list = &self.lists[(hash >> (u64::BITS - LIST_BITS)) as usize];
        // Nothing panics with the lock held.
        list.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_used_otherwise_is_another_object() {
        let objects = Objects::new();
        objects.with(8, |object| object.lock(drop).is_exclusive = true);
        objects.with(8, |object| object.barrier(drop).count = 3);
        let lock = objects.with(8, |object| object.lock(drop).is_exclusive);
        assert_eq!(lock, Some(false));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let objects = Objects::new();
        objects.count.store(MOST - 1, Ordering::Relaxed);
        assert_eq!(objects.with(8, |_| ()), Some(()));
        assert_eq!(objects.with(16, |_| ()), None);
        objects.take(8);
        assert_eq!(objects.with(16, |_| ()), Some(()));
    }
}
