//! Reads stack memory: directly within the bounds of a known stack, and through the kernel elsewhere
//! (`process_vm_readv`, which fails instead of faulting).
//!
//! Async-signal-safe.

use super::read_log::ReadLog;
use super::window::Window;
use crate::system;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The part of a stack that may be read directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackBounds {
    /// Lowest readable address.
    pub low: u64,
    /// One past the highest readable address; the bounds are empty if `low >= high`.
    pub high: u64,
}

impl StackBounds {
    /// No direct reads.
    pub const NONE: StackBounds = StackBounds { low: 0, high: 0 };
}

const PAGE: u64 = crate::memory::PAGE as u64;

/// Reads words of one stack and logs them.
pub struct StackReader {
    bounds: StackBounds,
    /// The words that were read so far.
    pub words: ReadLog,
    window: Window<256>,
}

impl StackReader {
    /// Reserves the memory. Not async-signal-safe. `None` when the address space is used up.
    pub fn new() -> Option<StackReader> {
        Some(StackReader { bounds: StackBounds::NONE, words: ReadLog::new()?, window: Window::new() })
    }

    /// Begins on a stack with these bounds, and clears the log.
    #[inline]
    pub fn begin(&mut self, bounds: StackBounds) {
        self.words.clear();
        self.set_bounds(bounds);
    }

    pub fn set_bounds(&mut self, bounds: StackBounds) {
        self.bounds = bounds;
        self.window.forget();
    }

    /// Logs a word that was peeked at; `is_stack`: it lies in a known stack.
    #[inline]
    pub fn note(&mut self, address: u64, value: u64, is_stack: bool) {
        if is_stack {
            self.words.push(address, value);
        } else {
            self.words.push_checked(address, value);
        }
    }

    /// Reads and logs the word at `address`; `None` when it is not readable.
    #[inline]
    pub fn read(&mut self, address: u64) -> Option<u64> {
        if let Some(value) = self.read_directly(address) {
            self.words.push(address, value);
            return Some(value);
        }
        let value = self.window.word(address)?;
        self.words.push_checked(address, value);
        Some(value)
    }

    /// Like [`Self::read`], without logging, for words that the unwind may turn out not to depend on.
    #[inline]
    pub fn peek(&mut self, address: u64) -> Option<u64> {
        let value = self.read_directly(address);
        value.or_else(|| self.window.word(address))
    }

    #[inline]
    fn read_directly(&self, address: u64) -> Option<u64> {
        if address < self.bounds.low || address.checked_add(8)? > self.bounds.high {
            return None;
        }
        // SAFETY: the bounds are those of a live stack, from the interrupted (or suspended) frame's stack
        // pointer up, so the word is mapped and readable; any value is valid. The stack belongs to this
        // thread, or to one suspended in a call that cannot return before our path is complete (the
        // boundary's contract in hpcrun-abi).
        Some(unsafe { (address as *const u64).read_unaligned() })
    }
}

/// One stack in the directory of stacks. It lives as long as the process, is reused for later threads, and is
/// empty (`low == high`) while it has no thread.
#[derive(Default)]
pub struct StackSlot {
    low: AtomicU64,
    high: AtomicU64,
    next: AtomicPtr<StackSlot>,
    /// Creation context of its thread: ordinal << 32 | record index; 0 = unknown.
    creation: AtomicU64,
    is_main: AtomicBool,
    /// It is the stack that the kernel has made, which grows as long as its limit allows.
    grows: AtomicBool,
}

/// The list of slots and its epoch. Each sample reads both, so they share a cache line.
#[repr(align(16))]
struct Directory {
    head: AtomicPtr<StackSlot>,
    /// Counts the stacks that left the directory or changed their root.
    epoch: AtomicU32,
}

static DIRECTORY: Directory = Directory { head: AtomicPtr::new(ptr::null_mut()), epoch: AtomicU32::new(0) };

/// The epoch of the directory. While it stays the same, each stack that was known still lives, and has the
/// same root.
#[inline]
pub fn epoch() -> u32 {
    DIRECTORY.epoch.load(Ordering::Acquire)
}

