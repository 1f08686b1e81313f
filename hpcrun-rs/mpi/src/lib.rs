//! The library that observes MPI in a profiled process. It is preloaded beside the profiler's own library,
//! into processes that a launcher of MPI jobs starts, and interposes MPI's functions for C and Fortran, of
//! Open MPI and MPICH alike: nothing of `mpi.h` is compiled in. With every message travels the sender's
//! strand of the critical path ([`hpcrun_abi::RemoteStrand`]); the receiver merges it.
//!
//! | module | duty |
//! |---|---|
//! | `library` | the MPI library: its functions, handles, constants, statuses |
//! | `call` | one call of a hook: arguments of C and Fortran, the profiler's table |
//! | `ring` | queues in memory that the processes of a host share |
//! | `matching` | which message a receive has got |
//! | `start` | the processes of a job meet |
//! | `job` | what a process knows of its job: communicators, how strands travel |
//! | `messages` | sends, receives, probes |
//! | `requests` | waits for nonblocking and persistent operations |
//! | `collectives` | collective operations, in their directions |
//! | `windows` | one-sided communication |
//! | `spawn` | processes that MPI starts |
//! | `hooks` | the interposed functions: a table |
//!
//! What a rank does in a call of MPI is no activity. Where strands travel beside messages, MPI's rule that
//! messages do not overtake each other tells which strand belongs to a message. What it does not tell, in
//! some uses of wildcards, is counted as a lost edge.
//!
//! The library is built with `panic = "abort"`, so no panic of ours unwinds into the program.

// The interposed functions are public as symbols of the library, not as Rust items.
#![allow(unreachable_pub)]

mod call;
mod collectives;
mod hooks;
mod job;
mod library;
mod matching;
mod messages;
mod requests;
mod ring;
mod spawn;
mod start;
mod windows;
