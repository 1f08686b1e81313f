//! What each operation costs, in nanoseconds: `cargo run --release -p critical-path --example cost`.
//!
//! The fastest of some rounds, on one thread; with 0 and with 8 procedures on the path.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use critical_path::{Clock, Edge, Settings, Site, Thread, ThreadClock, Tracker};

const EVENTS: u32 = 200_000;
const ROUNDS: u32 = 9;

/// One clock for several strands on one thread.
#[derive(Clone)]
struct Shared(Rc<RefCell<ThreadClock>>);

impl Clock for Shared {
    #[inline]
    fn now(&mut self) -> u64 {
        self.0.borrow_mut().now()
    }
}

fn main() {
    let tracker = Tracker::new(Settings::default());
    let clock = ThreadClock::new();
    let mut clock = Shared(Rc::new(RefCell::new(clock)));
    show("a reading of the clock", || {
        black_box(clock.now());
    });
    for procedures in [0, 8] {
        println!("with {procedures} procedures");
        let mut thread = Thread::new(&tracker, clock.clone(), Site(1));
        let mut other = Thread::new(&tracker, clock.clone(), Site(1));
        for number in 0..procedures {
            let name = format!("p{number}");
            let before = thread.enter(tracker.procedure(&name));
            black_box((0..1000).fold(1_u64, |a, b| black_box(a ^ b)));
            thread.enter(before);
        }
        let procedure = tracker.procedure("p0");
        show("enter and leave a procedure", || {
            let before = thread.enter(procedure);
            thread.enter(before);
        });
        show("copy, for nobody", || {
            let copy = thread.copy(Site(2));
            thread.discard(copy);
        });
        show("copy and merge, not adopted", || {
            let copy = other.copy(Site(2));
            thread.merge(copy, Site(3), Edge::Channel);
        });
        let mut turn = 0;
        show("copy and merge, adopted", || {
            let (from, to) =
                if turn % 2 == 0 { (&mut thread, &mut other) } else { (&mut other, &mut thread) };
            turn += 1;
            let copy = from.copy(Site(turn));
            to.merge(copy, Site(turn + 1), Edge::Channel);
        });
        let mut released = None;
        show("acquire and release a lock", || {
            if let Some(released) = released.take() {
                thread.merge(released, Site(6), Edge::Lock);
            }
            released = Some(thread.copy(Site(7)));
        });
        show("spawn, begin, end, merge", || {
            let spawned = thread.copy(Site(4));
            let left = thread.begin(Some(spawned), Site(4));
            thread.end_and_merge(left, Site(5));
        });
    }
}

fn show(name: &str, mut event: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..EVENTS {
            event();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(EVENTS));
    }
    println!("{name:32}{best:8.1} ns");
}