impl StackSlot {
    /// Adds the slot to the directory, permanently.
    pub fn publish(&'static self) {
        let this = ptr::from_ref(self).cast_mut();
        let mut head = DIRECTORY.head.load(Ordering::Acquire);
        loop {
            self.next.store(head, Ordering::Relaxed);
            let entered = DIRECTORY.head.compare_exchange(head, this, Ordering::AcqRel, Ordering::Acquire);
            match entered {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Describes a stack in this slot, which must be empty.
    pub fn set(&self, low: u64, high: u64, is_main: bool, creation: (u32, u32)) {
        self.set_creation(creation);
        self.is_main.store(is_main, Ordering::Relaxed);
        self.grows.store(is_main, Ordering::Relaxed);
        self.low.store(low, Ordering::Relaxed);
        self.high.store(high, Ordering::Release);
    }

    /// Whether the stack holds `sp`, with so many bytes below it.
    #[inline]
    pub fn has_room(&self, sp: u64, bytes: u64) -> bool {
        let (low, high) = (self.low.load(Ordering::Relaxed), self.high.load(Ordering::Relaxed));
        sp <= high && sp >= low.saturating_add(bytes)
    }

    /// Marks this stack as the one that the program starts on.
    pub fn set_main(&self) {
        self.set_creation((0, 0));
        self.is_main.store(true, Ordering::Relaxed);
        DIRECTORY.epoch.fetch_add(1, Ordering::AcqRel);
    }

    pub fn creation(&self) -> (u32, u32) {
        let packed = self.creation.load(Ordering::Relaxed);
        ((packed >> 32) as u32, packed as u32)
    }

    pub fn root(&self) -> StackRoot {
        match self.creation() {
            _ if self.is_main.load(Ordering::Relaxed) => StackRoot::Entry,
            (0, 0) => StackRoot::Unknown,
            (thread, node) => StackRoot::Thread(thread, node),
        }
    }

    fn set_creation(&self, (thread, node): (u32, u32)) {
        let packed = u64::from(thread) << 32 | u64::from(node);
        self.creation.store(packed, Ordering::Relaxed);
    }

    /// Whether the kernel's stack has grown down to `sp`, beyond the limit that was known. The kernel keeps a
    /// gap below such a stack, so what is mapped without one is the stack, and it never shrinks.
    #[cold]
    fn has_grown_to(&self, sp: u64) -> bool {
        /// One call tells so many pages.
        const STEP: u64 = 512;
        if !self.grows.load(Ordering::Relaxed) || sp > self.high.load(Ordering::Acquire) {
            return false;
        }
        let mut low = self.low.load(Ordering::Relaxed) & !(PAGE - 1);
        while sp <= low {
            let from = low.saturating_sub(STEP * PAGE).max((sp - 1) & !(PAGE - 1));
            let mut resident = [0_u8; STEP as usize];
            let arguments = [from, low - from, resident.as_mut_ptr() as u64, 0, 0];
            // SAFETY: the kernel writes one byte a page, of at most `STEP` pages.
            let error = unsafe { system::call(libc::SYS_mincore, arguments.map(|a| a as usize)) };
            if error != 0 {
                return false;
            }
            low = from;
            self.low.store(low, Ordering::Relaxed);
        }
        true
    }

    /// Empties the slot; its thread is about to end.
    pub fn clear(&self) {
        self.high.store(0, Ordering::Release);
        self.low.store(0, Ordering::Release);
        DIRECTORY.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

fn slots() -> impl Iterator<Item = &'static StackSlot> {
    let mut next = DIRECTORY.head.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: slots are `'static` (see `publish`) and never leave the list.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next.load(Ordering::Acquire);
        Some(slot)
    })
}

/// Slots that were found last, by parts of the stacks: one of thousands of threads does not look at all.
static FOUND: [AtomicPtr<StackSlot>; 64] = [const { AtomicPtr::new(ptr::null_mut()) }; 64];

fn slot_of(sp: u64) -> Option<&'static StackSlot> {
    let known = &FOUND[((sp >> 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize];
    // Inclusive at the top: there the outermost frame of a cloned thread has its stack pointer.
    let holds =
        |slot: &&StackSlot| sp <= slot.high.load(Ordering::Acquire) && sp > slot.low.load(Ordering::Relaxed);
    // SAFETY: null, or a slot, which lives as long as the process.
    let last = unsafe { known.load(Ordering::Acquire).as_ref() };
    last.filter(holds).or_else(|| {
        let found = slots().find(holds).or_else(|| slots().find(|slot| slot.has_grown_to(sp)));
        found.inspect(|slot| known.store(ptr::from_ref(*slot).cast_mut(), Ordering::Release))
    })
}

/// The part of the stack around `sp` that may be read directly: from the red zone below `sp` up to the top of
/// the stack; empty for a stack outside the directory.
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
    /// The creation context of its thread (thread ordinal, record index).
    Thread(u32, u32),
    Unknown,
}

/// The root of the stack that holds `sp`.
pub fn root_of(sp: u64) -> StackRoot {
    slot_of(sp).map_or(StackRoot::Unknown, StackSlot::root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unregistered_stack_changes_the_epoch() {
        let slot: &'static StackSlot = Box::leak(Box::default());
        slot.publish();
        slot.set(4096, 8192, false, (0, 0));
        assert_eq!(bounds_from(5000).high, 8192);
        let before = epoch();
        slot.clear();
        assert_ne!(epoch(), before);
        assert_eq!(bounds_from(5000), StackBounds::NONE);
    }
}
