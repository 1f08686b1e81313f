//! Gives memory that was freed back to the system, so that it does not add to what is used next.
//!
//! Best effort: with glibc, whose allocator keeps it otherwise; elsewhere nothing happens.

/// Less is not worth the time that it takes.
#[cfg(target_env = "gnu")]
const WORTH_IT: usize = 1 << 25;

/// Gives back what can be given back, after about so many bytes were freed.
pub(crate) fn freed_memory(bytes: usize) {
    #[cfg(target_env = "gnu")]
    if bytes < WORTH_IT {
        return;
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes the allocator's own locks, touches no memory that is in use, and
    // does not unwind; it may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
