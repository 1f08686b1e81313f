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
//! | `Held` | it has sent more than a receiver has room for | room: `Ready` or `Idle` |
//! | `Stopped` | it is gone | – |
//!
//! The queue may have a scheduled actor twice, if a more urgent message came later: whoever takes it second
//! finds it `Running`, or scheduled again, for which it may as well be taken. No lock is held while a user's
//! code runs, be it a handler or a destructor.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

use hpcrun_api::{Edge, Strand};
use work_stealing_rt::SpawnContext;

use crate::names::{Entry, lock};
use crate::priority::Priority;
use crate::ready::Turn;
use crate::shared::Shared;
use crate::strand::{self, Current};
use crate::table::{Ended, Path, add};

/// Messages that an actor handles in a row although others are as urgent.
const BATCH: u32 = 8;
/// Waiting messages among which the most urgent one makes the actor urgent.
const SEEN: usize = 16;
/// How often a sender that waits for room looks whether anything moves at all.
const LOOK: Duration = Duration::from_millis(1);

/// A message of some type to an actor.
pub(crate) trait Message<A>: Send {
    /// Calls the actor's handler, once. Returns whether the actor goes on.
    fn run(&mut self, actor: &mut A, cell: &Arc<Cell<A>>) -> bool;
    /// Its entry method.
    fn entry(&self) -> Entry;
}

/// A message on its way.
struct Envelope<M: ?Sized> {
    /// The longest path to its sending.
    path: Path,
    /// The profiler's path, while that is followed, and where it was sent.
    tracked: Option<Box<(Strand, &'static Location<'static>)>>,
    /// Its sender, for a profiler.
    context: SpawnContext,
    message: M,
}

