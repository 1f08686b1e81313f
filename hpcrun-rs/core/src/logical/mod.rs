//! Logical unwinding (paper, sections 3 and 4): from physical frames to a logical call path.
//!
//! - [`agents`] finds the agent that owns a frame.
//! - [`cursor`] is the logical cursor with step-bichord, step-pnote and step-lnote.
//! - `spawner` reads a task's spawn context.
//! - [`path`] holds the notes of the path.
//! - [`backtrace`] is the paper's Algorithm 1.
//! - [`backtrace_cache`] reuses the outer frames of the previous path.
//!
//! Async-signal-safe, except for functions that say otherwise.

pub mod agents;
pub mod backtrace_cache;
pub mod cursor;
pub mod path;
mod spawner;

pub use backtrace_cache::BacktraceCache;
pub use cursor::LogicalCursor;
pub use path::{Note, PathBuffer, PathRoot};
pub use spawner::forget_sites;

use hpc_formats::loss::LossCause;
use hpc_formats::profile::Association;

/// The paper's Algorithm 1. Unwinds logically with a cursor that has not moved yet, and stores the notes in
/// `path`, innermost first, up to the notes that it shares with the previous path. Returns the root of the
/// path: the parent of its outermost note.
pub fn backtrace(
    cursor: &mut LogicalCursor<'_>,
    path: &mut PathBuffer,
    cache: &mut BacktraceCache,
) -> PathRoot {
    path.clear();
    cache.begin(cursor.generation());
    cursor.start();
    let root = walk(cursor, path, cache);
    if !cursor.is_idle() {
        cache.end(root, cursor.words(), path.notes().len());
    }
    root
}

fn walk(
    cursor: &mut LogicalCursor<'_>,
    path: &mut PathBuffer,
    cache: &mut BacktraceCache,
) -> PathRoot {
    while let Some(association) = cursor.step_bichord() {
        if association == Association::OneToOne {
            if let Some(root) = look_up(cursor, path, cache, cursor.context()) {
                return root;
            }
            // One p-note and one l-note by definition, so there are no chords to collect.
            if !path.push_native(cursor.step_native()) {
                return PathRoot::Partial(LossCause::TooDeep);
            }
            continue;
        }
        path.open();
        // Every l-note pairs with the first p-note's bichord, so this is its context.
        let mut context = cursor.context();
        while let Some(ip) = cursor.step_pnote() {
            context = ip.0;
            if !path.push_pnote(ip) {
                return PathRoot::Partial(LossCause::TooDeep);
            }
        }
        let mut hit = None;
        while let Some(lip) = cursor.step_lnote() {
            hit = look_up(cursor, path, cache, context);
            if hit.is_some() || !path.push_lnote(lip) {
                break;
            }
        }
        if !path.close(association) {
            return PathRoot::Partial(LossCause::TooDeep);
        }
        if let Some(root) = hit {
            return root;
        }
    }
    cursor.root()
}

/// Looks the current frame up in the cache. On a hit, the path shares the rest of its notes with the previous
/// path, and has its root.
#[inline]
fn look_up(
    cursor: &LogicalCursor<'_>,
    path: &mut PathBuffer,
    cache: &mut BacktraceCache,
    context: u64,
) -> Option<PathRoot> {
    let position = cursor.position()?;
    let (words, notes) = (cursor.words().len(), path.reached());
    let (root, outer) = cache.look_up(position, context, words, notes)?;
    path.share(outer);
    Some(root)
}
