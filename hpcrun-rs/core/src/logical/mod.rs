//! Logical unwinding (paper, sections 3 and 4): from physical frames to a logical call path.
//!
//! [`agents`] says which agent owns a frame; [`cursor`] is the logical cursor with step-bichord,
//! step-pnote and step-lnote; [`path`] holds the resulting notes; [`backtrace`] is the paper's
//! Algorithm 1; [`rayon`] knows where an uncooperative rayon has its scheduler. Async-signal-safe,
//! but for what says otherwise.

pub mod agents;
pub mod cursor;
pub mod path;
pub mod rayon;

pub use cursor::LogicalCursor;
pub use path::{Note, PathBuffer, PathRoot};

use hpc_formats::loss::LossCause;
use hpc_formats::profile::Association;

/// The paper's Algorithm 1: unwinds logically and leaves the path in `path`, innermost note
/// first. The result says what the outermost note hangs under.
pub fn backtrace(cursor: &mut LogicalCursor<'_>, path: &mut PathBuffer) -> PathRoot {
    path.clear();
    while let Some(association) = cursor.step_bichord() {
        if association == Association::OneToOne {
            // One of each, by definition: no chords to gather.
            let (ip, lip) = (cursor.step_pnote(), cursor.step_lnote());
            let (None, None) = (cursor.step_pnote(), cursor.step_lnote()) else {
                return PathRoot::Partial(LossCause::BadUnwindInfo);
            };
            if !path.push_native(ip.unwrap_or_default(), lip.unwrap_or_default()) {
                return PathRoot::Partial(LossCause::TooDeep);
            }
            continue;
        }
        path.open();
        while let Some(ip) = cursor.step_pnote() {
            if !path.push_pnote(ip) {
                return PathRoot::Partial(LossCause::TooDeep);
            }
        }
        while let Some(lip) = cursor.step_lnote() {
            if !path.push_lnote(lip) {
                break;
            }
        }
        if !path.close(association) {
            return PathRoot::Partial(LossCause::TooDeep);
        }
    }
    cursor.root()
}