/// A message that waits.
struct Waiting<A> {
    /// What the sender asked for: its place in the mailbox.
    order: Priority,
    /// How soon a worker should see to the actor.
    urgency: Priority,
    envelope: Box<Envelope<dyn Message<A>>>,
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
    queue: VecDeque<Waiting<A>>,
    state: State,
    /// There unless it runs, or is stopped.
    actor: Option<Box<A>>,
    /// Its last task.
    last: Ended,
    /// The tasks that have made room for it since then, if it was held.
    room: Vec<Ended>,
    /// Receivers that had no room for what it sent; if it is held, the last one holds it.
    full: Vec<Arc<dyn Turn>>,
    /// The actors that it holds.
    held: Vec<Arc<dyn Turn>>,
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
        let mailbox = Mailbox {
            queue: VecDeque::new(),
            state: State::Running,
            actor: None,
            last: Ended::default(),
            room: Vec::new(),
            full: Vec::new(),
            held: Vec::new(),
        };
        let cell = Arc::new(Cell {
            shared: Arc::clone(shared),
            number,
            room,
            mailbox: Mutex::new(mailbox),
            freed: Condvar::new(),
        });
        let weak: Weak<Cell<A>> = Arc::downgrade(&cell);
        shared.register(weak);
        cell
    }

    pub(crate) fn start(self: &Arc<Self>, actor: A) {
        let mailbox = self.lock();
        if mailbox.state == State::Running {
            self.go_on(mailbox, Box::new(actor));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Mailbox<A>> {
        lock(&self.mailbox)
    }

    /// Whether the actor is gone.
    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().state == State::Stopped
    }

    /// Accepts a message, or gives the reason why not. Then, and if the caller is not an actor and waits in
    /// vain, the message is dropped.
    #[track_caller]
    pub(crate) fn send<M: Message<A> + 'static>(
        self: &Arc<Self>,
        message: M,
        priority: Option<Priority>,
        may_wait: bool,
    ) -> Result<(), TrySendError<M>> {
        if self.room != usize::MAX && may_wait {
            self.wait_for_room();
        }
        let shared = &self.shared;
        let place = Location::caller();
        let learnt = || shared.tuner.priority(self.number, message.entry());
        let urgency = priority.unwrap_or_else(learnt);
        let Ended(path, strand) = shared.here();
        let tracked = strand.map(|strand| Box::new((strand, place)));
        let context = SpawnContext::capture();
        let mut mailbox = self.lock();
        if mailbox.state == State::Stopped {
            drop(mailbox);
            shared.undelivered.fetch_add(1, Ordering::Relaxed);
            return Err(TrySendError::Disconnected(message));
        }
        if mailbox.queue.len() >= self.room && !may_wait {
            return Err(TrySendError::Full(message));
        }
        let envelope = Box::new(Envelope { path, tracked, context, message });
        let is_next = mailbox.add(Waiting { order: priority.unwrap_or_default(), urgency, envelope });
        let is_full = mailbox.queue.len() > self.room;
        drop(mailbox);
        if is_next {
            shared.schedule(Arc::<Self>::clone(self), urgency);
        }
        if is_full {
            strand::note_full(Arc::<Self>::clone(self));
        }
        Ok(())
    }

    /// Waits until there is room, unless in a handler. A program on a worker helps meanwhile. Gives up if
    /// nothing moves any more: then the actors are deadlocked, which `run` reports.
    #[cold]
    fn wait_for_room(&self) {
        if !matches!(strand::current(), Current::Other | Current::Program) {
            return;
        }
        for looks in 0_u64.. {
            let mailbox = self.lock();
            if mailbox.state == State::Stopped || mailbox.queue.len() < self.room {
                let last = (looks != 0).then(|| mailbox.last.share());
                drop(mailbox);
                return last.map_or((), |last| self.shared.depend_on(last, Edge::Channel));
            }
            if strand::current() == Current::Program {
                drop(mailbox);
                if self.shared.help_once() {
                    continue;
                }
            } else {
                drop(self.freed.wait_timeout(mailbox, LOOK));
            }
            if self.shared.ready.is_idle() && self.lock().queue.len() >= self.room {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// The actor has handled its message or just begun. It stays with `mailbox` until the next one.
    fn go_on(self: &Arc<Self>, mut mailbox: MutexGuard<'_, Mailbox<A>>, actor: Box<A>) {
        mailbox.actor = Some(actor);
        self.rest(mailbox);
    }

    /// The actor is neither running nor stopped: what next?
    fn rest<'a>(self: &'a Arc<Self>, mut mailbox: MutexGuard<'a, Mailbox<A>>) {
        while let Some(receiver) = mailbox.full.last().map(Arc::clone) {
            mailbox.state = State::Held;
            drop(mailbox);
            // Nobody but the actor itself makes room in its own mailbox.
            if receiver.number() != self.number && receiver.hold(Arc::<Self>::clone(self)) {
                return;
            }
            mailbox = self.lock();
            if mailbox.state == State::Stopped {
                return;
            }
            mailbox.full.pop();
        }
        let Some(priority) = mailbox.urgency() else {
            mailbox.state = State::Idle;
            return;
        };
        mailbox.state = State::Ready(priority);
        drop(mailbox);
        self.shared.schedule(Arc::<Self>::clone(self), priority);
    }

    /// Handles one message. Returns the mailbox, and whether the actor goes on.
    #[inline]
    fn handle<'a>(
        self: &'a Arc<Self>,
        mut mailbox: MutexGuard<'a, Mailbox<A>>,
        actor: &mut A,
        message: Waiting<A>,
        worker: usize,
    ) -> (MutexGuard<'a, Mailbox<A>>, bool) {
        let shared = &self.shared;
        // Who waits for room in the mailbox may ask for it meanwhile.
        let last = mailbox.last.0;
        let before = if self.room == usize::MAX { mailbox.last.1.take() } else { mailbox.last.share().1 };
        let room = match mailbox.room.is_empty() {
            true => None,
            false => Some(std::mem::take(&mut mailbox.room)),
        };
        drop(mailbox);
        let mut envelope = message.envelope;
        let entry = envelope.message.entry();
        let is_recorded = shared.is_recording();
        let left = begin_tracked(envelope.tracked.take(), before);
        if is_recorded {
            if left.is_some() {
                strand::rest(&shared.tables, worker);
            }
            let of = (self.number, entry);
            strand::begin(&shared.tables, worker, of, &envelope.path, &last);
        }
        let outer = strand::replace(Current::Handler);
        if let Some(room) = room {
            room.into_iter().for_each(|room| shared.depend_on(room, Edge::Channel));
        }
        let context = envelope.context;
        let call = || context.enter(|| envelope.message.run(actor, self));
        let result = catch_unwind(AssertUnwindSafe(call));
        let ended = strand::replace(outer);
        let path = match is_recorded {
            true => strand::end(&shared.tables),
            false => Path::default(),
        };
        let strand = left.and_then(|left| left.end());
        add(&shared.tables.of[worker].messages, 1);
        if let Some(strand) = &strand {
            shared.add_end(strand);
        }
        let goes_on = result.unwrap_or_else(|payload| {
            shared.note_panic(self.number, entry(), payload);
            false
        });
        mailbox = self.lock();
        (mailbox.last.0, mailbox.last.1) = (path, strand);
        if let Current::Full(from) = ended {
            mailbox.full = strand::take_full(from);
        }
        let goes_on = goes_on && mailbox.state != State::Stopped;
        (mailbox, goes_on)
    }

    /// Those that waited for room go on: its last task has made it.
    #[cold]
    fn let_go(&self, held: Vec<Arc<dyn Turn>>, last: &Ended) {
        held.into_iter().for_each(|actor| actor.resume(last.share()));
        self.freed.notify_all();
    }

    /// Drops a user's value; its panic is contained as a handler's is.
    fn discard<T>(&self, value: T) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            let entry = format!("{}::drop", std::any::type_name::<A>());
            self.shared.note_panic(self.number, entry, payload);
        }
    }

    fn end(&self, mut mailbox: MutexGuard<'_, Mailbox<A>>, running: Option<Box<A>>) {
        mailbox.state = State::Stopped;
        let actor = mailbox.actor.take().or(running);
        let queue = std::mem::take(&mut mailbox.queue);
        let held = std::mem::take(&mut mailbox.held);
        let (full, last) = (std::mem::take(&mut mailbox.full), mailbox.last.share());
        drop((mailbox, full));
        let undelivered = &self.shared.undelivered;
        undelivered.fetch_add(queue.len() as u64, Ordering::Relaxed);
        self.discard(actor);
        queue.into_iter().for_each(|message| self.discard(message));
        self.let_go(held, &last);
    }
}

