//! Random programs of all constructs against the evaluator.

use critical_path::Edge;

use crate::world::{Fiber, Half, Pipe, Point, Shared, World};

/// More than the procedures that a path keeps without a list.
const PROCEDURES: usize = 20;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound as u64) as usize
    }
}

/// A fork of a fiber: its second half is to come, or runs.
enum Frame {
    First(Point),
    Second(Half),
}

/// What keeps a fiber from going on.
#[derive(PartialEq)]
enum Blocked {
    No,
    /// In a send through this channel of capacity 0.
    Sending(usize),
    /// At the barrier of this round.
    AtBarrier(usize),
}

struct Actor<'w> {
    fiber: Fiber<'w>,
    frames: Vec<Frame>,
    blocked: Blocked,
    /// It takes part in the barriers.
    takes_part: bool,
    locks: Vec<usize>,
}

struct Program<'w> {
    random: Random,
    actors: Vec<Actor<'w>>,
    ends: Vec<Point>,
    pipes: Vec<Pipe>,
    locks: Vec<(Shared, bool)>,
    conditions: Vec<Shared>,
    /// The barriers of even and odd rounds.
    barriers: [Shared; 2],
    round: usize,
    arrived: usize,
    parties: usize,
}

impl<'w> Program<'w> {
    fn new(world: &'w World, seed: u64) -> Self {
        let parties = 3;
        let actor = |_| Actor {
            fiber: world.root(),
            frames: Vec::new(),
            blocked: Blocked::No,
            takes_part: true,
            locks: Vec::new(),
        };
        Program {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            actors: (0..parties).map(actor).collect(),
            ends: Vec::new(),
            pipes: [None, Some(0), Some(1), Some(3), Some(0)].map(Pipe::new).into(),
            locks: (0..2).map(|_| (Shared::default(), false)).collect(),
            conditions: (0..2).map(|_| Shared::default()).collect(),
            barriers: Default::default(),
            round: 0,
            arrived: 0,
            parties,
        }
    }

    /// One operation of one fiber, if the one that was chosen is possible.
    fn step(&mut self) {
        let chosen = self.random.below(self.actors.len());
        self.unblock(chosen);
        if self.actors[chosen].blocked != Blocked::No {
            return;
        }
        match self.random.below(16) {
            0..4 => {
                let name = format!("p{}", self.random.below(PROCEDURES));
                let time = 1 + self.random.below(1_000_000) as u64;
                self.actors[chosen].fiber.spin(&name, time);
            }
            4 if self.actors[chosen].frames.len() < 12 => {
                let actor = &mut self.actors[chosen];
                let fork = actor.fiber.fork();
                actor.frames.push(Frame::First(fork));
            }
            5 | 6 => self.actors[chosen].unwind(),
            7 if self.actors.len() < 12 => {
                let fiber = self.actors[chosen].fiber.spawn();
                self.actors.push(Actor {
                    fiber,
                    frames: Vec::new(),
                    blocked: Blocked::No,
                    takes_part: false,
                    locks: Vec::new(),
                });
            }
            8 if !self.actors[chosen].takes_part => {
                let mut actor = self.actors.swap_remove(chosen);
                while !actor.frames.is_empty() {
                    actor.unwind();
                }
                for lock in core::mem::take(&mut actor.locks) {
                    self.unlock(&mut actor.fiber, lock);
                }
                self.ends.push(actor.fiber.end());
            }
            9 if !self.ends.is_empty() => {
                let end = self.random.below(self.ends.len());
                let end = self.ends.swap_remove(end);
                self.actors[chosen].fiber.join(end);
            }
            10 => self.send(chosen),
            11 => {
                let pipe = self.random.below(self.pipes.len());
                if self.pipes[pipe].can_receive() {
                    self.actors[chosen].fiber.receive(&mut self.pipes[pipe]);
                }
            }
            12 => {
                let lock = self.random.below(self.locks.len());
                if !self.locks[lock].1 {
                    let actor = &mut self.actors[chosen];
                    self.locks[lock].1 = true;
                    actor.fiber.acquire(&self.locks[lock].0, Edge::Lock);
                    actor.locks.push(lock);
                }
            }
            13 => {
                if let Some(lock) = self.actors[chosen].locks.pop() {
                    let mut fiber = &mut self.actors[chosen].fiber;
                    fiber.release(&mut self.locks[lock].0);
                    self.locks[lock].1 = false;
                    fiber = &mut self.actors[chosen].fiber;
                    fiber.wait(12_345);
                }
            }
            14 => {
                let condition = self.random.below(self.conditions.len());
                let condition = &mut self.conditions[condition];
                let signals = self.random.below(2) == 0;
                let fiber = &mut self.actors[chosen].fiber;
                if signals {
                    fiber.release(condition);
                } else {
                    fiber.acquire(condition, Edge::Condition);
                }
            }
            15 if self.actors[chosen].takes_part && self.random.below(4) == 0 => {
                let actor = &mut self.actors[chosen];
                actor.fiber.arrive(&mut self.barriers[self.round % 2]);
                actor.blocked = Blocked::AtBarrier(self.round);
                self.arrived += 1;
                if self.arrived == self.parties {
                    self.arrived = 0;
                    self.round += 1;
                    // Nobody is in this one any more.
                    self.barriers[self.round % 2] = Shared::default();
                }
            }
            _ => {}
        }
    }

