//! Locks whose waiters block on a futex: which lock a thread waits for, and how such a wait ended.
//!
//! | lock | its waits are known by | its waiters block on |
//! |---|---|---|
//! | `std::sync::Mutex` | the futex operation and the expected value | its word |
//! | `std::sync::RwLock` | the function that waits | its word, writers on the next one |
//! | parking_lot's `Mutex`, `RwLock` | the function that waits | a futex of each thread |
//!
//! A thread of parking_lot notes the address of its lock beside its futex, before it blocks there. That is
//! the crate's own matter, so the address is believed only if the lock there says that it is held and that a
//! thread has parked; otherwise the holder is unknown.
//!
//! Async-signal-safe.

use crate::locks::{self, Outcome, Wait};
use crate::logical::agents::lock_waits::LockWait;
use crate::system;

/// A lock for which a thread waits.
#[derive(Clone, Copy, Debug)]
pub struct FutexLock {
    /// Its address; 0: unknown.
    lock: usize,
    futex: usize,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// 0 free, 1 held, 2 held and perhaps waited for.
    StdMutex,
    Named(LockWait),
}

/// The word of a `std::sync::Mutex` for which others wait.
const CONTENDED: u32 = 2;
/// Of a `std::sync::RwLock`: the number of readers, all bits set for a writer.
const STD_HOLDERS: u32 = (1 << 30) - 1;
/// Of parking_lot's locks: who is parked; all others of a mutex: held; a writer holds the lock.
const MUTEX_PARKED: u32 = 2;
const MUTEX_HELD: u32 = 1;
const RWLOCK_PARKED: u32 = 3;
const RWLOCK_WRITTEN: u32 = 8;
/// From a thread's futex back to the lock that it waits for (`parking_lot_core` 0.9, `ThreadData`: four words
/// before the futex, since larger fields come first, the first of which is the lock).
const PARKED_KEY: usize = 4 * size_of::<usize>();

impl FutexLock {
    /// By operation and arguments of the futex wait. No other futex of std waits for a 2 that is followed by
    /// 0, 1 or 2.
    pub fn of_value(futex: usize, wait: FutexWait) -> Option<FutexLock> {
        let is_mutex = wait.is_of_std() && wait.value == CONTENDED;
        is_mutex.then_some(FutexLock { lock: futex, futex, kind: Kind::StdMutex })
    }

    pub(crate) fn of_wait(wait: LockWait, futex: usize) -> FutexLock {
        let parked = |bits: u32| {
            let key = read(futex.wrapping_sub(PARKED_KEY), 8)? as usize;
            // A writer that waits for readers does so one byte further on.
            let lock = if bits == RWLOCK_PARKED { key & !1 } else { key };
            read(lock, 4).filter(|word| word & u64::from(bits) != 0 && lock != 0)?;
            Some(lock)
        };
        let lock = match wait {
            LockWait::StdShared => Some(futex),
            LockWait::StdExclusive => Some(futex.wrapping_sub(size_of::<u32>())),
            LockWait::ParkedMutex => parked(MUTEX_PARKED),
            LockWait::ParkedShared | LockWait::ParkedExclusive => parked(RWLOCK_PARKED),
        };
        FutexLock { lock: lock.unwrap_or(0), futex, kind: Kind::Named(wait) }
    }

    /// The wait begins. `None`: its lock is unknown, or there is no room for it.
    pub fn begin(self) -> Option<Wait> {
        match self.kind {
            _ if self.lock == 0 => None,
            Kind::StdMutex => Wait::begin(self.lock),
            Kind::Named(LockWait::StdShared | LockWait::StdExclusive) => {
                Wait::begin_on(self.lock, self.futex, false)
            }
            Kind::Named(_) => Wait::begin_on(self.lock, self.futex, true),
        }
    }

    /// How the wait has ended; `woken`: by a wake.
    pub fn outcome(self, woken: bool) -> Outcome {
        if !woken {
            return Outcome::Held;
        }
        let word = read(self.lock, 4).map(|word| word as u32);
        let is_held = |word: u32| match self.kind {
            Kind::StdMutex => word != 0,
            Kind::Named(LockWait::StdShared) => word & STD_HOLDERS == STD_HOLDERS,
            Kind::Named(LockWait::StdExclusive) => word & STD_HOLDERS != 0,
            Kind::Named(LockWait::ParkedMutex) => word & MUTEX_HELD != 0,
            Kind::Named(LockWait::ParkedShared) => word & RWLOCK_WRITTEN != 0,
            Kind::Named(LockWait::ParkedExclusive) => word & !RWLOCK_PARKED != 0,
        };
        match word {
            Some(word) if self.kind == Kind::StdMutex && word > CONTENDED => Outcome::NoLock,
            Some(word) if is_held(word) => Outcome::Held,
            None if self.kind == Kind::StdMutex => Outcome::NoLock,
            _ => Outcome::Acquired,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct FutexWait {
    pub operation: i32,
    /// The value that is waited for to change.
    pub value: u32,
    /// Whether the wait is limited in time.
    pub is_timed: bool,
}

impl FutexWait {
    /// By the operation that the standard library's locks use, which wait for any time.
    fn is_of_std(self) -> bool {
        self.operation & !libc::FUTEX_PRIVATE_FLAG == libc::FUTEX_WAIT_BITSET && !self.is_timed
    }

    /// Whether it may be of a lock that is known by the function that waits.
    pub fn may_be_of_named(self) -> bool {
        let is_parked = self.operation == libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        self.is_of_std() || (is_parked && self.value == 1)
    }
}

/// The lock that a wake of a futex releases, if others have waited for it. The wake of a mutex follows its
/// release, so nobody holds it.
#[inline]
pub fn released_by_wake(futex: usize) -> Option<usize> {
    let is_free = || read(futex, 4).is_some_and(|word| word <= u64::from(CONTENDED));
    locks::released_by_wake(futex, is_free)
}

/// The integer of so many bytes at an address; `None` if there is no memory any more.
fn read(address: usize, len: usize) -> Option<u64> {
    let mut word = [0; 8];
    let is_read = system::copy(address as u64, &mut word[..len]) == len;
    is_read.then_some(u64::from_le_bytes(word))
}
