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
use std::sync::{Arc, Mutex};

use hpc_formats::critical_path::{Export, Rank};
use hpcrun_abi::{MARK, RemoteStrand, SAVINGS, Saving};

use crate::clock::Clock;
use crate::event::Event;
use crate::lock;
use crate::path::{Edge, List, Segment, Site, Tree, remote};
use crate::report::on_path;
use crate::sampled::{ContextTree, OnPath};
use crate::savings::Savings;
use crate::thread::Thread;
use crate::tracker::{Lost, Tracker};

/// Exports that a process keeps: the oldest are forgotten beyond.
const MOST_EXPORTS: u32 = 1 << 16;
/// Functions that a message names at most.
const FUNCTIONS: usize = 12;

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
    list: List,
    contexts: OnPath,
    /// The marks' times on the path.
    marks: Arc<[(u64, u64)]>,
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

impl<C: Clock> Thread<'_, C> {
    /// The strand at `at`, for another process, as the `rank` it comes from. A thread that pauses does not
    /// read the clock.
    #[inline]
    pub fn export(&mut self, at: impl Into<Event>, rank: u32) -> &RemoteStrand {
        let at = self.reach_if_active(at.into());
        self.keep_export();
        let number = self.tracker.exports.next.fetch_add(1, Ordering::Relaxed);
        self.put_savings();
        let (strand, remote) = (&self.strand.0, &mut self.outgoing);
        (remote.length, remote.burdened) = (strand.length, strand.burdened);
        (remote.rank, remote.session) = (rank, strand.of.session);
        remote.export = number;
        if let Some(trace) = &self.tracker.settings.trace {
            (trace.send)(number);
        }
        self.exported = Some((number, at));
        remote
    }

    /// Puts the strand's savings into what goes to other processes.
    #[inline(never)]
    fn put_savings(&mut self) {
        let (strand, remote) = (&self.strand.0, &mut self.outgoing);
        let mut count = 0;
        for saving in strand.marks.send() {
            put(&mut remote.savings, &mut count, saving);
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
        let marks = || strand.marks.all().map(|(key, times)| (key, times.on_path));
        if !self.marks.iter().copied().eq(marks()) {
            self.marks = marks().collect();
        }
        let kept = Kept {
            number,
            length: strand.length,
            last: Segment { end: at, ..self.strand.open_segment() },
            list: strand.list.share(&self.tracker.arena),
            contexts: strand.sampled.contexts(),
            marks: Arc::clone(&self.marks),
        };
        if let Some(oldest) = self.tracker.exports.keep(kept) {
            self.release(oldest);
        }
    }

    /// The strand, at `at`, has waited for one of another process. A thread that pauses does not read the
    /// clock.
    #[inline]
    pub fn import(&mut self, remote: &RemoteStrand, at: impl Into<Event>) {
        self.keep_export();
        if remote.session != self.tracker.session() {
            let is_first = self.tracker.session() == self.tracker.first_session();
            match remote.session {
                0 if is_first => self.lose(Lost::Untracked),
                // It was sent before the session had begun there.
                0 => {}
                _ => self.lose(Lost::OtherSession),
            }
            return;
        }
        let at = self.reach_if_active(at.into());
        let transition = self.transition(at, Edge::Message);
        if remote.count != 0 || self.strand.has_savings() {
            self.strand.merge_savings(remote, transition.weight, &mut self.received);
        }
        self.merge_remote(remote, transition);
    }
}

/// What stands for an export of which nothing is known.
fn unknown() -> Export<Site> {
    Export { length: u64::MAX, last: remote((Site(0), 0)), before: None, contexts: None, marks: Vec::new() }
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
        let kept = lock(&self.exports.kept);
        let next = self.exports.next.load(Ordering::Relaxed);
        let of = |number: &u32| {
            let kept = kept.get((number % MOST_EXPORTS) as usize)?.as_ref();
            kept.filter(|kept| kept.number == *number)
        };
        let mut numbers = next.saturating_sub(MOST_EXPORTS)..next;
        let first = numbers.find(|number| of(number).is_some()).unwrap_or(next);
        let mut describe = |kept: &Kept| {
            let marks = kept.marks.iter().filter(|(_, time)| *time > 0);
            Export {
                length: kept.length,
                last: kept.last,
                before: kept.list.add_to(&self.arena, &mut tree),
                contexts: kept.contexts.add_to(&mut contexts),
                marks: marks.copied().collect(),
            }
        };
        // One that another thread has not kept yet is as one that is forgotten.
        let all = (first..next).map(|number| of(&number).map_or_else(unknown, &mut describe)).collect();
        let parts = contexts.parts.into_iter();
        let parts = parts.map(|(before, times)| (before, times.iter().map(on_path).collect()));
        Rank {
            first,
            exports: all,
            segments: tree.segments,
            contexts: parts.collect(),
            levels: lock(&self.levels).of_rank(),
            ..Rank::default()
        }
    }

    /// What zeroing procedures saves at the longest of all ended strands, by their numbers in messages; and
    /// the names of the procedures that the program has marked.
    pub fn savings(&self) -> (Vec<Saving>, Vec<(u64, String)>) {
        let savings = self.with_longest(|longest| {
            let lists = longest.map(|strand| (&strand.0.marks, strand.0.sampled.savings()));
            let lists = lists.into_iter().flat_map(|(marks, others)| [Some(marks), others]);
            lists.flatten().flat_map(Savings::send).collect()
        });
        let names = self.names().into_iter();
        let marks = names.map(|(name, _)| (key_of(&name), name.into_string())).collect();
        (savings, marks)
    }
}
