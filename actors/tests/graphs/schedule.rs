//! Automatic priorities on T16: 40 fillers of 5 beside a chain of 20 tasks of 10, on two workers. First in,
//! first out takes 300, the chain first 200. Tasks sleep for the time that they spend, so the schedule shows
//! on a busy machine.

use std::thread;
use std::time::{Duration, Instant};

use work_stealing_actors::{Array, Context, Handle};

use crate::{builder, spend};

const UNIT: Duration = Duration::from_millis(1);

fn sleep(units: u32) {
    thread::sleep(UNIT * units);
    spend(u64::from(units));
}

/// How many tasks follow.
struct Go(u32);

/// Passes a message on to the next in its array, the last to the first.
struct Link(u32, Array<Link>);

impl Handle<Go> for Link {
    fn handle(&mut self, Go(left): Go, context: &mut Context<'_, Self>) {
        sleep(self.0);
        if left > 0 {
            self.1[(context.index() + 1) % self.1.len()].send(Go(left - 1));
        }
    }
}

/// Phases without priorities and with them in turn; the first one learns. Those that follow the trial use
/// what was faster. All actors have the same entry method.
#[test]
fn a_chain_runs_before_the_fillers() {
    let builder = builder(2).automatic_priorities(true);
    let system = builder.build().expect("threads");
    let fillers = system.array("filler", 40, |_, array| Link(5, array.clone()));
    let chain = system.array("chain", 20, |_, array| Link(10, array.clone()));
    let start = || {
        fillers.iter().for_each(|filler| filler.send(Go(0)));
        chain[0].send(Go(19));
    };
    let phase = |_| {
        let begun = Instant::now();
        system.run(start).expect("no panic");
        begun.elapsed().as_secs_f64() / UNIT.as_secs_f64()
    };
    let times: Vec<f64> = (1..=9).map(phase).collect();
    let (with, without): (Vec<_>, Vec<_>) =
        (1..=9).zip(&times).partition(|(phase, _)| phase % 2 == 0 || *phase == 9);
    assert!(without.iter().all(|(_, time)| **time > 295.0), "without priorities: {times:?}");
    assert!(with.iter().all(|(_, time)| **time < 0.85 * times[0]), "with priorities: {times:?}");
    assert!(system.uses_priorities());
}
