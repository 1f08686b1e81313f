//! Memory stays bounded, and what is folded is counted.

use critical_path::{Clock, Edge, Settings, Site, Thread, Tracker};

use crate::world::{Simulated, check_levels};

fn settings(nodes: usize, segments: u32) -> Settings {
    let mut settings = Settings::default();
    settings.nodes = nodes;
    settings.segments = segments;
    settings
}

/// A clock that advances by one at each reading.
struct Ticking(u64);

impl Clock for Ticking {
    fn now(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

fn fork_and_join<C: Clock>(thread: &mut Thread<'_, C>, at: Site) {
    let forked = thread.copy(at);
    let left = thread.begin(Some(forked), at);
    let ended = thread.end(left, at);
    thread.merge(ended, at, Edge::Join);
}

/// Two threads that hand an object to and fro, at places that never repeat, and fork meanwhile.
#[test]
fn ten_million_events_fit() {
    const ROUNDS: u64 = 1_250_000;
    let tracker = Tracker::new(settings(1 << 13, 1 << 10));
    let mut threads = [0, 1].map(|n| Thread::new(&tracker, Ticking(n), Site(n)));
    let mut released = None;
    let mut events = 0;
    for round in 0..ROUNDS {
        let at = Site(round * round % 1_000_003 + round);
        for thread in &mut threads {
            if let Some(released) = released.take() {
                thread.merge(released, at, Edge::Lock);
            }
            fork_and_join(thread, at);
            released = Some(thread.copy(at));
            events += 6;
        }
    }
    assert!(events >= 10_000_000);
    for thread in &mut threads {
        thread.publish(Site(0));
    }
    let report = tracker.report();
    let sum: u64 = report.segments.iter().map(|s| s.time).sum();
    assert_eq!(sum, report.span);
    let first = report.segments[0];
    assert_eq!(first.edge, Edge::Folded);
    assert!(first.count > 2_000_000, "{}", first.count);
    // The newest part is there in detail.
    assert!(report.segments.len() >= 1 << 9);
    assert!(report.segments.len() <= 1 << 11);
}

/// A loop needs as much memory as one of its turns.
#[test]
fn a_long_loop_is_a_few_segments() {
    let tracker = Tracker::new(settings(1 << 12, 1 << 12));
    let clocks = [Simulated::default(), Simulated::default()];
    let [mut thread, mut other] = [0, 1].map(|n| Thread::new(&tracker, clocks[n].clone(), Site(0)));
    for _ in 0..100_000 {
        clocks[0].advance(10);
        let message = thread.copy(Site(1));
        other.merge(message, Site(2), Edge::Channel);
        clocks[1].advance(10);
        let back = other.copy(Site(3));
        thread.merge(back, Site(4), Edge::Channel);
        let forked = thread.copy(Site(5));
        let left = thread.begin(Some(forked), Site(5));
        clocks[0].advance(10);
        let ended = thread.end(left, Site(6));
        thread.merge(ended, Site(7), Edge::Join);
    }
    thread.publish(Site(8));
    let report = tracker.report();
    assert_eq!(report.span, 3_000_000);
    assert!(report.segments.len() < 10, "{:?}", report.segments);
    let most = report.segments.iter().map(|s| s.count).max();
    assert!(most >= Some(99_990), "{:?}", report.segments);
}

/// As many threads at the same time, each with a path of its own.
#[test]
fn ten_thousand_threads_fit() {
    const THREADS: usize = 10_000;
    let tracker = Tracker::new(Settings::default());
    let clock = Simulated::default();
    let mut main = Thread::new(&tracker, clock.clone(), Site(0));
    let mut threads = Vec::new();
    for number in 0..THREADS as u64 {
        clock.advance(1);
        let forked = main.copy(Site(number));
        let clock = Simulated::default();
        let mut thread = Thread::new(&tracker, clock.clone(), Site(number));
        let left = thread.begin(Some(forked), Site(number));
        threads.push((clock, thread, left));
    }
    let mut ends = Vec::new();
    for (clock, mut thread, left) in threads {
        for part in 0..5 {
            clock.advance(1);
            let message = thread.copy(Site(part));
            thread.merge(message, Site(part), Edge::Channel);
        }
        ends.push(thread.end(left, Site(1)));
    }
    for ended in ends {
        main.merge(ended, Site(2), Edge::Join);
    }
    clock.advance(1);
    main.publish(Site(3));
    let report = tracker.report();
    assert_eq!(report.work, 10_000 + 5 * 10_000 + 1);
    assert_eq!(report.span, 10_000 + 5 + 1);
    assert!(report.segments.iter().all(|s| s.edge != Edge::Folded));
    assert_eq!(report.segments.len(), 3);
}

/// All nodes come back when the strands are gone, so a tracker can be used for ever.
#[test]
fn sessions_follow_each_other() {
    let tracker = Tracker::new(settings(1 << 12, 64));
    let clock = Simulated::default();
    let mut thread = Thread::new(&tracker, clock.clone(), Site(0));
    let mut late = None;
    for session in 0..50 {
        tracker.restart();
        thread.restart(Site(1));
        if let Some(message) = late.take() {
            thread.merge(message, Site(2), Edge::Channel);
        }
        for round in 0..500 {
            fork_and_join(&mut thread, Site(round));
        }
        late = Some(thread.copy(Site(9)));
        thread.publish(Site(3));
        let report = tracker.report();
        let lost: u64 = report.quality.lost_edges.iter().map(|l| l.1).sum();
        assert_eq!(lost, u64::from(session != 0), "a message of the session before");
        check_levels(&report, 0.0);
    }
    let report = tracker.report();
    assert_eq!(report.quality.lost_edges[0].0, "other-session");
}

/// A thread that never ends tells its strand when it is asked.
#[test]
fn threads_that_do_not_end_are_in_intermediate_reports() {
    let tracker = Tracker::new(Settings::default());
    let clock = Simulated::default();
    let mut thread = Thread::new(&tracker, clock.clone(), Site(1));
    for turn in 1..4 {
        clock.advance(100);
        assert_eq!(thread.length(), turn * 100);
        assert_eq!(tracker.report().span, (turn - 1) * 100);
        tracker.ask();
        thread.length();
        let report = tracker.report();
        assert_eq!((report.span, report.work), (turn * 100, turn * 100));
        assert_eq!(report.segments.len(), 1);
    }
    // What it did before is no part of a session that it has not begun.
    tracker.restart();
    tracker.ask();
    thread.length();
    thread.publish(Site(2));
    let report = tracker.report();
    assert_eq!((report.span, report.work), (0, 0));
    check_levels(&report, 0.0);
    thread.restart(Site(3));
    clock.advance(10);
    thread.publish(Site(4));
    let report = tracker.report();
    assert_eq!((report.span, report.work), (10, 10));
    check_levels(&report, 0.0);
}
