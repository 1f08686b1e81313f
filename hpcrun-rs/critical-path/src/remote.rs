//! Strands on their way to and from other processes.
//!
//! One duty: put what a strand is into a message of fixed size ([`RemoteStrand`]), and take it out of one. A
//! process keeps its *exports*: what it has sent, so that after the run the path can be followed from process
//! to process. The chain of a strand that was received begins with a segment whose place names the export and
//! whose time is the chain's length there.
//!
//! A message says what zeroing saves for [`SAVINGS`] procedures, those with the largest savings, marks first.
//! What it does not name counts as saving nothing: a zeroed span is never too short.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;

use hpc_formats::critical_path::{Export, Rank};
use hpcrun_abi::{MARK, RemoteStrand, SAVINGS, Saving};

use crate::clock::Clock;
use crate::lock;
use crate::path::{List, Segment, Site, Tree, remote};
use crate::procedures::{DENSE, Procedure, Procedures};
use crate::report::on_path;
use crate::sampled::{ContextTree, Function, OnPath};
use crate::thread::Thread;
use crate::tracker::{Lost, MOST_NAMES, Names, Tracker};

/// Exports that a process keeps: the oldest are forgotten beyond.
const MOST_EXPORTS: u32 = 1 << 16;
/// Functions that a message names at most.
const FUNCTIONS: usize = 12;
/// In place of a line: the procedure was met in a message, and its name is the number.
const NAMELESS: u32 = u32::MAX;

/// What a process has exported.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    /// The number of the next one.
    next: AtomicU32,
    /// By number, modulo [`MOST_EXPORTS`].
    kept: Mutex<Vec<Option<Kept>>>,
}

/// What is kept of an export: in the order of time, without what a later import needs.
#[derive(Debug)]
struct Kept {
    number: u32,
    length: u64,
    last: Segment,
    origin: Option<(Site, u64)>,
    list: List,
    contexts: OnPath,
    /// Time of the first procedures on the path, and of others.
    dense: [u64; DENSE],
    others: Box<[(Procedure, u64)]>,
}

impl Exports {
    pub(crate) fn clear(&self) -> impl Iterator<Item = List> + use<> {
        let kept = std::mem::take(&mut *lock(&self.kept));
        kept.into_iter().flatten().map(|kept| kept.list)
    }

    /// Keeps an export; the list of the one that is forgotten for it.
    fn keep(&self, kept: Kept) -> Option<List> {
        let mut all = lock(&self.kept);
        let at = (kept.number % MOST_EXPORTS) as usize;
        if all.len() <= at {
            // Only what is used is ever touched.
            let room = MOST_EXPORTS as usize - all.len();
            all.reserve_exact(room);
            all.resize_with(at + 1, || None);
        }
        all[at].replace(kept).map(|oldest| oldest.list)
    }

    pub(crate) fn is_unlocked(&self) -> bool {
        self.kept.try_lock().is_ok()
    }
}

/// The number by which messages name a procedure that the program has marked.
pub fn key_of(name: &str) -> u64 {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash | MARK
}

/// The procedure's number in messages.
fn key_of_entry((name, line): &(Box<str>, u32)) -> u64 {
    match *line {
        NAMELESS => u64::from_str_radix(name, 16).unwrap_or(0),
        _ => key_of(name),
    }
}

/// The program marks a procedure of this name, which may be known from messages.
pub(crate) fn name(names: &mut Names, name: &str) {
    if names.iter().any(|known| known.1 == NAMELESS) {
        let key = key_of(name);
        let nameless =
            |known: &&mut (Box<str>, u32)| known.1 == NAMELESS && key_of_entry(known) == key;
        if let Some(known) = names.iter_mut().find(nameless) {
            *known = (name.into(), 0);
        }
    }
}

/// Whether the procedure is known from messages only.
pub(crate) fn is_nameless(known: &(Box<str>, u32)) -> bool {
    known.1 == NAMELESS
}

/// The numbers of a process's procedures in messages, as a thread knows them.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    all: Vec<u64>,
    /// Of the last message: the procedures in it, by their places.
    last: [Procedure; SAVINGS],
}

