//! One actor: its state, its mailbox, and its turns on a worker.
//!
//! One duty: run an actor's messages one at a time, the most urgent first, in the order in which they came
//! otherwise. The states of a mailbox:
//!
//! | state | means | left by |
//! |---|---|---|
//! | `Idle` | no message waits | a message: `Ready` |
//! | `Ready` | the queue of ready actors has it | a worker: `Running` |
//! | `Running` | a worker has the actor's state | the end of a message: any other |
//! | `Held` | it has sent more than the receivers have room for | room: `Ready` or `Idle` |
//! | `Stopped` | it is gone | – |
//!
//! The queue may have a scheduled actor twice, if a more urgent message came later: whoever takes it second
//! finds it `Running`, or scheduled again, for which it may as well be taken. No lock is held while a user's
//! code runs, be it a handler or a destructor.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use work_stealing_rt::SpawnContext;

use crate::current::{Current, note_full, take_full};
use crate::names::{self, Entry};
use crate::priority::Priority;
use crate::shared::{RawPanic, Shared};
use crate::strand::{self, Begin};
use crate::table::{Path, What};
use crate::turn::Turn;

/// Messages that an actor handles in a row although others are as urgent.
const BATCH: u32 = 8;
/// Waiting messages among which the most urgent one makes the actor urgent.
const SEEN: usize = 16;
/// How often a sender that waits for room looks whether anything moves at all.
const LOOK: Duration = Duration::from_millis(1);

/// A message of some type to an actor.
pub(crate) trait Message<A>: Send {
    /// Calls the actor's handler. Returns whether the actor goes on.
    fn run(self: Box<Self>, actor: &mut A, cell: &Arc<Cell<A>>) -> bool;
    /// Gives the number of its entry method.
    fn entry(&self) -> Entry;
}

/// A message on its way.
struct Envelope<A> {
    message: Box<dyn Message<A>>,
    /// The longest path to its sending.
    path: Path,
    /// Where it was sent, for a profiler.
    context: SpawnContext,
    /// What the sender asked for: its place in the mailbox.
    order: Priority,
    /// How soon a worker should see to the actor.
    urgency: Priority,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Ready(Priority),
    Running,
    Held,
    Stopped,
}

struct Mailbox<A> {
    queue: VecDeque<Envelope<A>>,
    state: State,
    /// There unless it runs, or is stopped.
    actor: Option<Box<A>>,
    /// The path of its last task.
    last: Path,
    /// How many actors hold it.
    holds: u32,
    /// The actors that it holds.
    held: Vec<Arc<dyn Turn>>,
}

/// What to do with a message for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    Wait,
    Refuse,
}

/// Why a message was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Stopped,
    Full,
}

pub(crate) struct Cell<A> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u64,
    /// Messages for which there is room.
    room: usize,
    mailbox: Mutex<Mailbox<A>>,
    /// There is room again.
    freed: Condvar,
}

