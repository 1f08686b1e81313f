//! The numbers that the profiler gives procedures and places, kept by each thread: asking takes a lock.

use core::cell::Cell;
use core::panic::Location;
use core::ptr;

use hpcrun_abi::{PathTable, Site};

/// Entries of a thread's table, in which a name or place has one entry, which it may lose to another.
const ENTRIES: usize = 64;

thread_local! {
    /// Address, length, number. No two names or places of a program agree in address and length.
    static KNOWN: [Cell<(usize, usize, u64)>; ENTRIES] =
        const { [const { Cell::new((0, 0, 0)) }; ENTRIES] };
}

/// The place of the call of the public function that calls this.
#[inline]
#[track_caller]
pub(crate) fn here(path: &PathTable) -> Site {
    source(path, Location::caller())
}

/// The number of a place in the source.
#[inline]
pub(crate) fn source(path: &PathTable, location: &'static Location<'static>) -> Site {
    known((ptr::from_ref(location).addr(), 0), || {
        let file = location.file();
        // SAFETY: the text is there.
        unsafe { (path.source)(file.as_ptr(), file.len(), location.line()) }
    })
}

/// The number of a procedure; 0 if there are too many.
#[inline]
pub(crate) fn procedure(path: &PathTable, name: &'static str) -> u32 {
    let number = known((name.as_ptr().addr(), name.len()), || {
        // SAFETY: the text is there.
        u64::from(unsafe { (path.procedure)(name.as_ptr(), name.len()) })
    });
    number as u32
}

#[inline]
fn known(key: (usize, usize), ask: impl FnOnce() -> u64) -> u64 {
    KNOWN.with(|entries| {
        let entry = &entries[(key.0 / 8 + key.1) % ENTRIES];
        let (address, length, number) = entry.get();
        if (address, length) == key {
            return number;
        }
        let number = ask();
        entry.set((key.0, key.1, number));
        number
    })
}
