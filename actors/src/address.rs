//! What users hold: addresses, arrays, the context of a handler, and how actors are made.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::TrySendError;

use crate::cell::{Cell, Message};
use crate::names::Entry;
use crate::priority::Priority;
use crate::reduction::MergePoint;
use crate::report::PathReport;
use crate::shared::Shared;
use crate::strand;

/// An actor type with an entry method for messages of type `M`.
///
/// Handlers of one actor run one at a time, each to its end, on any worker. One that blocks (on a lock, a
/// channel, I/O) blocks its worker.
pub trait Handle<M>: Sized + Send + 'static {
    /// Handles a message. If it panics, the actor is stopped, and the panic is an error of
    /// [`System::run`](crate::System::run).
    fn handle(&mut self, message: M, context: &mut Context<'_, Self>);

    /// The entry method's name in reports; those of one name count as one.
    fn entry_name() -> String {
        let (actor, message) = (std::any::type_name::<Self>(), std::any::type_name::<M>());
        let end = message.find('<').unwrap_or(message.len());
        let start = message[..end].rfind("::").map_or(0, |colons| colons + 2);
        format!("{actor}::handle({})", &message[start..])
    }
}

/// A message of type `M`, until it is handled.
impl<A: Handle<M>, M: Send + 'static> Message<A> for Option<M> {
    fn run(&mut self, actor: &mut A, cell: &Arc<Cell<A>>) -> bool {
        let is_stopped = false;
        let mut context = Context { cell, is_stopped };
        let message = self.take();
        message.into_iter().for_each(|message| actor.handle(message, &mut context));
        !context.is_stopped
    }

    fn entry(&self) -> Entry {
        A::entry_name
    }
}

/// Where an actor gets messages. An actor that no address leads to, and that has no message, is dropped.
pub struct Address<A>(pub(crate) Arc<Cell<A>>);

impl<A: Send + 'static> Address<A> {
    /// Sends a message. It is handled later, after those that the caller has sent before to this actor,
    /// unless it is more urgent. To an actor that has stopped it is not delivered but counted, see
    /// [`System::undelivered`](crate::System::undelivered).
    ///
    /// If the mailbox is bounded and has no room: an actor that sends handles no further message until there
    /// is room; a program or a foreign thread waits in here.
    #[track_caller]
    #[inline]
    pub fn send<M: Send + 'static>(&self, message: M)
    where
        A: Handle<M>,
    {
        // An undelivered message is counted.
        drop(self.0.send(Some(message), None, true));
    }

    /// As [`Address::send`], with a priority, which automatic priorities do not change.
    #[track_caller]
    pub fn send_with<M: Send + 'static>(&self, priority: Priority, message: M)
    where
        A: Handle<M>,
    {
        drop(self.0.send(Some(message), Some(priority), true));
    }

    /// Sends a message if the actor lives and has room for it.
    ///
    /// # Errors
    /// The message, if the mailbox is full, or if the actor has stopped (it is disconnected).
    #[track_caller]
    pub fn try_send<M: Send + 'static>(&self, message: M) -> Result<(), TrySendError<M>>
    where
        A: Handle<M>,
    {
        let sent = self.0.send(Some(message), None, false);
        sent.map_err(|error| match error {
            TrySendError::Full(Some(message)) => TrySendError::Full(message),
            TrySendError::Disconnected(Some(message)) => TrySendError::Disconnected(message),
            _ => unreachable!("no handler has taken it"),
        })
    }

    /// Whether the actor has stopped.
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// The actor's name in reports.
    pub fn name(&self) -> String {
        self.0.shared.groups.name(self.0.number)
    }
}

impl<A> Clone for Address<A> {
    fn clone(&self) -> Self {
        Address(Arc::clone(&self.0))
    }
}

impl<A: Send + 'static> fmt::Debug for Address<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.name()).finish()
    }
}

/// Actors of one type: a slice of their addresses.
pub struct Array<A>(Arc<[Address<A>]>);

