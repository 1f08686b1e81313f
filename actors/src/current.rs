//! What the calling thread runs for actors, and which receivers had no room for what it sent.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::turn::Turn;

/// What a thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Current {
    /// Nothing: a sender may block it.
    Other,
    /// A program on a worker: a sender may run handlers meanwhile.
    Program,
    /// A handler of the actor with this number: its sender must not wait here.
    Actor(u64),
}

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(Current::Other) };
    /// Receivers without room, with the sender's number. Sends inside of a handler that runs in the middle of
    /// another one have another sender.
    static FULL: RefCell<Vec<(u64, Arc<dyn Turn>)>> = const { RefCell::new(Vec::new()) };
}

impl Current {
    /// What the calling thread runs now.
    #[inline]
    pub(crate) fn get() -> Self {
        CURRENT.get()
    }

    /// The calling thread runs this from now on; returns what it ran before.
    #[inline]
    pub(crate) fn replace(self) -> Self {
        CURRENT.replace(self)
    }
}

/// There was no room for a message of the handler that the calling thread runs.
pub(crate) fn note_full(receiver: Arc<dyn Turn>) {
    if let Current::Actor(sender) = Current::get() {
        FULL.with_borrow_mut(|full| full.push((sender, receiver)));
    }
}

/// Removes and returns a receiver without room for a message of this actor.
pub(crate) fn take_full(sender: u64) -> Option<Arc<dyn Turn>> {
    FULL.with_borrow_mut(|full| {
        let at = full.iter().position(|(other, _)| *other == sender)?;
        Some(full.swap_remove(at).1)
    })
}