/// A task begins for the profiler: after its message, and after its actor's last task.
#[inline]
fn begin_tracked(
    message: Option<Box<(Strand, &'static Location<'static>)>>,
    before: Option<Strand>,
) -> Option<Strand> {
    if !hpcrun_api::is_active() {
        return None;
    }
    let left = match message.map(|message| *message) {
        Some((strand, place)) => Strand::begin_from(Some(strand), place),
        None => Strand::begin(None),
    };
    if before.is_some() {
        Strand::merge(before, Edge::Lock);
    }
    left
}

impl<A> Mailbox<A> {
    /// Adds a message behind all that are at least as urgent by their senders' wishes. True: the actor must
    /// be scheduled for it.
    #[inline]
    fn add(&mut self, message: Waiting<A>) -> bool {
        let (order, urgency) = (message.order, message.urgency);
        if self.queue.back().is_none_or(|last| last.order >= order) {
            self.queue.push_back(message);
        } else {
            let at = self.queue.partition_point(|other| other.order >= order);
            self.queue.insert(at, message);
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
}

impl<A: Send + 'static> Turn for Cell<A> {
    fn number(&self) -> u64 {
        self.number
    }

    fn run(self: Arc<Self>, worker: usize, is_nested: bool) {
        let mut mailbox = self.lock();
        if !matches!(mailbox.state, State::Ready(_)) {
            return;
        }
        let Some(mut actor) = mailbox.actor.take() else {
            return;
        };
        mailbox.state = State::Running;
        for handled in 1.. {
            let Some(next) = mailbox.queue.pop_front() else {
                return self.go_on(mailbox, actor);
            };
            if self.room != usize::MAX && mailbox.queue.len() <= self.room / 2 {
                let (held, last) = (std::mem::take(&mut mailbox.held), mailbox.last.share());
                drop(mailbox);
                self.let_go(held, &last);
                mailbox = self.lock();
            }
            let goes_on;
            (mailbox, goes_on) = self.handle(mailbox, &mut actor, next, worker);
            if !goes_on {
                return self.end(mailbox, Some(actor));
            }
            let others = |next| self.shared.ready.has(next, handled < BATCH);
            let must_end = is_nested || !mailbox.full.is_empty();
            if must_end || mailbox.urgency().is_none_or(others) {
                return self.go_on(mailbox, actor);
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
            self.shared.held.fetch_add(1, Ordering::Relaxed);
            mailbox.held.push(sender);
        }
        is_full
    }

    fn resume(self: Arc<Self>, after: Ended) {
        self.shared.held.fetch_sub(1, Ordering::Relaxed);
        let mut mailbox = self.lock();
        mailbox.full.pop();
        mailbox.room.push(after);
        if mailbox.state == State::Held {
            self.rest(mailbox);
        }
    }

    fn holder(&self) -> Option<Arc<dyn Turn>> {
        let mailbox = self.lock();
        let is_held = mailbox.state == State::Held;
        mailbox.full.last().filter(|_| is_held).map(Arc::clone)
    }
}
