//! Memory that does not come from the program's heap: anonymous mappings, arrays in them, and the
//! growing, file-backed mapping in which a profile is built.
//!
//! Async-signal-safe: only `open`, `fallocate`, `pwrite`, `mmap`, `madvise`, `munmap`, `close`.

use crate::system;
use hpc_formats::loss::LossCause;
use std::ffi::CStr;
use std::ptr::{self, NonNull};

/// Size of a page on x86-64, and on most AArch64 systems.
pub const PAGE: usize = 4096;

/// Maps `len` zeroed bytes, private and anonymous; pages appear when touched.
pub fn map_anonymous(len: usize) -> Option<NonNull<u8>> {
    map(len, libc::PROT_READ | libc::PROT_WRITE, 0)
}

/// As [`map_anonymous`], with all pages at once, for what will be used whole.
pub fn map_populated(len: usize) -> Option<NonNull<u8>> {
    map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_POPULATE)
}

/// Reserves addresses without memory behind them.
fn reserve(len: usize) -> Option<NonNull<u8>> {
    map(len, libc::PROT_NONE, 0)
}

fn map(len: usize, protection: i32, flags: i32) -> Option<NonNull<u8>> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping at an address that the kernel chooses touches no
    // existing memory. Cannot panic.
    let p = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return None;
    }
    NonNull::new(p.cast())
}

/// Unmaps what [`map_anonymous`] returned.
///
/// # Safety
/// `base..base + len` must be one whole mapping that nothing uses any more.
pub unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the caller owns the mapping.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}

/// An array of bounded length in a mapping of its own, which lives for ever as thread states do;
/// pages appear when touched.
#[derive(Debug)]
pub struct FixedArray<T> {
    base: NonNull<T>,
    len: usize,
    capacity: usize,
}

impl<T: Copy> FixedArray<T> {
    /// An empty array for up to `capacity` values. `None` when the address space is used up.
    pub fn new(capacity: usize) -> Option<FixedArray<T>> {
        const { assert!(align_of::<T>() <= PAGE) };
        let base = map_anonymous(capacity * size_of::<T>())?.cast();
        Some(FixedArray {
            base,
            len: 0,
            capacity,
        })
    }

    /// Adds a value at the end; false when the array is full.
    #[inline]
    pub fn push(&mut self, value: T) -> bool {
        if self.len == self.capacity {
            return false;
        }
        // SAFETY: `len < capacity`, and the mapping holds that many values.
        unsafe { self.base.add(self.len).write(value) };
        self.len += 1;
        true
    }

    /// The values.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the first `len` values were written by `push`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the first `len` values, at most.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Keeps none.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

/// A file that is mapped shared and grows in place: bytes written are in the file at once, and
/// stay there when the process is killed. No descriptor is kept open, because a program may
/// close descriptors that it does not know.
#[derive(Debug)]
pub struct GrowingFile {
    base: NonNull<u8>,
    mapped: usize,
    limit: usize,
}

/// First step of growth, bytes: a thread may have few contexts. Doubles up to [`LARGEST_STEP`].
const FIRST_STEP: usize = 16 << 10;
/// A step takes some 4 us a page, most of it in the file system.
const LARGEST_STEP: usize = 128 << 10;

impl GrowingFile {
    /// Creates the file (it must not exist) and maps its first 16 KiB, zeroed.
    /// `limit` bounds the file's size; that many addresses are reserved.
    pub fn create(path: &CStr, limit: usize) -> Result<GrowingFile, LossCause> {
        let base = reserve(limit).ok_or(LossCause::TreeFull)?;
        let mut file = GrowingFile {
            base,
            mapped: 0,
            limit,
        };
        let flags = libc::O_CREAT | libc::O_EXCL;
        if let Err(cause) = file.extend(path, flags) {
            // SAFETY: the reservation was made above and nothing points into it.
            unsafe { unmap(base, limit) };
            return Err(cause);
        }
        Ok(file)
    }

    /// First byte of the mapping; stays in place for the life of the file.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes that may be touched.
    #[inline]
    pub fn len(&self) -> usize {
        self.mapped
    }

    /// Whether nothing is mapped; never true after `create`.
    pub fn is_empty(&self) -> bool {
        self.mapped == 0
    }

    /// Maps more of the file behind what is mapped. Disk space is allocated first, so that a
    /// full disk is an error here and never a SIGBUS at a store.
    pub fn grow(&mut self, path: &CStr) -> Result<(), LossCause> {
        self.extend(path, 0)
    }

    fn extend(&mut self, path: &CStr, flags: i32) -> Result<(), LossCause> {
        let step = self.mapped.clamp(FIRST_STEP, LARGEST_STEP);
        if self.mapped + step > self.limit {
            return Err(LossCause::TreeFull);
        }
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW | flags;
        // SAFETY: `path` is NUL-terminated; the descriptor is closed below on every path.
        let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
        if fd < 0 {
            return Err(LossCause::DiskFull);
        }
        let ok = allocate(fd, self.mapped, step) && self.map_step(fd, step);
        system::close(fd);
        if !ok {
            return Err(LossCause::DiskFull);
        }
        self.mapped += step;
        Ok(())
    }

    fn map_step(&self, fd: i32, step: usize) -> bool {
        // SAFETY: the target range lies in our own reservation (checked against `limit`), which
        // nothing else uses; MAP_FIXED replaces only PROT_NONE pages of ours.
        unsafe {
            let p = libc::mmap(
                self.base.as_ptr().add(self.mapped).cast(),
                step,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                fd,
                self.mapped as libc::off_t,
            );
            if p == libc::MAP_FAILED {
                return false;
            }
            // All pages at once, writable: the first store to each would take several times as long by
            // itself, as the file system's code is not in the caches then. Where the kernel cannot (before
            // 5.14), that is how it is.
            libc::madvise(p, step, libc::MADV_POPULATE_WRITE);
            true
        }
    }

    /// Unmaps the file. Nothing may be done with it afterwards.
    pub fn close(&mut self) {
        // SAFETY: `self` owns the reservation; callers hold no pointer into it.
        unsafe { unmap(self.base, self.limit) };
        self.mapped = 0;
    }
}

/// Allocates disk blocks for a range of the file.
fn allocate(fd: i32, offset: usize, len: usize) -> bool {
    // SAFETY: plain system call on a descriptor that we own.
    if unsafe { libc::fallocate(fd, 0, offset as libc::off_t, len as libc::off_t) } == 0 {
        return true;
    }
    // SAFETY: errno of this thread.
    if unsafe { *libc::__errno_location() } != libc::EOPNOTSUPP {
        return false;
    }
    // File systems without fallocate: written zeros are allocated blocks too.
    let zeros = [0u8; PAGE];
    (0..len / PAGE).all(|i| {
        let at = (offset + i * PAGE) as libc::off_t;
        // SAFETY: `zeros` is PAGE bytes long.
        let n = unsafe { libc::pwrite(fd, zeros.as_ptr().cast(), PAGE, at) };
        n == PAGE as isize
    })
}
