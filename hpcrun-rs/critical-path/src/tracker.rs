//! What all threads of a tracked program share.
//!
//! One duty: the memory of paths, the numbers and names of procedures, totals, and the longest of all strands
//! that have ended. Threads touch it rarely: when they begin and end, and when a strand ends for which nobody
//! waits.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hpc_formats::critical_path::{Levels, Place};
use hpc_formats::numbered;
use hpcrun_abi as abi;

use crate::levels;
use crate::lock;
use crate::path::{Arena, Site};
use crate::remote::{Exports, key_of};
use crate::savings::Procedure;
use crate::settings::Settings;
use crate::shares;
use crate::starts::{self, Starts};
use crate::strand::{Memory, Spare, Strand};

numbered! {
    /// Why an edge is missing from the result.
    Lost {
        /// The other side was not tracked.
        Untracked = 0, "untracked";
        /// The other side began before the tracking did, or belongs to an earlier one.
        OtherSession = 1, "other-session";
        /// It is not known which event the other side was.
        Unknown = 2, "unknown";
        /// A procedure beyond the most that are kept; its time is on the path without a name.
        Procedure = 3, "procedure";
        /// What orders the threads is one of more objects or messages than are kept.
        Room = 4, "room";
        /// Samples of more contexts between two events than there is room for.
        Sample = 5, "sample";
        /// The receiver's part in a synchronous send.
        Synchronous = 6, "synchronous";
        /// What has ended a wait that was seen by samples alone.
        Wait = 7, "wait";
    }
}

// The numbers of those that others report.
const _: () = assert!(
    Lost::Unknown as u32 == abi::LOST_UNKNOWN
        && Lost::Procedure as u32 == abi::LOST_PROCEDURE
        && Lost::Room as u32 == abi::LOST_ROOM
        && Lost::Synchronous as u32 == abi::LOST_SYNCHRONOUS
);

/// Procedures that are told apart, and places in the source.
const MOST_NAMES: usize = 4096;
/// Procedures whose work a thread counts without a lock.
const FIRST: usize = 8;
/// Captured contexts that a report of the program's own can name.
const MOST_CONTEXTS: usize = 1 << 16;

/// The critical path of a program, as it is tracked. See the crate.
pub struct Tracker {
    pub(crate) arena: Arena,
    pub(crate) settings: Settings,
    /// The procedures, and places in the source.
    names: Mutex<Names>,
    /// The procedures' keys, by number.
    keys: Box<[AtomicU64]>,
    sources: Mutex<Names>,
    /// The plain sites of captured contexts.
    contexts: Mutex<HashMap<Site, Site>>,
    threads: Mutex<Threads>,
    ends: Mutex<Ends>,
    pub(crate) levels: Mutex<Levels>,
    pub(crate) starts: Mutex<Starts>,
    /// What was sampled in threads that have ended.
    pub(crate) sampled: Mutex<shares::Known>,
    pub(crate) exports: Exports,
    session: AtomicU32,
    /// What belongs to a session before this one counts as not there.
    first: AtomicU32,
    /// How often all threads were asked to publish their strands.
    asked: AtomicU32,
    next_thread: AtomicU32,
}

/// Totals of ended threads, and of live ones.
struct Threads {
    started: Instant,
    ended: Sums,
    live: Vec<Arc<Totals>>,
}

/// The strands that have ended.
struct Ends {
    spare: Spare,
    /// The longest, merged with all others.
    longest: Option<Strand>,
}

/// A thread's counters, of one session. Written by that thread alone.
#[derive(Default)]
pub(crate) struct Totals {
    session: AtomicU32,
    first: [AtomicU64; PROCEDURES + FIRST],
    /// Of further procedures.
    others: Mutex<Vec<u64>>,
}

/// Numbers of counters: activity, and readings of the clock that had to ask the system.
pub(crate) const WORK: usize = 0;
pub(crate) const RESYNCS: usize = 1;
/// Edges whose operation was seen, and those of which only the wake-up was; lost ones, by cause.
pub(crate) const EXACT: usize = 2;
pub(crate) const WOKEN: usize = 3;
/// Forks whose halves are grains.
pub(crate) const GRAINS: usize = 4;
pub(crate) const LOST: usize = 5;
/// Activity in procedures, by procedure.
pub(crate) const PROCEDURES: usize = LOST + Lost::ALL.len();

/// The sums of [`Totals`], by counter.
#[derive(Clone, Default)]
pub(crate) struct Sums(Vec<u64>);

/// Names by number, with lines.
pub(crate) type Names = Vec<(Box<str>, u32)>;

/// The number of a name; `None` if there are too many.
fn number(names: &Mutex<Names>, name: &str, line: u32) -> Option<u32> {
    let mut names = lock(names);
    let is_it = |known: &(Box<str>, u32)| known.1 == line && *known.0 == *name;
    let known = names.iter().position(is_it);
    if known.is_none() && names.len() < MOST_NAMES {
        names.push((name.into(), line));
        return Some(names.len() as u32 - 1);
    }
    known.map(|number| number as u32)
}

