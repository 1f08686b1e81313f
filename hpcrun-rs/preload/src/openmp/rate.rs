//! How many tasks get a captured context: a capture costs as much as several empty tasks. A thread captures
//! so many in a row at once, and beyond them so many in a time.

use hpcrun_core::arch;
use std::cell::Cell;

/// Cycles between two captures of a thread that makes tasks without an end: about 4 us.
const CYCLES: u64 = 1 << 13;
/// Captures in a row.
const BURST: u64 = 1 << 12;
/// After one that is not allowed, so many tasks are not asked for: the counter takes as long as a task.
const SKIPPED: u32 = 7;

thread_local! {
    /// The cycle counter at which all captures so far would have had their time, and tasks to skip.
    static PAID: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// Whether the next task of the calling thread gets one.
pub(super) fn allows() -> bool {
    let (paid, skip @ 1..) = PAID.get() else { return ask() };
    PAID.set((paid, skip - 1));
    false
}

fn ask() -> bool {
    let now = arch::counter();
    let paid = PAID.get().0.max(now.saturating_sub(CYCLES * BURST));
    let allows = paid <= now;
    PAID.set(if allows { (paid + CYCLES, 0) } else { (paid, SKIPPED) });
    allows
}
