//! The library that is preloaded into a profiled program: it starts the sampler before `main`
//! and interposes the libc functions through which a program could escape it or break it.
//!
//! Every interposed function is thin: bookkeeping, then libc's own. The duties, by file:
//! `start` (constructor, exit), `threads` (creation contexts, thread end), `exec`, `children`
//! (programs that are started), `fork`, `signals` (keep our signal and stack usable), `descriptors`
//! (keep our descriptors open), `waits` (who is blocked), `loader`
//! (`dlclose`), `runtime` (the entry for cooperating runtimes), `real` (libc's own
//! functions), `heap` (memory that is not the program's).
//!
//! The library is built with `panic = "abort"`: no panic of ours can unwind into the program.

// The interposed functions are public as symbols of the library, not as Rust items.
#![allow(unreachable_pub)]

mod children;
mod descriptors;
mod exec;
mod fork;
mod heap;
mod loader;
mod real;
mod runtime;
mod signals;
mod start;
mod threads;
mod waits;
