//! Actors that wait for several messages in an order, as in Charm++'s Structured Dagger: the body of such an
//! actor is one flow of control, which messages continue where it waits for them.

use std::any::{Any, TypeId};
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{self, Poll, Waker};

use crate::address::{Context, Handle};
use crate::names::lock;
use crate::shared::Shared;
use crate::strand::{self, Tables};
use crate::table::Path;

/// A part of a body; see [`Inbox::overlap`].
pub type Part<'p> = Pin<Box<dyn Future<Output = ()> + Send + 'p>>;

/// An actor whose body is one flow of control. It begins with the message [`Begin`], and waits for messages
/// `(number, value)` by their types and numbers in its own order; those that come too early wait. When the
/// body has ended, the actor is stopped.
///
/// What follows a wait depends on the message and on what came before it in the body; without
/// [`actor_order`](crate::SystemBuilder::actor_order) on nothing else, and no merge points are needed.
///
/// ```
/// # use work_stealing_actors::{Begin, Script, System};
/// struct Left(u64);
/// struct Right(u64);
/// let system = System::new(2)?;
/// let adder = system.spawn(Script::new(|inbox| async move {
///     let (Left(a), Right(b)) = (inbox.when(0).await, inbox.when(0).await);
///     assert_eq!(a + b, 3);
/// }));
/// system.run(|| {
///     adder.send((0, Right(2)));
///     adder.send(Begin);
///     adder.send((0, Left(1)));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Script {
    inbox: Inbox,
    body: Part<'static>,
}

/// The message with which the body of a [`Script`] begins.
#[derive(Debug, Clone, Copy)]
pub struct Begin;

/// The messages for a [`Script`] that it has not waited for yet.
#[derive(Clone, Default)]
pub struct Inbox(Arc<Messages>);

/// A message, and the path to it.
type Waiting = (Box<dyn Any + Send>, Option<Path>);

#[derive(Default)]
struct Messages {
    /// Known when the body has begun.
    shared: OnceLock<Arc<Shared>>,
    waiting: Mutex<HashMap<(TypeId, u64), VecDeque<Waiting>>>,
}

impl Script {
    /// An actor with this body, which may wait for nothing but by its inbox.
    pub fn new<F: Future<Output = ()> + Send + 'static>(body: impl FnOnce(Inbox) -> F) -> Self {
        let inbox = Inbox::default();
        Script { body: Box::pin(body(inbox.clone())), inbox }
    }

    fn go_on(&mut self, context: &mut Context<'_, Self>) {
        let mut nobody = task::Context::from_waker(Waker::noop());
        if self.inbox.0.shared.get().is_some() && self.body.as_mut().poll(&mut nobody).is_ready() {
            context.stop();
        }
    }
}

impl Handle<Begin> for Script {
    fn handle(&mut self, _: Begin, context: &mut Context<'_, Self>) {
        self.inbox.0.shared.get_or_init(|| Arc::clone(context.shared()));
        self.go_on(context);
    }
}

impl<M: Send + 'static> Handle<(u64, M)> for Script {
    fn handle(&mut self, (number, message): (u64, M), context: &mut Context<'_, Self>) {
        let path = strand::path(&context.shared().tables);
        let key = (TypeId::of::<M>(), number);
        lock(&self.inbox.0.waiting).entry(key).or_default().push_back((Box::new(message), path));
        self.go_on(context);
    }

    fn entry_name() -> String {
        format!("Script::when({})", std::any::type_name::<M>())
    }
}

impl Inbox {
    /// Waits for a message of this type and number, of several for the first.
    pub async fn when<M: Send + 'static>(&self, number: u64) -> M {
        let (tables, mut before) = (self.tables(), None);
        let wait = poll_fn(|_| {
            let message = self.take(number);
            if message.is_none() {
                before = before.or_else(|| strand::path(tables));
            }
            message.map_or(Poll::Pending, Poll::Ready)
        });
        let (message, path) = wait.await;
        path.into_iter().chain(before).for_each(|path| strand::merge(tables, path));
        message
    }

    /// Parts of the body that go on in any order: what follows depends on the ends of all, but none of them
    /// on another one.
    pub async fn overlap(&self, mut parts: Vec<Part<'_>>) {
        let (tables, mut ends) = (self.tables(), Vec::new());
        let wait = poll_fn(|context| {
            let here = strand::path(tables);
            parts.retain_mut(|part| {
                let has_ended = part.as_mut().poll(context).is_ready();
                ends.extend(strand::path(tables).filter(|_| has_ended));
                strand::go_back(tables, here);
                !has_ended
            });
            if parts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        wait.await;
        ends.into_iter().for_each(|path| strand::merge(tables, path));
    }

    fn tables(&self) -> &Tables {
        &self.0.shared.get().expect("the body has begun").tables
    }

    fn take<M: 'static>(&self, number: u64) -> Option<(M, Option<Path>)> {
        let (mut waiting, key) = (lock(&self.0.waiting), (TypeId::of::<M>(), number));
        let same = waiting.get_mut(&key)?;
        let (message, path) = same.pop_front()?;
        if same.is_empty() {
            waiting.remove(&key);
        }
        Some((*message.downcast().ok()?, path))
    }
}