impl Keys {
    #[cold]
    fn refresh(&mut self, tracker: &Tracker) {
        self.all = tracker.with_names(|names| names.iter().map(key_of_entry).collect());
    }

    #[inline]
    fn key(&mut self, tracker: &Tracker, procedure: Procedure) -> u64 {
        if self.all.len() <= procedure.number() {
            self.refresh(tracker);
        }
        self.all.get(procedure.number()).copied().unwrap_or(0)
    }

    /// Of the number at a place of a message; `None`: there are too many.
    #[inline]
    fn procedure(&mut self, tracker: &Tracker, place: usize, key: u64) -> Option<Procedure> {
        let last = self.last[place];
        if self.all.get(last.number()) == Some(&key) {
            return Some(last);
        }
        let found = self.find(tracker, key);
        self.last[place] = found.unwrap_or_default();
        found
    }

    #[cold]
    fn find(&mut self, tracker: &Tracker, key: u64) -> Option<Procedure> {
        let known = |keys: &[u64]| keys.iter().position(|known| *known == key);
        if known(&self.all).is_none() {
            tracker.with_names(|names| {
                if !names.iter().any(|name| key_of_entry(name) == key) && names.len() < MOST_NAMES {
                    names.push((format!("{key:016x}").into(), NAMELESS));
                }
            });
            self.refresh(tracker);
        }
        known(&self.all).map(|number| Procedure(number as u32))
    }
}

impl<C: Clock> Thread<'_, C> {
    /// The strand at `at`, for another process, as the `rank` it comes from. A thread that pauses does not
    /// read the clock.
    #[inline]
    pub fn export(&mut self, at: Site, rank: u32) -> &RemoteStrand {
        self.update();
        self.keep_export();
        let number = self.tracker.exports.next.fetch_add(1, Ordering::Relaxed);
        self.put_savings();
        let (strand, remote) = (&self.strand.0, &mut self.outgoing);
        (remote.length, remote.burdened) = (strand.length, strand.burdened);
        (remote.rank, remote.session) = (rank, strand.session);
        remote.export = number;
        self.exported = Some((number, at));
        remote
    }

    /// Puts the strand's savings into what goes to other processes.
    #[inline(never)]
    fn put_savings(&mut self) {
        let (strand, remote) = (&self.strand.0, &mut self.outgoing);
        let mut count = 0;
        for (procedure, times) in strand.procedures.iter().filter(|(_, t)| t.saving > 0) {
            let procedure = self.keys.key(self.tracker, procedure);
            put(&mut remote.savings, &mut count, Saving { procedure, time: times.saving });
        }
        let functions = strand.sampled.heaviest(FUNCTIONS, strand.length);
        for (free, function) in remote.savings[count..].iter_mut().zip(functions) {
            *free = *function;
            count += 1;
        }
        remote.count = count as u32;
    }

    /// Keeps what was exported last, when the message is on its way: before the strand changes.
    #[inline]
    pub(crate) fn keep_export(&mut self) {
        if let Some((number, at)) = self.exported.take() {
            self.keep(number, at);
        }
    }

    #[inline(never)]
    fn keep(&mut self, number: u32, at: Site) {
        let strand = &self.strand.0;
        let kept = Kept {
            number,
            length: strand.length,
            last: Segment { end: at, ..self.strand.open_segment() },
            origin: strand.origin,
            list: strand.list.share(&self.tracker.arena),
            contexts: strand.sampled.contexts(),
            dense: strand.procedures.dense(),
            others: strand.procedures.others(),
        };
        if let Some(oldest) = self.tracker.exports.keep(kept) {
            self.release(oldest);
        }
    }

    /// The strand, at `at`, has waited for one of another process. A thread that pauses does not read the
    /// clock.
    #[inline]
    pub fn import(&mut self, remote: &RemoteStrand, at: Site) {
        self.keep_export();
        if remote.session != self.tracker.session() {
            let untracked = remote.session == 0;
            return self.lose(if untracked { Lost::Untracked } else { Lost::OtherSession });
        }
        self.update();
        if remote.count != 0 || self.strand.has_savings() {
            let procedures = self.marks(remote);
            self.strand.merge_savings(remote, procedures);
        }
        self.merge_remote(remote, at);
    }

    /// The marked procedures of a strand of another process.
    #[inline(never)]
    fn marks(&mut self, remote: &RemoteStrand) -> Procedures {
        let mut procedures = Procedures::default();
        for (place, saving) in remote.marks().iter().enumerate() {
            let procedure = self.keys.procedure(self.tracker, place, saving.procedure);
            if let Some(procedure) = procedure {
                procedures.set_saving(procedure, saving.time);
            }
        }
        procedures
    }
}