impl Totals {
    #[inline]
    pub(crate) fn add(&self, counter: usize, value: u64) {
        let Some(first) = self.first.get(counter) else {
            return self.add_other(counter - self.first.len(), value);
        };
        // Nobody else writes it.
        first.store(first.load(Ordering::Relaxed) + value, Ordering::Relaxed);
    }

    #[cold]
    fn add_other(&self, at: usize, value: u64) {
        let mut others = lock(&self.others);
        if others.len() <= at {
            others.resize(at + 1, 0);
        }
        others[at] += value;
    }

    pub(crate) fn set_resyncs(&self, resyncs: u64) {
        self.first[RESYNCS].store(resyncs, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn add_work(&self, time: u64, procedure: Option<Procedure>) {
        self.add(WORK, time);
        if let Some(procedure) = procedure {
            self.add(PROCEDURES + procedure.0 as usize, time);
        }
    }

    /// Starts from zero, in another session.
    pub(crate) fn reset(&self, session: u32) {
        self.first.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        lock(&self.others).clear();
        self.session.store(session, Ordering::Release);
    }
}

impl Sums {
    pub(crate) fn get(&self, counter: usize) -> u64 {
        self.0.get(counter).copied().unwrap_or(0)
    }

    fn add(&mut self, totals: &Totals) {
        let others = lock(&totals.others);
        let first = totals.first.iter().map(|counter| counter.load(Ordering::Relaxed));
        for (counter, value) in first.chain(others.iter().copied()).enumerate() {
            if self.0.len() <= counter {
                self.0.push(0);
            }
            self.0[counter] += value;
        }
    }
}

impl Tracker {
    /// A tracker without threads.
    pub fn new(settings: Settings) -> Self {
        let settings = Settings { segments: settings.segments.max(16), ..settings };
        Tracker {
            arena: Arena::new(settings.nodes),
            settings,
            names: Mutex::default(),
            keys: (0..MOST_NAMES).map(|_| AtomicU64::new(0)).collect(),
            sources: Mutex::default(),
            contexts: Mutex::default(),
            threads: Mutex::new(Threads {
                started: Instant::now(),
                ended: Sums::default(),
                live: Vec::new(),
            }),
            ends: Mutex::new(Ends { spare: Spare::new(), longest: None }),
            levels: Mutex::new(Levels::new(settings.level)),
            starts: Mutex::default(),
            sampled: Mutex::default(),
            exports: Exports::default(),
            session: AtomicU32::new(1),
            first: AtomicU32::new(1),
            asked: AtomicU32::new(0),
            next_thread: AtomicU32::new(0),
        }
    }

    /// Forgets all that was measured: a further session starts now. Threads join it by
    /// [`Thread::restart`](crate::Thread::restart); what belongs to an earlier session is lost when it meets
    /// this one, and counted.
    pub fn restart(&self) {
        let mut threads = lock(&self.threads);
        let mut ends = lock(&self.ends);
        let mut levels = lock(&self.levels);
        self.session.fetch_add(1, Ordering::AcqRel);
        threads.started = Instant::now();
        threads.ended = Sums::default();
        *levels = Levels::new(self.settings.level);
        *lock(&self.starts) = Starts::default();
        let old = self.exports.clear();
        let longest = ends.longest.take();
        self.with_ends(&mut ends, |memory| {
            longest.into_iter().for_each(|strand| strand.release(memory));
            old.for_each(|list| list.release(memory.arena, &mut memory.spare.nodes));
        });
    }

    /// As [`restart`](Self::restart), where the program begins: nothing that it waits for has come before.
    pub fn begin(&self) {
        self.restart();
        self.first.store(self.session(), Ordering::Relaxed);
    }

    /// The number of the program's first session.
    pub(crate) fn first_session(&self) -> u32 {
        self.first.load(Ordering::Relaxed)
    }

    /// The number of the current session.
    #[inline]
    pub fn session(&self) -> u32 {
        self.session.load(Ordering::Relaxed)
    }

    /// Asks every thread to publish its strand at its next event, for intermediate reports of programs whose
    /// threads do not end. A report some time later is about a state that each thread has passed since.
    pub fn ask(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// How often threads were asked.
    #[inline]
    pub(crate) fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    /// The procedure of that name; `None` if there are too many.
    pub fn procedure(&self, name: &str) -> Option<Procedure> {
        let number = number(&self.names, name, 0)?;
        self.keys[number as usize].store(key_of(name), Ordering::Relaxed);
        Some(Procedure(number))
    }

    /// By which a path knows a procedure.
    #[inline]
    pub(crate) fn key(&self, procedure: Procedure) -> u64 {
        self.keys.get(procedure.0 as usize).map_or(0, |key| key.load(Ordering::Relaxed))
    }

    /// The site of a line of a source file; the unknown site if there are too many.
    pub fn source(&self, file: &str, line: u32) -> Site {
        let number = number(&self.sources, file, line);
        Site(number.map_or(0, |number| abi::SITE_SOURCE | u64::from(number)))
    }

    /// A context was captured at a site.
    #[cold]
    pub(crate) fn name_context(&self, context: Site, at: Site) {
        let mut contexts = lock(&self.contexts);
        if at != Site(0) && contexts.len() < MOST_CONTEXTS {
            contexts.insert(context, at);
        }
    }

    /// What the program itself knows of a site: file and line if it comes from [`Tracker::source`]; else its
    /// number as a name. A captured context is named by the site of its event.
    pub fn place(&self, site: Site) -> Place {
        let site = lock(&self.contexts).get(&site).copied().unwrap_or(site);
        let mut place = Place::default();
        if site.0 & abi::SITE_SOURCE != 0 {
            let sources = lock(&self.sources);
            if let Some((file, line)) = sources.get((site.0 & !abi::SITE_SOURCE) as usize) {
                place.file = file.to_string();
                place.line = *line;
            }
        } else if site != Site(0) {
            place.name = format!("{:#x}", site.0);
        }
        place
    }

    pub(crate) fn names(&self) -> Names {
        lock(&self.names).clone()
    }

    pub(crate) fn enter(&self, session: u32) -> (u32, Arc<Totals>) {
        let totals = Arc::new(Totals::default());
        totals.reset(session);
        lock(&self.threads).live.push(Arc::clone(&totals));
        (self.next_thread.fetch_add(1, Ordering::Relaxed), totals)
    }

    pub(crate) fn leave(&self, totals: &Arc<Totals>) {
        let mut threads = lock(&self.threads);
        if totals.session.load(Ordering::Acquire) == self.session() {
            threads.ended.add(totals);
        }
        let at = threads.live.iter().position(|t| Arc::ptr_eq(t, totals));
        if let Some(at) = at {
            threads.live.swap_remove(at);
        }
    }

    /// What a thread has done in a session, and at last from one length to another, becomes a part of the
    /// program's levels.
    pub(crate) fn add_levels(&self, session: u32, recent: &mut levels::Recent, (from, to): (u64, u64)) {
        let mut levels = lock(&self.levels);
        if session == self.session() {
            recent.move_to(&mut levels);
            levels.add(from, to);
        } else {
            *recent = levels::Recent::new(self.settings.level);
        }
    }

    /// What a thread has started and done in a session becomes a part of the program's.
    pub(crate) fn add_starts(&self, session: u32, recent: &mut starts::Recent) {
        let mut starts = lock(&self.starts);
        if session == self.session() {
            recent.move_to(&mut starts);
        } else {
            *recent = starts::Recent::new();
        }
    }

    /// A strand ends, or is there for the moment.
    pub(crate) fn end(&self, mut strand: Strand) {
        // It parts from others somewhere else.
        strand.0.of.since = None;
        let mut ends = lock(&self.ends);
        let longest = ends.longest.take();
        ends.longest = self.with_ends(&mut ends, |memory| {
            if strand.0.of.session != self.session() {
                strand.release(memory);
                return longest;
            }
            Some(match longest {
                Some(longest) => Strand::both(memory, longest, strand),
                None => strand,
            })
        });
    }

    fn with_ends<R>(&self, ends: &mut Ends, change: impl FnOnce(&mut Memory<'_>) -> R) -> R {
        change(&mut Memory { arena: &self.arena, settings: &self.settings, spare: &mut ends.spare })
    }

    /// The sums over all threads, and the nanoseconds since the session began.
    pub(crate) fn sums(&self) -> (Sums, u64) {
        let threads = lock(&self.threads);
        let mut sums = threads.ended.clone();
        let session = self.session();
        for totals in &threads.live {
            if totals.session.load(Ordering::Acquire) == session {
                sums.add(totals);
            }
        }
        (sums, threads.started.elapsed().as_nanos() as u64)
    }

    /// Whether a report need not wait for anybody: for a thread that may have been interrupted, for good, in
    /// the middle of an operation.
    pub fn is_unlocked(&self) -> bool {
        let is_free = |totals: &Arc<Totals>| totals.others.try_lock().is_ok();
        let threads = self.threads.try_lock();
        threads.is_ok_and(|threads| threads.live.iter().all(is_free))
            && self.ends.try_lock().is_ok()
            && self.levels.try_lock().is_ok()
            && self.starts.try_lock().is_ok()
            && self.exports.is_unlocked()
            && self.names.try_lock().is_ok()
            && self.sources.try_lock().is_ok()
            && self.contexts.try_lock().is_ok()
    }

    /// Calls `read` with the longest of all ended strands.
    pub(crate) fn with_longest<R>(&self, read: impl FnOnce(Option<&Strand>) -> R) -> R {
        read(lock(&self.ends).longest.as_ref())
    }
}

impl core::fmt::Debug for Tracker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tracker")
            .field("settings", &self.settings)
            .field("session", &self.session())
            .finish_non_exhaustive()
    }
}
