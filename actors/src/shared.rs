//! What all parts of a system share: the pool, the queue of ready actors, the recorded paths, and the account
//! of what went wrong.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use work_stealing_rt::ThreadPool;

use crate::analysis::{Analysis, Window};
use crate::current::Current;
use crate::names::{self, Entry, Groups};
use crate::priority::Priority;
use crate::ready::Ready;
use crate::strand::{self, Begin, Tables};
use crate::table::{Path, What, add};
use crate::tuner::Tuner;
use crate::turn::Turn;

/// A panic of a handler. The actor is stopped, all others go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// The actor.
    pub actor: String,
    /// The entry method.
    pub entry: String,
    /// What the panic said, if it was text.
    pub message: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} panicked in {}: {}",
            self.actor, self.entry, self.message
        )
    }
}

/// A [`Panic`] with numbers in place of names.
pub(crate) struct RawPanic {
    actor: u64,
    entry: u32,
    message: String,
}

impl Panic {
    pub(crate) fn new(actor: u64, entry: u32, payload: Box<dyn Any + Send>) -> RawPanic {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        // The payload's destructor might panic too.
        std::mem::forget(payload);
        RawPanic {
            actor,
            entry,
            message: text.unwrap_or_else(|| "(not a text)".to_owned()),
        }
    }
}

/// Panics that are kept; further ones are counted.
const MOST_PANICS: usize = 100;

/// An actor that is held, and by which.
type Held = (Arc<dyn Turn>, Vec<u64>);

pub(crate) struct Shared {
    pub(crate) ready: Ready<dyn Turn>,
    pub(crate) tables: Tables,
    pub(crate) groups: Groups,
    pool: ThreadPool,
    is_recording: AtomicBool,
    /// Length of all paths when the open phase began.
    base: AtomicU64,
    window: Mutex<Window>,
    tuner: Tuner,
    actors: Mutex<Actors>,
    held: Mutex<HashMap<u64, Held>>,
    undelivered: AtomicU64,
    panics: Mutex<Vec<Panic>>,
    more_panics: AtomicU64,
}

#[derive(Default)]
struct Actors {
    all: Vec<Weak<dyn Turn>>,
    /// When to look for those that are gone.
    sweep_at: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(pool: ThreadPool, tables: Tables, records: bool, tuner: Tuner) -> Arc<Self> {
        Arc::new(Shared {
            ready: Ready::new(pool.current_num_threads()),
            groups: Groups::default(),
            pool,
            is_recording: AtomicBool::new(records),
            base: AtomicU64::new(0),
            window: Mutex::new(Window::new(&tables)),
            tuner,
            tables,
            actors: Mutex::default(),
            held: Mutex::default(),
            undelivered: AtomicU64::new(0),
            panics: Mutex::default(),
            more_panics: AtomicU64::new(0),
        })
    }

