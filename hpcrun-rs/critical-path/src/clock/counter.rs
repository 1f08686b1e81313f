//! The thread's CPU time by the time stamp counter, while the thread keeps its core.
//!
//! One duty: know, without a system call, that the thread was not descheduled since the CPU clock was last
//! read. Then its CPU time is that reading plus what the counter has advanced.
//!
//! The kernel keeps, for each thread, a word of the area of *restartable sequences* (rseq(2)), which the C
//! library registers: the address of a descriptor of the sequence that the thread is in. When the kernel
//! deschedules, migrates or signals the thread outside of that sequence, it clears the word. [`Descriptor`]
//! describes a sequence in which no thread ever is. So while the word still has its address, the thread has
//! run without a break since the address was stored.
//!
//! Traps, and what is done about them:
//!
//! * The kernel kills a thread whose descriptor is malformed: the descriptor is valid by the kernel's checks
//!   (version 0, below the end of user space, no abort address inside the sequence, the registered signature
//!   in the word before the abort address).
//! * Other code may use the word too: it is compared with the address of the clock's own
//!   descriptor, and whatever else it holds means that
//!   the thread may have lost its core. A sequence of other code starts by storing its own descriptor; we
//!   never run inside it but in a signal handler, at whose entry the kernel has aborted it and cleared the
//!   word.
//! * A kernel need not clear the word when the thread blocks: the check at the first use sleeps, and looks.
//! * That is short, so the counter's rate is first known to a thousandth. Readings of the CPU clock measure
//!   it again, over twice the time each; until the next one of a thread, a wrong rate matters.
//! * A hypervisor may take the core unseen, or the kernel fail to clear the word. After [`LONGEST`] the CPU
//!   clock is read anyway. A shorter loss of the core puts the counter ahead, and the next reading of the CPU
//!   clock holds it until both agree.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, _rdtsc};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use super::thread_time;

/// The kernel's `struct rseq_cs`.
#[derive(Debug)]
#[repr(C, align(32))]
struct Descriptor {
    version: u32,
    flags: u32,
    start: *const c_void,
    length: u64,
    abort: *const c_void,
}

/// glibc registers this signature on x86.
const SIGNATURE: u32 = 0x5305_3053;
/// The signature, and the abort address behind it. Data, so nobody can be in the sequence, and the kernel
/// never continues at the abort address.
static ABORT: [u32; 4] = [SIGNATURE, SIGNATURE, SIGNATURE, SIGNATURE];

impl Descriptor {
    fn new() -> Self {
        let abort = &raw const ABORT;
        Descriptor {
            version: 0,
            flags: 0,
            start: abort.cast(),
            length: 1,
            abort: abort.cast::<u32>().wrapping_add(2).cast(),
        }
    }
}

/// The word's place in the area, and that of the number of the core, negative if nothing is registered.
const WORD: isize = 8;
const CORE: isize = 4;

/// Nanoseconds after which the CPU clock is read in any case: it takes a thousandth of that.
const LONGEST: u64 = 1_000_000;
/// What a reading of the CPU clock costs at most, in nanoseconds. If it seems to take longer, a hypervisor
/// had the core, which the CPU clock need not count.
const MOST_COST: u64 = 10_000;
/// A sleep that takes the core from the thread.
const CHECK: Duration = Duration::from_micros(50);

/// What is equal for all threads.
#[derive(Debug)]
struct Machine {
    /// From the thread pointer to the area.
    offset: isize,
    /// When the counter's rate began to be measured, and the counter's value then.
    start: (Instant, u64),
    /// Nanoseconds a tick, times 2^32.
    rate: AtomicU64,
    /// Over how many ticks that was measured.
    measured: AtomicU64,
}

/// A thread's CPU clock; see the module. It is read by that thread alone.
#[derive(Debug)]
pub(super) struct Counter {
    /// The kernel's word of this thread, which lives as long as the thread.
    word: *const AtomicU64,
    /// Only this clock stores its address.
    descriptor: Box<Descriptor>,
    machine: &'static Machine,
    rate: u64,
    /// [`LONGEST`] in ticks; so many times the rate fit in 64 bits.
    longest: u64,
    /// The counter's value at the last reading of the CPU clock, and the time reported then.
    ticks: u64,
    time: u64,
    /// CPU time spent by reading the CPU clock, which is never reported.
    own: u64,
    resyncs: u64,
}

impl Counter {
    /// `None`: the machine does not allow it.
    pub(super) fn of_this_thread() -> Option<Self> {
        static MACHINE: OnceLock<Option<&'static Machine>> = OnceLock::new();
        let machine = (*MACHINE.get_or_init(examine))?;
        Counter::new(machine)
    }

    fn new(machine: &'static Machine) -> Option<Self> {
        let area = area(machine.offset);
        // SAFETY: the area of the calling thread; a signed number by the kernel's definition.
        let core = unsafe { area.offset(CORE).cast::<i32>().read_volatile() };
        if core < 0 {
            return None;
        }
        Some(Counter {
            // SAFETY: inside of the area, aligned to 8 bytes as the area is.
            word: unsafe { area.offset(WORD).cast() },
            descriptor: Box::new(Descriptor::new()),
            machine,
            rate: machine.rate.load(Ordering::Relaxed),
            longest: 0,
            ticks: 0,
            time: 0,
            own: 0,
            resyncs: 0,
        })
    }

    pub(super) fn resyncs(&self) -> u64 {
        self.resyncs
    }

    /// The time when the CPU clock shows `cpu`.
    pub(super) fn at(&self, cpu: u64) -> u64 {
        cpu.saturating_sub(self.own)
    }

