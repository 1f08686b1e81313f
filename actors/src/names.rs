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
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of an entry method.
#[inline]
pub(crate) fn number(entry: Entry) -> u32 {
    // Functions at one address are the same function, or return the same.
    let address = entry as usize;
    KNOWN.with(|known| {
        let slot = &known[address / 16 % SLOTS];
        let (at, mut number) = slot.get();
        if at != address {
            number = look_up(entry());
            slot.set((address, number));
        }
        number
    })
}

fn look_up(name: String) -> u32 {
    let mut entries = lock(&ENTRIES);
    let known = entries.iter().position(|other| *other == name);
    known.unwrap_or_else(|| {
        entries.push(name);
        entries.len() - 1
    }) as u32
}

/// The name of an entry method.
pub(crate) fn of_entry(number: u32) -> String {
    lock(&ENTRIES)[number as usize].clone()
}

/// The groups of a system.
#[derive(Default)]
pub(crate) struct Groups(Mutex<Vec<Group>>);

struct Group {
    name: String,
    /// Actors so far; `None`: an array.
    single: Option<u32>,
}

impl Groups {
    fn add(groups: &mut Vec<Group>, name: &str, single: Option<u32>) -> usize {
        let name = name.to_owned();
        groups.push(Group { name, single });
        groups.len() - 1
    }

    /// The number of the first actor of a new array; those of the others follow.
    pub(crate) fn array(&self, name: &str) -> u64 {
        (Self::add(&mut lock(&self.0), name, None) as u64) << 32
    }

    /// The number of a new actor.
    pub(crate) fn single(&self, name: &str) -> u64 {
        let mut groups = lock(&self.0);
        let same = |group: &Group| group.single.is_some() && group.name == name;
        let at = groups.iter().position(same);
        let at = at.unwrap_or_else(|| Self::add(&mut groups, name, Some(0)));
        let count = groups[at].single.get_or_insert(0);
        let index = *count;
        *count = index.wrapping_add(1);
        (at as u64) << 32 | u64::from(index)
    }

    /// The actor's name: that of its group, with its index unless it is alone.
    pub(crate) fn name(&self, actor: u64) -> String {
        let groups = lock(&self.0);
        match groups.get((actor >> 32) as usize) {
            None => String::new(),
            Some(group) if group.single == Some(1) => group.name.clone(),
            Some(group) => format!("{}[{}]", group.name, actor as u32),
        }
    }
}
