//! Activity graphs whose critical path is known, run as programs of actors.
//!
//! Activity is measured by a clock that the tests advance by hand, so results are exact on any machine.
//! `examples/truth.rs` runs the same graphs by CPU time.

mod catalogue;
mod dag;
mod known;
mod programs;
mod random;
mod schedule;
mod script;

use std::cell::Cell;

use critical_path::Clock;

thread_local! {
    static SPENT: Cell<u64> = const { Cell::new(0) };
}

/// Activity of the calling thread.
fn spend(time: u64) {
    SPENT.set(SPENT.get() + time);
}

/// The time that the calling thread has [spent](spend).
struct Spent;

impl Clock for Spent {
    fn now(&mut self) -> u64 {
        SPENT.get()
    }
}

fn builder(workers: usize) -> work_stealing_actors::SystemBuilder {
    work_stealing_actors::System::builder().workers(workers).critical_path(true).clock(|| Spent)
}
