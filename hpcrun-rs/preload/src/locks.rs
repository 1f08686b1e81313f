//! Locks: a thread that blocks on one waits, and with the metric `lock-wait` on, whoever releases the lock is
//! charged with the waiting (`hpcrun_core::locks`).
//!
//! | lock | how a contended release is told |
//! |---|---|
//! | Pthreads' mutex | by its state; a thread that waits on a condition releases its mutex there |
//! | Pthreads' read-write lock, spin lock | by the table of locks that threads wait for |
//! | `std::sync::Mutex` | its release wakes a thread that waits on its futex |
//!
//! A lock is checked first: if it is free, the call goes directly to libc.

use crate::real::{Real, function, real};
use crate::threads::capture_registers;
use crate::waits::{interpose_wait, waiting, waiting_outside_handlers};
use hpcrun_core::locks::{self, Outcome};
use hpcrun_core::threads::ThreadState;
use hpcrun_core::unwind::Registers;
use hpcrun_core::{image, threads};
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU32, Ordering};

type Mutex = *mut libc::pthread_mutex_t;
type Condition = *mut libc::pthread_cond_t;
type RwLock = *mut libc::pthread_rwlock_t;
type SpinLock = *mut libc::pthread_spinlock_t;
type Time = *const libc::timespec;

/// Runs `wait`, a wait for the lock at an address; `outcome` tells how it ended. Keeps errno.
fn measured<T: Copy>(
    lock: usize,
    wait: impl FnOnce() -> T,
    outcome: impl FnOnce(T) -> Outcome,
) -> T {
    if !locks::enabled() {
        return wait();
    }
    let since = image::now();
    let begun = own_thread().and_then(|t| Some((t, t.begin_lock_wait(lock)?)));
    let result = wait();
    keeping_errno(|| match (begun, outcome(result)) {
        (Some((thread, wait)), outcome) => thread.end_lock_wait(wait, outcome),
        (None, Outcome::NoLock) => {}
        (None, _) => locks::lose(image::now().saturating_sub(since)),
    });
    result
}

/// The calling thread's state, unless the thread uses the thread-local storage of another.
fn own_thread() -> Option<&'static ThreadState> {
    threads::current().filter(|thread| thread.is_own())
}

fn keeping_errno(act: impl FnOnce()) {
    // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
    unsafe {
        let errno = libc::__errno_location();
        let kept = *errno;
        act();
        *errno = kept;
    }
}

/// How a call that locks has ended.
fn locked(result: c_int) -> Outcome {
    match result {
        0 | libc::EOWNERDEAD => Outcome::Acquired,
        _ => Outcome::Held,
    }
}

#[cold]
#[inline(never)]
fn wait_for(lock: usize, wait: impl FnOnce() -> c_int) -> c_int {
    measured(lock, || waiting_outside_handlers(wait), locked)
}

/// Calls `release`, which releases a lock for which others have waited, and charges the caller's context, at
/// `registers`. The charge follows the release, so that it does not make them wait longer.
fn release<T>(lock: usize, registers: Registers, release: impl FnOnce() -> T) -> T {
    let waited = locks::take(lock);
    let result = release();
    charge(waited, registers);
    result
}

fn charge(nanoseconds: u64, registers: Registers) {
    if nanoseconds > 0 {
        keeping_errno(|| {
            let thread = own_thread();
            if !thread.is_some_and(|t| t.charge_lock_wait(registers, nanoseconds)) {
                locks::lose(nanoseconds);
            }
        });
    }
}

/// Waits on a condition, which releases the mutex at this address.
fn wait_on_condition(mutex: usize, wait: impl FnOnce() -> c_int) -> c_int {
    if locks::is_awaited(mutex) {
        charge(locks::take(mutex), capture_registers());
    }
    waiting_outside_handlers(wait)
}

interpose_wait! {
    wait_on_condition:
    pthread_cond_wait [mutex] (condition: Condition, mutex: Mutex) -> c_int, c"GLIBC_2.3.2";
    pthread_cond_timedwait [mutex] (condition: Condition, mutex: Mutex, time: Time) -> c_int,
        c"GLIBC_2.3.2";
    pthread_cond_clockwait [mutex] (
        condition: Condition, mutex: Mutex, clock: c_int, time: Time
    ) -> c_int;
}

interpose_wait! {
    wait_for:
    pthread_mutex_timedlock [mutex] (mutex: Mutex, time: Time) -> c_int;
    pthread_mutex_clocklock [mutex] (mutex: Mutex, clock: c_int, time: Time) -> c_int;
    pthread_rwlock_timedrdlock [lock] (lock: RwLock, time: Time) -> c_int;
    pthread_rwlock_timedwrlock [lock] (lock: RwLock, time: Time) -> c_int;
}

/// The first word of a lock, by which its state is told. glibc's mutex: 0 free, 1 held, 2 held and perhaps
/// waited for; others for a mutex with priorities. Its read-write lock: two bits for writers, one for waiting
/// readers, and the number of readers above them.
///
/// # Safety
/// The lock must be valid: its first word is an integer that threads change atomically.
#[inline]
unsafe fn word<T>(lock: *mut T) -> u32 {
    // SAFETY: the caller's promise; all these locks are aligned to words.
    unsafe { &*lock.cast::<AtomicU32>() }.load(Ordering::Relaxed)
}

