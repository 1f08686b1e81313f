//! The node's table: the threads of one run on this host, shared by all its profiled processes.
//!
//! Invariant: `n_working`, over all processes, is the sum of the contributions of all slots. The table is a
//! file in the measurement directory, which each process maps. So different runs do not share a table, and
//! the slots of a killed process can be found and freed (`members`, `silence`). Before [`attach`], or if the
//! file cannot be mapped, a process uses a table of its own.
//!
//! | state | contributes | the thread |
//! |---|---|---|
//! | `Free` | 0 | does not exist |
//! | `Working` | +1 | runs, as far as is known |
//! | `Waiting` | 0 | is in a wait that a hook observed |
//! | `Silent` | 0 | was found asleep in a wait that no hook observed |
//! | `Spinning` | 0 | uses CPU time in a spinning wait, by its last sample |
//! | `Yielding` | 0 | uses CPU time in a loop around `sched_yield`, by its last calls |
//! | `Worker` | 1 − k | is a worker of k runtimes, each of which counts it while it works |
//! | `Asleep` | 1 − k | is such a worker, asleep without a task |
//! | `Blocked` | −k | is such a worker, in a task and in a wait that a hook observed |
//! | `SilentWorker` | −k | is such a worker, in a task, and was found asleep |
//! | `Runtimes` | its count | is none: the slot holds the worker count of one process's runtimes |
//!
//! A thread moves its own slot between states. Another thread may only move `Working` to `Silent` and
//! `Worker` to `SilentWorker`. Each move is one atomic exchange of the state, and the thread that made it
//! adds the difference of the contributions to `n_working`. So `n_working` is correct for every order of
//! moves.
//!
//! Async-signal-safe, except [`attach`], [`acquire`] and [`enter_child`].

use super::members::{self, Identity, Member};
use crate::arch;
use crate::memory;
use crate::system;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{
    AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};

/// Slots of a shared table: 64 bytes each; only touched pages take memory.
const SHARED_SLOTS: usize = 16_384;
/// Slots of a process's own table.
const OWN_SLOTS: usize = 64;
/// Processes of a shared table.
const SHARED_MEMBERS: usize = 2048;

/// A state of the table above.
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

/// A slot's state and the number of runtimes whose worker the thread is, packed in one word.
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

    /// The contribution of a slot in this state to `n_working`.
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

/// The slot of one thread, or of the runtimes of one process. It has its own cache line, since it changes at
/// every wait.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    /// (Index of the process + 1) << 32 | thread id; 0 if free. The thread id is 0 for `Runtimes`.
    owner: AtomicU64,
    state: AtomicU32,
    /// For `Runtimes`: the published number of working workers.
    count: AtomicI32,
    /// Monotonic clock at the thread's last sample, or at its beginning; 0 if it was in a wait since, and no
    /// one has seen the slot after that.
    pub(super) last: AtomicU64,
    /// Monotonic clock before which the slot is not inspected.
    pub(super) inspect_after: AtomicU64,
    /// Number of inspections since the last sample.
    pub(super) inspected: AtomicU32,
    /// Estimated time since when a silent thread has been asleep.
    pub(super) asleep_since: AtomicU64,
    /// Estimated time since when a sampled thread has worked without a wait.
    pub(super) works_since: AtomicU64,
}

impl Slot {
    /// A slot outside any table: its thread is counted, but other threads cannot inspect it.
    pub const fn new() -> Slot {
        Slot {
            owner: AtomicU64::new(0),
            state: AtomicU32::new(0),
            count: AtomicI32::new(0),
            last: AtomicU64::new(0),
            inspect_after: AtomicU64::new(0),
            inspected: AtomicU32::new(0),
            asleep_since: AtomicU64::new(0),
            works_since: AtomicU64::new(0),
        }
    }

    /// The current state.
    #[inline]
    pub fn state(&self) -> State {
        self.word().state()
    }

    #[inline]
    fn word(&self) -> Word {
        Word(self.state.load(Relaxed))
    }

    /// (index of the process, thread id); the index is none's if the slot is free.
    pub(super) fn owner(&self) -> (u32, u32) {
        let owner = self.owner.load(Acquire);
        (((owner >> 32) as u32).wrapping_sub(1), owner as u32)
    }

    /// (process id, thread id), if the process is one that this process can ask the kernel about.
    pub(super) fn owner_here(&self) -> Option<(u32, u32)> {
        let (index, thread) = self.owner();
        let process = match index == HOT.me.load(Relaxed) {
            true => std::process::id(),
            false => members().get(index as usize)?.process_in(me()?.view())?,
        };
        Some((process, thread))
    }

    /// Moves the thread, a worker of so many runtimes, to a state.
    #[inline]
    pub fn move_to(&self, state: State, runtimes: u8) {
        let new = Word::new(state, runtimes);
        let old = Word(self.state.swap(new.0, Relaxed));
        let change = new.contribution() - old.contribution();
        if change != 0 {
            header().working.fetch_add(change, Relaxed);
        }
    }

    /// Marks the end of a wait that a hook observed: the last sample may be long ago.
    #[inline]
    pub fn begin_anew(&self) {
        self.last.store(0, Relaxed);
    }

