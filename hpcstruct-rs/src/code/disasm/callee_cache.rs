//! Remembers who is called: code calls the same procedures again and again, and finding out takes a
//! search in the linkage table, the relocations or the names.
//!
//! Input: addresses of procedures, and of words that lead to them. Invariant: an answer is that of
//! the [`Callees`] that is asked; what is forgotten is asked for again.

use super::control_transfer::ControlTransfer;
use super::procedure_code::{Callee, Callees};
use std::cell::Cell;

/// Answers about callees, each in the one place that its address has.
pub(crate) struct Recent(Vec<Cell<Answer>>);

/// What is known of a callee.
#[derive(Clone, Copy)]
struct Answer {
    /// Its address, or that of the word that leads to it; such a word is at no odd place in the
    /// list.
    address: u64,
    callee: Option<Callee>,
    may_throw: Option<bool>,
}

impl Default for Recent {
    fn default() -> Self {
        let nobody = Answer {
            address: 0,
            callee: None,
            may_throw: None,
        };
        Recent(vec![Cell::new(nobody); Recent::PLACES])
    }
}

impl Recent {
    /// A power of two.
    const PLACES: usize = 1 << 12;

    /// The place of the procedure at an address, or of the one that the word there leads to; and
    /// what is known.
    fn of(&self, address: u64, is_word: bool) -> (&Cell<Answer>, Answer) {
        // The golden ratio spreads neighbours.
        let hash = (address >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = (hash as usize & !1 | usize::from(is_word)) % Self::PLACES;
        let cell = &self.0[place];
        let known = cell.get();
        if known.address == address {
            return (cell, known);
        }
        let fresh = Answer {
            address,
            callee: None,
            may_throw: None,
        };
        (cell, fresh)
    }
}

/// Answers with a memory.
pub(crate) struct Remembering<'a, C> {
    /// Who knows.
    callees: &'a C,
    recent: &'a Recent,
}

impl<'a, C> Remembering<'a, C> {
    pub(crate) fn new(callees: &'a C, recent: &'a Recent) -> Self {
        Remembering { callees, recent }
    }

    fn callee(&self, address: u64, is_word: bool, find: impl FnOnce() -> Callee) -> Callee {
        let (cell, known) = self.recent.of(address, is_word);
        known.callee.unwrap_or_else(|| {
            let found = find();
            cell.set(Answer {
                callee: Some(found),
                ..known
            });
            found
        })
    }
}

impl<C: Callees> Callees for Remembering<'_, C> {
    fn direct(&self, address: u64) -> Callee {
        self.callee(address, false, || self.callees.direct(address))
    }

    fn through(&self, slot: u64) -> Callee {
        self.callee(slot, true, || self.callees.through(slot))
    }

    fn may_throw(&self, call: ControlTransfer) -> bool {
        let (address, is_word) = match call {
            ControlTransfer::Call(address) => (address, false),
            ControlTransfer::CallThrough(slot) => (slot, true),
            _ => return self.callees.may_throw(call),
        };
        let (cell, known) = self.recent.of(address, is_word);
        known.may_throw.unwrap_or_else(|| {
            let found = self.callees.may_throw(call);
            cell.set(Answer {
                may_throw: Some(found),
                ..known
            });
            found
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers by the address, and counts.
    struct Counting(Cell<u32>);

    impl Counting {
        fn answer(&self, address: u64, of_word: u32) -> Callee {
            self.0.set(self.0.get() + 1);
            Callee::Procedure(address as u32 * 2 + of_word)
        }
    }

    impl Callees for Counting {
        fn direct(&self, address: u64) -> Callee {
            self.answer(address, 0)
        }

        fn through(&self, slot: u64) -> Callee {
            self.answer(slot, 1)
        }

        fn may_throw(&self, call: ControlTransfer) -> bool {
            self.0.set(self.0.get() + 1);
            matches!(call, ControlTransfer::Call(address) if address % 3 == 0)
        }
    }

    #[test]
    fn answers_are_those_of_the_one_who_knows() {
        let (counting, recent) = (Counting(Cell::new(0)), Recent::default());
        let callees = Remembering::new(&counting, &recent);
        for address in (0..40_000).chain(0..40_000) {
            let number = address as u32 * 2;
            assert_eq!(callees.direct(address), Callee::Procedure(number));
            assert_eq!(callees.through(address), Callee::Procedure(number + 1));
            assert_eq!(
                callees.may_throw(ControlTransfer::Call(address)),
                address % 3 == 0
            );
            assert!(!callees.may_throw(ControlTransfer::CallThrough(address)));
        }
    }

    #[test]
    fn who_was_just_asked_for_is_not_asked_for_again() {
        let (counting, recent) = (Counting(Cell::new(0)), Recent::default());
        let callees = Remembering::new(&counting, &recent);
        for _ in 0..10 {
            callees.direct(0x1230);
            callees.may_throw(ControlTransfer::Call(0x1230));
            callees.through(0x1230);
        }
        assert_eq!(counting.0.get(), 3);
    }
}
