//! Gives memory that was freed back to the system, so that it does not add to what is used next.
//!
//! Best effort: for programs whose allocator is glibc's, which keeps it otherwise. The command's own
//! allocator gives memory back by itself; elsewhere nothing happens.

/// Less is not worth the time that it takes.
const WORTH_IT: usize = 1 << 25;

/// Whether so many bytes should be given back before more are used.
pub(crate) fn is_worth_it(bytes: usize) -> bool {
    bytes >= WORTH_IT
}

/// Gives back what can be given back.
pub(crate) fn freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes the allocator's own locks, touches no memory that is in use, and
    // does not unwind; it may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