/// What stands for an export of which nothing is known.
fn unknown() -> Export<Site> {
    Export {
        length: u64::MAX,
        last: remote((Site(0), 0)),
        before: None,
        contexts: None,
        marks: Vec::new(),
    }
}

/// Puts a saving in; if there is no room, the least one gives way.
#[inline]
fn put(savings: &mut [Saving; SAVINGS], count: &mut usize, new: Saving) {
    if let Some(free) = savings.get_mut(*count) {
        *free = new;
        *count += 1;
    } else if let Some(least) = savings.iter_mut().min_by_key(|saving| saving.time) {
        if least.time < new.time {
            *least = new;
        }
    }
}

impl Tracker {
    /// What this process has exported, without who it is in its job.
    pub fn exported(&self) -> Rank<Site> {
        let (mut tree, mut contexts) = (Tree::default(), ContextTree::default());
        let mut keys = Keys::default();
        let kept = lock(&self.exports.kept);
        let next = self.exports.next.load(Ordering::Relaxed);
        let of = |number: &u32| {
            let kept = kept.get((number % MOST_EXPORTS) as usize)?.as_ref();
            kept.filter(|kept| kept.number == *number)
        };
        let mut numbers = next.saturating_sub(MOST_EXPORTS)..next;
        let first = numbers.find(|number| of(number).is_some()).unwrap_or(next);
        let mut describe = |kept: &Kept| {
            let dense = (0..).map(Procedure).zip(kept.dense);
            let marks = dense.chain(kept.others.iter().copied());
            let marks = marks.filter(|(_, time)| *time > 0);
            Export {
                length: kept.length,
                last: kept.last,
                before: kept.list.add_to(kept.origin, &self.arena, &mut tree),
                contexts: kept.contexts.add_to(&mut contexts),
                marks: marks.map(|(p, time)| (keys.key(self, p), time)).collect(),
            }
        };
        // One that another thread has not kept yet is as one that is forgotten.
        let all =
            (first..next).map(|number| of(&number).map_or_else(unknown, &mut describe)).collect();
        let parts = contexts.parts.into_iter();
        let parts = parts.map(|(before, times)| (before, times.iter().map(on_path).collect()));
        Rank {
            first,
            exports: all,
            segments: tree.segments,
            contexts: parts.collect(),
            ..Rank::default()
        }
    }

    /// What zeroing procedures saves at the longest of all ended strands, by their numbers in messages; and
    /// the names of the procedures that the program has marked.
    pub fn savings(&self) -> (Vec<Saving>, Vec<(u64, String)>) {
        let mut keys = Keys::default();
        let mut savings = Vec::new();
        self.with_longest(|longest| {
            let Some(strand) = longest else { return };
            let marks = strand.0.procedures.iter();
            for (procedure, times) in marks.filter(|(_, times)| times.saving > 0) {
                let procedure = keys.key(self, procedure);
                savings.push(Saving { procedure, time: times.saving });
            }
            for (Function(procedure), time) in strand.0.sampled.savings() {
                savings.push(Saving { procedure: *procedure, time: *time });
            }
        });
        let named = |known: &&(Box<str>, u32)| !is_nameless(known);
        let names = self.names();
        let names = names.iter().filter(named);
        let marks = names.map(|(name, _)| (key_of(name), name.to_string())).collect();
        (savings, marks)
    }
}
