//! Automatic priorities: messages of a phase are ordered by how little slack their tasks had in an earlier
//! one.
//!
//! One duty: learn priorities from the graphs of phases, and use them as long as they pay. A task on the path
//! has no slack; it is the most urgent, and the others follow by theirs.
//!
//! The phases 1, 8, 64 and so on begin a *trial*, in which phases without and with priorities alternate. A
//! phase with them is a vote for them if it takes a fiftieth less time a message than any of the trial
//! without them, else against them; two votes if the difference is a tenth. They are used once votes for
//! them are six more than those against, and not once they are three less; before phase 8, two more are
//! enough to go on with them. Votes count on while they are used: a new trial begins if none are left. In a
//! trial, priorities are learnt from each phase that used those before, as a better order shows better what
//! matters. Those of the fastest phase are kept.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use crate::graph::Graph;
use crate::names::{self, Entry, lock};
use crate::priority::Priority;
use crate::table::What;

/// Levels of tasks on the path and of tasks with nothing but slack: usual messages are in the middle.
const URGENT: i32 = 16;
/// Each phase whose number is a power of this begins a trial.
const TRIAL: u64 = 8;
/// How many times longer a phase takes without priorities than with them if these are faster, or clearly so.
const FASTER: f64 = 1.02;
const CLEAR: f64 = 1.1;
/// Votes by which priorities are used, or not.
const FOR: i32 = 6;
const AGAINST: i32 = -3;
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
    priorities: RwLock<Arc<Priorities>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phases: u64,
    is_trial: bool,
    /// The open or last phase uses priorities.
    is_used: bool,
    is_learnt: bool,
    /// Those for priorities less those against them.
    votes: i32,
    /// The least time for a message in this trial, without and with priorities.
    least: [f64; 2],
    /// The priorities with which that was.
    best: Arc<Priorities>,
}

impl State {
    /// A phase begins.
    fn begin(&mut self) {
        self.phases += 1;
        if self.phases == TRIAL.pow(self.phases.ilog(TRIAL)) {
            self.begin_trial();
        }
        // The first phases are too few to go on without priorities once these have two votes.
        let is_turn = !self.is_used || self.phases < TRIAL && self.votes > 1;
        self.is_used = match self.is_trial {
            true => self.is_learnt && self.least[0].is_finite() && is_turn,
            false => self.votes > 0,
        };
    }

    /// It has taken so long for each message, with the current priorities or without. Returns those to use
    /// from now on if the trial has ended in favour of priorities.
    fn end(&mut self, cost: f64, current: &Arc<Priorities>) -> Option<Arc<Priorities>> {
        let is_least = cost < self.least[usize::from(self.is_used)];
        if self.is_trial && is_least {
            self.least[usize::from(self.is_used)] = cost;
            if self.is_used {
                self.best = Arc::clone(current);
            }
        }
        if self.is_used {
            self.votes = FOR.min(self.votes + vote(self.least[0], cost));
        }
        if !self.is_trial {
            if self.is_used && self.votes <= 0 {
                self.begin_trial();
            }
            return None;
        }
        self.is_trial = (AGAINST + 1..FOR).contains(&self.votes);
        (!self.is_trial && self.votes > 0).then(|| Arc::clone(&self.best))
    }

    fn begin_trial(&mut self) {
        (self.is_trial, self.votes) = (true, 0);
        self.least = [f64::INFINITY; 2];
    }
}

/// Positive: for priorities.
fn vote(without: f64, with: f64) -> i32 {
    let vote = if without >= with * FASTER { 1 } else { -1 };
    let is_clear = without >= with * CLEAR || with >= without * CLEAR;
    if is_clear { 2 * vote } else { vote }
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
        let priorities = self.current();
        let of = |actor| priorities.get(&What { actor, entry }).copied();
        of(actor).or_else(|| of(ANY)).unwrap_or_default()
    }

    fn current(&self) -> RwLockReadGuard<'_, Arc<Priorities>> {
        let current = self.priorities.read();
        current.unwrap_or_else(PoisonError::into_inner)
    }

    /// A phase begins. Returns whether it is recorded.
    pub(crate) fn begin_phase(&self) -> bool {
        if !self.is_enabled {
            return self.always_records;
        }
        let mut state = lock(&self.state);
        state.begin();
        self.is_used.store(state.is_used, Ordering::Relaxed);
        self.always_records || state.is_trial
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
        let current = Arc::clone(&self.current());
        let mut next = state.end(wall as f64 / messages as f64, &current);
        if state.is_trial && (state.is_used || !state.is_learnt) {
            next = graph.map(|graph| Arc::new(priorities(&graph())));
            state.is_learnt |= next.is_some();
        }
        if let Some(next) = next {
            *self.priorities.write().unwrap_or_else(PoisonError::into_inner) = next;
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
            state.end(cost, &Arc::default());
            state.is_learnt = true;
            if used { 'p' } else { '-' }
        };
        (1..=phases).map(way).collect()
    }

    #[test]
    fn priorities_are_used_as_long_as_they_pay() {
        let of = |with| ways(30, |_| with, |_| 1.0);
        assert_eq!(of(0.7), format!("-{}{}{}", "p".repeat(6), "-p".repeat(3), "p".repeat(17)));
        assert_eq!(of(0.95), format!("-p-pppp{}{}", "-p".repeat(6), "p".repeat(11)));
        for loss in [0.99, 1.05] {
            assert_eq!(of(loss), format!("-p-p-p-{}{}", "-p".repeat(3), "-".repeat(17)));
        }
        assert_eq!(of(1.2), format!("-p-p---{}{}", "-p".repeat(2), "-".repeat(19)));
    }

    #[test]
    fn one_slow_phase_decides_nothing() {
        let slow = |slow, else_: f64| move |phase| if phase == slow { 9.0 } else { else_ };
        let lost = ways(63, |_| 1.0, slow(10, 1.0));
        assert!(lost[20..].chars().all(|way| way == '-'), "{lost}");
        let used = ways(63, slow(30, 0.8), |_| 1.0);
        assert!(used[20..].chars().all(|way| way == 'p'), "{used}");
    }

    #[test]
    fn they_are_tried_again_when_they_cease_to_pay() {
        let ways = ways(63, |phase| if phase < 40 { 0.8 } else { 1.1 }, |_| 1.0);
        assert!(ways[20..39].chars().all(|way| way == 'p'), "{ways}");
        assert!(ways.ends_with(&"-".repeat(16)), "{ways}");
    }

    #[test]
    fn the_fastest_priorities_are_kept() {
        let tables = [1.0, 0.9, 0.7, 0.8].map(|cost| (cost, Arc::<Priorities>::default()));
        let mut state = State { is_learnt: true, ..State::default() };
        let kept = tables.iter().find_map(|(cost, table)| {
            state.begin();
            state.end(*cost, table)
        });
        assert!(Arc::ptr_eq(&kept.expect("three clear gains"), &tables[2].1));
    }
}