    pub(crate) fn workers(&self) -> usize {
        self.pool.current_num_threads()
    }

    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.is_recording.load(Ordering::Relaxed)
    }

    /// The path of a message that is sent now.
    #[inline]
    pub(crate) fn path(&self) -> Path {
        if !self.is_recording() {
            return Path::default();
        }
        let outside = || Path {
            length: self.base.load(Ordering::Relaxed),
            ..Path::default()
        };
        strand::path(&self.tables).unwrap_or_else(outside)
    }

    /// The priority of a message for which the sender asks for none.
    #[inline]
    pub(crate) fn priority(&self, actor: u64, entry: Entry) -> Priority {
        self.tuner.priority(actor, entry)
    }

    /// A new actor.
    pub(crate) fn register(&self, actor: Weak<dyn Turn>) {
        let mut actors = lock(&self.actors);
        if actors.all.len() >= actors.sweep_at {
            actors.all.retain(|actor| actor.strong_count() != 0);
            actors.sweep_at = (2 * actors.all.len()).max(1024);
        }
        actors.all.push(actor);
    }

    /// Ends all actors, which may refer to each other for ever otherwise.
    pub(crate) fn stop_all(&self) {
        let all = std::mem::take(&mut lock(&self.actors).all);
        all.iter()
            .filter_map(Weak::upgrade)
            .for_each(|actor| actor.stop());
    }

    /// The actor has a message.
    #[inline]
    pub(crate) fn schedule(self: &Arc<Self>, actor: Arc<dyn Turn>, priority: Priority) {
        if self.ready.push(actor, priority) {
            self.start_helper();
        }
    }

    fn start_helper(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.pool.spawn(move || this.help());
    }

    /// The body of a helper.
    fn help(&self) {
        let worker = self.worker();
        strand::rest(&self.tables, worker);
        while let Some(actor) = self.ready.take() {
            actor.run(worker);
        }
        strand::rest(&self.tables, worker);
    }

    /// Runs one ready actor in the middle of a program; false if there is none.
    pub(crate) fn help_once(self: &Arc<Self>) -> bool {
        let Some(actor) = self.ready.take_one() else {
            return false;
        };
        actor.run(self.worker());
        if self.ready.leave() {
            self.start_helper();
        }
        true
    }

    fn worker(&self) -> usize {
        // Helpers and programs run on the pool's workers.
        self.pool.current_thread_index().unwrap_or(0)
    }

    /// Calls `program` on a worker as a task of its own; its panic resumes here.
    pub(crate) fn program<R: Send>(&self, program: impl FnOnce() -> R + Send) -> R {
        self.pool.install(|| {
            let worker = self.worker();
            let entry = names::entry::<Self>(|| names::PROGRAM.to_owned());
            strand::rest(&self.tables, worker);
            let what = What {
                actor: u64::MAX,
                entry,
            };
            let (message, actor) = (self.longest(), Path::default());
            let begin = || {
                strand::begin(
                    &self.tables,
                    &Begin {
                        worker,
                        what,
                        message,
                        actor,
                    },
                )
            };
            let recorded = self.is_recording().then(begin);
            let before = Current::Program.replace();
            let result = catch_unwind(AssertUnwindSafe(program));
            before.replace();
            recorded.map(|outer| strand::end(&self.tables, outer));
            result.unwrap_or_else(|payload| resume_unwind(payload))
        })
    }

    /// Whether the calling thread is one of the pool's workers.
    pub(crate) fn is_worker(&self) -> bool {
        self.pool.current_thread_index().is_some()
    }

    fn longest(&self) -> Path {
        let longest = self.tables.of.iter().map(|table| table.longest());
        longest.fold(Path::default(), |one, other| one.order(other).0)
    }

    /// A phase begins after a path; `None`: after everything so far.
    pub(crate) fn begin_phase(&self, after: Option<Path>) {
        let mut window = lock(&self.window);
        *window = Window::new(&self.tables);
        window.base = after.unwrap_or_else(|| self.longest()).length;
        self.base.store(window.base, Ordering::Relaxed);
        self.is_recording
            .store(self.tuner.begin_phase(), Ordering::Relaxed);
    }

    /// The open phase has ended with a path, or with all.
    pub(crate) fn end_phase(&self, end: Option<Path>) {
        let (wall, messages) = {
            let window = lock(&self.window);
            (window.begun.elapsed(), self.messages() - window.messages)
        };
        let analysis = || Analysis::new(&self.tables, &lock(&self.window), end);
        self.tuner
            .end_phase(wall, messages, self.is_recording().then_some(analysis));
    }

    /// The graph of the open phase up to now, or up to the calling thread's task.
    pub(crate) fn analysis(&self, end: Option<Path>) -> (Analysis, Duration, u64) {
        let window = lock(&self.window);
        let messages = self.messages() - window.messages;
        (
            Analysis::new(&self.tables, &window, end),
            window.begun.elapsed(),
            messages,
        )
    }

    /// Whether messages get automatic priorities now.
    pub(crate) fn uses_priorities(&self) -> bool {
        self.tuner.is_used()
    }

    #[inline]
    pub(crate) fn count_message(&self, worker: usize) {
        add(&self.tables.of[worker].messages, 1);
    }

    pub(crate) fn messages(&self) -> u64 {
        let each = self.tables.of.iter();
        each.map(|table| table.messages.load(Ordering::Relaxed))
            .sum()
    }

    pub(crate) fn count_undelivered(&self, count: u64) {
        self.undelivered.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn undelivered(&self) -> u64 {
        self.undelivered.load(Ordering::Relaxed)
    }

    #[cold]
    pub(crate) fn note_panic(&self, panic: RawPanic) {
        let mut panics = lock(&self.panics);
        if panics.len() >= MOST_PANICS {
            self.more_panics.fetch_add(1, Ordering::Relaxed);
            return;
        }
        panics.push(Panic {
            actor: self.groups.name(panic.actor),
            entry: names::of_entry(panic.entry),
            message: panic.message,
        });
    }

    /// The panics since the last call, and how many more there were.
    pub(crate) fn take_panics(&self) -> (Vec<Panic>, u64) {
        let panics = std::mem::take(&mut *lock(&self.panics));
        (panics, self.more_panics.swap(0, Ordering::Relaxed))
    }

    /// `sender` waits for room in the mailbox of `by`.
    pub(crate) fn is_held(&self, sender: &Arc<dyn Turn>, by: u64) {
        let mut held = lock(&self.held);
        let new = || (Arc::clone(sender), Vec::new());
        held.entry(sender.number()).or_insert_with(new).1.push(by);
    }

    /// There is room for `sender` in the mailbox of `by`.
    pub(crate) fn is_free(&self, sender: u64, by: u64) {
        let mut held = lock(&self.held);
        if let Some((_, holders)) = held.get_mut(&sender) {
            if let Some(at) = holders.iter().position(|holder| *holder == by) {
                holders.swap_remove(at);
            }
            if holders.is_empty() {
                held.remove(&sender);
            }
        }
    }

    /// At quiescence: actors that wait for each other, in order, the first one again at the end. They are
    /// stopped. An actor is held only by one without room; that one is held too, or it would make room.
    pub(crate) fn break_deadlock(&self) -> Option<Vec<String>> {
        let mut way: Vec<(u64, Arc<dyn Turn>)> = Vec::new();
        let start = {
            let held = lock(&self.held);
            let mut next = *held.keys().min()?;
            loop {
                if let Some(start) = way.iter().position(|(actor, _)| *actor == next) {
                    break start;
                }
                let (actor, holders) = held.get(&next)?;
                way.push((next, Arc::clone(actor)));
                next = *holders.first()?;
            }
        };
        let cycle = &way[start..];
        for (_, actor) in cycle {
            actor.stop();
        }
        let names = cycle.iter().chain(&cycle[..1]);
        Some(names.map(|(actor, _)| self.groups.name(*actor)).collect())
    }
}
