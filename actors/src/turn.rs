//! An actor as the scheduler sees it.

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

    /// One actor that held this one has room again.
    fn resume(self: Arc<Self>);
}
