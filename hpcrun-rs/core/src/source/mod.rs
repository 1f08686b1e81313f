//! Where samples come from: timers that deliver a thread's samples as signals to the thread itself. A signal
//! becomes a [`Sample`], a value that has all that is known of it before its call path.
//!
//! | file | source | for |
//! |---|---|---|
//! | `posix` | POSIX timer | wall time; CPU time up to 4/5 of the kernel's tick, or without perf |
//! | `perf` | perf task clock, by SIGTRAP or a queued signal | CPU time at higher rates |
//! | `jitter` | | random distances, and the weights of samples |
//! | `interpolated_clock` | | the clocks at a sample |
//!
//! The times between samples are random (`jitter`), so that no program runs in step with its samples. A CPU
//! timer uses whole ticks. A timer that would fire in every tick has equal distances instead, weighted by its
//! overrun count.
//!
//! Async-signal-safe: [`Source::claim`], [`cookie_of`].

mod interpolated_clock;
mod jitter;
mod perf;
mod posix;

use crate::config::{Config, Event, SourceKind};
use crate::sandbox::refuses;
use crate::system;
use crate::unwind::Registers;
use interpolated_clock::{InterpolatedClock, Reading};
use jitter::{Jitter, Pace};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

/// The signal of all sources except SIGTRAP's. Its default action is "ignore", so a signal that is pending
/// when `exec` replaces the program is harmless.
const SIGNAL: i32 = libc::SIGURG;

/// Samples take at most one part in so many of a thread's time.
pub const SHARE: u64 = 20;
/// The first credit of a thread, nanoseconds.
const CREDIT: u64 = 5_000_000;
/// A sample that is later than this may have been held back, nanoseconds: two ticks of the kernel.
const LATE: i64 = 8_000_000;

/// A sample, before its call path is known.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Those of the interrupted instruction.
    pub registers: Registers,
    /// The monotonic clock, nanoseconds.
    pub now: u64,
    /// What the sample stands for, in periods.
    pub weight: u64,
    /// Periods more for which samples were held back: signals were blocked, or the timer was off.
    pub held_back: u64,
    /// Nanoseconds of a period.
    pub period: u64,
}

impl Sample {
    /// Nanoseconds that the sample stands for.
    #[inline]
    pub fn time(&self) -> u64 {
        self.weight.saturating_mul(self.period)
    }
}

/// What a signal is.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // returned in place, in the handler
pub enum Claim {
    /// The program's own.
    Foreign,
    /// A sample that stands for nothing.
    Nothing,
    /// A sample of a thread that the profiler does not know.
    Lost,
    Sample(Sample),
}

/// What a thread's timer is to do.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    event: Event,
    kind: SourceKind,
    /// Nanoseconds.
    period: u64,
    tid: u32,
    /// Identifies the thread's signals.
    cookie: u64,
}

impl Order {
    /// For the thread with a kernel id and a cookie.
    pub fn new(config: &Config, kind: SourceKind, tid: u32, cookie: u64) -> Order {
        Order { event: config.event, kind, period: config.period_ns(), tid, cookie }
    }
}

pub fn signal_of(kind: SourceKind) -> i32 {
    match kind {
        SourceKind::PerfSigtrap => libc::SIGTRAP,
        SourceKind::PerfSignal | SourceKind::PosixTimer => SIGNAL,
    }
}

