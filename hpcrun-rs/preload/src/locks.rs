//! Locks, conditions, barriers, semaphores and once of Pthreads and C11. A thread that blocks on one waits;
//! with the metric `lock-wait` on, whoever releases a lock is charged with the waiting
//! (`hpcrun_core::locks`).
//!
//! | lock | how a contended release is told |
//! |---|---|
//! | Pthreads' mutex | by its state; a thread that waits on a condition releases its mutex there |
//! | Pthreads' read-write lock, spin lock | by the table of locks that threads wait for |
//! | those of `std::sync` and parking_lot | the wake of a thread that waits on a futex for one (`waits`) |
//!
//! If nobody measures, all calls go directly to libc, but those for a lock that is held.

use crate::events::{self, Caller, Place, waiting_outside_handlers};
use crate::real::{Real, function, real_of};
use critical_path::Edge;
use hpcrun_core::path;
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

type Mutex = *mut libc::pthread_mutex_t;
type Condition = *mut libc::pthread_cond_t;
type RwLock = *mut libc::pthread_rwlock_t;
type SpinLock = *mut libc::pthread_spinlock_t;
type Barrier = *mut libc::pthread_barrier_t;
type Semaphore = *mut libc::sem_t;
type Time = *const libc::timespec;
type Attributes = *const c_void;

/// Interposes functions that return 0 for success. The expression reports the call from `place`, and calls
/// libc's own by `real`. Those that are marked `direct` call libc's own at once if nobody measures, unless a
/// condition holds.
macro_rules! interpose {
    ($(
        $name:ident ($($argument:ident: $type:ty),*) $(, $version:literal)?
            $(, $direct:ident $(unless $slow:expr)?)?;
        |$place:ident, $real:ident| $report:expr;
    )*) => { $(
        /// Interposed; see the module.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type,)* caller: Caller) -> c_int {
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            static REAL: Real = real_of!($name $(at $version)?);
            #[inline(never)]
            unsafe fn report($($argument: $type,)* $place: Place) -> c_int {
                // SAFETY: libc's function of this name and signature, same arguments.
                let $real = || unsafe { function::<Function>(&REAL)($($argument),*) };
                $report
            }
            // SAFETY: as above.
            unsafe {
                let direct: Option<usize> = None$(.or(REAL.$direct()$(.filter(|_| !$slow))?))?;
                match direct {
                    Some(real) => std::mem::transmute::<usize, Function>(real)($($argument),*),
                    None => report($($argument,)* events::place(&caller)),
                }
            }
        }
    )* };
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

fn mutex_is_held(word: u32) -> bool {
    word != 0
}

fn is_written(word: u32) -> bool {
    word & 3 != 0
}

fn is_held(word: u32) -> bool {
    word & !5 != 0
}

/// Locks: the word tells whether the wait is marked. A wait that begins after the check is found like other
/// waits that no hook observes. If somebody measures, an attempt to lock decides: the word of a read-write
/// lock that is free may look as if a writer had it.
///
/// # Safety
/// As for libc's functions.
unsafe fn lock<T>(
    place: Place,
    lock: *mut T,
    shared: bool,
    attempt: &Real,
    real: impl FnOnce() -> c_int,
) -> c_int {
    if attempt.direct().is_some() {
        return waiting_outside_handlers(real);
    }
    // SAFETY: libc's function on the caller's lock.
    let tried = unsafe { function::<unsafe extern "C" fn(*mut T) -> c_int>(attempt)(lock) };
    match tried {
        libc::EBUSY => wait_for(place, lock, shared, real),
        result => events::acquired(place, lock as usize, shared, result),
    }
}

fn wait_for<T>(place: Place, lock: *mut T, shared: bool, real: impl FnOnce() -> c_int) -> c_int {
    events::wait_for_lock(place, lock as usize, shared, || waiting_outside_handlers(real))
}

/// Interposes functions whose report is that of a function, with the arguments in brackets.
macro_rules! interpose_each {
    ($report:path: $(
        $name:ident [$($of:expr),*] ($($argument:ident: $type:ty),*) $(, $version:literal)?
            $(, $direct:ident)?;
    )*) => { interpose! { $(
        $name($($argument: $type),*) $(, $version)? $(, $direct)?;
        |place, real| $report(place, $($of,)* real);
    )* } };
}

