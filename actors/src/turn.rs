//! An actor as the scheduler sees it, and what the calling thread runs.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Some actor.
pub(crate) trait Turn: Send + Sync {
    /// The actor's number; see `names`.
    fn number(&self) -> u64;

    /// Handles waiting messages, at least one if the actor is scheduled. On worker `worker`.
    fn run(self: Arc<Self>, worker: usize);

    /// Ends the actor. Its waiting messages are undelivered.
    fn stop(&self);

    /// `sender` has sent a message for which there was no room. True: it must wait until it gets
    /// [`Turn::resume`].
    fn hold(&self, sender: Arc<dyn Turn>) -> bool;

    /// The actor that held this one has room again.
    fn resume(self: Arc<Self>);

    /// The actor that holds this one.
    fn holder(&self) -> Option<Arc<dyn Turn>>;
}

/// What a thread runs for actors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Current {
    /// Nothing: a sender may block it.
    Other,
    /// A program on a worker: a sender may run handlers meanwhile.
    Program,
    /// A handler of the actor with this number: its sender must not wait here.
    Handler(u64),
    /// The same, and receivers had no room for what it sent.
    Full(u64),
}

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(Current::Other) };
    /// Receivers without room, with the sender's number: there may be handlers on top of others.
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

    /// There was no room for a message that the calling thread has sent.
    #[cold]
    pub(crate) fn note_full(receiver: Arc<dyn Turn>) {
        if let Current::Handler(sender) | Current::Full(sender) = Current::get() {
            Current::Full(sender).replace();
            FULL.with_borrow_mut(|full| full.push((sender, receiver)));
        }
    }

    /// The receivers that had no room for what the handler of this actor has sent.
    #[cold]
    pub(crate) fn take_full(sender: u64) -> Vec<Arc<dyn Turn>> {
        let full = FULL.take().into_iter();
        let (own, others): (Vec<_>, _) = full.partition(|(other, _)| *other == sender);
        FULL.set(others);
        own.into_iter().map(|(_, receiver)| receiver).collect()
    }
}
