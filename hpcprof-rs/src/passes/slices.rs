//! From the events of a thread's trace to slices: from when to when it did what.
//!
//! A sample is at the end of the time that it stands for. What lies between two events belongs to the state
//! in which the thread was; but if that was work, and samples stand for less, nothing is known of the rest:
//! the thread slept in a wait that no hook saw, or had no core.

use hpc_formats::trace::{Block, Event, State};

/// What a thread did for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Monotonic clock, nanoseconds.
    pub start: u64,
    /// The same of its end.
    pub end: u64,
    /// `None`: not known.
    pub state: Option<State>,
    /// Record of the context in the thread's profile; 0: not known.
    pub context: u32,
    /// What the samples at its end stand for, nanoseconds.
    pub sampled: u64,
}

/// The name of a state in the database.
pub fn name(state: Option<State>) -> &'static str {
    state.map_or("unseen", State::name)
}

/// A thread's slices, from its blocks. It goes on to `end`, unless it says that it has ended.
pub fn of(blocks: &[Block<'_>], end: u64, period: u64) -> Vec<Slice> {
    let Some(first) = blocks.first() else { return Vec::new() };
    let events = || blocks.iter().flat_map(Block::events).flatten();
    let weight = |(_, event)| if let Event::Sample { weight, .. } = event { weight } else { 1 };
    // Whoever works for so long is sampled, however far apart the kernel's ticks are.
    let longest = events().map(weight).max().unwrap_or(1).saturating_mul(period).saturating_mul(2);
    let mut thread = Thread { at: first.time, state: first.state, context: 0, longest, slices: Vec::new() };
    for (time, event) in events() {
        let time = time.max(thread.at);
        match event {
            Event::Sample { state, weight, context } => {
                thread.sample(time, state, weight.saturating_mul(period), (context, period));
            }
            Event::Change(state) => {
                thread.until(time, thread.known(time), 0);
                thread.state = state;
            }
            Event::Waited(context) => {
                let mut slices = thread.slices.iter_mut().rev();
                slices.find(|s| s.state == Some(State::Waits)).into_iter().for_each(|s| s.context = context);
            }
            Event::Followed(_) | Event::Sent(_) | Event::Received { .. } => {}
        }
    }
    let end = end.max(thread.at);
    thread.until(end, thread.known(end), 0);
    thread.slices
}

struct Thread {
    at: u64,
    state: State,
    /// That of the last sample.
    context: u32,
    /// How long it works without a sample, at most.
    longest: u64,
    slices: Vec<Slice>,
}

impl Thread {
    /// Its state from its last event on, if there is none up to `end`.
    fn known(&self, end: u64) -> Option<State> {
        Some(self.state).filter(|state| *state != State::Works || end - self.at <= self.longest)
    }

    fn sample(&mut self, time: u64, state: State, stands_for: u64, (context, period): (u32, u64)) {
        let covered = time.saturating_sub(stands_for).max(self.at);
        if self.state != state {
            self.until(covered, Some(self.state), 0);
        } else if state == State::Works && covered - self.at > 2 * period {
            self.until(covered, None, 0);
        }
        if state == State::Works {
            self.context = context;
        }
        self.state = state;
        self.until(time, Some(state), stands_for);
    }

    /// Adds the time up to here.
    fn until(&mut self, end: u64, state: Option<State>, sampled: u64) {
        let start = std::mem::replace(&mut self.at, end);
        let context = if state == Some(State::Works) { self.context } else { 0 };
        if state == Some(State::Ended) || (start == end && sampled == 0) {
            return;
        }
        match self.slices.last_mut() {
            Some(last) if (last.state, last.context, last.end) == (state, context, start) => {
                last.end = end;
                last.sampled = last.sampled.saturating_add(sampled);
            }
            _ => self.slices.push(Slice { start, end, state, context, sampled }),
        }
    }
}

#[cfg(test)]
#[path = "../../../formats/tests/support/writer.rs"]
mod writer;

#[cfg(test)]
mod tests {
    use super::writer::Writer;
    use super::*;
    use hpc_formats::trace::Trace;

    /// The slices of events, from 0 to 1000, with a period of 10.
    fn slices(events: &[(u64, Event)]) -> Vec<(u64, u64, &'static str, u32, u64)> {
        let mut writer = Writer::new(1, 0, 10);
        writer.begin(1, 0, State::Works);
        assert!(events.iter().all(|(time, event)| writer.add(*time, *event)));
        let bytes = writer.finish();
        let found = of(&Trace::parse(&bytes).unwrap().blocks, 1000, 10);
        found.iter().map(|s| (s.start, s.end, name(s.state), s.context, s.sampled)).collect()
    }

    fn works(weight: u64, context: u32) -> Event {
        Event::Sample { state: State::Works, weight, context }
    }

    #[test]
    fn samples_end_what_they_stand_for() {
        let found = slices(&[
            (10, works(1, 5)),
            (22, works(1, 5)),
            (30, works(1, 6)),
            (35, Event::Change(State::Waits)),
            (700, Event::Change(State::Works)),
            (700, Event::Waited(9)),
            (705, works(1, 6)),
            (800, Event::Change(State::Ended)),
        ]);
        let expected = [
            (0, 22, "works", 5, 20),
            (22, 35, "works", 6, 10),
            (35, 700, "waits", 9, 0),
            (700, 705, "works", 6, 10),
            (705, 800, "unseen", 0, 0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_no_sample_stands_for_is_unseen() {
        let found = slices(&[(10, works(1, 5)), (500, works(3, 5))]);
        let expected = [
            (0, 10, "works", 5, 10),
            (10, 470, "unseen", 0, 0),
            (470, 500, "works", 5, 30),
            (500, 1000, "unseen", 0, 0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn work_in_a_wait_and_spinning_are_kept_apart() {
        let spins = Event::Sample { state: State::Spins, weight: 2, context: 0 };
        let found = slices(&[(0, Event::Change(State::Idle)), (100, works(2, 5)), (140, spins)]);
        let expected = [(0, 80, "idle", 0, 0), (80, 120, "works", 5, 20), (120, 1000, "spins", 0, 20)];
        assert_eq!(found, expected);
    }
}
