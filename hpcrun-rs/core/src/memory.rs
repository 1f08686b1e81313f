//! Memory outside the program's heap: anonymous mappings, arrays in them, and the growing file mapping in
//! which a profile is built.
//!
//! Async-signal-safe: only `open`, `fallocate`, `pwrite`, `mmap`, `madvise`, `munmap`, `close`.

use crate::system;
use hpc_formats::loss::LossCause;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};

/// Size of a page.
pub const PAGE: usize = 4096;

/// Maps `len` zeroed bytes, private and anonymous. Pages are allocated when touched.
pub fn map_anonymous(len: usize) -> Option<NonNull<u8>> {
    map(len, libc::PROT_READ | libc::PROT_WRITE, 0)
}

/// Like [`map_anonymous`], with all pages allocated at once, for memory that will be used completely.
pub fn map_populated(len: usize) -> Option<NonNull<u8>> {
    map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_POPULATE)
}

/// Reserves addresses without memory.
fn reserve(len: usize) -> Option<NonNull<u8>> {
    map(len, libc::PROT_NONE, 0)
}

fn map(len: usize, protection: i32, flags: i32) -> Option<NonNull<u8>> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping at an address that the kernel chooses touches no existing memory.
    // Nothing here panics.
    let p = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return None;
    }
    NonNull::new(p.cast())
}

/// Maps a file for reading, for ever. Not async-signal-safe.
pub fn map_file(path: &Path) -> Option<&'static [u8]> {
    let file = File::open(path).ok()?;
    let len = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a fresh mapping at an address that the kernel chooses touches no existing memory.
    let base = unsafe {
        let fd = file.as_raw_fd();
        libc::mmap(ptr::null_mut(), len, protection, flags, fd, 0)
    };
    // SAFETY: so many bytes are mapped, and stay so. Whoever makes such a file makes it as a whole and
    // renames it, so that it neither changes nor becomes shorter.
    (base != libc::MAP_FAILED).then(|| unsafe { std::slice::from_raw_parts(base.cast(), len) })
}

/// Unmaps a mapping of this module.
///
/// # Safety
/// `base..base + len` must be one complete mapping, and nothing may use it afterwards.
pub unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the caller owns the mapping.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}

/// An array of bounded length in its own mapping, which is never freed, like thread states. Pages are
/// allocated when touched.
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
        Some(FixedArray { base, len: 0, capacity })
    }

    /// Appends a value; false when the array is full.
    #[inline]
    pub fn push(&mut self, value: T) -> bool {
        if self.len == self.capacity {
            return false;
        }
        // SAFETY: `len < capacity`, and our mapping holds `capacity` values.
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

    /// The number of values.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the array is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps at most the first `len` values.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes all values.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

/// A file that is mapped shared and grows in place. Written bytes are in the file at once, and stay there
/// when the process is killed. No descriptor is kept open, because a program may close descriptors that it
/// does not know.
#[derive(Debug)]
pub struct GrowingFile {
    base: NonNull<u8>,
    mapped: usize,
    limit: usize,
}

/// First step of growth in bytes: many threads have few contexts. Steps double up to [`LARGEST_STEP`].
const FIRST_STEP: usize = 16 << 10;
/// Largest step in bytes. A step takes some 4 us a page, mostly in the file system.
const LARGEST_STEP: usize = 128 << 10;

impl GrowingFile {
    /// Creates the file, which must not exist, and maps its first 16 KiB, zeroed. `limit` bounds the file's
    /// size; that many addresses are reserved.
    pub fn create(path: &CStr, limit: usize) -> Result<GrowingFile, LossCause> {
        let base = reserve(limit).ok_or(LossCause::TreeFull)?;
        let mut file = GrowingFile { base, mapped: 0, limit };
        let flags = libc::O_CREAT | libc::O_EXCL;
        if let Err(cause) = file.extend(path, flags) {
            // SAFETY: the reservation was made above, and nothing points into it.
            unsafe { unmap(base, limit) };
            return Err(cause);
        }
        Ok(file)
    }

    /// First byte of the mapping; fixed for the life of the file.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Number of bytes that may be accessed.
    #[inline]
    pub fn len(&self) -> usize {
        self.mapped
    }

    /// Whether nothing is mapped; never true after `create`.
    pub fn is_empty(&self) -> bool {
        self.mapped == 0
    }

    /// Maps more of the file after the mapped part. Allocates disk space first, so that a full disk is an
    /// error here, and never a SIGBUS at a store.
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
            // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
            let error = unsafe { *libc::__errno_location() };
            let is_full = matches!(error, libc::ENOSPC | libc::EDQUOT);
            return Err(if is_full { LossCause::DiskFull } else { LossCause::NoFile });
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
        // SAFETY: the target range lies in our own reservation (checked against `limit`), which nothing else
        // uses, so MAP_FIXED replaces only our own PROT_NONE pages.
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
            // Populates all pages, writable, at once. Single page faults at the first stores would take
            // several times as long, since the file system's code is not in the caches then. Before Linux
            // 5.14 this call fails.
            libc::madvise(p, step, libc::MADV_POPULATE_WRITE);
            true
        }
    }

    /// Unmaps the file. It must not be used afterwards.
    pub fn close(&mut self) {
        // SAFETY: `self` owns the reservation, and callers hold no pointer into it.
        unsafe { unmap(self.base, self.limit) };
        self.mapped = 0;
    }
}

/// Allocates disk blocks for a range of the file.
fn allocate(fd: i32, offset: usize, len: usize) -> bool {
    // SAFETY: a system call on a descriptor that we own; it touches no memory of the process.
    if unsafe { libc::fallocate(fd, 0, offset as libc::off_t, len as libc::off_t) } == 0 {
        return true;
    }
    // SAFETY: `__errno_location` returns a valid pointer to this thread's errno.
    if unsafe { *libc::__errno_location() } != libc::EOPNOTSUPP {
        return false;
    }
    // For file systems without fallocate: writing zeros allocates blocks too.
    let zeros = [0u8; PAGE];
    (0..len / PAGE).all(|i| {
        let at = (offset + i * PAGE) as libc::off_t;
        // SAFETY: `zeros` has PAGE bytes.
        let n = unsafe { libc::pwrite(fd, zeros.as_ptr().cast(), PAGE, at) };
        n == PAGE as isize
    })
}
