//! Programs in simulated time: every operation goes to the tracker and into a graph.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use critical_path::{
    Clock, Edge, Function, Procedure, ProcedureName, ProcedureTimes, Report, Sampler, Samples, Settings,
    Site, Strand, Thread, Tracker,
};
use hpc_formats::address::CodeAddress;
use hpc_formats::critical_path::saved;

use crate::dag::Dag;

pub(crate) const SPAWN_COST: u64 = 7;
pub(crate) const MESSAGE_COST: u64 = 3;

/// A clock that advances only when it is told to.
#[derive(Clone, Default)]
pub(crate) struct Simulated(Rc<Cell<u64>>);

impl Simulated {
    pub(crate) fn advance(&self, time: u64) {
        self.0.set(self.0.get() + time);
    }
}

impl Clock for Simulated {
    fn now(&mut self) -> u64 {
        self.0.get()
    }
}

pub(crate) struct World {
    tracker: Tracker,
    dag: RefCell<Dag>,
    names: RefCell<Vec<String>>,
}

/// A thread of the program.
pub(crate) struct Fiber<'w> {
    world: &'w World,
    clock: Simulated,
    thread: Thread<'w, Simulated>,
    samples: Arc<Samples>,
    /// Its last node; none before its first.
    node: Option<usize>,
    /// What its thread has left for it, if it was spawned.
    left: Option<Strand>,
}

/// A strand at a node, on its way along an edge: a fork, an end, a release, a message, room for one.
pub(crate) struct Point {
    strand: Strand,
    node: usize,
}

/// The first half of a fork, whose second half runs.
pub(crate) struct Half {
    left: Strand,
    node: Option<usize>,
}

/// A lock, a condition or a barrier: what the next acquisition waits for.
#[derive(Default)]
pub(crate) struct Shared {
    strand: Option<Strand>,
    nodes: Vec<usize>,
}

/// A channel.
pub(crate) struct Pipe {
    capacity: Option<usize>,
    sends: VecDeque<Point>,
    /// For each receive whose room no send has used yet.
    receives: VecDeque<Point>,
    sent: usize,
}

impl World {
    pub(crate) fn new() -> Self {
        World::with_edges(false)
    }

    /// Of which the edges' costs are a part of the path.
    pub(crate) fn with_edges(edges: bool) -> Self {
        let mut settings = Settings::default();
        settings.spawn_cost = SPAWN_COST;
        settings.message_cost = MESSAGE_COST;
        settings.near_least = 1;
        settings.level = 1;
        settings.share = 0;
        settings.faster = SAVED;
        settings.edges = edges;
        let dag = RefCell::new(Dag::with_costs(edges));
        World { tracker: Tracker::new(settings), dag, names: RefCell::default() }
    }

