//! Fork-join programs whose short forks are left out: the span has bounds, and all else is exact.

use critical_path::{Edge, Report, Settings, Site, Thread, Tracker};

use crate::random::Random;
use crate::world::{Simulated, check_levels};

/// A program on two threads, that runs in simulated time.
struct Program<'t> {
    threads: [Thread<'t, Simulated>; 2],
    clocks: [Simulated; 2],
    random: Random,
    /// One of so many second halves runs on the other thread.
    steals: usize,
}

/// Work and span.
type Times = (u64, u64);

impl Program<'_> {
    fn spin(&mut self, on: usize, time: u64) -> Times {
        self.clocks[on].advance(time);
        (time, time)
    }

    /// A fork, if the tracker follows it, and its join.
    fn fork(&mut self, on: usize, site: u64, mut half: impl FnMut(&mut Self, usize) -> Times) -> Times {
        let site = Site(site);
        let forked = match self.threads[on].leaves_out_fork() {
            true => None,
            false => Some(self.threads[on].fork(site, site)),
        };
        let first = half(self, on);
        let second = if self.random.below(self.steals) == 0 {
            let other = 1 - on;
            let left = match forked {
                Some(forked) => self.threads[other].begin(Some(forked), site),
                None => self.threads[other].begin_part(site),
            };
            let second = half(self, other);
            let ended = self.threads[other].end(left, site);
            self.threads[on].merge(ended, site, Edge::Join);
            second
        } else if let Some(forked) = forked {
            let left = self.threads[on].begin(Some(forked), site);
            let second = half(self, on);
            self.threads[on].end_and_merge(left, site);
            second
        } else {
            half(self, on)
        };
        (first.0 + second.0, first.1.max(second.1))
    }

    fn random_tree(&mut self, on: usize, depth: usize) -> Times {
        let time = 1 + self.random.below(10) as u64;
        let before = self.spin(on, time);
        if depth == 0 || self.random.below(5) == 0 {
            return before;
        }
        let site = 100 + self.random.below(3) as u64;
        let inside = self.fork(on, site, |program, on| program.random_tree(on, depth - 1));
        let after = self.spin(on, time / 2);
        (before.0 + inside.0 + after.0, before.1 + inside.1 + after.1)
    }

    fn even_tree(&mut self, on: usize, depth: usize) -> Times {
        match depth {
            0 => self.spin(on, 10),
            _ => self.fork(on, 100, |program, on| program.even_tree(on, depth - 1)),
        }
    }
}

/// The report, and the true times.
fn run(grain: u64, seed: u64, program: impl Fn(&mut Program<'_>) -> Times) -> (Report, Times) {
    let mut settings = Settings::default();
    settings.grain = grain;
    let tracker = Tracker::new(settings);
    let clocks = [Simulated::default(), Simulated::default()];
    let mut running = Program {
        threads: [0, 1].map(|n| Thread::new(&tracker, clocks[n].clone(), Site(1))),
        clocks,
        random: Random(seed),
        steals: 4,
    };
    let (mut work, mut span) = (0, 0);
    for _ in 0..60 {
        let times = program(&mut running);
        work += times.0;
        span += times.1;
    }
    running.threads[0].publish(Site(2));
    drop(running);
    let report = tracker.report();
    assert_eq!(report.work, work);
    // Forks that are followed again in a part of a strand have no levels.
    check_levels(&report, 0.1);
    assert!(report.quality.lost_edges.is_empty());
    let sum: u64 = report.segments.iter().map(|s| s.time).sum();
    assert_eq!(sum, report.span);
    (report, (work, span))
}

#[test]
fn the_span_lies_within_its_bounds() {
    let mut grains = 0;
    for seed in 1..200 {
        let program = |program: &mut Program<'_>| program.random_tree(0, 9);
        let (report, (work, span)) = run(60, seed, program);
        assert!(report.span_at_least <= span, "{seed}: {} of {span}", report.span_at_least);
        assert!((span..=work).contains(&report.span), "{seed}: {} of {span}", report.span);
        grains += report.quality.grains;
        let (exact, (_, span)) = run(0, seed, program);
        assert_eq!((exact.span, exact.span_at_least), (span, span));
        assert_eq!(exact.quality.grains, 0);
    }
    assert!(grains > 10_000, "{grains}");
}

/// Of 4,095 forks, those are followed that have more than a grain of activity, and those just below.
#[test]
fn most_forks_of_a_tree_are_left_out() {
    let (report, (_, span)) = run(200, 7, |program| program.even_tree(0, 12));
    assert_eq!(span, 600);
    let followed = report.quality.exact_edges / 2;
    assert!(followed < 60 * 4095 / 4, "{followed}");
    assert!(report.quality.grains > 60 * 100);
    // Each tree ends with a grain.
    assert!(report.span <= 60 * (10 + 200), "{}", report.span);
}

/// After thousands of short forks one of the same kind is long: those in it that are told are followed again.
#[test]
fn a_fork_that_becomes_long_is_followed_again() {
    let (report, (_, span)) = run(200, 3, |program| {
        let mut times = (0, 0);
        for depth in core::iter::repeat_n(3, 5000).chain([14]) {
            let (work, span) = program.even_tree(0, depth);
            times = (times.0 + work, times.1 + span);
        }
        times
    });
    let long = 60 * (10 << 14);
    assert!(report.span_at_least <= span && span <= report.span);
    let (short, most) = (60 * 5000 * 80, long / 20);
    assert!(report.span < short + most, "{} of {span}", report.span);
}

/// A kind of which some forks are long has no grains.
#[test]
fn forks_that_are_sometimes_long_are_followed() {
    let (report, (_, span)) = run(200, 3, |program| {
        let mut times = (0, 0);
        for round in 0..2000 {
            let time = if round % 1000 == 999 { 100_000 } else { 10 };
            let (work, span) = program
                .fork(0, 100, |program, on| program.fork(on, 101, |program, on| program.spin(on, time)));
            times = (times.0 + work, times.1 + span);
        }
        times
    });
    // Of the first rounds, all are short.
    assert!((span..span + 150_000).contains(&report.span), "{} of {span}", report.span);
}
