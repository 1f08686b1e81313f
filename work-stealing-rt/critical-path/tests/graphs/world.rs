//! Programs in simulated time: every operation goes to the tracker and into a graph.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use critical_path::{
    Channel, Clock, Edge, Ended, Forked, Object, Paused, Procedure, Report, Settings, Site, Thread,
    Tracker,
};

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
    pub(crate) dag: RefCell<Dag>,
    names: RefCell<Vec<String>>,
}

/// A thread of the program.
pub(crate) struct Fiber<'w> {
    world: &'w World,
    clock: Simulated,
    pub(crate) thread: Thread<'w, Simulated>,
    /// Its last node; none before its first.
    node: Option<usize>,
}

/// A fork whose second half has not begun.
pub(crate) struct Fork {
    forked: Forked,
    node: usize,
}

/// The first half of a fork, whose second half runs.
pub(crate) struct Half {
    paused: Paused,
    node: Option<usize>,
}

/// The end of a fiber.
pub(crate) struct End {
    ended: Ended,
    node: usize,
}

/// A lock, a condition or a barrier, with the nodes that the next acquisition waits for.
#[derive(Default)]
pub(crate) struct Shared {
    object: Object,
    nodes: Vec<usize>,
}

/// A channel, with the nodes of its sends and receives.
pub(crate) struct Pipe {
    channel: Channel,
    capacity: Option<usize>,
    sends: VecDeque<usize>,
    receives: VecDeque<usize>,
    sent: usize,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut settings = Settings::default();
        settings.spawn_cost = SPAWN_COST;
        settings.message_cost = MESSAGE_COST;
        settings.near_least = 1;
        Self::with(settings)
    }

    pub(crate) fn with(settings: Settings) -> Self {
        World {
            tracker: Tracker::new(settings),
            dag: RefCell::default(),
            names: RefCell::default(),
        }
    }

    /// A fiber of whose creation nothing is known.
    pub(crate) fn root(&self) -> Fiber<'_> {
        let clock = Simulated::default();
        Fiber {
            world: self,
            thread: Thread::new(&self.tracker, clock.clone(), Site(1)),
            clock,
            node: None,
        }
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

    pub(crate) fn report(&self) -> Report {
        self.tracker.report()
    }

    /// Checks everything that the report says against the graph.
    pub(crate) fn check(&self) -> Report {
        let report = self.report();
        let dag = self.dag.borrow();
        let longest = dag.longest(None, false);
        assert_eq!(report.work, dag.work(None), "work");
        assert_eq!(report.span, longest.length, "span");
        assert_eq!(report.burdened_span, dag.longest(None, true).length);
        let sum: u64 = report.segments.iter().map(|s| s.time).sum();
        assert_eq!(sum, report.span, "the segments' times");
        for (number, name) in self.names.borrow().iter().enumerate() {
            let found = report.procedures.iter().find(|p| p.name == *name);
            let found = found.expect("every procedure is reported");
            assert_eq!(found.work, dag.work(Some(number)), "work of {name}");
            let on_path = dag.on_path(&longest.path, number);
            assert_eq!(found.on_path, on_path, "{name} on the path");
            let zeroed = dag.longest(Some(number), false).length;
            assert_eq!(found.zeroed_span, zeroed, "span without {name}");
        }
        assert!(report.quality.lost_edges.is_empty());
        report
    }
}

impl<'w> Fiber<'w> {
    /// A node after the fiber's last one, and after `others`.
    fn event(&mut self, others: &[(usize, u64)]) -> usize {
        let mut before: Vec<(usize, u64)> = self.node.iter().map(|n| (*n, 0)).collect();
        before.extend_from_slice(others);
        let node = self.world.dag.borrow_mut().node(None, 0, &before);
        self.node = Some(node);
        node
    }

    fn place(&self) -> Site {
        Site(u64::from(self.thread.number()) + 100)
    }

    /// Activity under a procedure.
    pub(crate) fn spin(&mut self, name: &str, time: u64) {
        let (number, procedure) = self.world.procedure(name);
        let before = self.thread.enter(procedure);
        self.clock.advance(time);
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
        self.thread.resume();
    }

