//! Logical unwinding (paper, sections 3 and 4): from physical frames to a logical call path.
//!
//! - [`walk`] goes from frame to frame, and has the verbs by which a path is made.
//! - [`agents`] finds the agent that owns a frame, and lets it make its step.
//! - [`path`] holds the notes of the path.
//! - [`backtrace_cache`] reuses the outer frames of the previous path.
//!
//! Async-signal-safe, except for functions that say otherwise.

pub mod agents;
pub mod backtrace_cache;
pub mod path;
pub mod walk;

pub use agents::forget_sites;
pub use backtrace_cache::BacktraceCache;
pub use path::{Note, PathBuffer, PathRoot};
pub use walk::Walk;

use crate::tasks::Chain;
use crate::unwind::Cursor;

/// Unwinds logically with a cursor that has not moved yet, in a thread with these tasks. See [`Walk::new`]
/// and [`Walk::run`].
#[inline]
pub fn backtrace(
    physical: Cursor<'_>,
    tasks: Chain,
    path: &mut PathBuffer,
    cache: &mut BacktraceCache,
) -> Option<PathRoot> {
    Walk::new(physical, tasks, path, cache).run(agents::step)
}