impl<A: Send + 'static> Cell<A> {
    /// A cell whose actor comes later, by [`Cell::start`]; until then messages wait.
    pub(crate) fn new(shared: &Arc<Shared>, number: u64, room: usize) -> Arc<Self> {
        let cell = Arc::new(Cell {
            shared: Arc::clone(shared),
            number,
            room,
            mailbox: Mutex::new(Mailbox {
                queue: VecDeque::new(),
                state: State::Running,
                actor: None,
                last: Path::default(),
                holds: 0,
                held: Vec::new(),
            }),
            freed: Condvar::new(),
        });
        let weak: Weak<Cell<A>> = Arc::downgrade(&cell);
        shared.register(weak);
        cell
    }

    pub(crate) fn start(self: &Arc<Self>, actor: A) {
        let mailbox = self.lock();
        if mailbox.state == State::Running {
            self.rest(mailbox, Box::new(actor));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mailbox<A>> {
        // Nothing panics under the lock.
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the actor is gone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().state == State::Stopped
    }

    /// Accepts a message, or gives the reason why not. Then, and if the caller is not an actor and waits in
    /// vain, the message is dropped.
    pub(crate) fn send<M: Message<A> + 'static>(
        self: &Arc<Self>,
        message: M,
        priority: Option<Priority>,
        when_full: WhenFull,
    ) -> Result<(), (Refused, M)> {
        let is_bounded = self.room != usize::MAX;
        if is_bounded && when_full == WhenFull::Wait && !matches!(Current::get(), Current::Actor(_))
        {
            self.wait_for_room();
        }
        let path = self.shared.path();
        let order = priority.unwrap_or_default();
        let urgency =
            priority.unwrap_or_else(|| self.shared.priority(self.number, message.entry()));
        let context = SpawnContext::capture();
        let mut mailbox = self.lock();
        if mailbox.state == State::Stopped {
            drop(mailbox);
            self.shared.count_undelivered(1);
            return Err((Refused::Stopped, message));
        }
        if mailbox.queue.len() >= self.room && when_full == WhenFull::Refuse {
            return Err((Refused::Full, message));
        }
        let message = Box::new(message);
        let is_next = mailbox.add(Envelope {
            message,
            path,
            context,
            order,
            urgency,
        });
        let is_full = mailbox.queue.len() > self.room;
        drop(mailbox);
        if is_next {
            self.shared.schedule(Arc::<Self>::clone(self), urgency);
        }
        if is_full {
            note_full(Arc::<Self>::clone(self));
        }
        Ok(())
    }

    /// Waits until there is room. A program on a worker helps meanwhile. Gives up if nothing moves any more:
    /// then the actors are deadlocked, which `run` reports.
    #[cold]
    fn wait_for_room(&self) {
        loop {
            let mailbox = self.lock();
            if mailbox.state == State::Stopped || mailbox.queue.len() < self.room {
                return;
            }
            if Current::get() == Current::Program {
                drop(mailbox);
                if self.shared.help_once() {
                    continue;
                }
            } else {
                drop(self.freed.wait_timeout(mailbox, LOOK));
                if !self.shared.ready.is_idle() {
                    continue;
                }
            }
            if self.shared.ready.is_idle() && self.lock().queue.len() >= self.room {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// The actor has handled its message or just begun. It stays with `mailbox` until the next one.
    fn rest(self: &Arc<Self>, mut mailbox: MutexGuard<'_, Mailbox<A>>, actor: Box<A>) {
        mailbox.actor = Some(actor);
        self.go_on(mailbox);
    }

    /// The actor is neither running nor stopped: what next?
    fn go_on(self: &Arc<Self>, mut mailbox: MutexGuard<'_, Mailbox<A>>) {
        if mailbox.holds != 0 {
            mailbox.state = State::Held;
            return;
        }
        let Some(priority) = mailbox.urgency() else {
            mailbox.state = State::Idle;
            return;
        };
        mailbox.state = State::Ready(priority);
        drop(mailbox);
        self.shared.schedule(Arc::<Self>::clone(self), priority);
    }

    /// Handles one message. Returns the task's path, and whether the actor goes on.
    #[inline]
    fn handle(
        self: &Arc<Self>,
        actor: &mut A,
        envelope: Envelope<A>,
        last: Path,
        worker: usize,
    ) -> (Path, bool) {
        let Envelope {
            message,
            path,
            context,
            ..
        } = envelope;
        let entry = message.entry();
        let tables = &self.shared.tables;
        let begin = || {
            let what = What {
                actor: self.number,
                entry: names::number(entry),
            };
            let last = if tables.actor_order {
                last
            } else {
                Path::default()
            };
            strand::begin(
                tables,
                &Begin {
                    worker,
                    what,
                    message: path,
                    actor: last,
                },
            )
        };
        let recorded = self.shared.is_recording().then(begin);
        let before = Current::Actor(self.number).replace();
        let call = || context.enter(|| message.run(actor, self));
        let result = catch_unwind(AssertUnwindSafe(call));
        before.replace();
        let path = recorded.map_or_else(Path::default, |outer| strand::end(tables, outer));
        self.shared.count_message(worker);
        let goes_on = result.unwrap_or_else(|payload| {
            let panic = RawPanic::new(self.number, entry(), payload);
            self.shared.note_panic(panic);
            false
        });
        while let Some(receiver) = take_full(self.number) {
            self.wait_for(&receiver);
        }
        (path, goes_on)
    }

    /// Is held by an actor without room, unless that has some now. Nobody but the actor itself makes room in
    /// its own mailbox.
    #[cold]
    fn wait_for(self: &Arc<Self>, target: &Arc<dyn Turn>) {
        if target.number() == self.number {
            return;
        }
        self.lock().holds += 1;
        let this: Arc<dyn Turn> = Arc::<Self>::clone(self);
        if !target.hold(this) {
            self.lock().holds -= 1;
        }
    }

    /// Those that waited for room go on.
    #[cold]
    fn let_go(&self, held: Vec<Arc<dyn Turn>>) {
        for actor in held {
            self.shared.is_free(actor.number(), self.number);
            actor.resume();
        }
    }

    /// Drops a user's value; its panic is contained as a handler's is.
    fn discard<T>(&self, value: T) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            let entry = names::entry::<Self>(|| format!("{}::drop", std::any::type_name::<A>()));
            self.shared
                .note_panic(RawPanic::new(self.number, entry, payload));
        }
    }

    fn end(&self, mut mailbox: MutexGuard<'_, Mailbox<A>>, running: Option<Box<A>>) {
        mailbox.state = State::Stopped;
        let actor = mailbox.actor.take().or(running);
        let queue = std::mem::take(&mut mailbox.queue);
        let held = std::mem::take(&mut mailbox.held);
        drop(mailbox);
        self.shared.count_undelivered(queue.len() as u64);
        self.discard(actor);
        queue
            .into_iter()
            .for_each(|envelope| self.discard(envelope.message));
        self.let_go(held);
        self.freed.notify_all();
    }
}

impl<A> Mailbox<A> {
    /// Adds a message behind all that are at least as urgent by their senders' wishes. True: the actor must
    /// be scheduled for it.
    #[inline]
    fn add(&mut self, envelope: Envelope<A>) -> bool {
        let Envelope { order, urgency, .. } = envelope;
        if self.queue.back().is_none_or(|last| last.order >= order) {
            self.queue.push_back(envelope);
        } else {
            let at = self.queue.partition_point(|other| other.order >= order);
            self.queue.insert(at, envelope);
        }
        let is_next = match self.state {
            State::Idle => true,
            State::Ready(before) => before < urgency,
            State::Running | State::Held | State::Stopped => false,
        };
        if is_next {
            self.state = State::Ready(urgency);
        }
        is_next
    }

    /// That of the most urgent of the next messages: those before it must be handled first.
    #[inline]
    fn urgency(&self) -> Option<Priority> {
        self.queue.iter().take(SEEN).map(|next| next.urgency).max()
    }

    /// Those that may go on, if so many messages leave enough room: half of it.
    #[inline]
    fn take_held(&mut self, room: usize) -> Vec<Arc<dyn Turn>> {
        if self.held.is_empty() || self.queue.len() > room / 2 {
            return Vec::new();
        }
        std::mem::take(&mut self.held)
    }
}

impl<A: Send + 'static> Turn for Cell<A> {
    fn number(&self) -> u64 {
        self.number
    }

    fn run(self: Arc<Self>, worker: usize) {
        let mut mailbox = self.lock();
        if !matches!(mailbox.state, State::Ready(_)) {
            return;
        }
        let Some(mut actor) = mailbox.actor.take() else {
            return;
        };
        mailbox.state = State::Running;
        for handled in 1.. {
            let Some(envelope) = mailbox.queue.pop_front() else {
                return self.rest(mailbox, actor);
            };
            let last = mailbox.last;
            if self.room != usize::MAX {
                let held = mailbox.take_held(self.room);
                drop(mailbox);
                self.let_go(held);
                self.freed.notify_all();
            } else {
                drop(mailbox);
            }
            let (path, goes_on) = self.handle(&mut actor, envelope, last, worker);
            mailbox = self.lock();
            mailbox.last = path;
            if !goes_on || mailbox.state == State::Stopped {
                return self.end(mailbox, Some(actor));
            }
            let others = |next| self.shared.ready.has(next, handled < BATCH);
            if mailbox.holds != 0 || mailbox.urgency().is_none_or(others) {
                return self.rest(mailbox, actor);
            }
        }
    }

    fn stop(&self) {
        let mailbox = self.lock();
        if mailbox.state != State::Stopped {
            self.end(mailbox, None);
        }
    }

    fn hold(&self, sender: Arc<dyn Turn>) -> bool {
        let mut mailbox = self.lock();
        let is_full = mailbox.queue.len() > self.room && mailbox.state != State::Stopped;
        if is_full {
            self.shared.is_held(&sender, self.number);
            mailbox.held.push(sender);
        }
        is_full
    }

    fn resume(self: Arc<Self>) {
        let mut mailbox = self.lock();
        mailbox.holds -= 1;
        if mailbox.state == State::Held {
            self.go_on(mailbox);
        }
    }
}