    pub(crate) fn spawn(&mut self) -> Fiber<'w> {
        let fork = self.event(&[]);
        let forked = self.thread.fork(self.place());
        let clock = Simulated::default();
        let thread = Thread::spawned(&self.world.tracker, clock.clone(), forked, Site(2));
        let begin = self
            .world
            .dag
            .borrow_mut()
            .node(None, 0, &[(fork, SPAWN_COST)]);
        Fiber {
            world: self.world,
            clock,
            thread,
            node: Some(begin),
        }
    }

    pub(crate) fn end(mut self) -> End {
        let node = self.event(&[]);
        End {
            ended: self.thread.end_of_thread(Site(3)),
            node,
        }
    }

    pub(crate) fn join(&mut self, end: End) {
        self.event(&[(end.node, MESSAGE_COST)]);
        let place = self.place();
        self.thread.join(end.ended, place);
    }

    pub(crate) fn fork(&mut self) -> Fork {
        let node = self.event(&[]);
        Fork {
            forked: self.thread.fork(self.place()),
            node,
        }
    }

    /// Begins the second half of a fork, on the same thread.
    pub(crate) fn second(&mut self, fork: Fork) -> Half {
        // A few different places, so that some consecutive segments are equal.
        let site = Site(4 + fork.node as u64 % 5);
        let paused = self.thread.begin(fork.forked, site);
        let before = [(fork.node, SPAWN_COST)];
        let begin = self.world.dag.borrow_mut().node(None, 0, &before);
        Half {
            paused,
            node: self.node.replace(begin),
        }
    }

    /// Ends the second half.
    pub(crate) fn join_halves(&mut self, half: Half) {
        let place = self.place();
        let second = self.node.expect("it has begun");
        if second % 2 == 0 {
            self.thread.end_and_join(half.paused, place);
        } else {
            let ended = self.thread.end(half.paused, Site(5));
            self.thread.join(ended, place);
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

    pub(crate) fn release(&mut self, shared: &mut Shared) {
        shared.nodes = vec![self.event(&[])];
        let place = self.place();
        self.thread.release(&mut shared.object, place);
    }

    pub(crate) fn arrive(&mut self, shared: &mut Shared) {
        shared.nodes.push(self.event(&[]));
        let place = self.place();
        self.thread.arrive(&mut shared.object, place);
    }

    pub(crate) fn acquire(&mut self, shared: &Shared, edge: Edge) {
        let before: Vec<(usize, u64)> = shared.nodes.iter().map(|n| (*n, MESSAGE_COST)).collect();
        self.event(&before);
        let place = self.place();
        self.thread.acquire(&shared.object, place, edge);
    }

    pub(crate) fn send(&mut self, pipe: &mut Pipe) {
        if pipe.capacity.is_some_and(|c| c != 0 && pipe.sent >= c) {
            let room = pipe.receives.pop_front().expect("there is room");
            self.event(&[(room, MESSAGE_COST)]);
        }
        pipe.sends.push_back(self.event(&[]));
        pipe.sent += 1;
        let place = self.place();
        pipe.channel.send(&mut self.thread, place);
    }

    /// After a send through a channel of capacity 0.
    pub(crate) fn sent(&mut self, pipe: &mut Pipe) {
        let room = pipe.receives.pop_front().expect("it was received");
        self.event(&[(room, MESSAGE_COST)]);
        let place = self.place();
        pipe.channel.sent(&mut self.thread, place);
    }

    pub(crate) fn receive(&mut self, pipe: &mut Pipe) {
        let send = pipe.sends.pop_front().expect("there is a value");
        let node = self.event(&[(send, MESSAGE_COST)]);
        if pipe.capacity.is_some() {
            pipe.receives.push_back(node);
        }
        let place = self.place();
        assert!(pipe.channel.receive(&mut self.thread, place));
    }
}

impl Pipe {
    pub(crate) fn new(capacity: Option<usize>) -> Self {
        Pipe {
            channel: Channel::new(capacity),
            capacity,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            sent: 0,
        }
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