    /// Moves the thread from `old` to `state`, if it is still in `old`. The number of runtimes is unchanged.
    pub(super) fn move_from(&self, old: State, state: State) {
        let old_word = self.word();
        let new = Word(old_word.0 & !0xff | state as u32);
        if old_word.state() != old {
            return;
        }
        let moved = self.state.compare_exchange(old_word.0, new.0, Relaxed, Relaxed);
        if moved.is_ok() {
            let change = new.contribution() - old_word.contribution();
            header().working.fetch_add(change, Relaxed);
        }
    }

    /// Empties the slot in a forked child, without a change to `n_working`: the parent counts it.
    pub fn forget(&self) {
        self.state.store(0, Relaxed);
        self.count.store(0, Relaxed);
        self.owner.store(0, Relaxed);
    }

    /// Publishes the number of the process's working workers.
    #[inline]
    pub(super) fn publish(&self, count: i32) {
        if self.count.load(Relaxed) != count {
            let change = count - self.count.swap(count, Relaxed);
            header().working.fetch_add(change, Relaxed);
        }
    }

    /// Whether the published number of workers is not 0.
    pub(super) fn is_published(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// Frees the slot.
    pub fn release(&self) {
        self.publish(0);
        self.move_to(State::Free, 0);
        self.owner.store(0, Release);
        FREE_FROM.fetch_min(self.index(), Relaxed);
    }

    /// Its index in the table; a large number for a slot outside any table.
    fn index(&self) -> usize {
        let from = ptr::from_ref(self) as usize;
        from.wrapping_sub(slots().as_ptr() as usize) / size_of::<Slot>()
    }
}

impl Default for Slot {
    fn default() -> Slot {
        Slot::new()
    }
}

/// The header of the table. All zeros are an empty table.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Header {
    /// `n_working` of all processes.
    working: AtomicI32,
    /// n of all processes.
    pub(super) cores: AtomicU32,
    /// Number of slots that were ever used.
    used: AtomicU32,
    /// Number of entries of processes that were ever used.
    pub(super) members: AtomicU32,
    /// Number of changes of masks.
    pub(super) changes: AtomicU32,
    /// Number of processes that ever shared the table.
    processes: AtomicU32,
    /// Correction of the idleness of past samples, in nanoseconds: positive if they were charged too little.
    correction: AtomicI64,
}

impl Header {
    const fn new() -> Header {
        Header {
            working: AtomicI32::new(0),
            cores: AtomicU32::new(0),
            used: AtomicU32::new(0),
            members: AtomicU32::new(0),
            changes: AtomicU32::new(0),
            processes: AtomicU32::new(0),
            correction: AtomicI64::new(0),
        }
    }
}

/// Index of the first slot that may be free, so that thousands of threads do not look at each other's slots.
static FREE_FROM: AtomicUsize = AtomicUsize::new(0);

static OWN_HEADER: Header = Header::new();
static OWN_MEMBERS: [Member; 1] = [Member::new()];
static OWN: [Slot; OWN_SLOTS] = [const { Slot::new() }; OWN_SLOTS];

/// The fields that each sample needs, on one cache line: after an interrupt, cache misses take most of a
/// sample's time.
#[repr(align(64))]
pub(super) struct Hot {
    /// The shared table; null: the process's own table.
    shared: AtomicPtr<Header>,
    /// The slot of the process's runtimes; null before the first runtime.
    pub(super) runtimes: AtomicPtr<Slot>,
    /// Mean nanoseconds between two samples of a running thread.
    pub(super) distance: AtomicU64,
    /// Maximal nanoseconds of CPU time between two samples of a running thread.
    pub(super) longest: AtomicU64,
    /// Index of the slot that is looked at next.
    pub(super) next: AtomicU32,
    /// n; 0: the peak number of workers; [`ALL_CORES`]: that of the table.
    pub(super) cores: AtomicU32,
    /// Index of this process in the table.
    me: AtomicU32,
}

pub(super) static HOT: Hot = Hot {
    shared: AtomicPtr::new(ptr::null_mut()),
    runtimes: AtomicPtr::new(ptr::null_mut()),
    distance: AtomicU64::new(0),
    longest: AtomicU64::new(u64::MAX),
    next: AtomicU32::new(0),
    cores: AtomicU32::new(1),
    me: AtomicU32::new(u32::MAX),
};

#[inline]
pub(super) fn header() -> &'static Header {
    // SAFETY: null, or a mapping that `attach` made; it starts with a header and is never unmapped.
    unsafe { HOT.shared.load(Acquire).as_ref() }.unwrap_or(&OWN_HEADER)
}

#[inline]
fn slots() -> &'static [Slot] {
    let shared = HOT.shared.load(Acquire);
    if shared.is_null() {
        return &OWN;
    }
    // SAFETY: the mapping has SHARED_SLOTS slots after the header and the processes: `attach` extended the
    // file to that length before it mapped it. All fields are atomics, for which any bits are valid. It is
    // never unmapped.
    unsafe {
        let members = shared.add(1).cast::<Member>();
        std::slice::from_raw_parts(members.add(SHARED_MEMBERS).cast(), SHARED_SLOTS)
    }
}

