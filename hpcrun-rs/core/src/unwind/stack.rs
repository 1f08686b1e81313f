//! Reading stack memory: directly within the bounds of a stack that is known, through the
//! kernel (`process_vm_readv`, which fails instead of faulting) everywhere else.
//!
//! Async-signal-safe.

use super::words::Words;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The part of a stack that may be read directly: from the stack pointer up to its top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackBounds {
    /// Lowest readable address.
    pub low: u64,
    /// One past the highest readable address; `low >= high`: nothing is.
    pub high: u64,
}

impl StackBounds {
    /// No direct reads.
    pub const NONE: StackBounds = StackBounds { low: 0, high: 0 };
}

const WINDOW_WORDS: usize = 32;

/// Words read through the kernel at once.
#[derive(Debug)]
struct Window {
    words: [u64; WINDOW_WORDS],
    start: u64,
    len: usize,
}

/// What a [`StackReader`] works with; a thread has one.
#[derive(Debug)]
pub struct Scratch {
    words: Words,
    window: Window,
}

impl Scratch {
    /// Reserves the memory. Not async-signal-safe. `None` when the address space is used up.
    pub fn new() -> Option<Scratch> {
        Some(Scratch {
            words: Words::new()?,
            window: Window {
                words: [0; WINDOW_WORDS],
                start: 0,
                len: 0,
            },
        })
    }
}

/// Reads words of one stack, and keeps what it has read.
#[derive(Debug)]
pub struct StackReader<'a> {
    bounds: StackBounds,
    scratch: &'a mut Scratch,
}

impl<'a> StackReader<'a> {
    /// A reader for a stack with these bounds, which starts a list of words.
    pub fn new(bounds: StackBounds, scratch: &'a mut Scratch) -> StackReader<'a> {
        scratch.words.clear();
        scratch.window.len = 0;
        StackReader { bounds, scratch }
    }

    /// Goes over to another stack.
    pub fn set_bounds(&mut self, bounds: StackBounds) {
        self.bounds = bounds;
        self.scratch.window.len = 0;
    }

    /// What was read so far.
    #[inline]
    pub fn words(&self) -> &Words {
        &self.scratch.words
    }

    /// What is read from now on does not depend on what was read so far alone.
    pub fn spoil(&mut self) {
        self.scratch.words.spoil();
    }

    /// Notes a word of a structure that was read directly.
    #[inline]
    pub fn note(&mut self, address: u64, value: u64) {
        self.scratch.words.push(address, value);
    }

    /// The word at `address`, or nothing when it is not readable. It is noted.
    #[inline]
    pub fn read(&mut self, address: u64) -> Option<u64> {
        if let Some(value) = self.read_directly(address) {
            self.scratch.words.push(address, value);
            return Some(value);
        }
        self.scratch.words.push(0, 0);
        self.read_checked(address)
    }

    /// As [`Self::read`], for what the walk may turn out not to depend on: it is not noted.
    #[inline]
    pub fn peek(&mut self, address: u64) -> Option<u64> {
        let value = self.read_directly(address);
        value.or_else(|| self.read_checked(address))
    }

    #[inline]
    fn read_directly(&self, address: u64) -> Option<u64> {
        if address < self.bounds.low || address.checked_add(8)? > self.bounds.high {
            return None;
        }
        // SAFETY: the bounds are those of a live stack, from the interrupted (or suspended)
        // frame's stack pointer up: mapped and readable. The value may be anything. The
        // owner of the stack is this thread or one suspended in a call that cannot return
        // before our path is complete (the boundary's contract in hpcrun-abi).
        Some(unsafe { (address as *const u64).read_unaligned() })
    }

    #[cold]
    #[inline(never)]
    fn read_checked(&mut self, address: u64) -> Option<u64> {
        let window = &mut self.scratch.window;
        let offset = address.wrapping_sub(window.start);
        if offset % 8 == 0 && offset / 8 < window.len as u64 {
            return Some(window.words[(offset / 8) as usize]);
        }
        // A window first; a single word where the window would cross into unmapped pages.
        for words in [WINDOW_WORDS, 1] {
            let len = words * 8;
            let local = libc::iovec {
                iov_base: window.words.as_mut_ptr().cast(),
                iov_len: len,
            };
            let remote = libc::iovec {
                iov_base: address as *mut libc::c_void,
                iov_len: len,
            };
            // SAFETY: the kernel checks the remote range and writes at most `len` bytes into
            // our window, which is that long.
            let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
            if n >= 8 {
                window.start = address;
                window.len = n as usize / 8;
                return Some(window.words[0]);
            }
        }
        window.len = 0;
        None
    }
}

/// One stack in the directory of stacks: lives as long as the process, is reused for later
/// threads, and is empty (`low == high`) while it has no thread.
#[derive(Debug)]
pub struct StackSlot {
    low: AtomicU64,
    high: AtomicU64,
    next: AtomicPtr<StackSlot>,
    /// Creation context of its thread: ordinal << 32 | record index; 0 = unknown.
    creation: AtomicU64,
    is_main: AtomicBool,
}

static DIRECTORY: AtomicPtr<StackSlot> = AtomicPtr::new(ptr::null_mut());

impl StackSlot {
    /// An empty slot.
    pub const fn new() -> StackSlot {
        StackSlot {
            low: AtomicU64::new(0),
            high: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            creation: AtomicU64::new(0),
            is_main: AtomicBool::new(false),
        }
    }