    /// A fiber of whose creation nothing is known.
    pub(crate) fn root(&self) -> Fiber<'_> {
        let clock = Simulated::default();
        let mut thread = Thread::new(&self.tracker, clock.clone(), Site(1));
        thread.set_sampler(Box::new(Exact));
        Fiber { world: self, samples: thread.samples(), thread, clock, node: None, left: None }
    }

    fn procedure(&self, name: &str) -> (usize, Option<Procedure>) {
        let mut names = self.names.borrow_mut();
        let known = names.iter().position(|n| n == name);
        let number = known.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        (number, self.tracker.procedure(name))
    }

    /// Checks that a report of a program with waits of which nobody tells the end is too short, if anything,
    /// but for the work. Returns how many such ends are counted as lost, and whether the span is right.
    pub(crate) fn check_least(&self) -> (u64, bool) {
        let report = self.tracker.report();
        let dag = self.dag.borrow();
        assert_eq!(report.work, dag.work(None), "work");
        let span = dag.longest(None, false).length;
        assert!(report.span <= span, "span");
        assert!(report.burdened_span <= dag.longest(None, true).length);
        for (number, name) in self.names.borrow().iter().enumerate() {
            let found = report.procedures.iter().find(|p| p.name == *name);
            let found = found.expect("every procedure is reported");
            assert_eq!(found.work, dag.work(Some(number)), "work of {name}");
            assert!(found.zeroed_span <= dag.longest(Some(number), false).length);
            assert!(found.faster_span <= dag.longest_if_faster(|other| other == number, SAVED));
        }
        let lost = report.quality.lost_edges;
        assert!(lost.iter().all(|(cause, _)| cause == "wait"), "{lost:?}");
        (lost.iter().map(|(_, count)| count).sum(), report.span == span)
    }

    /// Checks everything that the report says against the graph.
    pub(crate) fn check(&self) -> Report {
        let report = self.tracker.report();
        let dag = self.dag.borrow();
        let longest = dag.longest(None, false);
        assert_eq!(report.work, dag.work(None), "work");
        assert_eq!(report.span, longest.length, "span");
        assert_eq!(report.burdened_span, dag.longest(None, true).length);
        let sum: u64 = report.segments.iter().map(|s| s.time).sum();
        assert_eq!(sum, report.span, "the segments' times");
        let costs = report.span - longest.path.iter().map(|node| dag.time(*node)).sum::<u64>();
        assert_eq!(report.edge_time(), costs, "the edges' part of it");
        for (number, name) in self.names.borrow().iter().enumerate() {
            let found = report.procedures.iter().find(|p| p.name == *name);
            let found = found.expect("every procedure is reported");
            assert_eq!(found.work, dag.work(Some(number)), "work of {name}");
            let on_path = dag.on_path(&longest.path, number);
            assert_eq!(found.on_path, on_path, "{name} on the path");
            let zeroed = dag.longest(Some(number), false).length;
            assert_eq!(found.zeroed_span, zeroed, "span without {name}");
            let faster = dag.longest_if_faster(|other| other == number, SAVED);
            assert_eq!(found.faster_span, faster, "span with a faster {name}");
            check_bounds(&report, found, |saved| dag.longest_if_faster(|other| other == number, saved));
        }
        self.check_samples(&report, &longest.path);
        check_levels(&report, 0.0);
        self.check_predictions(&report);
        assert!(report.quality.lost_edges.is_empty());
        report
    }
}

/// What a procedure saves if it is faster, in `PARTS`.
const SAVED: u32 = 4000;

/// The changed program is within the bounds for any factor, be what is known the half or nothing of it.
fn check_bounds(report: &Report, procedure: &ProcedureTimes, changed: impl Fn(u32) -> u64) {
    let mut report = report.clone();
    for asked in [SAVED, 0] {
        report.faster = asked;
        for factor in [1.25, 2.0, 8.0, 1.0 / 0.6] {
            let exact = changed(saved(factor).expect("a factor")) as f64;
            let (least, most) = report.if_faster(procedure, factor, 2).span;
            // Its spans are whole nanoseconds; a chord is at most so much steeper.
            assert!((least - 3.0..=most + 3.0).contains(&exact), "{exact} for {factor}: {least} to {most}");
            assert!(least <= most && (least == most || (factor, asked) != (1.0 / 0.6, SAVED)));
        }
    }
}

/// Nearly all of the work is in a level, and they last as long as the path.
pub(crate) fn check_levels(report: &Report, missing: f64) {
    let levels = report.levels.iter();
    let sums = levels.fold((0, 0), |(time, work), level| (time + level.time, work + level.work));
    assert_eq!(sums.0, report.span, "the levels' time");
    let least = (report.work as f64 * (1.0 - missing)) as u64;
    assert!((least..=report.work).contains(&sums.1), "{sums:?}");
}

impl World {
    fn check_predictions(&self, report: &Report) {
        // What begins or ends in a bucket is not told apart there.
        let bucket = (2 * report.span) >> 16;
        for workers in [1, 2, 3, 4, 16] {
            let found = report.prediction(workers);
            let (exact, turns) = self.dag.borrow().level_by_level(workers.into());
            let (least, most) = (found.lower * 0.999_999_999, found.upper * 1.000_000_001);
            assert!((least..=most).contains(&exact), "{exact} in {found:?}");
            let doubt = (2 * bucket * turns) as f64 + 1e-9 * exact;
            let difference = (exact - found.time).abs();
            assert!(difference <= doubt, "{exact} is {found:?}");
        }
    }

