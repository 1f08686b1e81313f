//! What a profiler needs that sees events in hooks: events whose preparation takes a while, and strands of
//! threads that still run when the process ends.

use critical_path::{Edge, Settings, Site, Thread, Tracker};

use crate::world::Simulated;

#[test]
fn an_event_happens_before_its_preparation() {
    let tracker = Tracker::new(Settings::default());
    let clock = Simulated::default();
    let mut thread = Thread::new(&tracker, clock.clone(), Site(1));
    clock.advance(300_000);
    assert_eq!(thread.since_last(), 300_000);
    clock.advance(5_000);
    let copy = thread.copy(Site(2));
    thread.seal();
    // After a long segment, what the event takes is no activity.
    clock.advance(10);
    assert_eq!(thread.length(), 300_010);
    // An event that does not look at the clock leaves nothing behind.
    thread.since_last();
    thread.seal();
    clock.advance(20);
    thread.merge(copy, Site(3), Edge::Lock);
    assert_eq!(thread.length(), 300_030);
    // Nor does one that is not sealed.
    thread.since_last();
    clock.advance(30);
    assert_eq!(thread.since_last(), 30);
    thread.publish(Site(4));
    assert_eq!(tracker.report().span, 300_060);
}

#[test]
fn a_thread_that_still_runs_counts_up_to_a_time_of_its_clock() {
    let tracker = Tracker::new(Settings::default());
    let clock = Simulated::default();
    let mut running = Thread::new(&tracker, clock.clone(), Site(1));
    let mut waiting = Thread::new(&tracker, clock.clone(), Site(2));
    clock.advance(100);
    waiting.pause();
    running.publish_from_outside(700);
    let report = tracker.report();
    assert_eq!((report.span, report.work), (700, 800));
    waiting.publish_from_outside(900);
    assert_eq!(tracker.report().span, 700);
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
