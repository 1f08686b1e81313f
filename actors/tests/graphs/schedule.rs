//! Automatic priorities on T16: 40 fillers of 5 beside a chain of 20 tasks of 10, on two workers. First in,
//! first out takes 300, the chain first 200. Tasks sleep for the time that they spend, so the schedule shows
//! on a busy machine.

use std::thread;
use std::time::{Duration, Instant};

use work_stealing_actors::{Array, Context, Handle, System};

use crate::{builder, spend};

const UNIT: Duration = Duration::from_millis(2);

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

struct Filler;

impl Handle<Go> for Filler {
    fn handle(&mut self, _: Go, _: &mut Context<'_, Self>) {
        sleep(5);
    }
}

/// Three phases; the first one learns.
fn check(system: &System, start: impl Fn() + Sync) {
    let phase = |_| {
        let begun = Instant::now();
        system.run(&start).expect("no panic");
        begun.elapsed().as_secs_f64() / UNIT.as_secs_f64()
    };
    let times: Vec<f64> = (0..3).map(phase).collect();
    assert!(times[0] > 295.0, "without priorities: {times:?}");
    assert!(
        times[1..].iter().all(|time| *time < 0.85 * times[0]),
        "{times:?}"
    );
    assert!(system.uses_priorities());
}

#[test]
fn a_chain_of_one_actor_runs_before_the_fillers() {
    let system = builder(2)
        .automatic_priorities(true)
        .build()
        .expect("threads");
    let fillers = system.array("filler", 40, |_, _| Filler);
    let chain = system.array("chain", 1, |_, array| Link(10, array.clone()));
    check(&system, || {
        fillers.iter().for_each(|filler| filler.send(Go(0)));
        chain[0].send(Go(19));
    });
}

#[test]
fn actors_with_one_entry_method_are_told_apart() {
    let system = builder(2)
        .automatic_priorities(true)
        .build()
        .expect("threads");
    let fillers = system.array("filler", 40, |_, array| Link(5, array.clone()));
    let chain = system.array("chain", 20, |_, array| Link(10, array.clone()));
    check(&system, || {
        fillers.iter().for_each(|filler| filler.send(Go(0)));
        chain[0].send(Go(19));
    });
}
