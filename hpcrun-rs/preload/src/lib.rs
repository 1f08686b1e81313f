//! The library that is preloaded into a profiled program. It starts the sampler before `main`, and interposes
//! the libc functions by which a program could escape or break the sampler.
//!
//! Each interposed function is thin: bookkeeping, then libc's own function.
//!
//! | module | duty |
//! |---|---|
//! | `start` | constructor, exit |
//! | `bindings` | our own calls of libc reach libc |
//! | `threads`, `thread_life` | creation contexts; beginnings and ends of threads |
//! | `notify` | functions that libc calls in threads of its own |
//! | `exec`, `children` | programs that are started |
//! | `fork` | the forked child |
//! | `actions` | what the program sets for our signal |
//! | `masks` | keeps our signal deliverable |
//! | `affinity` | which cores the program's threads may use |
//! | `descriptors` | keeps our descriptors open |
//! | `sandbox` | sandboxes that the program enters |
//! | `privileges` | programs that become another user |
//! | `tracers` | other programs that trace this one |
//! | `events` | whom hooks tell of synchronisation |
//! | `waits` | waits, joins, futexes |
//! | `locks` | locks, conditions, barriers, semaphores |
//! | `writer` | the critical path while the program runs, and from signal to signal |
//! | `loader` | `dlclose` |
//! | `runtime` | registration of cooperating runtimes |
//! | `openmp` | regions, tasks and waits of OpenMP |
//! | `tbb` | tasks and waits of oneTBB |
//! | `messages` | what is known of calls of message-passing libraries |
//! | `real` | the functions behind the interposed ones |
//! | `heap` | memory outside the program's heap |
//!
//! The library is built with `panic = "abort"`, so no panic of ours unwinds into the program.

// The interposed functions are public as symbols of the library, not as Rust items.
#![allow(unreachable_pub)]

mod actions;
mod affinity;
mod bindings;
mod children;
mod descriptors;
mod events;
mod exec;
mod fork;
mod heap;
mod loader;
mod locks;
mod masks;
mod messages;
mod notify;
mod openmp;
mod privileges;
mod real;
mod runtime;
mod sandbox;
mod start;
mod tbb;
mod thread_life;
mod threads;
mod tracers;
mod waits;
mod writer;
