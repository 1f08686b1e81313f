//! The trace's file: a ring of blocks, each of which one thread writes. The file grows to its limit; then, or
//! when the disk is full, the oldest block that nobody writes is the next.
//!
//! Async-signal-safe, except [`start`].

use crate::image::Image;
use crate::memory::{self, PAGE};
use crate::{image, system};
use hpc_formats::loss::LossCause;
use hpc_formats::trace::{self, BLOCK_SIZE, EXTENSION, block, header};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// Bytes by which the file grows.
const STEP: u64 = 16 * PAGE as u64;
/// Number of blocks that are tried, before events are lost.
const TRIES: usize = 64;

pub(super) struct Ring {
    base: NonNull<u8>,
    path: CString,
    /// Number of blocks that there may be, the header's included.
    limit: AtomicU64,
    size: AtomicU64,
    /// Number of blocks that were begun.
    begun: AtomicU64,
}

static RING: AtomicPtr<Ring> = AtomicPtr::new(ptr::null_mut());

/// The ring of this process image, if it has one.
#[inline]
pub(super) fn current() -> Option<&'static Ring> {
    // SAFETY: null, or a ring that `start` has leaked, so it lives forever.
    unsafe { RING.load(Ordering::Acquire).as_ref() }
}

/// Makes the file of an image whose settings ask for a trace. In a forked child, the parent's stays mapped.
pub fn start(image: &Image) -> Result<(), LossCause> {
    RING.store(ptr::null_mut(), Ordering::Release);
    let Some(limit) = image.config.trace else { return Ok(()) };
    let name = format!("/trace-{}-{}.{EXTENSION}", image.pid, image.id);
    let path = [image.config.output.as_bytes(), name.as_bytes()].concat();
    let path = CString::new(path).map_err(|_| LossCause::NoFile)?;
    let limit = limit.next_multiple_of(STEP);
    let base = memory::create_mapped(&path, STEP as usize, limit as usize)?;
    let ring = Ring {
        base,
        path,
        limit: AtomicU64::new(limit / BLOCK_SIZE as u64),
        size: AtomicU64::new(STEP),
        begun: AtomicU64::new(0),
    };
    let version = u64::from(trace::KIND.version()) | u64::from(image.pid) << 32;
    ring.field(header::VERSION).store(version, Ordering::Relaxed);
    ring.field(header::IMAGE).store(image.id, Ordering::Relaxed);
    ring.field(header::PERIOD_NS).store(image.config.period_ns(), Ordering::Relaxed);
    ring.field(header::MAGIC).store(u64::from_le_bytes(trace::KIND.magic), Ordering::Release);
    RING.store(Box::into_raw(Box::new(ring)), Ordering::Release);
    Ok(())
}

impl Ring {
    #[inline]
    fn field(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the header is mapped for ever; its words are aligned, and all access is atomic.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    #[cold]
    pub(super) fn lose(&self) {
        self.field(header::LOST).fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a block, which the caller may write until it gives it back, and its sequence number. The block
    /// has no events. `None`: there is no room.
    #[inline(never)]
    pub(super) fn take(&self) -> Option<(NonNull<u8>, u64)> {
        for _ in 0..TRIES {
            let sequence = self.begun.fetch_add(1, Ordering::Relaxed);
            // The first block is the header.
            let blocks = self.limit.load(Ordering::Relaxed).checked_sub(1)?;
            let index = 1 + sequence.checked_rem(blocks)?;
            if !self.has(index) {
                continue;
            }
            // SAFETY: the file has the block, and is mapped up to its limit.
            let taken = unsafe { self.base.add(index as usize * BLOCK_SIZE) };
            if open(taken).swap(1, Ordering::AcqRel) == 0 {
                // SAFETY: the block is the caller's from now on; the field is in it, and aligned.
                let used = unsafe { taken.add(block::USED).cast::<u32>().replace(0) };
                if used > 0 {
                    self.field(header::REPLACED).fetch_add(1, Ordering::Relaxed);
                }
                return Some((taken, sequence));
            }
        }
        None
    }

    /// Whether the file has a block; makes it larger. If that fails, the ring stays as it is.
    fn has(&self, index: u64) -> bool {
        let end = (index + 1) * BLOCK_SIZE as u64;
        loop {
            let size = self.size.load(Ordering::Acquire);
            if end <= size {
                return true;
            }
            if memory::extend(&self.path, self.base, size as usize, STEP as usize).is_err() {
                self.limit.store(size / BLOCK_SIZE as u64, Ordering::Relaxed);
                return false;
            }
            // Of several threads, all have extended the file by the same step.
            self.size.fetch_max(size + STEP, Ordering::Release);
        }
    }
}

/// Gives a block back: others may replace it.
pub(super) fn give_back(taken: NonNull<u8>) {
    open(taken).store(0, Ordering::Release);
}

fn open<'a>(taken: NonNull<u8>) -> &'a AtomicU8 {
    // SAFETY: blocks are mapped for ever, and this byte is only accessed so.
    unsafe { AtomicU8::from_ptr(taken.add(block::OPEN).as_ptr()) }
}

/// The monotonic clock; `None`: a sandbox ends who reads it.
#[inline]
pub(crate) fn now() -> Option<u64> {
    let may = !crate::sandbox::refuses(libc::SYS_clock_gettime);
    may.then(|| system::clock(libc::CLOCK_MONOTONIC))
}

/// Whether the process is measured at this moment, and traced.
#[inline]
pub(super) fn running() -> Option<&'static Ring> {
    current().filter(|_| image::is_running())
}
