//! Names of actors and entry methods, by number.
//!
//! An entry method is an actor's type with a message's type; its number is valid in the whole process. An
//! actor's number has its *group* in the high half, an array or all single actors of one name, and its index
//! there in the low one. So there are as many names as types and arrays, however many actors there are.

use std::any::TypeId;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The program, which sends the first messages.
pub(crate) const PROGRAM: &str = "program";

/// Gives the number of an entry method.
pub(crate) type Entry = fn() -> u32;

#[derive(Default)]
struct Entries {
    numbers: BTreeMap<TypeId, u32>,
    names: Vec<String>,
}

static ENTRIES: Mutex<Entries> = Mutex::new(Entries {
    numbers: BTreeMap::new(),
    names: Vec::new(),
});

/// Entries of [`KNOWN`].
const SLOTS: usize = 32;

thread_local! {
    /// Numbers that the calling thread has asked for, by the function's address.
    static KNOWN: [Cell<(usize, u32)>; SLOTS] = const { [const { Cell::new((0, 0)) }; SLOTS] };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the function returns, without calling it each time.
#[inline]
pub(crate) fn number(entry: Entry) -> u32 {
    // Functions at one address are the same function, or return the same.
    let address = entry as usize;
    KNOWN.with(|known| {
        let slot = &known[address / 16 % SLOTS];
        let (at, mut number) = slot.get();
        if at != address {
            number = entry();
            slot.set((address, number));
        }
        number
    })
}

/// The number of the entry method that `T` stands for; see [`number`].
pub(crate) fn entry<T: 'static>(name: impl FnOnce() -> String) -> u32 {
    let name = name();
    let mut entries = lock(&ENTRIES);
    let Entries { numbers, names } = &mut *entries;
    *numbers.entry(TypeId::of::<T>()).or_insert_with(|| {
        names.push(name);
        names.len() as u32 - 1
    })
}

/// The name of an entry method.
pub(crate) fn of_entry(number: u32) -> String {
    lock(&ENTRIES)
        .names
        .get(number as usize)
        .cloned()
        .unwrap_or_default()
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
    /// The number of the first of `length` actors of a new array.
    pub(crate) fn array(&self, name: &str) -> u64 {
        let mut groups = lock(&self.0);
        groups.push(Group {
            name: name.to_owned(),
            single: None,
        });
        (groups.len() as u64 - 1) << 32
    }

    /// The number of a new actor.
    pub(crate) fn single(&self, name: &str) -> u64 {
        let mut groups = lock(&self.0);
        let same = |group: &Group| group.single.is_some() && group.name == name;
        let at = groups.iter().position(same).unwrap_or_else(|| {
            groups.push(Group {
                name: name.to_owned(),
                single: Some(0),
            });
            groups.len() - 1
        });
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
            Some(Group {
                name,
                single: Some(1),
            }) => name.clone(),
            Some(Group { name, .. }) => format!("{name}[{}]", actor as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_named_by_group_and_index() {
        let groups = Groups::default();
        let (alone, array, twice) = (groups.single("a"), groups.array("a"), groups.single("b"));
        let other = groups.single("b");
        let names = [alone, array + 3, twice, other].map(|actor| groups.name(actor));
        assert_eq!(names, ["a", "a[3]", "b[0]", "b[1]"]);
    }

    #[test]
    fn entries_have_one_number_on_all_threads() {
        struct One;
        struct Other;
        let one = entry::<One>(|| "one".to_owned());
        let other = entry::<Other>(|| "other".to_owned());
        let again: Entry = || entry::<One>(|| "again".to_owned());
        let thread = std::thread::spawn(move || [number(again), number(again)]);
        assert_eq!(thread.join().expect("no panic"), [one; 2]);
        assert_ne!(one, other);
        assert_eq!(
            (of_entry(one), of_entry(u32::MAX)),
            ("one".to_owned(), String::new())
        );
    }
}