    /// One fiber waits for what another one has done so far. Whether there are such two.
    fn spin(&mut self) -> bool {
        let [one, other] = [0; 2].map(|_| self.random.below(self.actors.len()));
        let node = self.actors[other].fiber.node().filter(|_| one != other);
        let is_free = self.actors[one].blocked == Blocked::No;
        let Some(node) = node.filter(|_| is_free) else {
            return false;
        };
        let time = 1 + self.random.below(1_000_000) as u64;
        self.actors[one].fiber.spin_until(node, time);
        true
    }

    fn send(&mut self, chosen: usize) {
        let pipe = self.random.below(self.pipes.len());
        if !self.pipes[pipe].can_send() {
            return;
        }
        self.actors[chosen].fiber.send(&mut self.pipes[pipe]);
        if pipe == 1 || pipe == 4 {
            self.actors[chosen].blocked = Blocked::Sending(pipe);
        }
    }

    fn unblock(&mut self, chosen: usize) {
        let actor = &mut self.actors[chosen];
        match actor.blocked {
            Blocked::Sending(pipe) if self.pipes[pipe].is_received() => {
                actor.fiber.take_room(&mut self.pipes[pipe]);
            }
            Blocked::AtBarrier(round) if round < self.round => {
                actor.fiber.acquire(&self.barriers[round % 2], Edge::Barrier);
            }
            _ => return,
        }
        actor.blocked = Blocked::No;
    }

    fn unlock(&mut self, fiber: &mut Fiber<'w>, lock: usize) {
        fiber.release(&mut self.locks[lock].0);
        self.locks[lock].1 = false;
    }

    fn finish(self) {
        for mut actor in self.actors {
            while !actor.frames.is_empty() {
                actor.unwind();
            }
            drop(actor.fiber.end());
        }
    }
}

impl Actor<'_> {
    /// Goes on with the second half of the last fork, or joins it.
    fn unwind(&mut self) {
        match self.frames.pop() {
            None => {}
            Some(Frame::First(fork)) => {
                let half = self.fiber.second(fork);
                self.frames.push(Frame::Second(half));
            }
            Some(Frame::Second(half)) => self.fiber.join_halves(half),
        }
    }
}

/// A wait that spins is no activity, and a path without the edge that ends it is too short, never too long.
#[test]
fn paths_through_spinning_waits_are_never_too_long() {
    let (mut waits, mut lost, mut shorter) = (0, 0, 0);
    for seed in 1..=200 {
        let world = World::new();
        let mut program = Program::new(&world, seed);
        for _ in 0..100 + (seed as usize * 7) % 500 {
            program.step();
            if program.random.below(8) == 0 {
                waits += u64::from(program.spin());
            }
        }
        program.finish();
        let (found, whole) = world.check_least();
        lost += found;
        shorter += u64::from(!whole);
    }
    // Several waits in a row are one, and some end with an edge, or with their thread.
    assert!(lost <= waits && lost > waits / 3, "{lost} of {waits}");
    assert!(shorter > 50, "{shorter}");
}

#[test]
fn random_programs_have_exact_results() {
    let mut active = 0;
    for seed in 1..=300 {
        let world = World::with_edges(seed % 2 == 0);
        let mut program = Program::new(&world, seed);
        for _ in 0..100 + (seed as usize * 7) % 900 {
            program.step();
        }
        program.finish();
        let report = world.check();
        assert!(report.span <= report.work || report.edges, "seed {seed}");
        active += usize::from(report.span < report.work);
    }
    // All others were blocked at once.
    assert!(active > 270, "{active}");
}
