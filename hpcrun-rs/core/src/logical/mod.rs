//! Logical unwinding (paper, sections 3 and 4): from physical frames to a logical call path.
//!
//! [`agents`] says which agent owns a frame; [`cursor`] is the logical cursor with step-bichord,
//! step-pnote and step-lnote; `spawner` reads what a task says of its spawner; [`path`] holds the resulting
//! notes; [`backtrace`] is the paper's Algorithm 1; [`backtrace_cache`] spares it the frames that the path before had
//! too. Async-signal-safe, but for what says otherwise.

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

/// The paper's Algorithm 1, of a cursor that has not moved yet: unwinds logically and leaves the path in
/// `path`, innermost note first, up to where it joins the path before. The result says what the outermost
/// note hangs under.
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
            if let Some(root) = meet(cursor, path, cache, cursor.context()) {
                return root;
            }
            // One of each, by definition: no chords to gather.
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
        let mut met = None;
        while let Some(lip) = cursor.step_lnote() {
            met = meet(cursor, path, cache, context);
            if met.is_some() || !path.push_lnote(lip) {
                break;
            }
        }
        if !path.close(association) {
            return PathRoot::Partial(LossCause::TooDeep);
        }
        if let Some(root) = met {
            return root;
        }
    }
    cursor.root()
}

/// Where the walk meets the one before: the root of both. What is left of the path is shared.
#[inline]
fn meet(
    cursor: &LogicalCursor<'_>,
    path: &mut PathBuffer,
    cache: &mut BacktraceCache,
    context: u64,
) -> Option<PathRoot> {
    let position = cursor.position()?;
    let (words, notes) = (cursor.words().len(), path.reached());
    let (root, outer) = cache.meet(position, context, words, notes)?;
    path.share(outer);
    Some(root)
}
