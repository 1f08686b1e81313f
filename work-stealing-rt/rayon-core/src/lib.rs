//! rayon-core's interface on top of [`work_stealing_rt`].
//!
//! One duty: be the package that a program's rayon links instead of crates.io's rayon-core, by one
//! line in its `Cargo.toml`,
//!
//! ```toml
//! [patch.crates-io]
//! rayon-core = { path = "…/work-stealing-rt/rayon-core" }
//! ```
//!
//! or the same as `--config`. All that is here is work-stealing-rt's own; its documentation says
//! where it differs. rayon's versions that ask for rayon-core 1.12 or 1.13 are served.

pub use work_stealing_rt::{
    BroadcastContext, FnContext, Scope, ScopeFifo, ThreadBuilder, ThreadPool, ThreadPoolBuildError,
    ThreadPoolBuilder, Yield, broadcast, current_num_threads, current_thread_has_pending_tasks,
    current_thread_index, in_place_scope, in_place_scope_fifo, join, join_context, max_num_threads, scope,
    scope_fifo, spawn, spawn_broadcast, spawn_fifo, yield_local, yield_now,
};
#[allow(deprecated)]
pub use work_stealing_rt::{Configuration, initialize};

/// Says, in a linked program, that this package serves as its rayon-core, and which version of
/// rayon-core it stands for. Nothing reads it but tools that look for its name.
#[used]
#[unsafe(no_mangle)]
#[allow(unsafe_code, non_upper_case_globals)]
// SAFETY of the name: no other package defines it, and `links` keeps out a second copy of this one.
pub static work_stealing_rt_rayon_core: [u8; VERSION.len()] = {
    let mut bytes = [0; VERSION.len()];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = VERSION.as_bytes()[at];
        at += 1;
    }
    bytes
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