    /// Enters the slot into the directory, for good.
    pub fn publish(&'static self) {
        let this = ptr::from_ref(self).cast_mut();
        let mut head = DIRECTORY.load(Ordering::Acquire);
        loop {
            self.next.store(head, Ordering::Relaxed);
            match DIRECTORY.compare_exchange(head, this, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// The slot now stands for this stack.
    pub fn set(&self, low: u64, high: u64, is_main: bool, creation: (u32, u32)) {
        self.set_creation(creation);
        self.is_main.store(is_main, Ordering::Relaxed);
        self.low.store(low, Ordering::Relaxed);
        self.high.store(high, Ordering::Release);
    }

    /// The program begins on this stack.
    pub fn set_main(&self) {
        self.is_main.store(true, Ordering::Relaxed);
    }

    fn set_creation(&self, (thread, node): (u32, u32)) {
        let packed = u64::from(thread) << 32 | u64::from(node);
        self.creation.store(packed, Ordering::Relaxed);
    }

    /// The slot's thread is gone.
    pub fn clear(&self) {
        self.high.store(0, Ordering::Release);
        self.low.store(0, Ordering::Release);
    }
}

impl Default for StackSlot {
    fn default() -> Self {
        Self::new()
    }
}

fn slot_of(sp: u64) -> Option<&'static StackSlot> {
    let mut next = DIRECTORY.load(Ordering::Acquire);
    // SAFETY: slots are `'static` (see `publish`) and never leave the list.
    while let Some(slot) = unsafe { next.as_ref() } {
        if sp < slot.high.load(Ordering::Acquire) && sp >= slot.low.load(Ordering::Relaxed) {
            return Some(slot);
        }
        next = slot.next.load(Ordering::Acquire);
    }
    None
}

/// What may be read directly of the stack that holds `sp`: from just below it (the red zone)
/// up to its top; nothing for a stack that is not in the directory.
pub fn bounds_from(sp: u64) -> StackBounds {
    match slot_of(sp) {
        Some(slot) => StackBounds {
            low: sp.saturating_sub(128).max(slot.low.load(Ordering::Relaxed)),
            high: slot.high.load(Ordering::Relaxed),
        },
        None => StackBounds::NONE,
    }
}

/// What is at the root of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackRoot {
    /// The program's entry point.
    Entry,
    /// A thread that was created in this context (thread ordinal, record index).
    Thread(u32, u32),
    /// Not known.
    Unknown,
}

/// The root of the stack that holds `sp`.
pub fn root_of(sp: u64) -> StackRoot {
    match slot_of(sp) {
        None => StackRoot::Unknown,
        Some(slot) if slot.is_main.load(Ordering::Relaxed) => StackRoot::Entry,
        Some(slot) => match slot.creation.load(Ordering::Relaxed) {
            0 => StackRoot::Unknown,
            packed => StackRoot::Thread((packed >> 32) as u32, packed as u32),
        },
    }
}
