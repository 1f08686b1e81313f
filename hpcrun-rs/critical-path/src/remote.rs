//! Strands on their way to and from other processes.
//!
//! One duty: put what a strand is into a message of fixed size ([`RemoteStrand`]), and take it out of one. A
//! process keeps its *exports*: what it has sent, so that after the run the path can be followed from process
//! to process. The chain of a strand that was received begins with a segment whose place names the export and
//! whose time is the chain's length there.
//!
//! A message says what zeroing saves for [`SAVINGS`] procedures, those with the largest savings, marks first.
//! What it does not name counts as saving nothing: a zeroed span is never too short.

use std::collections::VecDeque;

use hpc_formats::critical_path::{Export, Rank};
use hpcrun_abi::{RemoteStrand, SAVINGS, SITE_REMOTE, Saving};

use crate::clock::Clock;
use crate::path::{Edge, List, Segment, Site, Tree};
use crate::procedures::{DENSE, Procedure, Procedures};
use crate::report::on_path;
use crate::sampled::{ContextTree, Function, OnPath, Sampled};
use crate::strand::{Chain, Strand};
use crate::thread::Thread;
use crate::tracker::{Lost, MOST_NAMES, Names, Tracker, lock};

/// Exports that a process keeps: the oldest are forgotten beyond.
const MOST_EXPORTS: usize = 1 << 16;
/// Functions that a message names at most.
const FUNCTIONS: usize = 12;
/// Marks the number of a procedure that the program has marked; others are functions.
const MARK: u64 = 1 << 63;
/// In place of a line: the procedure was met in a message, and its name is the number.
const NAMELESS: u32 = u32::MAX;

/// What a process has exported.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    kept: VecDeque<Kept>,
    /// The number of the first that is kept.
    first: u32,
}

/// What is kept of an export: in the order of time, without what a later import needs.
#[derive(Debug)]
struct Kept {
    length: u64,
    last: Segment,
    list: List,
    contexts: OnPath,
    /// Time of the first procedures on the path, and of others.
    dense: [u64; DENSE],
    others: Box<[(Procedure, u64)]>,
}

impl Exports {
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = List> + use<> {
        self.first = self.first.wrapping_add(self.kept.len() as u32);
        std::mem::take(&mut self.kept)
            .into_iter()
            .map(|kept| kept.list)
    }

    /// The export's number, and the oldest one's list, if there is one too many.
    fn push(&mut self, kept: Kept) -> (u32, Option<List>) {
        if self.kept.capacity() == 0 {
            // Only what is used is ever touched.
            self.kept.reserve_exact(MOST_EXPORTS + 1);
        }
        let number = self.first.wrapping_add(self.kept.len() as u32);
        self.kept.push_back(kept);
        if self.kept.len() <= MOST_EXPORTS {
            return (number, None);
        }
        self.first = self.first.wrapping_add(1);
        (number, self.kept.pop_front().map(|oldest| oldest.list))
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
pub(crate) struct Keys(Vec<u64>);

impl Keys {
    fn refresh(&mut self, tracker: &Tracker) {
        self.0 = tracker.with_names(|names| names.iter().map(key_of_entry).collect());
    }

    fn key(&mut self, tracker: &Tracker, procedure: Procedure) -> u64 {
        if self.0.len() <= procedure.0 as usize {
            self.refresh(tracker);
        }
        self.0.get(procedure.0 as usize).copied().unwrap_or(0)
    }

    /// `None`: there are too many.
    fn procedure(&mut self, tracker: &Tracker, key: u64) -> Option<Procedure> {
        let known = |keys: &[u64]| keys.iter().position(|known| *known == key);
        if known(&self.0).is_none() {
            tracker.with_names(|names| {
                if !names.iter().any(|name| key_of_entry(name) == key) && names.len() < MOST_NAMES {
                    names.push((format!("{key:016x}").into(), NAMELESS));
                }
            });
            self.refresh(tracker);
        }
        known(&self.0).map(|number| Procedure(number as u32))
    }
}

/// Keeps the largest of all savings that are put in.
struct Heaviest<'a> {
    savings: &'a mut [Saving; SAVINGS],
    count: usize,
}

impl Heaviest<'_> {
    #[inline]
    fn put(&mut self, procedure: u64, time: u64) {
        let new = Saving { procedure, time };
        if let Some(free) = self.savings.get_mut(self.count) {
            *free = new;
            self.count += 1;
        } else if let Some(least) = self.savings.iter_mut().min_by_key(|saving| saving.time) {
            if least.time < time {
                *least = new;
            }
        }
    }
}

