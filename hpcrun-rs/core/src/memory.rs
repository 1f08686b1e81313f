//! Memory outside the program's heap: anonymous mappings, arrays in them, and the growing file mapping in
//! which a profile is built.
//!
//! Async-signal-safe: only `open`, `fallocate`, `pwrite`, `mmap`, `madvise`, `munmap`, `close`.

use crate::sandbox::refuses;
use crate::{descriptors, folder, system};
use hpc_formats::loss::LossCause;
use std::alloc::{Layout, alloc};
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};

pub use crate::arch::PAGE;

const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Maps `len` zeroed bytes, private and anonymous. Pages are allocated when touched.
pub fn map_anonymous(len: usize) -> Option<NonNull<u8>> {
    map(len, ANONYMOUS, -1)
}

/// Like [`map_anonymous`], with all pages allocated at once, for memory that will be used completely.
pub fn map_populated(len: usize) -> Option<NonNull<u8>> {
    map(len, ANONYMOUS | libc::MAP_POPULATE, -1)
}

/// Maps the first `len` bytes of a file, which may be shorter.
pub fn map(len: usize, flags: i32, file: i32) -> Option<NonNull<u8>> {
    if refuses(libc::SYS_mmap) {
        return None;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping at an address that the kernel chooses touches no existing memory.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file, 0) };
    NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED)
}

/// Maps a file, which nobody changes, for ever. Not async-signal-safe.
pub fn map_file(path: &Path) -> Option<&'static [u8]> {
    let file = File::open(path).ok()?;
    let len = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let base = map(len, libc::MAP_PRIVATE, file.as_raw_fd())?;
    // SAFETY: so many bytes are mapped, and stay so. Whoever makes such a file makes it as a whole and
    // renames it, so that it neither changes nor becomes shorter.
    Some(unsafe { std::slice::from_raw_parts(base.as_ptr(), len) })
}

/// Unmaps a mapping of this module.
///
/// # Safety
/// `base..base + len` must be one complete mapping, and nothing may use it afterwards.
pub unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the caller owns the mapping.
    unsafe { system::call(libc::SYS_munmap, [base.as_ptr() as usize, len, 0, 0, 0]) };
}

/// An array of bounded length in its own mapping. It begins small and grows into larger mappings: a program
/// may limit its address space, or lock all of it in memory.
pub struct FixedArray<T> {
    base: NonNull<T>,
    len: usize,
    capacity: usize,
    limit: usize,
    /// It is in the heap, whose memory it keeps for ever.
    is_in_heap: bool,
}

impl<T> FixedArray<T> {
    fn unmap(&mut self) {
        if !self.is_in_heap {
            let bytes = FIRST_ARRAY.max(self.capacity * size_of::<T>());
            // SAFETY: the array owns the mapping, which has this size, and leaves it.
            unsafe { unmap(self.base.cast(), bytes) };
        }
    }
}

impl<T> Drop for FixedArray<T> {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// First size of a [`FixedArray`]'s mapping, in bytes.
const FIRST_ARRAY: usize = 2 * PAGE;

impl<T: Copy> FixedArray<T> {
    /// An empty array for up to `limit` values. `None` when the address space is used up.
    pub fn new(limit: usize) -> Option<FixedArray<T>> {
        Some(FixedArray::at(map_anonymous(FIRST_ARRAY)?, limit, false))
    }

    /// The same for one that begins in the heap, since mappings take time. Not async-signal-safe.
    pub fn in_heap(limit: usize) -> Option<FixedArray<T>> {
        let layout = Layout::from_size_align(FIRST_ARRAY, PAGE).ok()?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc(layout) })?;
        Some(FixedArray::at(base, limit, true))
    }

    fn at(base: NonNull<u8>, limit: usize, is_in_heap: bool) -> FixedArray<T> {
        const { assert!(align_of::<T>() <= PAGE && size_of::<T>() <= FIRST_ARRAY) };
        let capacity = (FIRST_ARRAY / size_of::<T>()).min(limit);
        FixedArray { base: base.cast(), len: 0, capacity, limit, is_in_heap }
    }

    /// Appends a value; false when the array is full.
    #[inline]
    pub fn push(&mut self, value: T) -> bool {
        if self.len == self.capacity && !self.grow() {
            return false;
        }
        // SAFETY: `len < capacity`, and our mapping holds `capacity` values.
        unsafe { self.base.add(self.len).write(value) };
        self.len += 1;
        true
    }

    /// Moves the values to a mapping of four times the size; false at the limit, or without address space.
    #[cold]
    fn grow(&mut self) -> bool {
        let capacity = self.limit.min(4 * self.capacity);
        if capacity == self.capacity {
            return false;
        }
        let Some(base) = map_anonymous(capacity * size_of::<T>()) else {
            return false;
        };
        // SAFETY: both hold `len` values and are disjoint; `&mut self` says that nothing points into the old
        // one.
        unsafe { base.cast().copy_from_nonoverlapping(self.base, self.len) };
        self.unmap();
        (self.base, self.capacity, self.is_in_heap) = (base.cast(), capacity, false);
        true
    }

    #[inline]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the first `len` values were written by `push`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps at most the first `len` values.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