impl<A: Send + 'static> Array<A> {
    /// Sends a message to all.
    #[track_caller]
    pub fn broadcast<M: Clone + Send + 'static>(&self, message: M)
    where
        A: Handle<M>,
    {
        for actor in self.iter() {
            actor.send(message.clone());
        }
    }
}

impl<A> Deref for Array<A> {
    type Target = [Address<A>];
    fn deref(&self) -> &[Address<A>] {
        &self.0
    }
}

impl<A> Clone for Array<A> {
    fn clone(&self) -> Self {
        Array(Arc::clone(&self.0))
    }
}

impl<A: Send + 'static> fmt::Debug for Array<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

/// What a handler can do beside sending messages.
pub struct Context<'a, A> {
    cell: &'a Arc<Cell<A>>,
    is_stopped: bool,
}

impl<A: Send + 'static> Context<'_, A> {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.cell.shared
    }

    /// The actor's own address.
    pub fn address(&self) -> Address<A> {
        Address(Arc::clone(self.cell))
    }

    /// The actor's index in its array; otherwise how many single actors of its name were made before it.
    pub fn index(&self) -> usize {
        self.cell.number as u32 as usize
    }

    /// The actor is dropped after this handler. Messages that wait are not delivered.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// For making an actor or an array.
    pub fn setup(&self) -> Setup {
        Setup::new(self.shared())
    }

    /// A new actor, named after its type.
    pub fn spawn<B: Send + 'static>(&self, actor: B) -> Address<B> {
        self.setup().spawn(actor)
    }

    /// What follows in this handler depends also on all tasks that were added to the merge point, which is
    /// empty again afterwards.
    pub fn depend_on(&self, merge: &mut MergePoint) {
        let tables = &self.shared().tables;
        merge.0.drain(..).for_each(|path| strand::merge(tables, path));
    }

    /// Adds the current task, as far as it got, to the merge point.
    pub fn add_to(&self, merge: &mut MergePoint) {
        merge.0.extend(strand::path(&self.shared().tables));
    }

    /// The critical path up to this place. `None`: it is not followed now.
    pub fn critical_path(&self) -> Option<PathReport> {
        let shared = self.shared();
        let path = strand::path(&shared.tables)?;
        let report = PathReport::new(shared, Some(path));
        strand::leave_out(&shared.tables);
        Some(report)
    }

    /// Ends a phase, and begins the next one: what the system has recorded so far is used for automatic
    /// priorities, and forgotten. A program that iterates calls it after an iteration.
    pub fn end_phase(&self) {
        let shared = self.shared();
        let path = strand::path(&shared.tables);
        shared.end_phase(path);
        shared.begin_phase(path);
        strand::leave_out(&shared.tables);
    }
}

/// How actors are made: their name, and the room of their mailboxes.
#[derive(Debug, Clone)]
pub struct Setup {
    shared: Arc<Shared>,
    name: Option<String>,
    room: usize,
}

impl Setup {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Setup { shared: Arc::clone(shared), name: None, room: usize::MAX }
    }

    /// The name in reports. Default: the actor's type.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Bounds the mailbox: who sends more than so many messages waits until half of them are handled. An
    /// actor waits between two messages, so the mailbox may have, for each sender, what one handler sends
    /// beyond. An actor never waits for itself. At least 1; default: no bound.
    #[must_use]
    pub fn mailbox(mut self, messages: usize) -> Self {
        self.room = messages.max(1);
        self
    }

    /// A new actor.
    pub fn spawn<A: Send + 'static>(&self, actor: A) -> Address<A> {
        let number = self.shared.groups.add(&self.name_of::<A>(), false);
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
        let first = self.shared.groups.add(&self.name_of::<A>(), true);
        let cell = |n| Address(Cell::new(&self.shared, first + n as u64, self.room));
        let array = Array((0..length).map(cell).collect());
        let actors: Vec<A> = (0..length).map(|n| make(n, &array)).collect();
        for (address, actor) in array.iter().zip(actors) {
            address.0.start(actor);
        }
        array
    }

    fn name_of<A>(&self) -> String {
        let default = || std::any::type_name::<A>().to_owned();
        self.name.clone().unwrap_or_else(default)
    }
}
