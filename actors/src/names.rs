//! Names of actors and entry methods, by number.
//!
//! An entry method's number is valid in the whole process; those of one name count as one. An actor's number
//! has its *group* in the high half, an array or all single actors of one name, and its index there in the
//! low one. So there are as many names as types and arrays, however many actors there are.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The actor that stands for the program, which sends the first messages.
pub(crate) const PROGRAM: u64 = u64::MAX;

/// Gives the name of an entry method.
pub(crate) type Entry = fn() -> String;

static ENTRIES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Entries of [`KNOWN`].
const SLOTS: usize = 32;

thread_local! {
    /// Numbers that the calling thread has asked for, by the function's address.
    static KNOWN: [Cell<(usize, u32)>; SLOTS] = const { [const { Cell::new((0, 0)) }; SLOTS] };
}

/// A mutex under which nothing panics.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of an entry method.
#[inline]
pub(crate) fn number(entry: Entry) -> u32 {
    // Functions at one address are the same function, or return the same.
    let address = entry as usize;
    let slot = address / 16 % SLOTS;
    let (known, number) = KNOWN.with(|known| known[slot].get());
    if known == address {
        return number;
    }
    let number = place(&mut lock(&ENTRIES), entry(), |one, other| one == other) as u32;
    KNOWN.with(|known| known[slot].set((address, number)));
    number
}

/// Where an element is that is `same`, or where it has been added.
fn place<T>(all: &mut Vec<T>, new: T, same: impl Fn(&T, &T) -> bool) -> usize {
    let known = all.iter().position(|old| same(old, &new));
    known.unwrap_or_else(|| {
        all.push(new);
        all.len() - 1
    })
}

/// The name of an entry method.
pub(crate) fn of_entry(number: u32) -> String {
    lock(&ENTRIES)[number as usize].clone()
}

/// The groups of a system: names, and single actors so far; `None`: an array.
#[derive(Default)]
pub(crate) struct Groups(Mutex<Vec<(String, Option<u32>)>>);

impl Groups {
    /// The number of the first actor of a new array, those of the others follow; or of a new single actor.
    pub(crate) fn add(&self, name: &str, is_array: bool) -> u64 {
        let groups = &mut *lock(&self.0);
        let new = (name.to_owned(), (!is_array).then_some(0));
        let group = place(groups, new, |old, new| !is_array && old.1.is_some() && old.0 == new.0);
        let count = groups[group].1.as_mut();
        let index = count.map_or(0, |count| std::mem::replace(count, count.wrapping_add(1)));
        (group as u64) << 32 | u64::from(index)
    }

    /// The actor's name: that of its group, with its index unless it is alone.
    pub(crate) fn name(&self, actor: u64) -> String {
        match lock(&self.0).get((actor >> 32) as usize) {
            None => String::new(),
            Some((name, Some(1))) => name.clone(),
            Some((name, _)) => format!("{name}[{}]", actor as u32),
        }
    }
}
