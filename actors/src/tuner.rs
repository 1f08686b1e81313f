//! Automatic priorities: messages of a phase are ordered by how little slack their tasks had in an earlier
//! one.
//!
//! One duty: learn priorities from the graph of a phase, and use them as long as they pay. A task on the path
//! has no slack; it is the most urgent, and the others follow by theirs. Learning takes time, so it happens
//! in the phases 1, 8, 64 and so on; in between nothing is recorded for it. Phases with and without
//! priorities are compared by wall time for each message. A clear gain decides at once. Otherwise both ways
//! are tried some times, and priorities must be faster by a hundredth. They are tried again after each
//! learning: the first phases find caches and memory cold.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use crate::graph::Graph;
use crate::names::{self, Entry, lock};
use crate::priority::Priority;
use crate::table::What;

/// Levels of tasks on the path and of tasks with nothing but slack: usual messages are in the middle.
const URGENT: i32 = 16;
/// Priorities are used if a phase takes at most so many times what it takes without them; the first number
/// if both ways were tried often enough.
const GAIN: [f64; 2] = [0.99, 0.9];
/// How often each way is tried, and how many phases are remembered.
const TRIES: usize = 3;
/// Each phase whose number is a power of this is learnt from.
const LEARN: u64 = 8;
/// Stands for all actors in the table of priorities.
const ANY: u64 = u64::MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct Tuner {
    is_enabled: bool,
    /// Every phase is recorded, for reports.
    always_records: bool,
    is_used: AtomicBool,
    /// Those of the last phase that was learnt from.
    priorities: RwLock<HashMap<What, Priority>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phases: u64,
    is_learnt: bool,
    /// Without and with priorities: nanoseconds a message in the last such phases.
    costs: [Vec<f64>; 2],
}

impl State {
    /// Whether the next phase uses priorities.
    fn pays(&self) -> bool {
        let [without, with] = &self.costs;
        let least = |costs: &[f64]| costs.iter().copied().fold(f64::INFINITY, f64::min);
        let is_tried = without.len() >= TRIES && with.len() >= TRIES;
        let clear = GAIN[usize::from(!is_tried)];
        let is_behind = !is_tried && with.len() < without.len();
        let is_known = !without.is_empty();
        with.is_empty() || is_known && (is_behind || least(with) <= least(without) * clear)
    }

    /// A phase with or without priorities took so long for a message.
    fn note(&mut self, used: bool, cost: f64) {
        let costs = &mut self.costs[usize::from(used)];
        costs.insert(0, cost);
        costs.truncate(TRIES);
    }

    /// New priorities are there. The first ones are compared with the phase that they come from.
    fn learnt(&mut self) {
        self.is_learnt = true;
        self.costs[1].clear();
        if self.phases > 1 {
            self.costs[0].clear();
        }
    }

    fn learns(&self) -> bool {
        self.phases == LEARN.pow(self.phases.ilog(LEARN))
    }
}

impl Tuner {
    pub(crate) fn new(is_enabled: bool, always_records: bool) -> Self {
        Tuner {
            is_enabled,
            always_records,
            ..Tuner::default()
        }
    }

    /// The priority of a message to the actor's entry method.
    #[inline]
    pub(crate) fn priority(&self, actor: u64, entry: Entry) -> Priority {
        if self.is_used() {
            self.learnt(actor, names::number(entry))
        } else {
            Priority::default()
        }
    }

    fn learnt(&self, actor: u64, entry: u32) -> Priority {
        let priorities = self
            .priorities
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let of = |actor| priorities.get(&What { actor, entry }).copied();
        of(actor).or_else(|| of(ANY)).unwrap_or_default()
    }

    /// A phase begins. Returns whether it is recorded.
    pub(crate) fn begin_phase(&self) -> bool {
        if !self.is_enabled {
            return self.always_records;
        }
        let mut state = lock(&self.state);
        state.phases += 1;
        let is_used = state.is_learnt && state.pays();
        self.is_used.store(is_used, Ordering::Relaxed);
        self.always_records || state.learns()
    }

    /// A phase has taken `wall` nanoseconds for `messages`; its graph, if it was recorded.
    pub(crate) fn end_phase(
        &self,
        wall: u64,
        messages: u64,
        graph: Option<impl FnOnce() -> Graph>,
    ) {
        if !self.is_enabled || messages == 0 {
            return;
        }
        let mut state = lock(&self.state);
        state.note(self.is_used(), wall as f64 / messages as f64);
        if let Some(graph) = graph.filter(|_| state.learns()) {
            *self
                .priorities
                .write()
                .unwrap_or_else(PoisonError::into_inner) = priorities(&graph());
            state.learnt();
        }
    }

    /// Whether the open phase uses priorities.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }
}

/// The priorities of actors' entry methods, by the least slack of their tasks, and those of entry methods for
/// actors that are new.
fn priorities(graph: &Graph) -> HashMap<What, Priority> {
    let span = graph.span.max(1);
    let mut priorities = HashMap::new();
    for node in &graph.nodes {
        let slack = node.slack.unwrap_or(span).min(span);
        let part = (slack as f64 / span as f64 * f64::from(2 * URGENT)).ceil() as i32;
        let (what, new) = (node.part.what, Priority::new(URGENT - part));
        for what in [what, What { actor: ANY, ..what }] {
            let known = priorities.entry(what).or_insert(new);
            *known = new.max(*known);
        }
    }
    priorities
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way of each of the phases that take so many nanoseconds a message.
    fn ways(without: u64, with: u64, phases: usize) -> String {
        let costs = [vec![without as f64], Vec::new()];
        let mut state = State {
            costs,
            ..State::default()
        };
        let mut way = || {
            let used = state.pays();
            state.note(used, if used { with as f64 } else { without as f64 });
            if used { 'p' } else { '-' }
        };
        (0..phases).map(|_| way()).collect()
    }

    #[test]
    fn priorities_are_used_as_long_as_they_pay() {
        assert_eq!(ways(300, 200, 8), "pppppppp");
        assert_eq!(ways(1000, 950, 8), "p-p-pppp");
        assert_eq!(ways(1000, 995, 8), "p-p-p---");
        assert_eq!(ways(1000, 1100, 8), "p-p-p---");
    }

    #[test]
    fn both_ways_are_tried_again_with_new_priorities() {
        let mut state = State {
            phases: 8,
            costs: [vec![300.0; 3], vec![200.0; 3]],
            ..State::default()
        };
        state.learnt();
        // Now neither way is faster.
        let way = |_| {
            let used = state.pays();
            state.note(used, 100.0);
            used
        };
        let used = [(); 8].map(way);
        assert_eq!(used, [true, false, false, true, false, true, false, false]);
    }

    #[test]
    fn some_phases_are_learnt_from() {
        let phases = (1..600).filter(|&phases| {
            State {
                phases,
                ..State::default()
            }
            .learns()
        });
        assert_eq!(phases.collect::<Vec<u64>>(), [1, 8, 64, 512]);
    }
}
