//! Making actors.

use std::sync::Arc;

use crate::address::{Address, Array};
use crate::cell::Cell;
use crate::shared::Shared;

/// How actors are made: their name, and the room of their mailboxes.
#[derive(Clone)]
pub struct Setup {
    shared: Arc<Shared>,
    name: Option<String>,
    room: usize,
}

impl Setup {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Setup {
            shared: Arc::clone(shared),
            name: None,
            room: usize::MAX,
        }
    }

    /// The name in reports. Default: the actor's type.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Bounds the mailbox: who sends more than so many messages waits until half of them are handled. An actor
    /// waits between two messages, so the mailbox may have, for each sender, what one handler sends beyond.
    /// An actor never waits for itself. At least 1; default: no bound.
    #[must_use]
    pub fn mailbox(mut self, messages: usize) -> Self {
        self.room = messages.max(1);
        self
    }

    /// A new actor.
    pub fn spawn<A: Send + 'static>(&self, actor: A) -> Address<A> {
        let number = self.shared.groups.single(&self.name_of::<A>());
        let cell = Cell::new(&self.shared, number, self.room);
        cell.start(actor);
        Address(cell)
    }

    /// A new array of actors. `make` gets each index, and the array itself, so that its elements can refer to
    /// each other; messages that it sends are handled when all elements are made.
    pub fn array<A: Send + 'static>(
        &self,
        length: usize,
        mut make: impl FnMut(usize, &Array<A>) -> A,
    ) -> Array<A> {
        let first = self.shared.groups.array(&self.name_of::<A>());
        let cell = |n| Address(Cell::new(&self.shared, first + n as u64, self.room));
        let array = Array((0..length).map(cell).collect());
        let actors: Vec<A> = (0..length).map(|n| make(n, &array)).collect();
        for (address, actor) in array.iter().zip(actors) {
            address.0.start(actor);
        }
        array
    }

    fn name_of<A>(&self) -> String {
        self.name
            .clone()
            .unwrap_or_else(|| std::any::type_name::<A>().to_owned())
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let room = (self.room != usize::MAX).then_some(self.room);
        f.debug_struct("Setup")
            .field("name", &self.name)
            .field("mailbox", &room)
            .finish()
    }
}
