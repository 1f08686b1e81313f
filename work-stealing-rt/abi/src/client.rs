//! The profiler's functions for the critical path, for callers in Rust: a strand that is not copied, and the
//! numbers of procedures and places, which each thread keeps, since asking takes a lock.

extern crate std;

use core::cell::Cell;
use core::num::NonZeroUsize;
use core::panic::Location;
use core::ptr;
use std::string::String;
use std::thread_local;
use std::vec::Vec;

use crate::{PathTable, SERIAL, Site, Strand as Word};

/// A [`Strand`](Word) that somebody has, and gives back once. Dropped, it is not given back.
#[derive(Debug)]
pub struct Strand(NonZeroUsize);

impl Strand {
    /// What a function has returned.
    #[inline(always)]
    pub fn new(word: Word) -> Option<Self> {
        NonZeroUsize::new(word).map(Strand)
    }

    /// Whether the fork is not followed ([`SERIAL`]).
    #[inline(always)]
    pub fn is_serial(&self) -> bool {
        self.0.get() == SERIAL
    }

    /// Whether the forks in the task need not be told.
    #[inline(always)]
    pub fn is_grain(&self) -> bool {
        self.0.get() & SERIAL != 0
    }

    /// What a function takes.
    #[inline(always)]
    pub fn word(strand: Option<Self>) -> Word {
        strand.map_or(0, |strand| strand.0.get())
    }

    /// The word, which stays this strand's.
    #[inline(always)]
    pub fn lent(&self) -> Word {
        self.0.get()
    }
}

/// Entries of a thread's table, in which a name or place has one entry, which it may lose to another.
const ENTRIES: usize = 64;

thread_local! {
    /// Address, length, number. No two names or places of a program agree in address and length.
    static KNOWN: [Cell<(usize, usize, u64)>; ENTRIES] =
        const { [const { Cell::new((0, 0, 0)) }; ENTRIES] };
}

impl PathTable {
    /// The site of a place in the source.
    #[inline]
    pub fn at(&self, location: &'static Location<'static>) -> Site {
        known((ptr::from_ref(location).addr(), 0), || {
            let file = location.file();
            // SAFETY: the text is there.
            unsafe { (self.source)(file.as_ptr(), file.len(), location.line()) }
        })
    }

    /// The number of a procedure; 0 if there are too many, which is counted.
    #[inline]
    pub fn number(&self, name: &'static str) -> u32 {
        let number = known((name.as_ptr().addr(), name.len()), || {
            // SAFETY: the text is there.
            u64::from(unsafe { (self.procedure)(name.as_ptr(), name.len()) })
        });
        if number == 0 {
            (self.lose)(crate::LOST_PROCEDURE);
        }
        number as u32
    }

    /// The path so far as JSON.
    pub fn json(&self) -> Option<String> {
        let mut text = Vec::new();
        loop {
            // SAFETY: the vector has so much room. If the text fits into it, its bytes are there.
            unsafe {
                let length = (self.report)(text.as_mut_ptr(), text.capacity());
                if length <= text.capacity() {
                    text.set_len(length);
                    return String::from_utf8(text).ok();
                }
                text.reserve_exact(length);
            }
        }
    }
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
