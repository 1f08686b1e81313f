//! Automatic priorities: messages of a phase are ordered by how little slack their tasks had in an earlier
//! one.
//!
//! One duty: learn priorities from the graph of a phase, and use them as long as they pay. A task on the path
//! has no slack; it is the most urgent, and the others follow by theirs. Learning takes time, so it happens
//! in the phases 1, 8, 64 and so on; in between nothing is recorded for it. Phases with and without
//! priorities are compared by wall time for each message. A clear gain decides at once. Otherwise both ways
//! are tried some times, and priorities must be faster by a hundredth.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::analysis::Analysis;
use crate::names::{self, Entry};
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

type Priorities = HashMap<What, Priority>;

/// See the module.
pub(crate) struct Tuner {
    is_enabled: bool,
    /// Every phase is recorded, for reports.
    always_records: bool,
    /// The number of the priorities in use, unique in the process; 0: none.
    version: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phases: u64,
    priorities: Arc<Priorities>,
    is_used: bool,
    /// Without and with priorities: seconds for a message in the last such phases.
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
        with.is_empty() || is_behind || least(with) <= least(without) * clear
    }

    /// A phase with or without priorities took so long for a message.
    fn note(&mut self, used: bool, cost: f64) {
        let costs = &mut self.costs[usize::from(used)];
        costs.insert(0, cost);
        costs.truncate(TRIES);
    }

    fn learns(&self) -> bool {
        let power = self.phases.ilog2() / LEARN.ilog2() * LEARN.ilog2();
        self.phases == 1 << power
    }
}

thread_local! {
    /// The priorities that the calling thread has used last, with their number.
    static KNOWN: RefCell<(u64, Arc<Priorities>)> = RefCell::default();
}

impl Tuner {
    pub(crate) fn new(is_enabled: bool, always_records: bool) -> Self {
        Tuner {
            is_enabled,
            always_records,
            version: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The priority of a message to the actor's entry method.
    #[inline]
    pub(crate) fn priority(&self, actor: u64, entry: Entry) -> Priority {
        match self.version.load(Ordering::Acquire) {
            0 => Priority::default(),
            version => self.learnt(version, actor, names::number(entry)),
        }
    }

    fn learnt(&self, version: u64, actor: u64, entry: u32) -> Priority {
        KNOWN.with_borrow_mut(|(known, priorities)| {
            if *known != version {
                *priorities = Arc::clone(&self.lock().priorities);
                *known = version;
            }
            let of = |actor| priorities.get(&What { actor, entry }).copied();
            of(actor).or_else(|| of(ANY)).unwrap_or_default()
        })
    }

    /// A phase begins. Returns whether it is recorded.
    pub(crate) fn begin_phase(&self) -> bool {
        if !self.is_enabled {
            return self.always_records;
        }
        let mut state = self.lock();
        state.phases += 1;
        state.is_used = !state.priorities.is_empty() && state.pays();
        let version = if state.is_used { self.new_version() } else { 0 };
        self.version.store(version, Ordering::Release);
        self.always_records || state.learns()
    }

    fn new_version(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        match self.version.load(Ordering::Relaxed) {
            0 => NEXT.fetch_add(1, Ordering::Relaxed),
            same => same,
        }
    }

    /// A phase has taken `wall` time for `messages`; its graph, if it was recorded.
    pub(crate) fn end_phase(
        &self,
        wall: Duration,
        messages: u64,
        graph: Option<impl FnOnce() -> Analysis>,
    ) {
        if !self.is_enabled || messages == 0 {
            return;
        }
        let mut state = self.lock();
        state.note(self.is_used(), wall.as_secs_f64() / messages as f64);
        if !state.learns() {
            return;
        }
        if let Some(graph) = graph {
            state.priorities = Arc::new(priorities(&graph()));
            state.costs[1].clear();
            self.version.store(0, Ordering::Release);
        }
    }

    /// Whether the open phase uses priorities.
    pub(crate) fn is_used(&self) -> bool {
        self.version.load(Ordering::Relaxed) != 0
    }
}

/// The priorities of an actor's entry methods, and those of entry methods for actors that are new.
fn priorities(graph: &Analysis) -> Priorities {
    let span = graph.span().max(1);
    let mut priorities = Priorities::new();
    for (what, slack) in graph.least_slacks() {
        let part = (slack.min(span) as f64 / span as f64 * f64::from(2 * URGENT)).ceil() as i32;
        let priority = Priority::new(URGENT - part);
        let any = priorities
            .entry(What { actor: ANY, ..what })
            .or_insert(priority);
        *any = priority.max(*any);
        priorities.insert(what, priority);
    }
    priorities
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way of each of the phases that take so many nanoseconds a message.
    fn ways(without: u64, with: u64, phases: usize) -> String {
        let mut state = State {
            priorities: Arc::new(Priorities::from([(What::default(), Priority::default())])),
            costs: [vec![without as f64], Vec::new()],
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
    fn some_phases_are_learnt_from() {
        let learns = |phases: &u64| {
            State {
                phases: *phases,
                ..State::default()
            }
            .learns()
        };
        let phases: Vec<u64> = (1..600).filter(learns).collect();
        assert_eq!(phases, [1, 8, 64, 512]);
    }
}