macro_rules! interpose_lock {
    ($($lock:ident, $literal:literal, $try_lock:literal, $type:ty, $is_free:expr;)*) => { $(
        /// Interposed: waits only if the lock is held.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lock(lock: $type) -> c_int {
            static REAL: Real = Real::new($literal);
            static TRY: Real = Real::new($try_lock);
            // SAFETY: libc's own functions on the caller's lock. The word only decides whether the wait is
            // marked. A wait that begins after the check is found like other waits that no hook observes, and
            // if waiting for locks is measured, by the attempt to lock.
            unsafe {
                let is_free: fn(u32) -> bool = $is_free;
                match REAL.is_known() && is_free(word(lock)) && !locks::enabled() {
                    true => function::<unsafe extern "C" fn($type) -> c_int>(&REAL)(lock),
                    false => lock_perhaps_held(lock, is_free, &REAL, &TRY),
                }
            }
        }
    )* };
}

/// # Safety
/// `lock` and `try_lock` must be libc's functions for a valid lock.
#[inline(never)]
unsafe fn lock_perhaps_held<T>(
    lock: *mut T,
    is_free: fn(u32) -> bool,
    real: &Real,
    try_lock: &Real,
) -> c_int {
    type Lock<T> = unsafe extern "C" fn(*mut T) -> c_int;
    // SAFETY: the caller's promise.
    unsafe {
        let real: Lock<T> = function(real);
        if locks::enabled() {
            // The word of a read-write lock that is free may look as if a writer had it.
            match function::<Lock<T>>(try_lock)(lock) {
                libc::EBUSY => {}
                result => return result,
            }
        } else if is_free(word(lock)) {
            return real(lock);
        }
        wait_for(lock as usize, || real(lock))
    }
}

interpose_lock! {
    pthread_mutex_lock, c"pthread_mutex_lock", c"pthread_mutex_trylock", Mutex, |word| word == 0;
    pthread_rwlock_rdlock, c"pthread_rwlock_rdlock", c"pthread_rwlock_tryrdlock", RwLock,
        |word| word & 3 == 0;
    pthread_rwlock_wrlock, c"pthread_rwlock_wrlock", c"pthread_rwlock_trywrlock", RwLock,
        |word| word & !5 == 0;
}

/// Interposed: the time of the wait, which still counts as work, is charged to the holder, too.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_spin_lock(lock: SpinLock) -> c_int {
    // SAFETY: libc's own functions on the caller's lock.
    unsafe {
        let real = real!(c"pthread_spin_lock": fn(SpinLock) -> c_int);
        if !locks::enabled() {
            return real(lock);
        }
        match real!(c"pthread_spin_trylock": fn(SpinLock) -> c_int)(lock) {
            libc::EBUSY => measured(lock as usize, || real(lock), locked),
            result => result,
        }
    }
}

macro_rules! interpose_unlock {
    ($($unlock:ident, $literal:literal, $type:ty, $is_plain:expr;)*) => { $(
        /// Interposed: if others wait for the lock, the caller is charged with their waiting.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $unlock(lock: $type) -> c_int {
            static REAL: Real = Real::new($literal);
            // SAFETY: libc's own function on the caller's lock.
            unsafe {
                let is_plain: unsafe fn($type) -> bool = $is_plain;
                match REAL.is_known() && is_plain(lock) {
                    true => function::<unsafe extern "C" fn($type) -> c_int>(&REAL)(lock),
                    false => unlock_perhaps_awaited(lock, &REAL),
                }
            }
        }
    )* };
}

interpose_unlock! {
    pthread_mutex_unlock, c"pthread_mutex_unlock", Mutex, |lock| word(lock) <= 1;
    pthread_rwlock_unlock, c"pthread_rwlock_unlock", RwLock, |lock| !locks::is_awaited(lock as usize);
    pthread_spin_unlock, c"pthread_spin_unlock", SpinLock, |lock| !locks::is_awaited(lock as usize);
}

/// # Safety
/// `unlock` must be libc's function for the lock.
#[inline(never)]
unsafe fn unlock_perhaps_awaited<T>(lock: *mut T, unlock: &Real) -> c_int {
    // SAFETY: the caller's promise. After the call the lock may be gone; only its address is used.
    let unlock = || unsafe { function::<unsafe extern "C" fn(*mut T) -> c_int>(unlock)(lock) };
    match locks::is_awaited(lock as usize) {
        false => unlock(),
        true => release(lock as usize, capture_registers(), unlock),
    }
}

/// A futex wait as that of `std::sync::Mutex`, whose word is 0 when it is free, 1 when it is held, and 2 when
/// it is held and perhaps waited for. No other futex of std waits for a 2 that is followed by 0, 1 or 2.
pub(crate) fn is_wait_for_mutex(operation: c_long, value: c_long, timeout: c_long) -> bool {
    let operation = operation as c_int & !libc::FUTEX_PRIVATE_FLAG;
    operation == libc::FUTEX_WAIT_BITSET && value as u32 == CONTENDED && timeout == 0
}

/// The word of a mutex for which others wait.
const CONTENDED: u32 = 2;

/// Runs `wait`, a futex wait of this kind.
pub(crate) fn wait_for_mutex(futex: usize, wait: impl FnOnce() -> c_long) -> c_long {
    measured(
        futex,
        || waiting(wait),
        |result| match result {
            0 => match locks::read_word(futex) {
                Some(0) => Outcome::Acquired,
                Some(1..=CONTENDED) => Outcome::Held,
                _ => Outcome::NoLock,
            },
            _ => Outcome::Held,
        },
    )
}

/// Runs `wake`, which wakes those that wait on a futex. If it is a mutex, the caller has just released it.
#[inline]
pub(crate) fn wake(futex: usize, wake: impl FnOnce() -> c_long) -> c_long {
    let is_release =
        || locks::is_awaited(futex) && locks::read_word(futex).is_some_and(|w| w <= CONTENDED);
    match is_release() {
        false => wake(),
        true => release(futex, capture_registers(), wake),
    }
}