/// Valgrind ends at a SIGTRAP of perf. It has preloaded a library of its own, then.
fn runs_under_valgrind() -> bool {
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    preloaded.as_encoded_bytes().windows(10).any(|part| part == b"vgpreload_")
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
        None if tick_suffices(config) || runs_under_valgrind() => vec![SourceKind::PosixTimer],
        None if perf::holds_back_sigtrap() => vec![SourceKind::PerfSigtrap, SourceKind::PerfSignal],
        None => vec![SourceKind::PerfSignal],
    };
    for kind in wanted {
        if kind == SourceKind::PosixTimer {
            return Ok(kind);
        }
        match perf::open(&Order::new(config, kind, 0, 0)) {
            Ok(event) => {
                perf::end(event);
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

/// Whether a POSIX timer can deliver a separate sample for every period. The kernel checks CPU timers once a
/// tick, so a rate close to the tick's would lose samples to overruns.
fn tick_suffices(config: &Config) -> bool {
    let pace = posix::pace(config.period_ns(), config.event);
    pace.tick > 0 && pace.leaves_room()
}

/// The highest rate of distinct samples of a source, in Hz; 0 if the kernel's tick does not limit it.
pub fn rate_ceiling(kind: SourceKind, event: Event) -> u32 {
    1_000_000_000_u64.checked_div(tick_of(kind, event)).unwrap_or(0) as u32
}

/// Nanoseconds of the kernel's tick, if this kind of source fires only in ticks; else 0.
pub fn tick_of(kind: SourceKind, event: Event) -> u64 {
    if kind == SourceKind::PosixTimer { posix::tick(event) } else { 0 }
}

/// The cookie that the timer of a signal was armed with; it names the thread. `None`: the signal says none.
#[inline]
pub fn cookie_of(info: &libc::siginfo_t) -> Option<u64> {
    matches!(info.si_code, perf::TRAP_PERF | posix::SI_TIMER).then(|| word_at(info, 24))
}

/// A word of the kernel's structure, at an offset in bytes.
#[inline]
fn word_at(info: &libc::siginfo_t, offset: usize) -> u64 {
    // SAFETY: `siginfo_t` has 128 bytes. Callers pass offsets of at most 24, from the kernel's x86-64 layout
    // for the respective `si_code`.
    unsafe { std::ptr::from_ref(info).cast::<u8>().add(offset).cast::<u64>().read_unaligned() }
}

/// One thread's timer, disarmed at first. The thread arms it, its handler claims samples, and any thread may
/// disarm it.
#[derive(Default)]
pub struct Source {
    /// `SourceKind`, or 0 while disarmed.
    kind: AtomicU8,
    handle: AtomicI64,
    /// The kernel's id of the perf event: a descriptor with another id is no longer ours.
    perf_id: AtomicU64,
    /// Nanoseconds.
    period: AtomicU64,
    /// Nanoseconds from the last sample to the next, as the timer was set.
    distance: AtomicU64,
    /// Nanoseconds that samples may still take at any rate: a profile's file takes a while to make.
    credit: AtomicU64,
    /// Nanoseconds that the last sample took, if that was long; else 0.
    long: AtomicU64,
    /// The thread's time in the kernel at one of the last samples, nanoseconds.
    in_kernel: AtomicU64,
    /// The time that the perf event had not counted at that sample, nanoseconds.
    not_counted: AtomicU64,
    clock: InterpolatedClock,
    jitter: Jitter,
}

impl Source {
    /// Starts to deliver samples to the calling thread, which the order names. Falls back to a POSIX timer if
    /// perf refuses (too many open files). Errors are those of the operating system.
    pub fn arm(&self, order: &Order) -> Result<(), i32> {
        self.period.store(order.period, Ordering::Relaxed);
        if order.kind == SourceKind::PosixTimer {
            return self.arm_timer(order);
        }
        self.arm_perf(order).or_else(|_| {
            self.disarm();
            self.arm_timer(order)
        })
    }

    fn arm_perf(&self, order: &Order) -> Result<(), i32> {
        let event = perf::open(order)?;
        self.handle.store(i64::from(event.descriptor), Ordering::Relaxed);
        self.perf_id.store(event.id, Ordering::Relaxed);
        let first = self.begin(perf::pace(order.period), libc::CLOCK_THREAD_CPUTIME_ID, order);
        self.clock.expect(first);
        perf::set(event.descriptor, first);
        self.kind.store(order.kind as u8, Ordering::Release);
        // Started last: at a sample, the handler sets the next distance through the descriptor.
        perf::start(event, order)
    }

    /// Starts a POSIX timer that delivers the signal of the ordered kind.
    fn arm_timer(&self, order: &Order) -> Result<(), i32> {
        let pace = posix::pace(order.period, order.event);
        let timer = posix::create(order, signal_of(order.kind))?;
        self.handle.store(i64::from(timer), Ordering::Relaxed);
        self.kind.store(SourceKind::PosixTimer as u8, Ordering::Release);
        let clock = posix::clock_of(order.event);
        let first = if pace.leaves_room() && !refuses(libc::SYS_clock_gettime) {
            self.begin(pace, clock, order)
        } else {
            self.clock.begin(clock);
            self.jitter.end();
            pace.period
        };
        posix::set(timer, first, pace.period).inspect_err(|_| {
            self.disarm();
        })
    }

    /// Starts random distances. Returns the first.
    fn begin(&self, pace: Pace, clock: libc::clockid_t, order: &Order) -> u64 {
        self.clock.begin(clock);
        self.in_kernel.store(0, Ordering::Relaxed);
        self.credit.store(CREDIT, Ordering::Relaxed);
        // Different seeds for threads that share a state one after the other, and for different runs.
        let seed = order.cookie.wrapping_add(system::clock(libc::CLOCK_MONOTONIC));
        let first = self.jitter.begin(pace, seed);
        self.distance.store(first, Ordering::Relaxed);
        first
    }

    /// From now on samples come at equal distances, so that the handler makes no system call for the next.
    /// Any thread may call this.
    pub fn be_steady(&self) {
        let period = self.period.load(Ordering::Relaxed);
        self.jitter.end();
        match self.kind() {
            None => {}
            Some(SourceKind::PosixTimer) => {
                let _ = posix::set(self.handle(), period, period);
            }
            Some(SourceKind::PerfSigtrap | SourceKind::PerfSignal) => {
                perf::set(self.handle(), period);
            }
        }
    }

    /// Stops delivery. Any thread may call this; a second call has no effect. False if the program has taken
    /// the timer away.
    pub fn disarm(&self) -> bool {
        // The swaps guarantee that only one caller ends the timer.
        let kind = SourceKind::from_number(self.kind.swap(0, Ordering::AcqRel));
        let handle = self.handle.swap(-1, Ordering::AcqRel) as i32;
        match kind {
            None => true,
            Some(SourceKind::PosixTimer) => posix::end(handle),
            Some(SourceKind::PerfSigtrap | SourceKind::PerfSignal) => {
                perf::end(perf::Event { descriptor: handle, id: self.perf_id.load(Ordering::Relaxed) })
            }
        }
    }

    /// Releases the source in a forked child: perf descriptors are copies of the parent's, and timers do not
    /// exist.
    pub fn close_inherited(&self) {
        if self.kind() == Some(SourceKind::PosixTimer) {
            self.kind.store(0, Ordering::Relaxed);
        }
        self.disarm();
    }

    /// The descriptor of the perf event, if there is one.
    pub fn perf_descriptor(&self) -> Option<i32> {
        let is_perf = self.kind().is_some_and(|kind| kind != SourceKind::PosixTimer);
        is_perf.then(|| self.handle())
    }

    /// Whether this is the descriptor of the perf event.
    pub fn uses(&self, descriptor: i32) -> bool {
        self.perf_descriptor() == Some(descriptor)
    }

    /// The timer's clock at the thread's last sample, nanoseconds.
    #[inline]
    pub fn clock_at_sample(&self) -> u64 {
        self.clock.last_sample()
    }

    /// Says what a signal of the thread with this cookie is, and sets the distance to the next sample.
    #[inline]
    pub fn claim(&self, info: &libc::siginfo_t, context: &libc::ucontext_t, cookie: u64) -> Claim {
        let (weight, held_back, now) = match self.kind() {
            Some(SourceKind::PosixTimer) => match posix::claims(info, cookie) {
                None => return Claim::Foreign,
                Some(_) if self.jitter.is_on() => self.next(context),
                Some(expirations) => (expirations, 0, system::clock(libc::CLOCK_MONOTONIC)),
            },
            Some(kind) if perf::claims(info, kind, self.handle(), cookie) => self.next(context),
            // A signal of a timer that was disarmed since.
            None if cookie_of(info) == Some(cookie) => return Claim::Nothing,
            _ => return Claim::Foreign,
        };
        if weight == 0 {
            return Claim::Nothing;
        }
        let period = self.period.load(Ordering::Relaxed);
        let registers = Registers::from_context(context);
        Claim::Sample(Sample { registers, now, weight, held_back, period })
    }

    /// What the current sample stands for in periods, often one, sometimes zero; what was held back, beside;
    /// its time. Sets the distance to the next sample, if that changes.
    #[inline]
    fn next(&self, context: &libc::ucontext_t) -> (u64, u64, u64) {
        if !self.jitter.is_on() {
            return (1, 0, system::clock(libc::CLOCK_MONOTONIC));
        }
        let Reading { since, now } = self.clock.read();
        let next = self.jitter.next(since);
        let distance = self.distance.load(Ordering::Relaxed) as i64;
        let is_late = since > 4 * distance && since - distance > LATE && self.clock.is_of_cpu();
        let late = if is_late { (since - distance) as u64 } else { 0 };
        let held_back = match is_late || next.is_turn {
            true => self.held_back(late, context).min(next.periods.saturating_sub(1)),
            false => 0,
        };
        if let Some(distance) = next.distance {
            self.set(distance);
        }
        (next.periods - held_back, held_back, now)
    }

    /// For how many periods a sample that is so late was held back: because the perf event did not count, or
    /// because signals were blocked. In that case the sample comes at the end of the system call that lets
    /// them in, as it does at the end of one for which the kernel has worked, where it belongs. A virtual
    /// machine that stood still leaves a late sample, too, of which nothing is known.
    #[cold]
    fn held_back(&self, late: u64, context: &libc::ucontext_t) -> u64 {
        let Some(usage) = system::usage(libc::RUSAGE_THREAD) else { return 0 };
        let in_kernel = system::nanoseconds(usage.ru_stime);
        let worked = in_kernel.saturating_sub(self.in_kernel.swap(in_kernel, Ordering::Relaxed));
        let register = |number: i32| context.uc_mcontext.gregs[number as usize];
        let is_after_call = register(libc::REG_RCX) == register(libc::REG_RIP);
        let held_back = match is_after_call && worked < late / 2 {
            true => late,
            false => self.not_counted().min(late),
        };
        held_back / self.jitter.period().max(1)
    }

    /// The time that the perf event has not counted since the last call; 0 if there is none.
    fn not_counted(&self) -> u64 {
        let counted = self.perf_descriptor().and_then(perf::count);
        counted.map_or(0, |counted| {
            let now = self.clock.last_sample().wrapping_sub(counted);
            let before = self.not_counted.swap(now, Ordering::Relaxed);
            (now.wrapping_sub(before) as i64).max(0) as u64
        })
    }

    /// Sets the distance to the next sample.
    fn set(&self, distance: u64) {
        self.distance.store(distance, Ordering::Relaxed);
        if self.kind() == Some(SourceKind::PosixTimer) {
            let _ = posix::set(self.handle(), distance, self.jitter.period());
        } else {
            self.clock.expect(distance);
            perf::set(self.handle(), distance);
        }
    }

    #[inline]
    pub fn was_quick(&self) {
        self.long.store(0, Ordering::Relaxed);
    }

    /// A sample was taken, which may have taken long. If it and the one before have used more than [`SHARE`]
    /// of the thread's time, the next one comes later. Returns how many periods later. The smaller of the two
    /// counts: a virtual machine that stood still during one sample makes that one look long.
    #[cold]
    pub fn put_off(&self) -> u64 {
        let (used, period) = (self.clock.since_sample(), self.jitter.period());
        let used = used.min(self.long.swap(used, Ordering::Relaxed));
        let credit = self.credit.load(Ordering::Relaxed);
        self.credit.store(credit.saturating_sub(used), Ordering::Relaxed);
        let pause = used.saturating_sub(credit).saturating_mul(SHARE);
        if period == 0 || pause <= period.max(self.distance.load(Ordering::Relaxed)) {
            return 0;
        }
        self.set(pause);
        self.jitter.draw_next();
        pause / period
    }

    #[inline]
    fn kind(&self) -> Option<SourceKind> {
        SourceKind::from_number(self.kind.load(Ordering::Relaxed))
    }

    #[inline]
    fn handle(&self) -> i32 {
        self.handle.load(Ordering::Relaxed) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses as much of this thread's time.
    fn spin(nanoseconds: u64) {
        let end = system::clock(libc::CLOCK_THREAD_CPUTIME_ID) + nanoseconds;
        while system::clock(libc::CLOCK_THREAD_CPUTIME_ID) < end {}
    }

    #[test]
    fn one_long_sample_puts_nothing_off_and_the_second_does() {
        // SAFETY: the calling thread's id.
        let tid = unsafe { libc::gettid() } as u32;
        let (event, kind) = (Event::CpuTime, SourceKind::PosixTimer);
        let source = Source::default();
        let order = Order { event, kind, period: 4 * CREDIT, tid, cookie: 1 };
        source.arm(&order).expect("a timer of CPU time");
        spin(4 * CREDIT);
        assert_eq!(source.put_off(), 0);
        assert!(source.put_off() >= 3 * SHARE / 4, "four credits are used, one was given");
        source.was_quick();
        assert_eq!(source.put_off(), 0);
        assert!(source.disarm());
    }
}