macro_rules! interpose_locks {
    ($(
        $lock:ident, $try_lock:ident ($attempt:literal), $shared:literal, $type:ty, $is_held:expr;
    )*) => {
        interpose! { $(
            $lock(lock: $type), direct unless $is_held(word(lock));
            |place, real| {
                static TRY: Real = Real::new($attempt);
                // SAFETY: the caller's lock.
                unsafe { self::lock(place, lock, $shared, &TRY, real) }
            };
            $try_lock(lock: $type), direct;
            |place, real| events::acquired(place, lock as usize, $shared, real());
        )* }
    };
}

interpose_locks! {
    pthread_mutex_lock, pthread_mutex_trylock (c"pthread_mutex_trylock"), false, Mutex, mutex_is_held;
    mtx_lock, mtx_trylock (c"pthread_mutex_trylock"), false, Mutex, mutex_is_held;
    pthread_rwlock_rdlock, pthread_rwlock_tryrdlock (c"pthread_rwlock_tryrdlock"), true, RwLock, is_written;
    pthread_rwlock_wrlock, pthread_rwlock_trywrlock (c"pthread_rwlock_trywrlock"), false, RwLock, is_held;
}

interpose! {
    // The time of the wait still counts as work.
    pthread_spin_lock(lock: SpinLock), direct;
    |place, real| {
        static TRY: Real = Real::new(c"pthread_spin_trylock");
        // SAFETY: libc's function on the caller's lock.
        let tried = unsafe { function::<unsafe extern "C" fn(SpinLock) -> c_int>(&TRY)(lock) };
        match tried {
            libc::EBUSY => events::wait_for_lock(place, lock as usize, false, real),
            result => events::acquired(place, lock as usize, false, result),
        }
    };
    pthread_spin_trylock(lock: SpinLock), direct;
    |place, real| events::acquired(place, lock as usize, false, real());
}

interpose_each! { wait_for:
    pthread_mutex_timedlock [lock, false] (lock: Mutex, _time: Time);
    pthread_mutex_clocklock [lock, false] (lock: Mutex, _clock: c_int, _time: Time);
    mtx_timedlock [lock, false] (lock: Mutex, _time: Time);
    pthread_rwlock_timedrdlock [lock, true] (lock: RwLock, _time: Time);
    pthread_rwlock_clockrdlock [lock, true] (lock: RwLock, _clock: c_int, _time: Time);
    pthread_rwlock_timedwrlock [lock, false] (lock: RwLock, _time: Time);
    pthread_rwlock_clockwrlock [lock, false] (lock: RwLock, _clock: c_int, _time: Time);
}

interpose_each! { events::release:
    pthread_mutex_unlock [lock as usize] (lock: Mutex), direct;
    mtx_unlock [lock as usize] (lock: Mutex), direct;
    pthread_rwlock_unlock [lock as usize] (lock: RwLock), direct;
    pthread_spin_unlock [lock as usize] (lock: SpinLock), direct;
}

interpose_each! { events::wait_for_condition:
    pthread_cond_wait [condition as usize, mutex as usize] (
        condition: Condition, mutex: Mutex
    ), c"GLIBC_2.3.2";
    pthread_cond_timedwait [condition as usize, mutex as usize] (
        condition: Condition, mutex: Mutex, _time: Time
    ), c"GLIBC_2.3.2";
    pthread_cond_clockwait [condition as usize, mutex as usize] (
        condition: Condition, mutex: Mutex, _clock: c_int, _time: Time
    );
    cnd_wait [condition as usize, mutex as usize] (condition: Condition, mutex: Mutex);
    cnd_timedwait [condition as usize, mutex as usize] (condition: Condition, mutex: Mutex, _time: Time);
}

interpose_each! { signal:
    pthread_cond_signal [condition] (condition: Condition), c"GLIBC_2.3.2", direct;
    pthread_cond_broadcast [condition] (condition: Condition), c"GLIBC_2.3.2", direct;
    cnd_signal [condition] (condition: Condition), direct;
    cnd_broadcast [condition] (condition: Condition), direct;
}

interpose_each! { events::wait_for_post:
    sem_wait [semaphore as usize] (semaphore: Semaphore);
    sem_timedwait [semaphore as usize] (semaphore: Semaphore, _time: Time);
    sem_clockwait [semaphore as usize] (semaphore: Semaphore, _clock: c_int, _time: Time);
}

