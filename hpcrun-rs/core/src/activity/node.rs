//! The threads of one run on this host: a table that all its profiled processes share.
//!
//! One duty: keep `n_working`, over all processes, equal to the sum of what their threads' slots contribute.
//! The table is a file in the measurement directory, mapped by each process, so two runs never meet, and what
//! a killed process leaves behind can be found and taken back (`silence`). Until [`attach`], and where the
//! file cannot be mapped, a process has a table of its own.
//!
//! | state | contributes | the thread |
//! |---|---|---|
//! | `Free` | 0 | there is none |
//! | `Working` | +1 | runs, as far as is known |
//! | `Waiting` | 0 | is in a wait that a hook saw |
//! | `Silent` | 0 | was found asleep in a wait that no hook saw |
//! | `Spinning` | 0 | burns CPU time in a spinning wait, as its last sample says |
//! | `Yielding` | 0 | burns CPU time in a loop around `sched_yield`, as its last calls say |
//! | `Worker` | 1 − k | is a worker of k runtimes, each of which counts it while it works |
//! | `Asleep` | 1 − k | is such a worker, asleep without a task |
//! | `Blocked` | −k | is such a worker, in a task and in a wait that a hook saw |
//! | `SilentWorker` | −k | is such a worker, in a task, and was found asleep |
//! | `Runtimes` | its count | stands for the workers that one process's runtimes count |
//!
//! A thread moves its own slot; another may only move `Working` to `Silent` and `Worker` to `SilentWorker`.
//! Each move is one atomic exchange of the state, and the exchange that made it changes `n_working` by the
//! difference. So `n_working` is right whatever the order of moves.
//!
//! Async-signal-safe, but for [`attach`], [`acquire`] and [`enter_child`].

use crate::arch;
use crate::system;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// Slots of a shared table; 64 bytes each, of which only touched pages take memory.
const SHARED_SLOTS: usize = 16_384;
/// Slots of a process that is alone.
const OWN_SLOTS: usize = 64;

/// See the module's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum State {
    Free,
    Working,
    Waiting,
    Silent,
    Spinning,
    Yielding,
    Worker,
    Asleep,
    Blocked,
    SilentWorker,
    Runtimes,
}

const STATES: [State; 11] = [
    State::Free,
    State::Working,
    State::Waiting,
    State::Silent,
    State::Spinning,
    State::Yielding,
    State::Worker,
    State::Asleep,
    State::Blocked,
    State::SilentWorker,
    State::Runtimes,
];

/// A state with the number of runtimes whose worker the thread is, as a slot has them in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word(u32);

impl Word {
    fn new(state: State, runtimes: u8) -> Word {
        Word(u32::from(runtimes) << 8 | state as u32)
    }

    fn state(self) -> State {
        let state = STATES.get(self.0 as usize & 0xff);
        state.copied().unwrap_or(State::Free)
    }

    /// What a thread in this state adds to `n_working`.
    fn contribution(self) -> i32 {
        let runtimes = (self.0 >> 8) as i32;
        match self.state() {
            State::Working => 1,
            State::Worker | State::Asleep => 1 - runtimes,
            State::Blocked | State::SilentWorker => -runtimes,
            _ => 0,
        }
    }
}

/// One thread, or the runtimes of one process. On a cache line of its own: it changes at every wait.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    /// Process id << 32 | thread id; 0: free. The thread id is 0 for `Runtimes`.
    owner: AtomicU64,
    state: AtomicU32,
    /// Workers that count, of `Runtimes`.
    count: AtomicI32,
    /// The monotonic clock at the thread's last sample, or at its beginning; 0: it was in a wait since, and
    /// is not known to have been seen after that.
    pub(super) last: AtomicU64,
    /// Not to be inspected before this time of the monotonic clock.
    pub(super) inspect_after: AtomicU64,
    /// Since when a silent thread has been asleep, as estimated.
    pub(super) asleep_since: AtomicU64,
    /// Since when a thread that has samples has worked without a wait, as estimated.
    pub(super) works_since: AtomicU64,
}