/// A file that is mapped shared and grows. Written bytes are in the file at once, and stay there when the
/// process is killed. No descriptor is kept open, because a program may close descriptors that it does not
/// know, and may limit their number.
///
/// A mapping is larger than the file, which grows under it. When the file outgrows it, the whole file is
/// mapped anew, larger; the earlier mappings stay until the file is closed, so that addresses in them remain
/// valid, and show the same bytes.
pub struct GrowingFile {
    base: NonNull<u8>,
    /// Size of the file, in bytes.
    len: usize,
    /// Size of the mapping, in bytes.
    mapped: usize,
    limit: usize,
    earlier: [Option<(NonNull<u8>, usize)>; EARLIER],
}

/// Size of the first mapping of a file; the next ones are four times as large. A program may limit its
/// address space, or lock all of it in memory.
const FIRST_MAPPING: usize = 256 << 10;
/// Number of mappings before the last: enough for 2 GiB.
const EARLIER: usize = 8;

/// First step of growth in bytes: many threads have few contexts. Steps double up to [`LARGEST_STEP`].
const FIRST_STEP: usize = 16 << 10;
/// Largest step in bytes. A step takes some 4 us a page, mostly in the file system.
const LARGEST_STEP: usize = 128 << 10;

impl GrowingFile {
    /// Creates the file, which must not exist, and maps its first 16 KiB, zeroed. `limit` bounds the file's
    /// size.
    pub fn create(path: &CStr, limit: usize) -> Result<GrowingFile, LossCause> {
        let base = NonNull::dangling();
        let mut file = GrowingFile { base, len: 0, mapped: 0, limit, earlier: [None; EARLIER] };
        let created = file.extend(path, libc::O_CREAT | libc::O_EXCL);
        if created.as_ref().is_err_and(|cause| *cause != LossCause::NoFile) {
            // It was made, and an empty file tells nobody why.
            let (folder, path) = folder::place(path);
            let arguments = [folder as usize, path.as_ptr() as usize, 0, 0, 0];
            // SAFETY: `path` is NUL-terminated.
            unsafe { system::call(libc::SYS_unlinkat, arguments) };
        }
        created.map(|()| file)
    }

    /// First byte of the current mapping. It changes when the file grows.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Number of bytes that may be accessed.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is mapped; never true after `create`.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes more of the file accessible. Allocates disk space first, so that a full disk is an error here,
    /// and never a SIGBUS at a store.
    pub fn grow(&mut self, path: &CStr) -> Result<(), LossCause> {
        self.extend(path, 0)
    }

    fn extend(&mut self, path: &CStr, flags: i32) -> Result<(), LossCause> {
        let step = self.len.clamp(FIRST_STEP, LARGEST_STEP);
        let len = self.len + step;
        if len > self.limit {
            return Err(LossCause::TreeFull);
        }
        lengthen(path, flags, self.len, step, |fd| match len > self.mapped {
            true => self.map_anew(fd, len),
            false => Ok(()),
        })?;
        populate(self.base, self.len, step);
        self.len = len;
        Ok(())
    }

    /// Maps the file with room for `len` bytes and more, if there are addresses for more.
    fn map_anew(&mut self, fd: i32, len: usize) -> Result<(), LossCause> {
        let roomy = FIRST_MAPPING.max(4 * self.mapped).min(self.limit);
        let place = self.earlier.iter_mut().find(|earlier| earlier.is_none());
        let place = place.ok_or(LossCause::TreeFull)?;
        let sizes = [roomy, 2 * len, len];
        let found = sizes.into_iter().find_map(|size| Some((map(size, libc::MAP_SHARED, fd)?, size)));
        let (base, size) = found.ok_or(LossCause::TreeFull)?;
        if self.mapped > 0 {
            *place = Some((self.base, self.mapped));
        }
        (self.base, self.mapped) = (base, size);
        Ok(())
    }
}

impl Drop for GrowingFile {
    fn drop(&mut self) {
        let last = (self.mapped > 0).then_some((self.base, self.mapped));
        for (base, len) in self.earlier.into_iter().chain([last]).flatten() {
            // SAFETY: `self` owns the mappings, and callers hold no pointer into them.
            unsafe { unmap(base, len) };
        }
    }
}

