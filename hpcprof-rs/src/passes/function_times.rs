//! The work of functions with all that they call, and their part of the critical path, by process. Contexts
//! are logical: a task's time is also that of the functions that spawned it.

use crate::error::Result;
use crate::model::hash::FastMap;
use crate::model::metrics::ON_PATH;
use crate::model::symbols::{Kind, ProcedureIndex};
use crate::passes::merge::reduce::Merged;
use crate::passes::merge::shard::FIRST_OTHER;

/// Nanoseconds of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// At all samples.
    pub work: u64,
    /// At samples on the critical path.
    pub on_path: u64,
}

impl Times {
    fn add(&mut self, other: Times) {
        self.work = self.work.saturating_add(other.work);
        self.on_path = self.on_path.saturating_add(other.on_path);
    }
}

type SetId = u32;

/// The functions around each context.
pub struct Functions<'a> {
    merged: &'a Merged,
    /// Names of the metrics beside samples, work and idleness.
    others: &'a [String],
    /// Sets of functions, each made of a smaller one and one function. Set 0 is empty.
    sets: Vec<(SetId, ProcedureIndex)>,
    /// By context: its own function and those around it.
    of: Vec<SetId>,
}

impl<'a> Functions<'a> {
    pub fn new(merged: &'a Merged, others: &'a [String]) -> Functions<'a> {
        let tree = &merged.trees.contexts;
        let mut functions = Functions { merged, others, sets: Vec::new(), of: Vec::new() };
        let mut known: FastMap<(SetId, ProcedureIndex), SetId> = FastMap::default();
        for context in tree.all() {
            let scope = tree.scope(context);
            let mut set = tree.parent(context).map_or(0, |p| functions.of[p.0 as usize]);
            if matches!(scope.kind, Kind::Procedure | Kind::Inlined) && !scope.is_runtime {
                let step = (set, scope.procedure);
                set = *known.entry(step).or_insert_with(|| functions.with(step));
            }
            functions.of.push(set);
        }
        functions
    }

    fn all(&self, set: SetId) -> impl Iterator<Item = ProcedureIndex> {
        let part = |set: SetId| self.sets.get((set as usize).checked_sub(1)?).copied();
        let parts = std::iter::successors(part(set), move |(smaller, _)| part(*smaller));
        parts.map(|(_, function)| function)
    }

    fn with(&mut self, (set, function): (SetId, ProcedureIndex)) -> SetId {
        if self.all(set).any(|known| known == function) {
            return set;
        }
        self.sets.push((set, function));
        self.sets.len() as SetId
    }

    pub fn times(&self, process: usize) -> Result<FastMap<ProcedureIndex, Times>> {
        let on_path = self.others.iter().position(|name| name == ON_PATH);
        let mut by_set: FastMap<SetId, Times> = FastMap::default();
        let mut buffer = Vec::new();
        let threads = self.merged.threads.iter();
        for (worker, thread) in threads.filter(|(_, t)| t.summary.process == process) {
            let spooled = &self.merged.spooled[*worker];
            let amounts = FIRST_OTHER + self.others.len();
            spooled.spool.read(thread.values, amounts, &mut buffer, |entry| {
                let set = self.of[spooled.contexts[entry.logical as usize] as usize];
                let on_path = on_path.map_or(0, |at| entry.amounts[FIRST_OTHER + at]);
                by_set.entry(set).or_default().add(Times { work: entry.amounts[1], on_path });
            })?;
        }
        let mut found: FastMap<ProcedureIndex, Times> = FastMap::default();
        for (set, times) in by_set {
            for function in self.all(set) {
                found.entry(function).or_default().add(times);
            }
        }
        Ok(found)
    }
}
