//! The work of functions with all that they call, and their part of the critical path, by the samples of one
//! process. Contexts are logical: a task's time is also that of the functions that spawned it.
//!
//! Memory follows the paths' functions and captured contexts, not the samples.

use crate::model::hash::{FastMap, FastSet};
use crate::model::symbols::{ProcedureIndex, Symbols};
use crate::passes::merge::paths::ProcessFrames;
use crate::sources::measurements::{ProcessInput, ThreadInput};
use hpc_formats::profile::{Profile, Record, VALUES_PER_RECORD, WORK};
use std::collections::BTreeMap;

/// Anchors that lead from one profile to the next are followed so often: they may form a cycle.
const MOST_ANCHORS: usize = 64;

/// Nanoseconds of a function.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Times {
    /// At all samples.
    pub work: f64,
    /// At samples on the critical path.
    pub on_path: f64,
}

impl Times {
    fn add(&mut self, other: Times) {
        self.work += other.work;
        self.on_path += other.on_path;
    }
}

/// The times of some functions.
pub fn of(
    functions: &FastSet<ProcedureIndex>,
    process: &ProcessInput,
    frames: &ProcessFrames,
    symbols: &Symbols,
) -> FastMap<ProcedureIndex, Times> {
    let mut found = FastMap::default();
    if functions.is_empty() {
        return found;
    }
    let mut walk = Walk {
        functions,
        frames,
        symbols,
        sets: Sets::default(),
        rest: BTreeMap::new(),
        done: FastMap::default(),
    };
    let mut buffer = Vec::new();
    for thread in process.threads.values() {
        // A profile that cannot be read is reported when its values are.
        if let Ok(profile) = thread.read(&mut buffer) {
            walk.thread(process, thread, &profile);
        }
    }
    for _ in 0..MOST_ANCHORS {
        for (thread, contexts) in std::mem::take(&mut walk.rest) {
            let input = process.threads.get(&thread);
            match input.map(|input| input.read(&mut buffer)) {
                Some(Ok(profile)) => walk.captured(&profile, contexts),
                _ => walk.end(contexts),
            }
        }
    }
    for contexts in std::mem::take(&mut walk.rest).into_values() {
        walk.end(contexts);
    }
    for (set, times) in &walk.done {
        for function in walk.sets.functions(*set) {
            found.entry(function).or_insert_with(Times::default).add(*times);
        }
    }
    found
}

/// The number of a set of functions.
type SetId = u32;

/// Sets of functions, each made of a smaller one and one function. Set 0 is empty.
#[derive(Default)]
struct Sets {
    all: Vec<(SetId, ProcedureIndex)>,
    known: FastMap<(SetId, ProcedureIndex), SetId>,
}

impl Sets {
    fn functions(&self, set: SetId) -> impl Iterator<Item = ProcedureIndex> {
        let part = |set: SetId| self.all.get((set as usize).checked_sub(1)?).copied();
        let parts = std::iter::successors(part(set), move |(smaller, _)| part(*smaller));
        parts.map(|(_, function)| function)
    }

    fn with(&mut self, set: SetId, function: ProcedureIndex) -> SetId {
        if let Some(known) = self.known.get(&(set, function)) {
            return *known;
        }
        let is_in = self.functions(set).any(|known| known == function);
        let larger = match is_in {
            true => set,
            false => {
                self.all.push((set, function));
                self.all.len() as SetId
            }
        };
        self.known.insert((set, function), larger);
        larger
    }
}

/// Times by the functions that are known so far.
type ByFunctions = FastMap<SetId, Times>;

struct Walk<'a> {
    functions: &'a FastSet<ProcedureIndex>,
    frames: &'a ProcessFrames,
    symbols: &'a Symbols,
    sets: Sets,
    /// Captured contexts whose outer functions are yet to be found, by thread and record.
    rest: BTreeMap<u32, FastMap<u32, ByFunctions>>,
    /// Paths whose functions are all known.
    done: ByFunctions,
}

/// What is known of a record: its functions, and the captured context that its path continues in.
type Known = (SetId, Option<(u32, u32)>);

impl Walk<'_> {
    /// Adds the samples of a thread.
    fn thread(&mut self, process: &ProcessInput, thread: &ThreadInput, profile: &Profile<'_>) {
        let work = profile.header.metrics.iter().position(|m| m.name == WORK);
        let mut known: Vec<Known> = vec![(0, None); profile.len()];
        for index in 0..profile.len() {
            match profile.record(index) {
                Some(Record::Anchor { thread, node }) => known[index].1 = Some((thread, node)),
                Some(record @ Record::Note { parent, .. }) => {
                    let (set, outer) = known[parent as usize];
                    known[index] = (self.enter(set, &record), outer);
                }
                Some(Record::Metric { owner, group, values }) => {
                    let first = group as usize * VALUES_PER_RECORD;
                    let slot = work.and_then(|work| work.checked_sub(first));
                    let word = slot.and_then(|slot| values.get(slot));
                    if let (Some(metric), Some(word)) = (work, word) {
                        let work = profile.header.metrics[metric].amount(*word);
                        let times = Times { work, on_path: 0.0 };
                        self.add(known[owner as usize], times);
                    }
                }
                _ => {}
            }
        }
        for sample in process.on_path(thread.header.thread) {
            let known = known.get(sample.record as usize).copied();
            let times = Times { work: 0.0, on_path: sample.time as f64 };
            self.add(known.unwrap_or_default(), times);
        }
    }

    /// Goes on with contexts of a thread that others' paths continue in.
    fn captured(&mut self, profile: &Profile<'_>, contexts: FastMap<u32, ByFunctions>) {
        for (record, paths) in contexts {
            let mut notes = Vec::new();
            let mut at = record;
            // A parent has a smaller index, so this ends.
            while let Some(note @ Record::Note { parent, .. }) = profile.record(at as usize) {
                notes.push(note);
                at = parent;
            }
            let outer = match profile.record(at as usize) {
                Some(Record::Anchor { thread, node }) => Some((thread, node)),
                _ => None,
            };
            for (set, times) in paths {
                let set = notes.iter().fold(set, |set, note| self.enter(set, note));
                self.add((set, outer), times);
            }
        }
    }

    /// Ends paths whose outer parts are not known.
    fn end(&mut self, contexts: FastMap<u32, ByFunctions>) {
        for (set, times) in contexts.into_values().flatten() {
            self.add((set, None), times);
        }
    }

    fn add(&mut self, (set, outer): Known, times: Times) {
        let to = match outer {
            None => &mut self.done,
            Some((thread, node)) => {
                let contexts = self.rest.entry(thread).or_default();
                contexts.entry(node).or_default()
            }
        };
        to.entry(set).or_default().add(times);
    }

    /// The functions with those of a note, if it is a user-level frame.
    fn enter(&mut self, set: SetId, note: &Record) -> SetId {
        let Record::Note { lip, .. } = note else {
            return set;
        };
        let Some(frame) = self.frames.get(&lip.0).map(|f| self.symbols.frame(*f)) else {
            return set;
        };
        let functions = frame.scopes.iter().map(|scope| scope.procedure);
        let functions = functions.filter(|function| self.functions.contains(function));
        functions.fold(set, |set, function| self.sets.with(set, function))
    }
}
