//! The node's table: the threads of one run on this host, shared by all its profiled processes.
//!
//! Invariant: `n_working`, over all processes, is the sum of the contributions of all slots. The first slots
//! are added up by whoever asks, so a thread moves its own without a locked instruction; the others'
//! contributions are summed in the header. The table is a
//! file in the measurement directory, which each process maps. So different runs do not share a table, and
//! the slots of a killed process can be found and freed (`members`, `silence`). If the file cannot be mapped,
//! a process has a table of its own.
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
//! `Worker` to `SilentWorker`. A move of a summed slot is one atomic exchange of the state, and the thread
//! that made it adds the difference of the contributions to the sum. So `n_working` is correct for every
//! order of moves.
//!
//! Async-signal-safe, except [`attach`], [`acquire`] and [`enter_child`].

use super::members::{self, Identity, Member};
use crate::arch;
use crate::memory;
use crate::system;
use hpc_formats::numbered;
use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Slots of a table: 64 bytes each; only touched pages take memory.
const SLOTS: usize = 16_384;
/// The first slots, whose contributions are read.
const READ: usize = 16;
/// Processes of a table.
const MEMBERS: usize = 2048;

numbered! {
    /// A state of the table above.
    #[allow(missing_docs)]
    State {
        Free = 0, "free";
        Working = 1, "working";
        Waiting = 2, "waiting";
        Silent = 3, "silent";
        Spinning = 4, "spinning";
        Yielding = 5, "yielding";
        Worker = 6, "worker";
        Asleep = 7, "asleep";
        Blocked = 8, "blocked";
        SilentWorker = 9, "silent worker";
        Runtimes = 10, "runtimes";
    }
}

/// A slot's state, the number of runtimes whose worker the thread is, and what that contributes to
/// `n_working`, a byte each in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word(u32);

impl Word {
    #[inline]
    fn new(state: State, runtimes: u8) -> Word {
        let contribution = match state {
            State::Working => 1,
            State::Worker | State::Asleep => 1 - runtimes as i8,
            State::Blocked | State::SilentWorker => -(runtimes as i8),
            _ => 0,
        };
        Word(u32::from(contribution as u8) << 16 | u32::from(runtimes) << 8 | state as u32)
    }

    fn state(self) -> State {
        State::from_number(self.0 & 0xff).unwrap_or(State::Free)
    }

    fn contribution(self) -> i32 {
        i32::from((self.0 >> 16) as i8)
    }
}

/// The slot of one thread, or of the runtimes of one process. It has its own cache line, since it changes at
/// every wait.
#[repr(C, align(64))]
#[derive(Default)]
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
        if self.word() == new {
            return;
        }
        if self.index() < READ {
            return self.state.store(new.0, Relaxed);
        }
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
        let new = Word::new(state, (old_word.0 >> 8) as u8);
        if old_word.state() != old {
            return;
        }
        let moved = self.state.compare_exchange(old_word.0, new.0, Relaxed, Relaxed);
        if moved.is_ok() && self.index() >= READ {
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

    pub fn release(&self) {
        self.publish(0);
        self.move_to(State::Free, 0);
        self.owner.store(0, Release);
        FREE_FROM.fetch_min(self.index(), Relaxed);
    }

    /// Its index in the table; a large number for a slot outside any table.
    #[inline]
    fn index(&self) -> usize {
        let from = ptr::from_ref(self) as usize;
        from.wrapping_sub(table().slots.as_ptr() as usize) / size_of::<Slot>()
    }
}

/// The header of the table. All zeros are an empty table.
#[repr(C, align(64))]
pub(super) struct Header {
    /// What of `n_working` is not read in the first slots.
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
    /// Since when nobody works, by the processor's counter; 0: somebody does, as far as is known.
    pub(super) still_since: AtomicU64,
    /// For how long nobody has worked before, in its counts.
    pub(super) still: AtomicU64,
    /// Correction of the idleness of past samples, in nanoseconds: positive if they were charged too little.
    correction: AtomicI64,
}

/// Index of the first slot that may be free, so that thousands of threads do not look at each other's slots.
static FREE_FROM: AtomicUsize = AtomicUsize::new(0);

/// The table. All zeros are an empty one.
#[repr(C)]
struct Table {
    header: Header,
    members: [Member; MEMBERS],
    slots: [Slot; SLOTS],
}