impl<C: Clock> Thread<'_, C> {
    /// The strand at `at`, for another process, as the `rank` it comes from. A thread that pauses does not
    /// read the clock.
    pub fn export(&mut self, at: Site, rank: u32, remote: &mut RemoteStrand) {
        self.update();
        let (length, burdened, session) = self.lengths();
        let mut heaviest = Heaviest {
            savings: &mut remote.savings,
            count: 0,
        };
        let strand = &self.strand.0;
        let mut dense = [0; DENSE];
        for (procedure, times) in strand.procedures.iter() {
            if times.saving > 0 {
                heaviest.put(self.keys.key(self.tracker, procedure), times.saving);
            }
            if let Some(on_path) = dense.get_mut(procedure.number()) {
                *on_path = times.on_path;
            }
        }
        let free = FUNCTIONS.min(SAVINGS - heaviest.count);
        for (Function(key), saving) in strand.sampled.heaviest(FUNCTIONS, length).iter().take(free)
        {
            heaviest.put(*key & !MARK, *saving);
        }
        remote.count = heaviest.count as u32;
        let kept = Kept {
            length,
            last: Segment {
                end: at,
                ..self.strand.open_segment()
            },
            list: strand.list.share(&self.tracker.arena),
            contexts: strand.sampled.contexts(),
            dense,
            others: strand.procedures.others(),
        };
        let (export, oldest) = lock(&self.tracker.exports).push(kept);
        (remote.length, remote.burdened) = (length, burdened);
        (remote.rank, remote.export, remote.session) = (rank, export, session);
        oldest.into_iter().for_each(|oldest| self.release(oldest));
    }

    /// The strand, at `at`, has waited for one of another process. A thread that pauses does not read the
    /// clock.
    pub fn import(&mut self, remote: &RemoteStrand, at: Site) {
        if remote.session != self.tracker.session() {
            let untracked = remote.session == 0;
            return self.lose(if untracked {
                Lost::Untracked
            } else {
                Lost::OtherSession
            });
        }
        let mut procedures = Procedures::default();
        let mut functions = [(Function(0), 0); SAVINGS];
        let mut found = 0;
        let count = remote.savings.len().min(remote.count as usize);
        for saving in &remote.savings[..count] {
            if saving.procedure & MARK == 0 {
                functions[found] = (Function(saving.procedure), saving.time);
                found += 1;
            } else if let Some(procedure) = self.keys.procedure(self.tracker, saving.procedure) {
                procedures.set_saving(procedure, saving.time);
            }
        }
        functions[..found].sort_unstable();
        self.merge_remote(remote, procedures, &functions[..found], at);
    }
}

impl Strand {
    /// Makes this, which is nobody's any more, one that comes from another process; it goes on where it is
    /// merged.
    pub(crate) fn set_remote(
        &mut self,
        remote: &RemoteStrand,
        procedures: Procedures,
        functions: &[(Function, u64)],
    ) {
        let begin = SITE_REMOTE | u64::from(remote.rank) << 32 | u64::from(remote.export);
        let chain = &mut *self.0;
        *chain = Chain::start(u32::MAX, Site(begin), Edge::Message, remote.session);
        chain.length = remote.length;
        chain.placed = remote.length;
        chain.at = Site(0);
        chain.burdened = remote.burdened;
        chain.least = remote.length;
        chain.procedures = procedures;
        chain.sampled = Sampled::of(functions.to_vec());
    }
}

impl Tracker {
    /// What this process has exported, without who it is in its job.
    pub fn exported(&self) -> Rank<Site> {
        let (mut tree, mut contexts) = (Tree::default(), ContextTree::default());
        let mut keys = Keys::default();
        let exports = lock(&self.exports);
        let describe = |kept: &Kept| {
            let dense = (0..).map(Procedure).zip(kept.dense);
            let marks = dense.chain(kept.others.iter().copied());
            let marks = marks.filter(|(_, time)| *time > 0);
            Export {
                length: kept.length,
                last: kept.last,
                before: kept.list.add_to(&self.arena, &mut tree),
                contexts: kept.contexts.add_to(&mut contexts),
                marks: marks.map(|(p, time)| (keys.key(self, p), time)).collect(),
            }
        };
        let all = exports.kept.iter().map(describe).collect();
        let parts = contexts.parts.into_iter();
        let parts = parts.map(|(before, times)| (before, times.iter().map(on_path).collect()));
        Rank {
            first: exports.first,
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
                savings.push(Saving {
                    procedure,
                    time: times.saving,
                });
            }
            for (Function(procedure), time) in strand.0.sampled.savings() {
                savings.push(Saving {
                    procedure: *procedure & !MARK,
                    time: *time,
                });
            }
        });
        let named = |known: &&(Box<str>, u32)| !is_nameless(known);
        let names = self.names();
        let names = names.iter().filter(named);
        let marks = names
            .map(|(name, _)| (key_of(name), name.to_string()))
            .collect();
        (savings, marks)
    }
}
