//! What a profiler needs that sees events in hooks: events whose preparation takes a while, and strands of
//! threads that still run when the process ends.

use critical_path::{Edge, Settings, Site, Thread, Tracker};

use hpcrun_abi::SITE_CONTEXT;

use crate::world::Simulated;

/// What an event's context costs, and who asks for it.
#[test]
fn an_event_happens_before_its_preparation() {
    let context = |site| Some(Site(SITE_CONTEXT | site));
    let nobody = || panic!("no long segment ends");
    let tracker = Tracker::new(Settings::default());
    let clock = Simulated::default();
    let mut thread = Thread::new(&tracker, clock.clone(), Site(1));
    clock.advance(300_000);
    let at = thread.event(Site(1), false, || {
        clock.advance(5_000);
        context(7)
    });
    let copy = thread.copy(at);
    // After a long segment, what the event takes is no activity.
    clock.advance(10);
    assert_eq!(thread.length(), 300_010);
    // An event that does not look at the clock leaves nothing behind.
    assert_eq!(thread.event(Site(3), false, nobody).place, Site(3));
    clock.advance(20);
    thread.merge(copy, Site(3), Edge::Lock);
    assert_eq!(thread.length(), 300_030);
    // Nor does one of which nothing is told.
    thread.event(Site(3), false, nobody);
    clock.advance(30);
    // Where it is must be known.
    let at = thread.event(Site(0), false, || context(8));
    assert_eq!(at.place, Site(SITE_CONTEXT | 8));
    let spawned = thread.copy(at);
    let left = thread.begin(Some(spawned), Site(4));
    clock.advance(100_000);
    // A segment that has begun at the same place has begun in that context.
    let at = thread.event(Site(4), false, || context(9));
    let ended = thread.end(left, at);
    thread.finish(ended);
    let report = tracker.report();
    assert_eq!(report.span, 400_060);
    let [first, second] = &report.segments[..] else {
        panic!("{report:?}");
    };
    let contexts = [first.begin, first.end, second.begin, second.end].map(|s| s.0 & !SITE_CONTEXT);
    assert_eq!(contexts, [7, 8, 9, 9]);
    // A runtime's own place is worth less than the last context of a long segment.
    let left = thread.begin(None, Site(6));
    clock.advance(90_000);
    assert_eq!(thread.event(Site(6), true, nobody).place, Site(6));
    clock.advance(90_000);
    let at = thread.event(Site(6), true, || context(10));
    let copy = thread.copy(at);
    clock.advance(10);
    assert_eq!(thread.event(Site(6), true, nobody).place, at.place);
    for strand in [left, copy] {
        thread.discard(strand);
    }
    // The program itself knows the place of the event.
    assert_eq!(tracker.place(second.end).name, "0x4");
    thread.pause();
    clock.advance(900_000);
    assert_eq!(thread.event(Site(5), false, nobody).place, Site(5), "no activity");
}

#[test]
fn a_thread_that_still_runs_counts_up_to_a_time_of_its_clock() {
    let tracker = Tracker::new(Settings::default());
    let clock = Simulated::default();
    let mut running = Thread::new(&tracker, clock.clone(), Site(1));
    let mut waiting = Thread::new(&tracker, clock.clone(), Site(2));
    clock.advance(100);
    waiting.pause();
    running.tell_from_outside(700, true);
    let report = tracker.report();
    assert_eq!((report.span, report.work), (700, 800));
    waiting.tell_from_outside(900, true);
    assert_eq!(tracker.report().span, 700);
    // One that nobody waits for has work, but the path does not end in it.
    waiting.resume();
    waiting.tell_from_outside(1900, false);
    let report = tracker.report();
    assert_eq!((report.span, report.work), (700, 2600));
}

#[test]
fn a_copy_tells_whose_it_is() {
    let tracker = Tracker::new(Settings::default());
    let clock = Simulated::default();
    let mut one = Thread::new(&tracker, clock.clone(), Site(1));
    let mut other = Thread::new(&tracker, clock.clone(), Site(2));
    clock.advance(10);
    let copy = other.copy(Site(3));
    assert_eq!(copy.thread(), other.number());
    one.pause();
    one.merge(copy, Site(4), Edge::Lock);
    let merged = one.copy(Site(5));
    assert_eq!(merged.thread(), one.number());
    one.discard(merged);
    assert!(one.is_idle() && !other.is_idle());
}