    /// The same by samples, which here are exact. A context is a procedure in one of some callers.
    fn check_samples(&self, report: &Report, path: &[usize]) {
        let dag = self.dag.borrow();
        let on_path = report.on_path.iter().map(|c| (c.record as usize, c.time));
        let on_path: Vec<(usize, u64)> = on_path.collect();
        let expected = (0..self.names.borrow().len()).map(|number| (number, dag.on_path(path, number)));
        let expected: Vec<(usize, u64)> = expected.filter(|(_, time)| *time != 0).collect();
        assert_eq!(on_path, expected, "contexts on the path");
        for number in 0..self.names.borrow().len() {
            let functions = Exact.functions(number as u32);
            for function in functions.iter() {
                let is_in = |other: usize| Exact.functions(other as u32).contains(function);
                let expected = dag.longest_without(is_in, false).length;
                let name = ProcedureName::Function(CodeAddress(function.0), 0);
                let records = (0..self.names.borrow().len()).filter(|record| is_in(*record));
                let time = records.map(|record| dag.on_path(path, record)).sum::<u64>();
                let known = report.series[0].procedures.iter().find(|(known, _)| *known == name);
                let time = Some(time).filter(|time| *time > report.span / 100);
                assert_eq!(known.map(|(_, time)| *time), time, "{function:?} at the moment");
                let known = report.procedures.iter().find(|known| known.name == name);
                let spans = known.map(|known| (known.zeroed_span, known.faster_span));
                let faster = dag.longest_if_faster(is_in, SAVED);
                assert_eq!(spans.unwrap_or((report.span, report.span)), (expected, faster), "{function:?}");
            }
        }
    }
}

/// Samples of a procedure's number, in itself and in one of some callers.
struct Exact;

const CALLERS: u32 = 3;

impl Sampler for Exact {
    fn profile(&self) -> u32 {
        7
    }

    fn functions(&mut self, record: u32) -> Arc<[Function]> {
        let caller = 1000 + record % CALLERS;
        [record, caller].map(|number| Function(number.into())).into()
    }
}

impl<'w> Fiber<'w> {
    /// A node after the fiber's last one, and after the nodes of edges with their costs.
    fn event(&mut self, edges: &[(usize, u64)]) -> usize {
        let mut before: Vec<(usize, u64)> = self.node.iter().map(|n| (*n, 0)).collect();
        before.extend_from_slice(edges);
        let node = self.world.dag.borrow_mut().node(None, 0, &before);
        self.node = Some(node);
        node
    }

    /// The strand here.
    fn point(&mut self) -> Point {
        let node = self.event(&[]);
        let strand = self.thread.copy(self.place());
        Point { strand, node }
    }

    /// Has waited for the point.
    fn merge(&mut self, point: Point, edge: Edge) {
        self.event(&[(point.node, MESSAGE_COST)]);
        self.thread.merge(point.strand, self.place(), edge);
    }

    fn place(&self) -> Site {
        Site(u64::from(self.thread.number()) + 100)
    }

    /// Activity under a procedure.
    pub(crate) fn spin(&mut self, name: &str, time: u64) {
        let (number, procedure) = self.world.procedure(name);
        let before = self.thread.enter(procedure);
        self.clock.advance(time);
        self.samples.add(number as u32, time);
        self.thread.enter(before);
        let before: Vec<(usize, u64)> = self.node.iter().map(|n| (*n, 0)).collect();
        let mut dag = self.world.dag.borrow_mut();
        self.node = Some(dag.node(Some(number), time, &before));
    }

    /// One after the other.
    pub(crate) fn spins(&mut self, activities: &[(&str, u64)]) {
        for (name, time) in activities {
            self.spin(name, *time);
        }
    }

    /// A wait, or the tracker's own work: no activity.
    pub(crate) fn wait(&mut self, time: u64) {
        self.thread.pause();
        self.clock.advance(time);
        // A sample of an idle thread.
        self.samples.add(1, time);
        self.thread.resume();
    }

    /// Waits in a loop, which samples find, until the last node of another fiber is over. Nothing tells.
    pub(crate) fn spin_until(&mut self, other: usize, time: u64) {
        self.clock.advance(time);
        self.samples.add_wait(time);
        self.thread.length();
        self.event(&[(other, MESSAGE_COST)]);
    }

    /// Its last node.
    pub(crate) fn node(&self) -> Option<usize> {
        self.node
    }

