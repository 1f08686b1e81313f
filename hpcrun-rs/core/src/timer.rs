//! Sample sources: timers that deliver a thread's samples as signals to the thread itself.
//!
//! | case | source |
//! |---|---|
//! | wall time | POSIX timer |
//! | CPU time, rate up to four fifths of the kernel's tick | POSIX per-thread CPU timer |
//! | CPU time, higher rate | perf task clock with a synchronous SIGTRAP, or with a queued signal |
//! | the same, without permission | POSIX timer; its distinct samples come at the tick's rate |
//!
//! A POSIX CPU timer needs no permission and costs next to nothing, since it fires in a tick that occurs
//! anyway. A perf event with SIGTRAP has exact rates, and no EINTR in system calls.
//!
//! The times between samples are random (`jitter`), so that no program runs in step with its samples. A CPU
//! timer uses whole ticks. A timer that would fire in every tick has equal distances instead, weighted by its
//! overrun count.
//!
//! A program may close a perf event's descriptor by a call that no hook sees. [`Source::disarm`] says so.
//!
//! Async-signal-safe: [`Source::claim`].

mod interpolated_clock;
mod jitter;

use crate::config::{Config, Event, SourceKind};
use crate::descriptors::open_above_limit;
use crate::sandbox::refuses;
use crate::system::{self, close};
use interpolated_clock::{InterpolatedClock, time_of};
use jitter::{Jitter, Pace};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

/// The signal of all sources except SIGTRAP's. Its default action is "ignore", so a signal that is pending
/// when `exec` replaces the program is harmless.
pub const TIMER_SIGNAL: i32 = libc::SIGURG;

/// `si_code` of a perf event's SIGTRAP.
const TRAP_PERF: i32 = 6;
const SI_TIMER: i32 = -2;
const SI_POLL_IN: i32 = 1;

/// The signal of a kind of source.
pub fn signal_of(kind: SourceKind) -> i32 {
    match kind {
        SourceKind::PerfSigtrap => libc::SIGTRAP,
        SourceKind::PerfSignal | SourceKind::PosixTimer => TIMER_SIGNAL,
    }
}

/// One thread's timer.
#[derive(Debug)]
pub struct Source {
    /// `SourceKind`, or 0 while disarmed.
    kind: AtomicU8,
    /// File descriptor or timer id.
    handle: AtomicI64,
    /// The kernel's id of the perf event: a descriptor with another id is no longer ours.
    perf_id: AtomicU64,
    clock: InterpolatedClock,
    jitter: Jitter,
}

/// `struct perf_event_attr` up to `sig_data` (PERF_ATTR_SIZE_VER7).
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved2: u16,
    aux_sample_size: u32,
    reserved3: u32,
    sig_data: u64,
}

const _: () = assert!(size_of::<PerfEventAttr>() == 128);

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
const FLAG_DISABLED: u64 = 1;
const FLAG_REMOVE_ON_EXEC: u64 = 1 << 36;
const FLAG_SIGTRAP: u64 = 1 << 37;
const PERF_FLAG_FD_CLOEXEC: usize = 8;
const PERF_EVENT_IOC_ENABLE: u64 = 0x2400;
/// `_IOW('$', 4, __u64)`.
const PERF_EVENT_IOC_PERIOD: u64 = 0x4008_2404;
/// Number of perf samples between two draws of a distance. Setting a distance is a system call. If it brings
/// the next interrupt forward, the kernel reprograms the processor's timer, which takes some 10 us on a
/// virtual machine.
const PERF_SAMPLES_A_DRAW: u64 = 16;
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const PERF_EVENT_IOC_ID: u64 = 0x8008_2407;
/// Opens a disabled perf event. Returns its descriptor, or a negative error.
fn open_perf(kind: SourceKind, period_ns: u64, data: u64) -> i32 {
    let sigtrap = kind == SourceKind::PerfSigtrap;
    let attr = PerfEventAttr {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<PerfEventAttr>() as u32,
        config: PERF_COUNT_SW_TASK_CLOCK,
        sample_period: period_ns,
        wakeup_events: 1,
        flags: FLAG_DISABLED | if sigtrap { FLAG_REMOVE_ON_EXEC | FLAG_SIGTRAP } else { 0 },
        sig_data: if sigtrap { data } else { 0 },
        ..Default::default()
    };
    // This thread, any CPU, no group.
    let none = -1_isize as usize;
    let arguments = [&raw const attr as usize, 0, none, none, PERF_FLAG_FD_CLOEXEC];
    // SAFETY: `attr` is an initialised structure of the size that it states, and outlives the call.
    unsafe { system::call(libc::SYS_perf_event_open, arguments) as i32 }
}

