//! Waits: marks threads as waiting while they are blocked, so that n_working counts only threads that run
//! (ARCHITECTURE.md: terms). Workers of cooperating runtimes count themselves.
//!
//! These hooks are the fast path: a thread that waits by other means is found asleep
//! (`hpcrun_core::activity`). Locks, conditions, barriers and semaphores are in
//! `locks`, waits with a signal mask in `masks`.

use crate::actions;
use crate::affinity;
use crate::descriptors;
use crate::events::{self, join, waiting};
use crate::exec;
use crate::fork;
use crate::masks;
use crate::privileges;
use crate::real::interpose;
use crate::sandbox;
use crate::start;
use crate::tracers;
use hpcrun_core::futex_locks::FutexWait;
use hpcrun_core::threads;
use std::ffi::{c_int, c_long, c_uint, c_void};

/// Interposes functions that wait: `$how` runs libc's function, and is told the argument in brackets.
macro_rules! interpose_wait {
    ($how:ident: $(
        $name:ident $([$of:ident])? ($($argument:ident: $type:ty),*) -> $result:ty;
    )*) => { interpose! { $(
        $name($($argument: $type),*) -> $result: |wait| $how($($of,)? wait);
    )* } };
}

type Time = *const libc::timespec;
type Buffer = *mut c_void;

interpose_wait! {
    join:
    pthread_join [thread] (thread: libc::pthread_t, result: *mut *mut c_void) -> c_int;
    pthread_timedjoin_np [thread] (thread: libc::pthread_t, result: *mut *mut c_void, time: Time) -> c_int;
    pthread_clockjoin_np [thread] (
        thread: libc::pthread_t, result: *mut *mut c_void, clock: c_int, time: Time
    ) -> c_int;
    pthread_tryjoin_np [thread] (thread: libc::pthread_t, result: *mut *mut c_void) -> c_int;
    thrd_join [thread] (thread: libc::pthread_t, result: *mut c_int) -> c_int;
}