/// The entries of the processes.
#[inline]
pub(super) fn members() -> &'static [Member] {
    let shared = HOT.shared.load(Acquire);
    if shared.is_null() {
        return &OWN_MEMBERS;
    }
    // SAFETY: the mapping has SHARED_MEMBERS of them after the header, as above.
    unsafe { std::slice::from_raw_parts(shared.add(1).cast(), SHARED_MEMBERS) }
}

/// How many entries may be in use.
pub(super) fn used_members() -> usize {
    (header().members.load(Relaxed) as usize).min(members().len())
}

/// The entry of this process.
#[inline]
pub(super) fn me() -> Option<&'static Member> {
    members().get(HOT.me.load(Relaxed) as usize)
}

/// The slots that may be in use.
#[inline]
pub(super) fn used() -> &'static [Slot] {
    let slots = slots();
    let used = header().used.load(Relaxed) as usize;
    &slots[..used.min(slots.len())]
}

/// Prefetches the header of the table and the slot that is looked at next.
#[inline]
pub(super) fn prefetch() {
    arch::prefetch(ptr::from_ref(header()).cast());
    let slots = used();
    let next = HOT.next.load(Relaxed) as usize;
    if let Some(slot) = slots.get(next % slots.len().max(1)) {
        arch::prefetch(ptr::from_ref(slot).cast());
    }
}

/// Whether no other process has ever shared the table.
#[inline]
pub(super) fn is_alone() -> bool {
    header().processes.load(Relaxed) <= 1
}

/// `n_working` of all processes, by their slots.
#[inline]
pub(super) fn working() -> i64 {
    i64::from(header().working.load(Relaxed))
}

/// Adds to the correction that the next sample takes.
pub(super) fn correct(nanoseconds: i64) {
    header().correction.fetch_add(nanoseconds, Relaxed);
}

/// Takes the correction, and resets it.
#[inline]
pub(super) fn take_correction() -> i64 {
    match header().correction.load(Relaxed) {
        0 => 0,
        _ => header().correction.swap(0, Relaxed),
    }
}

/// Starts to share the table in this file, and creates the file if it does not exist. Must be called before
/// the process has a slot. Without a file that can be mapped and has room, the process has a table of its
/// own.
pub fn attach(path: Option<&CStr>) {
    let me = Identity::current();
    if let Some(header) = path.and_then(map) {
        HOT.shared.store(header, Release);
    }
    let mut index = members::join(me);
    if index.is_none() {
        HOT.shared.store(ptr::null_mut(), Release);
        index = members::join(me);
    }
    HOT.me.store(index.unwrap_or(u32::MAX), Relaxed);
    header().processes.fetch_add(1, Relaxed);
}

fn map(path: &CStr) -> Option<*mut Header> {
    let length = size_of::<Header>()
        + SHARED_MEMBERS * size_of::<Member>()
        + SHARED_SLOTS * size_of::<Slot>();
    // SAFETY: a fresh mapping of a file that was extended to `length`; the descriptor is ours and is closed
    // on every path. Nothing here panics.
    let base = unsafe {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
        let file = libc::open(path.as_ptr(), flags, 0o600);
        if file < 0 || !memory::set_size(file, length) {
            system::close(file);
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file, 0);
        system::close(file);
        base
    };
    (base != libc::MAP_FAILED).then_some(base.cast())
}

/// Acquires a slot for a thread of this process, or for its runtimes if `thread` is 0. `None` when all are
/// taken.
pub fn acquire(thread: u32, now: u64) -> Option<&'static Slot> {
    let owner = u64::from(HOT.me.load(Relaxed).wrapping_add(1)) << 32 | u64::from(thread);
    if owner == 0 {
        return None;
    }
    let taken = |slot: &&Slot| slot.owner.compare_exchange(0, owner, AcqRel, Relaxed).is_ok();
    let slots = slots();
    // No slot below the hint was free when this process last looked, or has become free in it since.
    let hint = FREE_FROM.load(Relaxed).min(slots.len());
    let slot = slots[hint..].iter().find(taken).or_else(|| slots.iter().find(taken))?;
    let index = slot.index();
    FREE_FROM.store(index + 1, Relaxed);
    slot.last.store(now, Relaxed);
    slot.works_since.store(now, Relaxed);
    slot.inspect_after.store(0, Relaxed);
    header().used.fetch_max(index as u32 + 1, Relaxed);
    Some(slot)
}

/// Counts a forked child as a process. It keeps a shared table; its own table is a copy of the parent's, and
/// is cleared.
pub(super) fn enter_child() {
    if HOT.shared.load(Acquire).is_null() {
        OWN.iter().for_each(Slot::forget);
        OWN_MEMBERS.iter().for_each(Member::forget);
        OWN_HEADER.working.store(0, Relaxed);
        OWN_HEADER.processes.store(0, Relaxed);
        OWN_HEADER.correction.store(0, Relaxed);
    }
    let index = members::join(Identity::current());
    HOT.me.store(index.unwrap_or(u32::MAX), Relaxed);
    header().processes.fetch_add(1, Relaxed);
}