/// The kernel's unique id of a perf event; `None` if the descriptor is not one.
fn perf_id(descriptor: i32) -> Option<u64> {
    let mut id = 0_u64;
    // SAFETY: the kernel writes one word to `id`, or refuses the descriptor.
    let result = unsafe {
        let arguments =
            [descriptor as usize, PERF_EVENT_IOC_ID as usize, &raw mut id as usize, 0, 0];
        system::call(libc::SYS_ioctl, arguments)
    };
    (result == 0).then_some(id)
}

/// Creates a timer whose signals go to thread `tid` with this cookie. Uses system calls, because the
/// library's function is interposed and may allocate. Errors are those of the operating system.
fn create_timer(clock: libc::clockid_t, signal: i32, tid: u32, cookie: u64) -> Result<i32, i32> {
    // SAFETY: zeros are a valid `sigevent`. The kernel reads it and writes `timer`; both outlive the call.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = tid as i32;
        event.sigev_value.sival_ptr = cookie as *mut libc::c_void;
        let mut timer = -1_i32;
        let (event, id) = (&raw const event as usize, &raw mut timer as usize);
        match system::call(libc::SYS_timer_create, [clock as usize, event, id, 0, 0]) {
            0 => Ok(timer),
            error => Err(-error as i32),
        }
    }
}

/// Sets a timer to fire after `distance` nanoseconds, and then every `period` until it is set again. Errors
/// are those of the operating system.
#[inline]
fn set_timer(timer: i32, distance: u64, period: u64) -> Result<(), i32> {
    let time = |ns: u64| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    let spec = libc::itimerspec { it_interval: time(period), it_value: time(distance) };
    let arguments = [timer as usize, 0, &raw const spec as usize, 0, 0];
    // SAFETY: `spec` outlives the call; the kernel refuses a timer that no longer exists.
    match unsafe { system::call(libc::SYS_timer_settime, arguments) } {
        0 => Ok(()),
        error => Err(-error as i32),
    }
}

/// False if the timer no longer exists.
fn delete_timer(timer: i32) -> bool {
    // SAFETY: deleting touches no memory; the kernel refuses a timer that no longer exists.
    unsafe { system::call(libc::SYS_timer_delete, [timer as usize, 0, 0, 0, 0]) == 0 }
}

/// Sets the time between a perf event's samples.
#[inline]
fn set_perf(descriptor: i32, distance: u64) {
    let at = &raw const distance as usize;
    let arguments = [descriptor as usize, PERF_EVENT_IOC_PERIOD as usize, at, 0, 0];
    // SAFETY: the kernel reads one word, which outlives the call. If it refuses, the distance is unchanged.
    unsafe { system::call(libc::SYS_ioctl, arguments) };
}

/// Whether a POSIX timer can deliver a separate sample for every period. The kernel checks CPU timers once a
/// tick, so a rate close to the tick's would lose samples to overruns.
fn tick_suffices(config: &Config) -> bool {
    let tick = u64::from(rate_ceiling(SourceKind::PosixTimer, config.event));
    u64::from(config.rate) * 5 <= tick * 4
}

