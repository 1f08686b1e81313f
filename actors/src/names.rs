//! Names of actors and entry methods, by number.
//!
//! An entry method is an actor's type with a message's type; its number is valid in the whole process. An
//! actor's number has its *group* in the high half, an array or all single actors of one name, and its index
//! there in the low one. So there are as many names as types and arrays, however many actors there are.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The program, which sends the first messages.
pub(crate) const PROGRAM: &str = "program";

/// For type ids, which are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes
            .iter()
            .fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

type Numbers = HashMap<TypeId, u32, BuildHasherDefault<AsIs>>;

struct Entries {
    numbers: Option<Numbers>,
    names: Vec<String>,
}

static ENTRIES: Mutex<Entries> = Mutex::new(Entries {
    numbers: None,
    names: Vec::new(),
});

thread_local! {
    static KNOWN: RefCell<Numbers> = RefCell::default();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of the entry method that `T` stands for.
#[inline]
pub(crate) fn entry<T: 'static>(name: impl FnOnce() -> String) -> u32 {
    let id = TypeId::of::<T>();
    let known = KNOWN.with_borrow(|known| known.get(&id).copied());
    known.unwrap_or_else(|| {
        let name = name();
        let number = number(id, name);
        KNOWN.with_borrow_mut(|known| known.insert(id, number));
        number
    })
}

#[cold]
fn number(id: TypeId, name: String) -> u32 {
    let mut entries = lock(&ENTRIES);
    let Entries { numbers, names } = &mut *entries;
    *numbers
        .get_or_insert_default()
        .entry(id)
        .or_insert_with(|| {
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
        let again = std::thread::spawn(|| entry::<One>(|| "again".to_owned()));
        assert_eq!(again.join().expect("no panic"), one);
        assert_ne!(one, other);
        assert_eq!(
            (of_entry(one), of_entry(u32::MAX)),
            ("one".to_owned(), String::new())
        );
    }
}