impl Slot {
    /// A slot that no table has: its thread is counted, but others cannot look after it.
    pub const fn new() -> Slot {
        Slot {
            owner: AtomicU64::new(0),
            state: AtomicU32::new(0),
            count: AtomicI32::new(0),
            last: AtomicU64::new(0),
            inspect_after: AtomicU64::new(0),
            asleep_since: AtomicU64::new(0),
            works_since: AtomicU64::new(0),
        }
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> State {
        self.word().state()
    }

    #[inline]
    fn word(&self) -> Word {
        Word(self.state.load(Relaxed))
    }

    /// (process id, thread id).
    pub(super) fn owner(&self) -> (u32, u32) {
        let owner = self.owner.load(Acquire);
        ((owner >> 32) as u32, owner as u32)
    }

    /// The thread, a worker of so many runtimes, moves to another state.
    #[inline]
    pub fn move_to(&self, state: State, runtimes: u8) {
        let new = Word::new(state, runtimes);
        let old = Word(self.state.swap(new.0, Relaxed));
        let change = new.contribution() - old.contribution();
        if change != 0 {
            node().working.fetch_add(change, Relaxed);
        }
    }

    /// The thread has been in a wait, which a hook saw: it may not have been sampled for long.
    #[inline]
    pub fn begin_anew(&self) {
        self.last.store(0, Relaxed);
    }

    /// The thread moves to another state and stays a worker of as many runtimes, if it is in `old` still.
    pub(super) fn move_from(&self, old: State, state: State) {
        let old_word = self.word();
        let new = Word(old_word.0 & !0xff | state as u32);
        if old_word.state() != old {
            return;
        }
        let moved = self
            .state
            .compare_exchange(old_word.0, new.0, Relaxed, Relaxed);
        if moved.is_ok() {
            let change = new.contribution() - old_word.contribution();
            node().working.fetch_add(change, Relaxed);
        }
    }

    /// In a forked child: what it counted is counted by the parent.
    pub fn forget(&self) {
        self.state.store(0, Relaxed);
        self.count.store(0, Relaxed);
        self.owner.store(0, Relaxed);
    }

    /// So many of the process's workers count by now.
    #[inline]
    pub(super) fn publish(&self, count: i32) {
        if self.count.load(Relaxed) != count {
            let change = count - self.count.swap(count, Relaxed);
            node().working.fetch_add(change, Relaxed);
        }
    }

    /// Whether its process's runtimes count workers.
    pub(super) fn is_published(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// The thread is gone.
    pub fn release(&self) {
        self.publish(0);
        self.move_to(State::Free, 0);
        self.owner.store(0, Release);
    }
}

impl Default for Slot {
    fn default() -> Slot {
        Slot::new()
    }
}

/// What the processes share. Zeroes are an empty table.
#[repr(C, align(64))]
#[derive(Debug)]
struct Header {
    /// Working threads of all processes.
    working: AtomicI32,
    /// Slots that were ever used.
    used: AtomicU32,
    /// Processes that ever shared the table.
    processes: AtomicU32,
    /// Idle time of cores, in nanoseconds, that past samples were charged too little, or too much if
    /// negative.
    correction: AtomicI64,
}

impl Header {
    const fn new() -> Header {
        Header {
            working: AtomicI32::new(0),
            used: AtomicU32::new(0),
            processes: AtomicU32::new(0),
            correction: AtomicI64::new(0),
        }
    }
}

static OWN_HEADER: Header = Header::new();
static OWN: [Slot; OWN_SLOTS] = [const { Slot::new() }; OWN_SLOTS];

/// What each sample needs, on one cache line: after an interrupt a sample's time goes into waiting for
/// memory.
#[repr(align(64))]
pub(super) struct Hot {
    /// The shared table; null: the process's own.
    shared: AtomicPtr<Header>,
    /// Where the workers of the process's runtimes count; null before there is a runtime.
    pub(super) runtimes: AtomicPtr<Slot>,
    /// Nanoseconds between two samples of a running thread, at the mean.
    pub(super) distance: AtomicU64,
    /// A running thread has a sample after so many nanoseconds of CPU time at the latest.
    pub(super) longest: AtomicU64,
    /// The slot to be looked at next.
    pub(super) next: AtomicU32,
    /// n; 0 = as many as workers.
    pub(super) cores: AtomicU32,
}

pub(super) static HOT: Hot = Hot {
    shared: AtomicPtr::new(ptr::null_mut()),
    runtimes: AtomicPtr::new(ptr::null_mut()),
    distance: AtomicU64::new(0),
    longest: AtomicU64::new(u64::MAX),
    next: AtomicU32::new(0),
    cores: AtomicU32::new(1),
};

#[inline]
fn node() -> &'static Header {
    // SAFETY: null, or a mapping that is never unmapped and begins with a header (`attach`).
    unsafe { HOT.shared.load(Acquire).as_ref() }.unwrap_or(&OWN_HEADER)
}

#[inline]
fn slots() -> &'static [Slot] {
    let shared = HOT.shared.load(Acquire);
    if shared.is_null() {
        return &OWN;
    }
    // SAFETY: behind the header the mapping has that many slots, all of whose fields are atomics that may
    // hold anything; the file was made as long before it was mapped. It is never unmapped.
    unsafe { std::slice::from_raw_parts(shared.add(1).cast(), SHARED_SLOTS) }
}

