//! Automatic priorities: messages of a phase are ordered by how little slack their tasks had in an earlier
//! one.
//!
//! One duty: learn priorities from the graphs of phases, and use them as long as they pay. A task on the path
//! has no slack; it is the most urgent, and the others follow by theirs.
//!
//! The phases 1, 16, 256 and so on begin a *trial* of eight phases, without and with priorities in turn. They
//! are used until the next trial if the fastest phase with them took a fiftieth less time a message than the
//! fastest without; three slower phases in a row begin a trial, too. In a trial, priorities are learnt from
//! each phase that used those before, as a better order shows better what matters.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use crate::graph::Graph;
use crate::names::{self, Entry, lock};
use crate::priority::Priority;
use crate::table::What;

/// Levels of tasks on the path and of tasks with nothing but slack: usual messages are in the middle.
const URGENT: i32 = 16;
/// Each phase whose number is a power of this begins a trial, of so many phases.
const TRIAL: u64 = 16;
const PHASES: u32 = 8;
/// How many times longer a phase takes without priorities than with them if these are faster.
const FASTER: f64 = 1.02;
/// So many phases in a row that are not faster begin a trial.
const SLOW: u32 = 3;
/// Stands for all actors in the table of priorities.
const ANY: u64 = u64::MAX;

type Priorities = HashMap<What, Priority>;

/// See the module.
#[derive(Default)]
pub(crate) struct Tuner {
    is_enabled: bool,
    /// Every phase is recorded, for reports.
    always_records: bool,
    /// [`State::is_used`], for senders.
    is_used: AtomicBool,
    priorities: RwLock<Priorities>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phases: u64,
    /// Phases of the trial that are left, with the open one; 0: there is none.
    trial: u32,
    /// The last trial was in favour of priorities.
    are_faster: bool,
    /// The open or last phase uses priorities.
    is_used: bool,
    is_learnt: bool,
    /// Phases with priorities that were not faster, since one was.
    slow: u32,
    /// The least time for a message in the last trial, without and with priorities.
    least: [f64; 2],
}

impl State {
    /// A phase begins.
    fn begin(&mut self) {
        self.phases += 1;
        if self.phases == TRIAL.pow(self.phases.ilog(TRIAL)) || self.slow == SLOW {
            (self.trial, self.slow, self.least) = (PHASES, 0, [f64::INFINITY; 2]);
        }
        self.is_used = match self.trial {
            0 => self.are_faster,
            left => self.is_learnt && left % 2 == 1,
        };
    }

    /// It has taken so long for each message.
    fn end(&mut self, cost: f64) {
        if self.trial == 0 {
            let is_slow = self.is_used && self.least[0] < cost * FASTER;
            self.slow = if is_slow { self.slow + 1 } else { 0 };
            return;
        }
        let least = &mut self.least[usize::from(self.is_used)];
        *least = least.min(cost);
        self.trial -= 1;
        self.are_faster = self.least[0] >= self.least[1] * FASTER;
    }
}

impl Tuner {
    pub(crate) fn new(is_enabled: bool, always_records: bool) -> Self {
        Tuner { is_enabled, always_records, ..Tuner::default() }
    }

    /// The priority of a message to the actor's entry method.
    #[inline]
    pub(crate) fn priority(&self, actor: u64, entry: Entry) -> Priority {
        if self.is_used() { self.learnt(actor, names::number(entry)) } else { Priority::default() }
    }

    fn learnt(&self, actor: u64, entry: u32) -> Priority {
        let priorities = self.priorities.read().unwrap_or_else(PoisonError::into_inner);
        let of = |actor| priorities.get(&What { actor, entry }).copied();
        of(actor).or_else(|| of(ANY)).unwrap_or_default()
    }

    /// A phase begins. Returns whether it is recorded.
    pub(crate) fn begin_phase(&self) -> bool {
        if !self.is_enabled {
            return self.always_records;
        }
        let mut state = lock(&self.state);
        state.begin();
        self.is_used.store(state.is_used, Ordering::Relaxed);
        self.always_records || state.trial > 0
    }

    /// A phase has taken `wall` nanoseconds for `messages`; its graph, if it was recorded.
    pub(crate) fn end_phase(&self, wall: u64, messages: u64, graph: Option<impl FnOnce() -> Graph>) {
        if !self.is_enabled || messages == 0 {
            return;
        }
        let mut state = lock(&self.state);
        state.end(wall as f64 / messages as f64);
        let learns = state.trial > 0 && (state.is_used || !state.is_learnt);
        if let Some(graph) = graph.filter(|_| learns) {
            *self.priorities.write().unwrap_or_else(PoisonError::into_inner) = priorities(&graph());
            state.is_learnt = true;
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
fn priorities(graph: &Graph) -> Priorities {
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

    /// The way of each phase, with (p) or without priorities: in the order of the phases, what they cost by
    /// the number of the phase.
    fn ways(phases: u64, with: impl Fn(u64) -> f64, without: impl Fn(u64) -> f64) -> String {
        let mut state = State::default();
        let way = |phase| {
            state.begin();
            let used = state.is_used;
            let cost = if used { with(phase) } else { without(phase) };
            state.end(cost);
            state.is_learnt = true;
            if used { 'p' } else { '-' }
        };
        (1..=phases).map(way).collect()
    }

    #[test]
    fn priorities_are_used_as_long_as_they_pay() {
        let trial = "-p".repeat(4);
        let faster = ways(30, |_| 0.95, |_| 1.0);
        assert_eq!(faster, format!("{trial}{}{trial}{}", "p".repeat(7), "p".repeat(7)));
        let slower = ways(30, |_| 0.99, |_| 1.0);
        assert_eq!(slower, format!("{trial}{}{trial}{}", "-".repeat(7), "-".repeat(7)));
    }

    /// The load of the machine makes some phases slow.
    #[test]
    fn slow_phases_decide_nothing() {
        let slow =
            |every: u64, else_: f64| move |phase: u64| if phase.is_multiple_of(every) { 9.0 } else { else_ };
        assert!(ways(200, |_| 1.0, slow(5, 1.0))[24..].chars().all(|way| way == '-'));
        assert!(ways(200, slow(3, 0.8), |_| 1.0)[24..].chars().all(|way| way == 'p'));
    }

    #[test]
    fn they_are_tried_again_when_they_cease_to_pay() {
        let ways = ways(63, |phase| if phase < 40 { 0.8 } else { 1.1 }, |_| 1.0);
        let end = format!("{}{}{}", "p".repeat(3), "-p".repeat(4), "-".repeat(13));
        assert!(ways[24..39].chars().all(|way| way == 'p') && ways.ends_with(&end), "{ways}");
    }
}