/// Creates a file of `first` bytes, and maps it for ever with room for `limit`.
pub fn create_mapped(path: &CStr, first: usize, limit: usize) -> Result<NonNull<u8>, LossCause> {
    let map = |fd| map(limit, libc::MAP_SHARED, fd).ok_or(LossCause::NoFile);
    lengthen(path, libc::O_CREAT | libc::O_EXCL, 0, first, map)
}

/// Makes a file of [`create_mapped`] longer: no store up to there raises a signal.
pub fn extend(path: &CStr, base: NonNull<u8>, len: usize, step: usize) -> Result<(), LossCause> {
    lengthen(path, 0, len, step, |_| Ok(()))?;
    populate(base, len, step);
    Ok(())
}

/// Opens a file of `len` bytes, makes it longer, and lets `act` use it.
fn lengthen<T>(
    path: &CStr,
    flags: i32,
    len: usize,
    step: usize,
    act: impl FnOnce(i32) -> Result<T, LossCause>,
) -> Result<T, LossCause> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW | flags;
    let fd = open(path, flags).map_err(|error| match error {
        libc::ENOSPC | libc::EDQUOT => LossCause::DiskFull,
        _ => LossCause::NoFile,
    })?;
    let done = if add_blocks(fd, len, step) { act(fd) } else { Err(LossCause::DiskFull) };
    system::close(fd);
    done
}

/// Populates all pages of a range of a mapped file, writable, at once. Single page faults at the first stores
/// would take several times as long, since the file system's code is not in the caches then. Before Linux
/// 5.14 this call fails.
fn populate(base: NonNull<u8>, offset: usize, len: usize) {
    let new = base.as_ptr().wrapping_add(offset) as usize;
    let how = libc::MADV_POPULATE_WRITE as usize;
    // SAFETY: callers pass a range of a mapping of ours that the file has; its contents stay.
    unsafe { system::call(libc::SYS_madvise, [new, len, how, 0, 0]) };
}

/// A descriptor that programs hardly have, below the usual limit of 1024.
const HIGH: usize = 960;

/// Opens a file of ours; the caller closes it. Its number is that of the program's next descriptor for an
/// instant only, and then a high one. If the program has used up its descriptors, ours is one that its limit
/// does not count. Errors are those of the operating system.
pub fn open(path: &CStr, flags: i32) -> Result<i32, i32> {
    let (folder, path) = folder::place(path);
    let arguments = [folder as usize, path.as_ptr() as usize, flags as usize, 0o644, 0];
    // SAFETY: `path` is NUL-terminated.
    let open = || unsafe { system::call(libc::SYS_openat, arguments) as i32 };
    match open() {
        fd @ 0.. => {
            let arguments = [fd as usize, libc::F_DUPFD_CLOEXEC as usize, HIGH, 0, 0];
            // SAFETY: `fd` is ours.
            match unsafe { system::call(libc::SYS_fcntl, arguments) as i32 } {
                high @ 0.. => {
                    system::close(fd);
                    Ok(high)
                }
                _ => Ok(fd),
            }
        }
        error if error == -libc::EMFILE => descriptors::open_above_limit(open),
        error => Err(-error),
    }
}

/// Whether the process may make a file so large. A write beyond the limit would raise a signal that ends the
/// program.
pub fn may_be_as_large(size: usize) -> bool {
    let limit = system::limit(libc::RLIMIT_FSIZE, None);
    limit.is_ok_and(|limit| size as u64 <= limit.rlim_cur)
}

/// Sets the size of a file that other processes may map, and allocates its disk blocks: a full disk is an
/// error here, and never a SIGBUS at a store. False if that cannot be had.
pub fn set_size(fd: i32, len: usize) -> bool {
    // SAFETY: system calls on a descriptor that the caller owns; they touch no memory of the process. Zeros
    // are a valid `stat`.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let is_set = libc::fstat(fd, &mut stat) == 0 && stat.st_size == len as libc::off_t;
        is_set
            || may_be_as_large(len)
                && (libc::fallocate(fd, 0, 0, len as libc::off_t) == 0
                    || system::last_error() == libc::EOPNOTSUPP
                        && libc::ftruncate(fd, len as libc::off_t) == 0)
    }
}

/// Allocates disk blocks for a range of the file.
fn add_blocks(fd: i32, offset: usize, len: usize) -> bool {
    if refuses(libc::SYS_fallocate) || refuses(libc::SYS_pwrite64) {
        return false;
    }
    if !may_be_as_large(offset + len) {
        return false;
    }
    // SAFETY: a system call on a descriptor that we own; it touches no memory of the process.
    if unsafe { libc::fallocate(fd, 0, offset as libc::off_t, len as libc::off_t) } == 0 {
        return true;
    }
    if system::last_error() != libc::EOPNOTSUPP {
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
