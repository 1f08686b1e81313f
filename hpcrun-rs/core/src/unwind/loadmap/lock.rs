//! The dynamic linker's lock of its list of modules. glibc's `fork` forgets it: if another thread was in
//! `dlopen`, the child waits for ever at its first look at the list, which is ours. So a fork holds the lock.
//!
//! Not async-signal-safe.

use crate::system::{self, clock};
use std::ffi::c_void;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The beginning of glibc's mutex.
#[repr(C)]
struct Mutex {
    lock: i32,
    count: u32,
    owner: i32,
    users: u32,
    kind: i32,
}

/// The lock's address, once it is known.
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// The C library's functions to lock and to unlock it. Their plain names are our own hooks, which the
/// compiler doesn't know as functions.
static LOCK: AtomicUsize = AtomicUsize::new(0);
static UNLOCK: AtomicUsize = AtomicUsize::new(0);
type LockUntil = unsafe extern "C" fn(*mut libc::pthread_mutex_t, *const libc::timespec) -> i32;
type Unlock = unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32;

/// The thread that forks has it.
static HELD: AtomicBool = AtomicBool::new(false);
/// It belongs to a thread that exists in the parent only.
static LOST: AtomicBool = AtomicBool::new(false);

/// Finds the lock: the only recursive one in the dynamic linker's data that this thread has while
/// `dl_iterate_phdr` calls it. Called before the program has threads.
pub fn find() {
    unsafe extern "C" fn look(_: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> i32 {
        // SAFETY: `find` passes the bounds of the dynamic linker's data, which is readable.
        let (start, words) = unsafe { *data.cast::<(usize, usize)>() };
        let me = system::thread_id() as i32;
        let at = |i: usize| (start + 8 * i) as *const Mutex;
        let is_ours = |i: &usize| {
            // SAFETY: as above; the mutex ends before the data does.
            let Mutex { lock, count, owner, users, kind } = unsafe { at(*i).read() };
            (lock, count, owner, users, kind) == (1, 1, me, 1, libc::PTHREAD_MUTEX_RECURSIVE)
        };
        let last = words.saturating_sub(mem::size_of::<libc::pthread_mutex_t>() / 8);
        let mut all = (0..last).filter(is_ours);
        if let (Some(i), None) = (all.next(), all.next()) {
            FOUND.store(at(i) as usize, Relaxed);
        }
        1
    }
    // SAFETY: the name is a C string. The symbol's entry says how large the data is, and is never freed.
    unsafe {
        let lock = libc::dlsym(libc::RTLD_NEXT, c"pthread_mutex_timedlock".as_ptr());
        let unlock = libc::dlsym(libc::RTLD_NEXT, c"pthread_mutex_unlock".as_ptr());
        if lock.is_null() || unlock.is_null() {
            return;
        }
        LOCK.store(lock as usize, Relaxed);
        UNLOCK.store(unlock as usize, Relaxed);
        let data = libc::dlsym(libc::RTLD_DEFAULT, c"_rtld_global".as_ptr());
        let mut info: libc::Dl_info = mem::zeroed();
        let mut symbol: *mut c_void = std::ptr::null_mut();
        const WITH_SYMBOL: i32 = 1;
        if !data.is_null() && dladdr1(data, &mut info, &mut symbol, WITH_SYMBOL) != 0 && !symbol.is_null() {
            let size = (*symbol.cast::<libc::Elf64_Sym>()).st_size as usize;
            let mut bounds = (data as usize, size / 8);
            libc::dl_iterate_phdr(Some(look), (&raw mut bounds).cast());
        }
    }
}

unsafe extern "C" {
    fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *mut c_void, flags: i32) -> i32;
}

/// Before a fork: no other thread changes the list until it is over. Waits for a tenth of a second at most.
pub(super) fn begin_fork() {
    let lock = FOUND.load(Relaxed) as *mut libc::pthread_mutex_t;
    if !lock.is_null() {
        let soon = clock(libc::CLOCK_REALTIME) + 100_000_000;
        let soon = libc::timespec {
            tv_sec: (soon / 1_000_000_000) as libc::time_t,
            tv_nsec: (soon % 1_000_000_000) as libc::c_long,
        };
        // SAFETY: glibc's function, which `find` stored before the lock, and its mutex, which lives as long
        // as the process.
        let result = unsafe { mem::transmute::<usize, LockUntil>(LOCK.load(Relaxed))(lock, &soon) };
        HELD.store(result == 0, Relaxed);
    }
}

/// After a fork, in the parent.
pub(super) fn end_fork() {
    if HELD.swap(false, Relaxed) {
        let lock = FOUND.load(Relaxed) as *mut libc::pthread_mutex_t;
        // SAFETY: as in `begin_fork`, which has locked it in this thread.
        unsafe { mem::transmute::<usize, Unlock>(UNLOCK.load(Relaxed))(lock) };
    }
}

/// In a forked child, of which the calling thread is the only one: the lock is free again, as its owner is a
/// thread of the parent; or it is lost, and the list may not be whole.
pub(super) fn enter_child() {
    let mutex = FOUND.load(Relaxed) as *mut Mutex;
    // SAFETY: null, or glibc's mutex, which nobody else can use now.
    unsafe {
        let is_locked = mutex.as_ref().is_some_and(|m| m.lock != 0 && m.owner != system::thread_id() as i32);
        if HELD.swap(false, Relaxed) && is_locked && (*mutex).count == 1 {
            ((*mutex).lock, (*mutex).count, (*mutex).owner, (*mutex).users) = (0, 0, 0, 0);
        } else if is_locked {
            LOST.store(true, Relaxed);
        }
    }
}

/// Whether the list can't be read any more.
pub(super) fn is_lost() -> bool {
    LOST.load(Relaxed)
}