/// The fields that each sample needs, on one cache line: after an interrupt, cache misses take most of a
/// sample's time.
#[repr(align(64))]
pub(super) struct Hot {
    /// The table; null before [`attach`].
    table: AtomicPtr<Table>,
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
    table: AtomicPtr::new(ptr::null_mut()),
    runtimes: AtomicPtr::new(ptr::null_mut()),
    distance: AtomicU64::new(0),
    longest: AtomicU64::new(u64::MAX),
    next: AtomicU32::new(0),
    cores: AtomicU32::new(1),
    me: AtomicU32::new(u32::MAX),
};

#[inline]
fn table() -> &'static Table {
    // SAFETY: null, or a mapping of this size that `attach` made, which is never unmapped. All fields are
    // atomics, for which any bits are valid.
    unsafe { HOT.table.load(Acquire).as_ref() }.expect("a session attaches first")
}

#[inline]
pub(super) fn header() -> &'static Header {
    &table().header
}

#[inline]
pub(super) fn members() -> &'static [Member] {
    &table().members
}

/// How many entries may be in use.
pub(super) fn used_members() -> usize {
    (header().members.load(Relaxed) as usize).min(members().len())
}

#[inline]
pub(super) fn me() -> Option<&'static Member> {
    members().get(HOT.me.load(Relaxed) as usize)
}

/// The slots that may be in use.
#[inline]
pub(super) fn used() -> &'static [Slot] {
    let slots = &table().slots;
    let used = header().used.load(Relaxed) as usize;
    &slots[..used.min(slots.len())]
}

/// Prefetches the header of the table and the slot that is looked at next.
#[inline]
pub(super) fn prefetch() {
    arch::prefetch(ptr::from_ref(header()).cast());
    let slots = used();
    for slot in slots.iter().take(READ) {
        arch::prefetch(ptr::from_ref(slot).cast());
    }
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
    let read = used().iter().take(READ).map(|slot| slot.word().contribution());
    i64::from(read.sum::<i32>() + header().working.load(Relaxed))
}

/// Adds to the correction that the next sample takes.
pub(super) fn correct(nanoseconds: i64) {
    header().correction.fetch_add(nanoseconds, Relaxed);
}

#[inline]
pub(super) fn take_correction() -> i64 {
    match header().correction.load(Relaxed) {
        0 => 0,
        _ => header().correction.swap(0, Relaxed),
    }
}

/// Starts to share the table in this file, and creates the file if it does not exist. Must be called before
/// the process has a slot. Without a file that can be mapped and has room, the process has a table of its
/// own, and a forked child again. False if there is no memory for one.
pub fn attach(path: Option<&CStr>) -> bool {
    let own = || {
        let table = memory::map_anonymous(size_of::<Table>())?;
        let arguments = [table.as_ptr() as usize, size_of::<Table>(), libc::MADV_WIPEONFORK as usize];
        let [start, len, how] = arguments;
        // SAFETY: the mapping is fresh and ours.
        unsafe { system::call(libc::SYS_madvise, [start, len, how, 0, 0]) };
        Some(table)
    };
    let shared = path.and_then(map).is_some_and(use_table);
    shared || own().is_some_and(use_table)
}

/// Uses this table, if it has room for the process.
fn use_table(table: NonNull<u8>) -> bool {
    HOT.table.store(table.as_ptr().cast(), Release);
    enter().is_some()
}

fn map(path: &CStr) -> Option<NonNull<u8>> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: the path is NUL-terminated.
    let file = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    let is_table = file >= 0 && memory::set_size(file, size_of::<Table>());
    let table = is_table.then(|| memory::map(size_of::<Table>(), libc::MAP_SHARED, file));
    system::close(file);
    table?
}

/// Enters the process in the table. Returns its index.
fn enter() -> Option<u32> {
    let index = members::join(Identity::current());
    HOT.me.store(index.unwrap_or(u32::MAX), Relaxed);
    header().processes.fetch_add(1, Relaxed);
    index
}

/// Acquires a slot for a thread of this process, or for its runtimes if `thread` is 0. `None` when all are
/// taken.
pub fn acquire(thread: u32, now: u64) -> Option<&'static Slot> {
    let owner = u64::from(HOT.me.load(Relaxed).wrapping_add(1)) << 32 | u64::from(thread);
    if owner == 0 {
        return None;
    }
    let taken = |slot: &&Slot| slot.owner.compare_exchange(0, owner, AcqRel, Relaxed).is_ok();
    let slots = &table().slots;
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

/// Counts a forked child as a process. It keeps a shared table.
pub(super) fn enter_child() {
    enter();
}