/// Chooses the best source that the system and the program's limits allow, by a trial on the calling thread.
pub fn choose(config: &Config) -> Result<SourceKind, String> {
    if config.event == Event::WallTime {
        return match config.source {
            None | Some(SourceKind::PosixTimer) => Ok(SourceKind::PosixTimer),
            Some(other) => Err(format!("wall-time cannot be sampled by {}", other.name())),
        };
    }
    let wanted = match config.source {
        Some(kind) => vec![kind],
        None if tick_suffices(config) => vec![SourceKind::PosixTimer],
        None if holds_back_sigtrap() => vec![SourceKind::PerfSigtrap, SourceKind::PerfSignal],
        None => vec![SourceKind::PerfSignal],
    };
    for kind in wanted {
        if kind == SourceKind::PosixTimer {
            return Ok(kind);
        }
        match open_above_limit(|| open_perf(kind, config.period_ns(), 0)) {
            Ok(fd) => {
                close(fd);
                return Ok(kind);
            }
            Err(libc::EMFILE) => {}
            Err(error) if config.source.is_some() => {
                let text = std::io::Error::from_raw_os_error(error);
                return Err(format!("{} is not available: {text}", kind.name()));
            }
            Err(_) => {}
        }
    }
    Ok(SourceKind::PosixTimer)
}

/// The highest rate of distinct samples of a source, in Hz; 0 if the kernel's tick does not limit it.
pub fn rate_ceiling(kind: SourceKind, event: Event) -> u32 {
    if kind != SourceKind::PosixTimer || event == Event::WallTime {
        return 0;
    }
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The coarse clock advances once a tick. SAFETY: the kernel writes `t`, a local that outlives the call.
    let ok = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut t) } == 0;
    if ok && t.tv_nsec > 0 { (1_000_000_000 / t.tv_nsec) as u32 } else { 0 }
}

/// Whether the kernel defers a perf event's SIGTRAP while the program blocks the signal. Before Linux 5.18
/// the kernel killed the program instead.
fn holds_back_sigtrap() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    kernel_version(&release).is_none_or(|version| version >= (5, 18))
}

fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Nanoseconds of the kernel's tick, if this kind of source fires only in ticks; else 0.
pub fn tick_of(kind: SourceKind, event: Event) -> u64 {
    let ticks = u64::from(rate_ceiling(kind, event));
    1_000_000_000_u64.checked_div(ticks).unwrap_or(0)
}

/// Whether a signal may come from a timer of ours, of any thread. Async-signal-safe.
pub fn may_be_sample(info: &libc::siginfo_t) -> bool {
    matches!(info.si_code, TRAP_PERF | SI_TIMER)
}

/// The cookie that the timer of a signal was armed with; it names the thread. Async-signal-safe.
#[inline]
pub fn cookie_of(info: &libc::siginfo_t) -> Option<u64> {
    may_be_sample(info).then(|| word_at(info, 24))
}

/// A word of the kernel's structure, at an offset in bytes.
#[inline]
fn word_at(info: &libc::siginfo_t, offset: usize) -> u64 {
    // SAFETY: `siginfo_t` has 128 bytes. Callers pass offsets of at most 24, from the kernel's x86-64 layout
    // for the respective `si_code`.
    unsafe { ptr_at(info).add(offset).cast::<u64>().read_unaligned() }
}

impl Source {
    /// A disarmed source.
    pub const fn new() -> Source {
        Source {
            kind: AtomicU8::new(0),
            handle: AtomicI64::new(-1),
            perf_id: AtomicU64::new(0),
            clock: InterpolatedClock::new(),
            jitter: Jitter::new(),
        }
    }

    /// Starts to deliver samples to the calling thread, whose kernel id is `tid`. `cookie` identifies its
    /// signals. Falls back to a POSIX timer if perf refuses (too many open files). Errors are those of the
    /// operating system.
    pub fn arm(&self, config: &Config, kind: SourceKind, tid: u32, cookie: u64) -> Result<(), i32> {
        if kind == SourceKind::PosixTimer {
            return self.arm_timer(config, kind, tid, cookie);
        }
        self.arm_perf(config, kind, tid, cookie).or_else(|_| {
            self.disarm();
            self.arm_timer(config, kind, tid, cookie)
        })
    }