    #[inline]
    pub(super) fn read(&mut self) -> u64 {
        let ticks = counter().wrapping_sub(self.ticks);
        // After the counter: if the word is intact now, it was so when the counter was read.
        if self.is_intact() && ticks < self.longest {
            self.time + ((ticks * self.rate) >> 32)
        } else {
            self.resync()
        }
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.rate)) >> 32) as u64
    }

    /// Whether the thread has kept its core since [`Counter::arm`].
    #[inline]
    fn is_intact(&self) -> bool {
        // SAFETY: the calling thread's area; only this thread and, for it, the kernel write the word.
        unsafe { (*self.word).load(Ordering::Relaxed) == self.address() }
    }

    fn address(&self) -> u64 {
        (&raw const *self.descriptor).addr() as u64
    }

    fn arm(&self) {
        // SAFETY: as above. The kernel may read the descriptor from now on: it is valid, see the module, and
        // lives until `drop` has cleared the word.
        unsafe { (*self.word).store(self.address(), Ordering::Relaxed) };
    }

    /// Reads the CPU clock.
    #[cold]
    #[inline(never)]
    fn resync(&mut self) -> u64 {
        self.resyncs += 1;
        self.machine.refine();
        self.rate = self.machine.rate.load(Ordering::Relaxed);
        self.longest = (LONGEST << 32) / self.rate.max(1);
        // Again if the thread loses its core meanwhile.
        for _ in 0..3 {
            self.arm();
            let before = counter();
            let cpu = thread_time();
            let after = counter();
            if self.is_intact() {
                let cost = self.nanoseconds(after.wrapping_sub(before)).min(MOST_COST);
                // The CPU clock was read about half way.
                let entry = cpu.saturating_sub(self.own + cost / 2);
                self.time = self.time.max(entry);
                self.own += cost;
                self.ticks = after;
                return self.time;
            }
        }
        self.disarm();
        self.time = self.time.max(thread_time().saturating_sub(self.own));
        self.time
    }

    /// The next reading asks the system.
    fn disarm(&self) {
        // SAFETY: as in `is_intact`; zero stands for no sequence.
        unsafe { (*self.word).store(0, Ordering::Relaxed) };
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if self.is_intact() {
            self.disarm();
        }
    }
}

#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; Linux lets programs use it, `examine` aside.
    unsafe { _rdtsc() }
}

/// The calling thread's area of restartable sequences.
fn area(offset: isize) -> *mut u8 {
    let thread: *mut u8;
    // SAFETY: on x86-64 Linux the word at the start of a thread's block is the block's own address.
    unsafe {
        asm!("mov {}, fs:0", out(reg) thread, options(nostack, preserves_flags, readonly, pure));
    }
    thread.wrapping_offset(offset)
}

/// Whether this machine, kernel and C library allow it, and the counter's rate.
fn examine() -> Option<&'static Machine> {
    let offset = registered_offset()?;
    if !has_invariant_counter() {
        return None;
    }
    let machine: &'static Machine = Box::leak(Box::new(Machine {
        offset,
        start: simultaneous(),
        rate: AtomicU64::new(0),
        measured: AtomicU64::new(0),
    }));
    let probe = Counter::new(machine)?;
    probe.arm();
    // A thread that blocks must lose the word.
    thread::sleep(CHECK);
    if probe.is_intact() {
        return None;
    }
    machine.refine();
    // Between 100 MHz and 20 GHz.
    let plausible = (1 << 32) / 20..=(1 << 32) * 10;
    plausible.contains(&machine.rate.load(Ordering::Relaxed)).then_some(machine)
}

impl Machine {
    /// Measures the rate again if that can be done twice as well as before. Threads that do so at the same
    /// time are equally right.
    fn refine(&self) {
        let (start, first) = self.start;
        if counter().wrapping_sub(first) / 2 < self.measured.load(Ordering::Relaxed) {
            return;
        }
        let (now, last) = simultaneous();
        let ticks = last.wrapping_sub(first).max(1);
        let time = now.duration_since(start).as_nanos();
        if let Ok(rate) = u64::try_from((time << 32) / u128::from(ticks)) {
            self.rate.store(rate, Ordering::Relaxed);
            self.measured.store(ticks, Ordering::Relaxed);
        }
    }
}

/// The wall clock and the counter, read at nearly the same moment.
fn simultaneous() -> (Instant, u64) {
    let mut best: Option<(u64, Instant, u64)> = None;
    for _ in 0..20 {
        let before = counter();
        let now = Instant::now();
        let after = counter();
        let width = after.wrapping_sub(before);
        if best.is_none_or(|(least, ..)| width < least) {
            best = Some((width, now, before.wrapping_add(width / 2)));
        }
    }
    best.map_or_else(|| (Instant::now(), counter()), |(_, now, at)| (now, at))
}

/// Where the C library has registered the areas, if it has.
fn registered_offset() -> Option<isize> {
    let symbol = |name: &CStr| {
        // SAFETY: a NUL-terminated name; there is no other precondition.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    };
    let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: glibc documents both as constants of these types, valid from the program's start.
    let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
    (size != 0).then_some(offset)
}

/// Whether the counter runs at the same rate on all cores and in all power states.
fn has_invariant_counter() -> bool {
    const LAST: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    // SAFETY: every x86-64 processor has the instruction. (A safe function from Rust 1.94 on.)
    #[allow(unused_unsafe)]
    unsafe {
        __cpuid(LAST).eax >= POWER && __cpuid(POWER).edx & 1 << 8 != 0
    }
}
