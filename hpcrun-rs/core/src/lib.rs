//! The sampler inside a profiled process. The main modules follow a sample:
//!
//! | module | duty |
//! |---|---|
//! | [`source`] | delivers a thread's samples as signals, and makes each a value |
//! | [`sample`] | the only signal handler |
//! | [`unwind`] | physical frames |
//! | [`logical`] | agents, bichords, logical call paths |
//! | [`tasks`] | the tasks that a thread is in |
//! | [`lcct`] | the logical calling context tree, which is the profile file |
//! | `record` | what one thread needs for the previous three |
//! | `sinks` | what is told of samples: tree, critical path, counts |
//! | [`threads`] | per-thread state |
//! | [`activity`] | how many threads and workers work |
//! | [`locks`], [`futex_locks`] | who waits for which lock; locks whose waiters block on a futex |
//! | [`path`] | the critical path |
//! | [`image`], [`entries`] | the process image, and what it writes of itself |
//! | [`session`] | start, end, fork |
//! | [`sites`], [`directives`] | counters of the runtimes' spawn sites; of OpenMP's directives |
//! | [`config`] | settings from the launcher |
//! | [`host`] | the host, and the job |
//! | [`memory`] | mappings outside the program's heap |
//! | [`descriptors`] | numbers for descriptors that the program's limit does not count |
//! | [`sandbox`] | the calls that a sandbox of the program refuses |
//! | [`system`] | system calls that bypass the interposed functions |
//! | [`arch`] | processor-specific instructions |
//!
//! # Contract of all code that the signal handler can reach
//! No allocation, no lock, no lazy initialisation, no reachable panic, no libc call except the
//! async-signal-safe ones (`open`, `close`, `fallocate`, `mmap`, `madvise`, `ioctl`, `process_vm_readv`,
//! `clock_gettime` and similar ones: `tests/tests/signal_safety.rs` has the list). Modules under this
//! contract say so in their first lines.

// The library is there for the preloaded one: names that speak need no sentence.
#![allow(missing_docs)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!("hpcrun-rs samples programs on Linux with glibc, on x86-64");

pub mod activity;
pub mod arch;
pub mod config;
pub mod descriptors;
pub mod directives;
pub mod entries;
pub mod folder;
pub mod futex_locks;
pub mod host;
pub mod image;
pub mod lcct;
pub mod locks;
pub mod logical;
pub mod maps;
pub mod memory;
pub mod path;
mod record;
pub mod sample;
pub mod sandbox;
pub mod session;
mod sinks;
pub mod sites;
pub mod source;
pub mod system;
pub mod tasks;
pub mod threads;
pub mod trace;
pub mod unwind;