    fn arm_perf(
        &self,
        config: &Config,
        kind: SourceKind,
        tid: u32,
        cookie: u64,
    ) -> Result<(), i32> {
        if [libc::SYS_ioctl, libc::SYS_fcntl, libc::SYS_clock_gettime].into_iter().any(refuses) {
            return Err(libc::EPERM);
        }
        let fd = open_above_limit(|| open_perf(kind, config.period_ns(), cookie))?;
        self.handle.store(i64::from(fd), Ordering::Relaxed);
        self.perf_id.store(perf_id(fd).unwrap_or(0), Ordering::Relaxed);
        let pace =
            Pace { period: config.period_ns(), tick: 0, samples_a_draw: PERF_SAMPLES_A_DRAW };
        let first = self.begin(pace, libc::CLOCK_THREAD_CPUTIME_ID, cookie);
        self.clock.expect(first);
        // Enabled last: at a sample, the handler sets the next distance through the descriptor.
        set_perf(fd, first);
        self.kind.store(kind as u8, Ordering::Release);
        // SAFETY: `fd` is our perf event; `owner` is `struct f_owner_ex {F_OWNER_TID, tid}` and outlives the
        // call.
        let ok = unsafe {
            let owner = [0i32, tid as i32];
            let signalled = kind != SourceKind::PerfSignal
                || (libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) == 0
                    && libc::fcntl(fd, F_SETSIG, TIMER_SIGNAL) == 0
                    && libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr()) == 0);
            signalled && libc::ioctl(fd, PERF_EVENT_IOC_ENABLE as _, 0) == 0
        };
        if ok {
            return Ok(());
        }
        let error = system::last_error();
        self.disarm();
        Err(error)
    }

    /// From now on samples come at equal distances, so that the handler makes no system call for the next.
    /// Any thread may call this.
    pub fn be_steady(&self, period: u64) {
        self.jitter.end();
        self.clock.forget();
        match self.perf_descriptor() {
            Some(descriptor) => set_perf(descriptor, period),
            None => {
                let _ = set_timer(self.descriptor(), period, period);
            }
        }
    }

    /// Whether the descriptor still refers to our perf event.
    fn is_own(&self, descriptor: i32) -> bool {
        perf_id(descriptor) == Some(self.perf_id.load(Ordering::Relaxed))
    }

    /// Starts random distances. Returns the first.
    fn begin(&self, pace: Pace, clock: libc::clockid_t, cookie: u64) -> u64 {
        self.clock.begin(clock);
        // Different seeds for threads that share a state one after the other, and for different runs.
        let seed = cookie.wrapping_add(time_of(libc::CLOCK_MONOTONIC));
        self.jitter.begin(pace, seed)
    }

    /// Starts a POSIX timer that delivers the signal of `kind`.
    fn arm_timer(
        &self,
        config: &Config,
        kind: SourceKind,
        tid: u32,
        cookie: u64,
    ) -> Result<(), i32> {
        let clock = match config.event {
            Event::CpuTime => libc::CLOCK_THREAD_CPUTIME_ID,
            Event::WallTime => libc::CLOCK_MONOTONIC,
        };
        let pace = Pace {
            period: config.period_ns(),
            tick: tick_of(SourceKind::PosixTimer, config.event),
            samples_a_draw: 1,
        };
        let timer = create_timer(clock, signal_of(kind), tid, cookie)?;
        self.handle.store(i64::from(timer), Ordering::Relaxed);
        self.kind.store(SourceKind::PosixTimer as u8, Ordering::Release);
        let is_free = !refuses(libc::SYS_clock_gettime);
        let first = if pace.leaves_room() && is_free {
            self.begin(pace, clock, cookie)
        } else {
            self.clock.begin(clock);
            self.jitter.end();
            pace.period
        };
        set_timer(timer, first, pace.period).inspect_err(|_| {
            self.disarm();
        })
    }

    /// Stops delivery. Any thread may call this; a second call has no effect. False if the program has taken
    /// the timer away.
    pub fn disarm(&self) -> bool {
        // The swaps guarantee that only one caller deletes the timer.
        let kind = self.kind.swap(0, Ordering::AcqRel);
        let handle = self.handle.swap(-1, Ordering::AcqRel) as i32;
        if kind == 0 {
            return true;
        }
        if kind == SourceKind::PosixTimer as u8 {
            return delete_timer(handle) || refuses(libc::SYS_timer_delete);
        }
        // If the program closed the event, the descriptor's number may belong to another file.
        let is_own = self.is_own(handle);
        if is_own {
            close(handle);
        }
        is_own || refuses(libc::SYS_ioctl)
    }

    /// The descriptor of the perf event, if there is one.
    pub fn perf_descriptor(&self) -> Option<i32> {
        let is_perf = !matches!(self.kind.load(Ordering::Relaxed), 0)
            && self.kind.load(Ordering::Relaxed) != SourceKind::PosixTimer as u8;
        is_perf.then(|| self.descriptor())
    }

    /// Whether this is the descriptor of the perf event.
    pub fn uses(&self, descriptor: i32) -> bool {
        self.perf_descriptor() == Some(descriptor)
    }

    /// Releases the source in a forked child: perf descriptors are copies of the parent's, and timers do not
    /// exist.
    pub fn close_inherited(&self) {
        if self.kind.load(Ordering::Relaxed) == SourceKind::PosixTimer as u8 {
            self.kind.store(0, Ordering::Relaxed);
        }
        self.disarm();
    }

    /// Claims a signal: if it is from this source, returns the weight of the sample in periods, often one,
    /// sometimes zero. Async-signal-safe.
    #[inline]
    pub fn claim(&self, info: &libc::siginfo_t, cookie: u64) -> Option<u64> {
        let kind = self.kind.load(Ordering::Relaxed);
        let word = |offset| word_at(info, offset);
        match info.si_code {
            TRAP_PERF if word(24) == cookie => Some(self.next()),
            SI_TIMER if word(24) == cookie && self.jitter.is_on() => Some(self.next()),
            SI_TIMER if word(24) == cookie => Some(1 + (word(16) >> 32)),
            SI_POLL_IN.. if kind == SourceKind::PerfSignal as u8 => {
                (word(24) as u32 == self.descriptor() as u32).then(|| self.next())
            }
            _ => None,
        }
    }

    /// Monotonic clock at the last claimed sample, nanoseconds, if known. Async-signal-safe.
    #[inline]
    pub fn last_sample(&self) -> Option<u64> {
        self.clock.real()
    }

    #[inline]
    fn descriptor(&self) -> i32 {
        self.handle.load(Ordering::Relaxed) as i32
    }

    /// The weight of the current sample in periods. Sets the distance to the next.
    #[inline]
    fn next(&self) -> u64 {
        if !self.jitter.is_on() {
            return 1;
        }
        let next = self.jitter.next(self.clock.since());
        if let Some(distance) = next.distance {
            if self.kind.load(Ordering::Relaxed) == SourceKind::PosixTimer as u8 {
                let _ = set_timer(self.descriptor(), distance, self.jitter.period());
            } else {
                self.clock.expect(distance);
                set_perf(self.descriptor(), distance);
            }
        }
        next.periods
    }
}

fn ptr_at(info: &libc::siginfo_t) -> *const u8 {
    std::ptr::from_ref(info).cast()
}

impl Default for Source {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        for (release, version) in [
            ("6.18.44-fc-v669\n", Some((6, 18))),
            ("5.4.0", Some((5, 4))),
            ("5.18+", Some((5, 18))),
            ("", None),
        ] {
            assert_eq!(kernel_version(release), version, "{release}");
        }
    }

    #[test]
    fn a_descriptor_that_is_not_a_perf_event_has_no_id() {
        assert_eq!(perf_id(0), None);
        assert_eq!(perf_id(-1), None);
    }
}