    pub(crate) fn spawn(&mut self) -> Fiber<'w> {
        let fork = self.point();
        let mut fiber = self.world.root();
        fiber.left = Some(fiber.thread.begin(Some(fork.strand), Site(2)));
        fiber.event(&[(fork.node, SPAWN_COST)]);
        fiber
    }

    pub(crate) fn end(mut self) -> Point {
        let Some(left) = self.left.take() else {
            self.thread.publish(Site(3));
            return self.point();
        };
        let strand = self.thread.end(left, Site(3));
        let copy = self.thread.share(&strand);
        self.thread.finish(copy);
        let node = self.event(&[]);
        Point { strand, node }
    }

    pub(crate) fn join(&mut self, end: Point) {
        self.merge(end, Edge::Join);
    }

    pub(crate) fn fork(&mut self) -> Point {
        self.point()
    }

    /// Begins the second half of a fork, on the same thread.
    pub(crate) fn second(&mut self, fork: Point) -> Half {
        // A few different places, so that some consecutive segments are equal.
        let site = Site(4 + fork.node as u64 % 5);
        let left = self.thread.begin(Some(fork.strand), site);
        let node = self.node.take();
        self.event(&[(fork.node, SPAWN_COST)]);
        Half { left, node }
    }

    /// Ends the second half.
    pub(crate) fn join_halves(&mut self, half: Half) {
        let place = self.place();
        let second = self.node.expect("it has begun");
        if second % 2 == 0 {
            self.thread.end_and_merge(half.left, place);
        } else {
            let ended = self.thread.end(half.left, Site(5));
            self.thread.merge(ended, place, Edge::Join);
        }
        self.node = half.node;
        self.event(&[(second, MESSAGE_COST)]);
    }

    /// Both halves of a fork, on the same thread.
    pub(crate) fn both(&mut self, a: impl FnOnce(&mut Self), b: impl FnOnce(&mut Self)) {
        let fork = self.fork();
        a(self);
        let half = self.second(fork);
        b(self);
        self.join_halves(half);
    }

    /// The next acquisition waits for this strand alone.
    pub(crate) fn release(&mut self, shared: &mut Shared) {
        let point = self.point();
        shared.nodes = vec![point.node];
        if let Some(old) = shared.strand.replace(point.strand) {
            self.thread.discard(old);
        }
    }

    /// Whoever leaves waits for all strands that have arrived.
    pub(crate) fn arrive(&mut self, shared: &mut Shared) {
        let point = self.point();
        shared.nodes.push(point.node);
        shared.strand = Some(match shared.strand.take() {
            Some(others) => self.thread.both(point.strand, others),
            None => point.strand,
        });
    }

    pub(crate) fn acquire(&mut self, shared: &Shared, edge: Edge) {
        let edges: Vec<(usize, u64)> = shared.nodes.iter().map(|n| (*n, MESSAGE_COST)).collect();
        self.event(&edges);
        if let Some(strand) = &shared.strand {
            let copy = self.thread.share(strand);
            self.thread.merge(copy, self.place(), edge);
        }
    }

    pub(crate) fn send(&mut self, pipe: &mut Pipe) {
        if pipe.capacity.is_some_and(|c| c != 0 && pipe.sent >= c) {
            self.take_room(pipe);
        }
        pipe.sends.push_back(self.point());
        pipe.sent += 1;
    }

    /// Has waited for room; after a send through a channel of capacity 0, for its receive.
    pub(crate) fn take_room(&mut self, pipe: &mut Pipe) {
        let room = pipe.receives.pop_front().expect("there is room");
        self.merge(room, Edge::Channel);
    }

    pub(crate) fn receive(&mut self, pipe: &mut Pipe) {
        let send = pipe.sends.pop_front().expect("there is a value");
        self.merge(send, Edge::Channel);
        if pipe.capacity.is_some() {
            let room = self.point();
            pipe.receives.push_back(room);
        }
    }
}

impl Pipe {
    pub(crate) fn new(capacity: Option<usize>) -> Self {
        Pipe { capacity, sends: VecDeque::new(), receives: VecDeque::new(), sent: 0 }
    }

    pub(crate) fn can_send(&self) -> bool {
        match self.capacity {
            None => true,
            // One at a time, until its sender has gone on.
            Some(0) => self.sends.is_empty() && self.receives.is_empty(),
            Some(capacity) => self.sends.len() < capacity,
        }
    }

    pub(crate) fn can_receive(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Whether the last value of a channel of capacity 0 was received.
    pub(crate) fn is_received(&self) -> bool {
        !self.receives.is_empty()
    }
}
