//! The sampler that lives inside a profiled process. The folders follow a sample:
//!
//! [`timer`] -> [`sample`] (the one signal handler) -> [`unwind`] (physical frames) -> [`logical`]
//! (agents, bichords, logical call paths) -> [`lcct`] (the logical calling context tree, which is the profile
//! file); `record` holds what a thread needs for it. Around them: [`threads`] (per-thread state), [`activity`] (who works, how many), [`image`] (the
//! process image and its files), [`session`] (start, end, fork), [`sites`] (counts of the runtimes),
//! [`config`], [`system`] (calls past the interposed functions), [`arch`] (the processor).
//!
//! # Contract of everything that the signal handler can reach
//! No allocation, no lock, no lazy initialisation, no panic path that is taken, no libc call outside the
//! async-signal-safe ones (`open`, `close`, `fallocate`, `mmap`, `madvise`, `ioctl`, `process_vm_readv`,
//! `clock_gettime` and their like: `tests/tests/signal_safety.rs` has the list). Modules under this contract
//! say so in their first lines.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_env = "gnu"
)))]
compile_error!("hpcrun-rs samples programs on Linux with glibc, on x86-64 and AArch64");

pub mod activity;
pub mod arch;
pub mod config;
pub mod image;
pub mod lcct;
pub mod logical;
pub mod memory;
mod record;
pub mod sample;
pub mod session;
pub mod sites;
pub mod system;
pub mod threads;
pub mod timer;
pub mod unwind;
