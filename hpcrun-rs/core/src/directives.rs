//! Counts the executions of OpenMP's directives, and the chunks of its loops, by the call that the compiler
//! has made of one; of TBB's algorithms and tasks, and tasks of the program's own pools, by the call that
//! begins or makes them.
//!
//! Each of the first threads counts in a stripe of its own, without a locked instruction. The others share
//! some, so that threads that make tasks at one place seldom share a cache line. All counts are written when
//! the process ends normally or replaces itself.

use crate::threads::OwnThread;
use crate::unwind::loadmap;
use hpc_formats::address::CodeAddress;
use hpc_formats::process::{Directive, DirectiveKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// More directives than a program has.
const MOST: usize = 1 << 11;
/// Stripes of one thread each, and of all.
const OWN: usize = 24;
const STRIPES: usize = 32;
/// The kind of a directive lies above the bits of its place.
const KIND: u32 = 56;

/// The last byte of the call of each directive, with its kind; 0: no directive yet.
static PLACES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// The counts of one directive in one stripe.
struct Counts {
    executions: AtomicU64,
    uncaptured: AtomicU64,
    chunks: AtomicU64,
    iterations: AtomicU64,
}

#[allow(clippy::declare_interior_mutable_const)]
const NONE: Counts = Counts {
    executions: AtomicU64::new(0),
    uncaptured: AtomicU64::new(0),
    chunks: AtomicU64::new(0),
    iterations: AtomicU64::new(0),
};

static COUNTS: [[Counts; MOST]; STRIPES] = [const { [const { NONE }; MOST] }; STRIPES];

/// Counts an execution by `thread` of the directive of which the compiler has made the call that returns to
/// an address. `uncaptured`: its task got no context of its own. A program with more directives than there is
/// room for has no counts for some of them.
#[inline]
pub fn count(thread: OwnThread, return_address: usize, kind: DirectiveKind, uncaptured: bool) {
    if let Some(counts) = counts_of(thread, return_address, kind) {
        add(thread, if uncaptured { &counts.uncaptured } else { &counts.executions }, 1);
    }
}

/// Counts chunks of loops that `thread` has got in a region, and iterations in these.
pub fn count_chunks(thread: OwnThread, return_address: usize, kind: DirectiveKind, more: [u64; 2]) {
    if let Some(counts) = counts_of(thread, return_address, kind) {
        add(thread, &counts.chunks, more[0]);
        add(thread, &counts.iterations, more[1]);
    }
}

#[inline]
fn add(thread: OwnThread, count: &AtomicU64, more: u64) {
    match (thread.ordinal() as usize) < OWN {
        true => count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed),
        false => drop(count.fetch_add(more, Ordering::Relaxed)),
    }
}

#[inline]
fn counts_of(thread: OwnThread, return_address: usize, kind: DirectiveKind) -> Option<&'static Counts> {
    let place = (return_address as u64).wrapping_sub(1) | (kind as u64) << KIND;
    let first = (return_address.wrapping_mul(0x9e37_79b9) >> 7) % MOST;
    for at in (first..first + 8).map(|at| at % MOST) {
        let known = match PLACES[at].load(Ordering::Relaxed) {
            0 => PLACES[at].compare_exchange(0, place, Ordering::Relaxed, Ordering::Relaxed).err(),
            known => Some(known),
        };
        if known.is_none_or(|known| known == place) {
            let ordinal = thread.ordinal() as usize;
            let stripe = if ordinal < OWN { ordinal } else { OWN + ordinal % (STRIPES - OWN) };
            return Some(&COUNTS[stripe][at]);
        }
    }
    None
}

/// All directives that were executed since the process image began.
pub fn counts() -> Vec<Directive> {
    loadmap::with_current(|snapshot| {
        let directives = PLACES.iter().enumerate().filter_map(|(at, word)| {
            let word = word.load(Ordering::Relaxed);
            let (kind, place) = ((word >> KIND) as u32, word & ((1 << KIND) - 1));
            let kind = DirectiveKind::from_number(kind)?;
            let located = loadmap::locate(snapshot, place)?;
            let sum = |count: fn(&Counts) -> &AtomicU64| -> u64 {
                COUNTS.iter().map(|stripe| count(&stripe[at]).load(Ordering::Relaxed)).sum()
            };
            Some(Directive {
                place: CodeAddress::new(located.id, place.wrapping_sub(located.bias)),
                kind,
                executions: sum(|counts| &counts.executions) + sum(|counts| &counts.uncaptured),
                uncaptured: sum(|counts| &counts.uncaptured),
                chunks: sum(|counts| &counts.chunks),
                iterations: sum(|counts| &counts.iterations),
            })
        });
        directives.filter(|directive| directive.executions > 0).collect()
    })
    .unwrap_or_default()
}

/// Restarts the counts in a forked child: the counts so far belong to the parent.
pub fn start_anew() {
    // Most processes have no directives: their pages of counts are never touched.
    let used = (0..MOST).filter(|at| PLACES[*at].load(Ordering::Relaxed) != 0);
    for counts in used.flat_map(|at| COUNTS.iter().map(move |stripe| &stripe[at])) {
        let Counts { executions, uncaptured, chunks, iterations } = counts;
        for count in [executions, uncaptured, chunks, iterations] {
            count.store(0, Ordering::Relaxed);
        }
    }
}
