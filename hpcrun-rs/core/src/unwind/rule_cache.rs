//! Rule cache: per thread, the module, unwind method and owner of code addresses. It is direct-mapped, so
//! look-up and insertion take a few instructions.
//!
//! Async-signal-safe.

use super::unwind_rule::UnwindRule;
use crate::memory;
use hpc_formats::address::CodeAddress;

const SLOTS: usize = 4096;
/// Addresses that are equal above these bits get slots close to each other.
const REGION_BITS: u32 = 10;

/// How to step the frames at one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)] // empty caches hold zeros: the first variant
pub(super) enum Method {
    Rule(UnwindRule),
    Cfi,
    /// Like `Cfi`, for a signal trampoline: the caller was interrupted, so its instruction pointer is exact.
    SignalFrame,
    /// The return address is undefined: the outermost frame.
    Root,
    /// The module has no information for this address.
    None,
    /// Like `None`, in no module: generated code, or no code at all.
    Generated,
}

/// What the frames at one look-up address are. The alignment keeps it within one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct Frame {
    /// The absolute look-up address: of the interrupted instruction, or of the last byte of the call.
    pub lookup: u64,
    /// The look-up address as module and offset.
    pub code: CodeAddress,
    /// The owner of the frame, by [`super::OwnerOf`].
    pub owner: u8,
    pub(super) generation: u32,
    pub(super) method: Method,
}

const _: () = assert!(size_of::<Frame>() == 32);

pub(super) struct RuleCache([Frame; SLOTS]);

impl RuleCache {
    /// Maps an empty table. The table is too large for a stack, and the kernel allocates its pages on first
    /// use. The mapping is never freed, like thread states.
    pub(super) fn map() -> Option<&'static mut RuleCache> {
        let base = memory::map_anonymous(size_of::<RuleCache>())?;
        // SAFETY: we own the mapping; it is page-aligned, large enough and never unmapped. All bits zero are
        // a valid entry: address 0 of generation 0, which no snapshot has.
        Some(unsafe { base.cast::<RuleCache>().as_mut() })
    }

    /// Addresses of one function get slots close to each other, so that a sample touches few pages of the
    /// table. The hash spreads distant functions over the whole table.
    #[inline]
    fn slot(lookup: u64) -> usize {
        let region = (lookup >> REGION_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        ((lookup >> 2) ^ region) as usize % SLOTS
    }

    /// The entry for an address, if it was made in this generation of the load map.
    #[inline]
    pub(super) fn get(&self, lookup: u64, generation: u32) -> Option<Frame> {
        let frame = self.0[Self::slot(lookup)];
        (frame.lookup == lookup && frame.generation == generation).then_some(frame)
    }

    /// Stores an entry and drops the previous one of its slot.
    #[inline]
    pub(super) fn put(&mut self, frame: Frame) {
        self.0[Self::slot(frame.lookup)] = frame;
    }
}