interpose_wait! {
    waiting:
    nanosleep(time: Time, left: *mut libc::timespec) -> c_int;
    clock_nanosleep(clock: c_int, flags: c_int, time: Time, left: *mut libc::timespec) -> c_int;
    usleep(microseconds: c_uint) -> c_int;
    sleep(seconds: c_uint) -> c_uint;
    pause() -> c_int;
    poll(fds: *mut libc::pollfd, n: libc::nfds_t, timeout: c_int) -> c_int;
    select(
        n: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
        timeout: *mut libc::timeval
    ) -> c_int;
    epoll_wait(fd: c_int, events: *mut libc::epoll_event, n: c_int, timeout: c_int) -> c_int;
    wait(status: *mut c_int) -> libc::pid_t;
    waitpid(pid: libc::pid_t, status: *mut c_int, options: c_int) -> libc::pid_t;
    wait3(status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> libc::pid_t;
    wait4(pid: libc::pid_t, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> libc::pid_t;
    waitid(kind: c_uint, id: libc::id_t, info: *mut libc::siginfo_t, options: c_int) -> c_int;
    read(fd: c_int, buffer: Buffer, n: usize) -> isize;
    readv(fd: c_int, buffers: *const libc::iovec, n: c_int) -> isize;
    recv(fd: c_int, buffer: Buffer, n: usize, flags: c_int) -> isize;
    recvfrom(
        fd: c_int, buffer: Buffer, n: usize, flags: c_int, from: *mut libc::sockaddr,
        len: *mut libc::socklen_t
    ) -> isize;
    recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize;
    write(fd: c_int, buffer: *const c_void, n: usize) -> isize;
    writev(fd: c_int, buffers: *const libc::iovec, n: c_int) -> isize;
    send(fd: c_int, buffer: *const c_void, n: usize, flags: c_int) -> isize;
    sendto(
        fd: c_int, buffer: *const c_void, n: usize, flags: c_int, to: *const libc::sockaddr,
        len: libc::socklen_t
    ) -> isize;
    sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize;
    accept(fd: c_int, address: *mut libc::sockaddr, len: *mut libc::socklen_t) -> c_int;
    accept4(fd: c_int, address: *mut libc::sockaddr, len: *mut libc::socklen_t, flags: c_int) -> c_int;
    connect(fd: c_int, address: *const libc::sockaddr, len: libc::socklen_t) -> c_int;
    flock(fd: c_int, operation: c_int) -> c_int;
    fsync(fd: c_int) -> c_int;
    fdatasync(fd: c_int) -> c_int;
}

interpose! {
    // A thread that gives up its core has nothing to do. Schedulers that do not cooperate search for tasks in
    // such a loop. What a message-passing library does in calls that do not wait is work, with an overhead
    // tag.
    sched_yield() -> c_int: |give_up| {
        let state = threads::current().filter(|t| !t.is_in_call() || t.waits_in_call());
        state.inspect(|t| t.working().begin_yield());
        let result = give_up();
        state.inspect(|t| t.working().end_yield());
        result
    };
    // Futex waits, by which the locks of Rust and other languages block, the calls that close descriptors or
    // change signals, and the one that ends the process. The kernel takes at most six arguments, all of them
    // words. If the caller passes fewer, the others are unspecified, and the system call ignores them.
    syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long: |call| system_call(number, [a, b, c, d], call);
}

const FUTEX_COMMANDS: c_long = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as c_long;

/// A system call by libc's function.
///
/// # Safety
/// As for the system call, with these as its first arguments.
unsafe fn system_call(number: c_long, [a, b, c, d]: [c_long; 4], call: impl FnOnce() -> c_long) -> c_long {
    match number {
        libc::SYS_futex
            if matches!(
                (b & FUTEX_COMMANDS) as c_int,
                libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_LOCK_PI
            ) =>
        {
            let wait = FutexWait { operation: b as c_int, value: c as u32, is_timed: d != 0 };
            events::wait_on_futex(a as usize, wait, call)
        }
        libc::SYS_futex if (b & FUTEX_COMMANDS) as c_int == libc::FUTEX_WAKE => {
            events::wake(a as usize, c as c_int, call)
        }
        libc::SYS_sched_setaffinity => {
            let result = call();
            affinity::bound(a as libc::pid_t, result as c_int);
            result
        }
        // SAFETY: the program's own filter.
        libc::SYS_seccomp => unsafe { sandbox::entering(a, c, call) },
        // SAFETY: as above.
        libc::SYS_prctl if a as c_int == libc::PR_SET_SECCOMP => unsafe { sandbox::entering(b - 1, c, call) },
        libc::SYS_landlock_restrict_self => sandbox::leaving_files(call),
        // SAFETY: as for the system call; the arguments are the caller's.
        libc::SYS_rt_sigaction if actions::is_ours(a as c_int) => unsafe {
            actions::system_call(b as *const _, c as *mut _)
        },
        // SAFETY: as above.
        libc::SYS_rt_sigprocmask if d == 8 => unsafe {
            masks::system_call(a as c_int, b as *const _, c as *mut _).into()
        },
        libc::SYS_ptrace => {
            tracers::before_request(a);
            call()
        }
        // SAFETY: as for libc's functions of these names.
        libc::SYS_close => unsafe { descriptors::close_one(a as c_int).into() },
        // SAFETY: as above.
        libc::SYS_close_range => unsafe {
            descriptors::close_all(a as c_uint, b as c_uint, c as c_int).into()
        },
        // The child of a fork has memory of its own; one with another stack returns elsewhere.
        libc::SYS_fork => fork::by_system_call(call),
        libc::SYS_clone if a & c_long::from(libc::CLONE_VM) == 0 && b == 0 => fork::by_system_call(call),
        // SAFETY: as for libc's function; the arguments are the caller's.
        libc::SYS_execve => unsafe { exec::by_path(a as *const _, b as *const _, c as *const _).into() },
        libc::SYS_chroot | libc::SYS_pivot_root | libc::SYS_unshare | libc::SYS_setns => {
            privileges::moving(call)
        }
        libc::SYS_exit_group => {
            start::stop("_exit");
            call()
        }
        _ => call(),
    }
}
