//! Finds the functions in which a thread waits, on a futex, for a lock of the standard library or of
//! parking_lot. They are cold, so they are seldom inlined; a module without symbols has none.
//!
//! `Mutex` of the standard library is known by the wait itself ([`crate::futex_locks`]).

use super::roles::{self, Range, Role};
use super::symbols::{self, contains};

/// What such a function waits for. Exclusive: it needs the lock for itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockWait {
    /// `std::sync::RwLock`, with others.
    StdShared,
    /// The same, alone.
    StdExclusive,
    /// parking_lot's `Mutex`.
    ParkedMutex,
    /// parking_lot's `RwLock`, with others.
    ParkedShared,
    /// The same, alone.
    ParkedExclusive,
}

/// What the function with this code waits for. Async-signal-safe.
pub fn wait_at(lookup: u64) -> Option<LockWait> {
    match roles::role_of(lookup)? {
        Role::LockWait(wait) => Some(wait),
        _ => None,
    }
}

/// The ranges from a module's symbol table.
pub(super) fn ranges_of(path: &str, bias: u64) -> Option<Vec<Range>> {
    // Of all crates that are built with the standard library.
    symbols::ranges_of(path, bias, b"_contended", |name| wait_in(name).map(Role::LockWait))
}

/// By the mangled name, in which identifiers have their lengths.
fn wait_in(name: &[u8]) -> Option<LockWait> {
    const STD: &[u8] = b"3std";
    const PARKING_LOT: &[u8] = b"11parking_lot";
    // Type parameters may follow the name of a type.
    const FUNCTIONS: [([&[u8]; 3], LockWait); 7] = [
        ([STD, b"6RwLock", b"14read_contended"], LockWait::StdShared),
        ([STD, b"6RwLock", b"15write_contended"], LockWait::StdExclusive),
        ([PARKING_LOT, b"RawMutex", b"9lock_slow"], LockWait::ParkedMutex),
        ([PARKING_LOT, b"RawRwLock", b"16lock_shared_slow"], LockWait::ParkedShared),
        ([PARKING_LOT, b"RawRwLock", b"19lock_exclusive_slow"], LockWait::ParkedExclusive),
        ([PARKING_LOT, b"RawRwLock", b"20lock_upgradable_slow"], LockWait::ParkedExclusive),
        ([PARKING_LOT, b"RawRwLock", b"12upgrade_slow"], LockWait::ParkedExclusive),
    ];
    let is_it = |(parts, _): &&([&[u8]; 3], LockWait)| parts.iter().all(|p| contains(name, p));
    FUNCTIONS.iter().find(is_it).map(|(_, wait)| *wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_in_both_manglings() {
        for (name, wait) in [
            (
                "_ZN11parking_lot9raw_mutex8RawMutex9lock_slow17h0123456789abcdefE",
                Some(LockWait::ParkedMutex),
            ),
            (
                "_RNvMs0_NtCs1_11parking_lot10raw_rwlockNtB5_9RawRwLock16lock_shared_slow",
                Some(LockWait::ParkedShared),
            ),
            (
                "_ZN3std3sys4sync6rwlock5futex6RwLock15write_contended17h0123456789abcdefE",
                Some(LockWait::StdExclusive),
            ),
            (
                "_RNvMs0_NtNtNtNtCs1_3std3sys4sync6rwlock5futexNtB5_6RwLock14read_contended",
                Some(LockWait::StdShared),
            ),
            ("_ZN11parking_lot9raw_mutex8RawMutex11unlock_slow17h0123456789abcdefE", None),
            (
                "_ZN11parking_lot10raw_rwlock18RawRwLock$LT$_$GT$12upgrade_slow17h0123456789abcdefE",
                Some(LockWait::ParkedExclusive),
            ),
            ("_ZN16parking_lot_core9word_lock8WordLock9lock_slow17h0123456789abcdefE", None),
        ] {
            assert_eq!(wait_in(name.as_bytes()), wait, "{name}");
        }
    }
}