/// The slots that may be in use.
#[inline]
pub(super) fn used() -> &'static [Slot] {
    let slots = slots();
    let used = node().used.load(Relaxed) as usize;
    &slots[..used.min(slots.len())]
}

/// The table's first line and the next slot's are about to be read.
#[inline]
pub(super) fn prefetch() {
    arch::prefetch(ptr::from_ref(node()).cast());
    let slots = used();
    let next = HOT.next.load(Relaxed) as usize;
    if let Some(slot) = slots.get(next % slots.len().max(1)) {
        arch::prefetch(ptr::from_ref(slot).cast());
    }
}

/// Whether no other process has ever shared the table.
#[inline]
pub(super) fn is_alone() -> bool {
    node().processes.load(Relaxed) <= 1
}

/// Working threads of all processes, by their slots.
#[inline]
pub(super) fn working() -> i64 {
    i64::from(node().working.load(Relaxed))
}

/// The next sample is to be charged so many more nanoseconds of idle cores, or fewer.
pub(super) fn correct(nanoseconds: i64) {
    node().correction.fetch_add(nanoseconds, Relaxed);
}

/// Takes what is to be corrected.
#[inline]
pub(super) fn take_correction() -> i64 {
    match node().correction.load(Relaxed) {
        0 => 0,
        _ => node().correction.swap(0, Relaxed),
    }
}

/// Shares the table in this file from now on, which is made if need be. Slots of an earlier image of this
/// process are taken back. To be called before the process has a slot; false when the file cannot be mapped.
pub fn attach(path: &CStr) -> bool {
    let length = size_of::<Header>() + SHARED_SLOTS * size_of::<Slot>();
    // SAFETY: a fresh mapping of a file that is long enough; the descriptor is closed again. Nothing can
    // panic.
    let base = unsafe {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        let file = libc::open(path.as_ptr(), flags, 0o600);
        if file < 0 || libc::ftruncate(file, length as i64) != 0 {
            system::close(file);
            return false;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(
            ptr::null_mut(),
            length,
            protection,
            libc::MAP_SHARED,
            file,
            0,
        );
        system::close(file);
        base
    };
    if base == libc::MAP_FAILED {
        return false;
    }
    HOT.shared.store(base.cast(), Release);
    node().processes.fetch_add(1, Relaxed);
    let me = std::process::id();
    used()
        .iter()
        .filter(|slot| slot.owner().0 == me)
        .for_each(Slot::release);
    true
}

/// A slot for a thread of this process, or for its runtimes if 0; `None` when all are taken.
pub fn acquire(thread: u32, now: u64) -> Option<&'static Slot> {
    let owner = u64::from(std::process::id()) << 32 | u64::from(thread);
    let taken = |slot: &&Slot| {
        slot.owner
            .compare_exchange(0, owner, AcqRel, Relaxed)
            .is_ok()
    };
    let slots = slots();
    let slot = slots.iter().find(taken).or_else(|| {
        take_back();
        slots.iter().find(taken)
    })?;
    let index = (ptr::from_ref(slot) as usize - slots.as_ptr() as usize) / size_of::<Slot>();
    slot.last.store(now, Relaxed);
    slot.works_since.store(now, Relaxed);
    slot.inspect_after.store(0, Relaxed);
    node().used.fetch_max(index as u32 + 1, Relaxed);
    Some(slot)
}

/// Frees the slots of processes that are gone.
fn take_back() {
    for slot in used() {
        let (process, _) = slot.owner();
        // SAFETY: signal 0 only asks whether the process exists.
        if process != 0 && unsafe { libc::kill(process as i32, 0) } != 0 {
            slot.release();
        }
    }
}

/// In a forked child: the parent's slots are not its own. A shared table goes on as it is; an own one is a
/// copy.
pub(super) fn enter_child() {
    node().processes.fetch_add(1, Relaxed);
    if HOT.shared.load(Acquire).is_null() {
        OWN.iter().for_each(Slot::forget);
        OWN_HEADER.working.store(0, Relaxed);
        OWN_HEADER.processes.store(1, Relaxed);
        OWN_HEADER.correction.store(0, Relaxed);
    }
}
