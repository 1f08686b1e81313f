//! An actor as the scheduler sees it, and what the calling thread runs.

use std::cell::RefCell;
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
#[derive(Default)]
pub(crate) enum Current {
    /// Nothing: a sender may block it.
    #[default]
    Other,
    /// A program on a worker: a sender may run handlers meanwhile.
    Program,
    /// A handler, whose sender must not wait here: the receivers that have no room for what it sent.
    Handler(Vec<Arc<dyn Turn>>),
}

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current::Other) };
}

impl Current {
    /// The calling thread runs this from now on; returns what it ran before.
    #[inline]
    pub(crate) fn replace(self) -> Self {
        CURRENT.replace(self)
    }

    #[inline]
    pub(crate) fn with<R>(look: impl FnOnce(&mut Current) -> R) -> R {
        CURRENT.with_borrow_mut(look)
    }
}
