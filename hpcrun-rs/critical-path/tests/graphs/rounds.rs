//! Samples that are farther apart than events: functions' gains are right all the same.

use std::sync::Arc;

use critical_path::{
    Edge, Function, ProcedureName, Report, Sampler, Samples, Settings, Site, Thread, Tracker,
};
use hpc_formats::address::CodeAddress;

use crate::world::Simulated;

/// A phase of a round, which ends at a barrier: what each of two threads does, as functions and microseconds.
type Phase = [&'static [(u32, u64)]; 2];

struct Names;

impl Sampler for Names {
    fn profile(&self) -> u32 {
        1
    }

    fn functions(&mut self, record: u32) -> Arc<[Function]> {
        [Function(record.into()), Function(1000)].into()
    }
}

/// A thread with a sample after each period, more or less.
struct Fiber<'t> {
    thread: Thread<'t, Simulated>,
    clock: Simulated,
    samples: Arc<Samples>,
    period: u64,
    until_next: u64,
    random: u64,
}

impl<'t> Fiber<'t> {
    fn new(tracker: &'t Tracker, number: u64, period: u64) -> Self {
        let clock = Simulated::default();
        let mut thread = Thread::new(tracker, clock.clone(), Site(1));
        thread.set_sampler(Box::new(Names));
        Fiber { samples: thread.samples(), thread, clock, period, until_next: period / 2, random: number }
    }

    fn random(&mut self, below: u64) -> u64 {
        let next = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d);
        self.random = next.wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) % below
    }

    fn spin(&mut self, function: u32, mut time: u64) {
        while self.until_next <= time {
            self.clock.advance(self.until_next);
            time -= self.until_next;
            self.samples.add(function, self.period);
            self.until_next = self.period * 3 / 4 + self.random(self.period / 2);
        }
        self.until_next -= time;
        self.clock.advance(time);
    }
}

/// The greatest error of a function's zeroed span, as a share of the span, after rounds of some seconds.
fn error(period: u64, phases: &[Phase]) -> f64 {
    let mut settings = Settings::default();
    settings.sample_period = period;
    let tracker = Tracker::new(settings);
    let mut fibers = [1, 2].map(|number| Fiber::new(&tracker, number, period));
    let length = |without: u32| -> u64 {
        let time = |part: &&[(u32, u64)]| -> u64 {
            let kept = part.iter().filter(|(function, _)| *function != without);
            kept.map(|(_, time)| time * 1000).sum()
        };
        let lengths = phases.iter().map(|phase| phase.iter().map(time).max());
        lengths.flatten().sum()
    };
    let rounds = 4_000_000_000 / length(0);
    for _ in 0..rounds {
        for (number, phase) in phases.iter().enumerate() {
            let barrier = Site(10 + number as u64);
            let arrived = [0, 1].map(|n| {
                let fiber = &mut fibers[n];
                for (function, time) in phase[n] {
                    fiber.spin(*function, time * 1000);
                }
                let event = fiber.thread.event(barrier, false, || None);
                fiber.thread.copy(event)
            });
            let [first, second] = arrived;
            fibers[1].thread.merge(first, barrier, Edge::Barrier);
            fibers[0].thread.merge(second, barrier, Edge::Barrier);
        }
    }
    fibers.iter_mut().for_each(|fiber| fiber.thread.publish(Site(2)));
    let report = tracker.report();
    assert_eq!(report.span, rounds * length(0));
    let functions = phases.iter().flatten().flat_map(|part| part.iter());
    let errors = functions.map(|(function, _)| {
        let found = zeroed_span(&report, *function);
        found.abs_diff(rounds * length(*function)) as f64 / report.span as f64
    });
    errors.fold(0.0, f64::max)
}

fn zeroed_span(report: &Report, function: u32) -> u64 {
    let name = ProcedureName::Function(CodeAddress(function.into()), 0);
    let known = report.procedures.iter().find(|known| known.name == name);
    known.map_or(report.span, |known| known.zeroed_span)
}

#[test]
fn a_short_thread_is_like_those_before_it() {
    let (period, rounds) = (5_000_000, 4000);
    let mut settings = Settings::default();
    settings.sample_period = period;
    let tracker = Tracker::new(settings);
    let mut main = Fiber::new(&tracker, 1, period);
    for number in 0..rounds {
        let spawned = main.thread.copy(Site(10));
        let mut fiber = Fiber::new(&tracker, number, period);
        fiber.random(1);
        fiber.until_next = fiber.random(period);
        let left = fiber.thread.begin(Some(spawned), Site(11));
        fiber.spin(1, 1_000_000);
        let ended = fiber.thread.end(left, Site(12));
        main.spin(2, 700_000);
        main.thread.merge(ended, Site(13), Edge::Join);
    }
    main.thread.publish(Site(2));
    let report = tracker.report();
    assert_eq!(report.span, rounds * 1_000_000);
    let found = zeroed_span(&report, 1) as f64 / (rounds as f64 * 700_000.0);
    assert!((0.96..1.04).contains(&found), "{found}");
}

#[test]
fn gains_are_right_where_events_are_closer_than_samples() {
    let programs: [&[Phase]; 5] = [
        &[[&[(1, 1000)], &[(2, 900)]]],
        &[[&[(1, 600), (2, 400)], &[(3, 900)]]],
        &[[&[(1, 500), (2, 500)], &[(1, 450), (3, 450)]]],
        // Phases in which one and the same function gains more and less.
        &[[&[(1, 1000)], &[(2, 900)]], [&[(3, 1000)], &[(4, 500)]]],
        &[[&[(1, 1000)], &[(2, 900)]], [&[(3, 300)], &[(4, 200)]], [&[(5, 600), (1, 200)], &[(4, 700)]]],
    ];
    for program in programs {
        for period in [1_000_000, 5_000_000] {
            let error = error(period, program);
            assert!(error < 0.04, "{program:?}, {period} ns: {error}");
        }
    }
}