interpose! {
    pthread_barrier_wait(barrier: Barrier);
    |place, real| events::wait_at_barrier(place, barrier as usize, real);

    sem_trywait(semaphore: Semaphore), direct;
    |place, real| {
        let result = real();
        if result == 0 {
            events::tell(place, |tracked, at| tracked.receive(semaphore as usize, Edge::Channel, at));
        }
        result
    };
    sem_post(semaphore: Semaphore), direct;
    |place, real| {
        events::tell(place, |tracked, at| tracked.send(semaphore as usize, 1, at));
        real()
    };
}

/// The routine of a `pthread_once` that the calling thread is in.
#[derive(Clone, Copy)]
struct Once {
    control: usize,
    routine: unsafe extern "C" fn(),
}

thread_local! {
    static ONCE: Cell<Option<Once>> = const { Cell::new(None) };
}

/// Interposed: whoever comes later waits for the routine, which one thread runs.
///
/// # Safety
/// As for libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_once(
    control: *mut libc::pthread_once_t,
    routine: unsafe extern "C" fn(),
    caller: Caller,
) -> c_int {
    type Function = unsafe extern "C" fn(*mut libc::pthread_once_t, unsafe extern "C" fn()) -> c_int;
    static REAL: Real = Real::new(c"pthread_once");
    let place = events::place(&caller);
    let control_address = control as usize;
    let once = Once { control: control_address, routine };
    // SAFETY: libc's own function; `run_once` calls the caller's routine.
    unsafe {
        if REAL.direct().is_some() || !path::is_active() {
            return function::<Function>(&REAL)(control, routine);
        }
        let outer = ONCE.replace(Some(once));
        let result = function::<Function>(&REAL)(control, run_once);
        // The routine has taken it, if it was this thread that has run it.
        let ran = ONCE.replace(outer).is_none();
        if ran { result } else { events::acquired(place, control_address, true, result) }
    }
}

unsafe extern "C" fn run_once() {
    if let Some(once) = ONCE.take() {
        let place = Place::CONTEXT;
        events::acquired(place, once.control, false, 0);
        // SAFETY: the routine that the caller of `pthread_once` has given.
        unsafe { (once.routine)() };
        events::tell(place, |tracked, at| tracked.release(once.control, at));
    }
}

fn signal(place: Place, condition: Condition, real: impl FnOnce() -> c_int) -> c_int {
    events::tell(place, |tracked, at| tracked.signal(condition as usize, at));
    real()
}

// What begins or ends an object.
interpose_each! { forget:
    pthread_mutex_init [lock] (lock: Mutex, _attributes: Attributes), direct;
    pthread_mutex_destroy [lock] (lock: Mutex), direct;
    mtx_init [lock] (lock: Mutex, _kind: c_int), direct;
    pthread_rwlock_init [lock] (lock: RwLock, _attributes: Attributes), direct;
    pthread_rwlock_destroy [lock] (lock: RwLock), direct;
    pthread_spin_init [lock] (lock: SpinLock, _shared: c_int), direct;
    pthread_spin_destroy [lock] (lock: SpinLock), direct;
    pthread_cond_init [condition] (condition: Condition, _attributes: Attributes), c"GLIBC_2.3.2", direct;
    pthread_cond_destroy [condition] (condition: Condition), c"GLIBC_2.3.2", direct;
    cnd_init [condition] (condition: Condition), direct;
    pthread_barrier_destroy [barrier] (barrier: Barrier), direct;
    sem_destroy [semaphore] (semaphore: Semaphore), direct;
}

interpose! {
    pthread_barrier_init(barrier: Barrier, _attributes: Attributes, count: c_uint), direct;
    |place, real| {
        events::tell(place, |tracked, _| tracked.begin_barrier(barrier as usize, count.into()));
        real()
    };
    sem_init(semaphore: Semaphore, _shared: c_int, value: c_uint), direct;
    |place, real| {
        events::tell(place, |tracked, _| tracked.begin_semaphore(semaphore as usize, value.into()));
        real()
    };
}

fn forget<T>(place: Place, object: *mut T, real: impl FnOnce() -> c_int) -> c_int {
    events::tell(place, |tracked, _| tracked.forget(object as usize));
    real()
}
