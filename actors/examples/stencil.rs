//! A stencil with halo exchange, one block of which takes longer: the path names it, and automatic priorities
//! run it first.
//!
//! Jacobi's method for heat on a square of blocks, an actor each. A block starts an iteration when it has its
//! neighbours' edges of the one before and the change of all blocks has been added up.
//!
//! `cargo run --release -p work-stealing-actors --example stencil -- [--grid N] [--block N] [--steps N]
//! [--slow BLOCK] [--sweeps N] [--workers N] [--phases N] [--control 1]`

mod demo;

use std::sync::{Arc, OnceLock};

use work_stealing_actors::{Array, Context, Handle, Reduction, System};

/// A block with a frame of one cell that has its neighbours' edges.
struct Block {
    size: usize,
    cells: Vec<f64>,
    /// Sweeps over the block in an iteration.
    sweeps: usize,
    /// Its neighbours, with the side of this block at which they are.
    around: Vec<(usize, usize)>,
    blocks: Array<Block>,
    step: usize,
    steps: usize,
    /// Edges that have arrived for this step and the next one.
    edges: [Vec<Edge>; 2],
    /// Changes of the step before have been added up.
    may_go_on: bool,
    change: Reduction<f64>,
}

/// A neighbour's edge after a step, for the given side.
struct Edge(usize, Vec<f64>);

/// Starts so many steps.
#[derive(Clone)]
struct Start(usize);

/// The change in the step before, of all blocks: a solver would compare it with a bound.
#[derive(Clone)]
struct Change(#[allow(dead_code)] f64);

/// All edges are there.
struct Step;

impl Block {
    fn at(&self, row: usize, column: usize) -> usize {
        row * (self.size + 2) + column
    }

    /// The place of the n-th cell of a side's edge, `depth` cells into the block: 0 is the frame.
    fn edge(&self, side: usize, n: usize, depth: usize) -> usize {
        let far = self.size + 1 - depth;
        match side {
            0 => self.at(depth, n + 1),
            1 => self.at(far, n + 1),
            2 => self.at(n + 1, depth),
            _ => self.at(n + 1, far),
        }
    }

    /// Returns the square of the change.
    fn sweep(&mut self) -> f64 {
        let old = self.cells.clone();
        let width = self.size + 2;
        let mut change = 0.0;
        for row in 1..=self.size {
            for here in self.at(row, 1)..=self.at(row, self.size) {
                let sum = old[here - 1] + old[here + 1] + old[here - width] + old[here + width];
                self.cells[here] = 0.25 * sum;
                change += (self.cells[here] - old[here]).powi(2);
            }
        }
        change
    }

    fn send_edges(&self) {
        for (side, neighbour) in &self.around {
            let edge = (0..self.size).map(|n| self.cells[self.edge(*side, n, 1)]).collect();
            self.blocks[*neighbour].send((self.step, Edge(side ^ 1, edge)));
        }
    }

    fn go_on_if_complete(&mut self, context: &Context<'_, Self>) {
        let is_complete = self.edges[self.step % 2].len() == self.around.len();
        if self.may_go_on && self.step < self.steps && is_complete {
            self.may_go_on = false;
            context.address().send(Step);
        }
    }
}

impl Handle<Start> for Block {
    fn handle(&mut self, Start(steps): Start, context: &mut Context<'_, Self>) {
        self.steps += steps;
        self.send_edges();
        self.go_on_if_complete(context);
    }
}

impl Handle<(usize, Edge)> for Block {
    fn handle(&mut self, (step, edge): (usize, Edge), context: &mut Context<'_, Self>) {
        self.edges[step % 2].push(edge);
        if step == self.step {
            self.go_on_if_complete(context);
        }
    }

    fn entry_name() -> String {
        "stencil::Block::handle(Edge)".to_owned()
    }
}

impl Handle<Step> for Block {
    fn handle(&mut self, _: Step, context: &mut Context<'_, Self>) {
        for Edge(side, values) in std::mem::take(&mut self.edges[self.step % 2]) {
            for (n, value) in values.into_iter().enumerate() {
                let place = self.edge(side, n, 0);
                self.cells[place] = value;
            }
        }
        let change = (0..self.sweeps).map(|_| self.sweep()).sum();
        self.step += 1;
        if self.step < self.steps {
            self.send_edges();
        }
        self.change.contribute(context.index(), change);
    }
}

impl Handle<Change> for Block {
    fn handle(&mut self, _: Change, context: &mut Context<'_, Self>) {
        self.may_go_on = true;
        self.go_on_if_complete(context);
    }
}

fn main() {
    let (grid, size) = (demo::argument("--grid", 4), demo::argument("--block", 96));
    let (steps, slow) = (demo::argument("--steps", 40), demo::argument("--slow", grid * grid - 1));
    let sweeps = demo::argument("--sweeps", 12);
    let make = move |system: &System| -> Box<dyn Fn() + Sync> {
        let all: Arc<OnceLock<Array<Block>>> = Arc::default();
        let told = Arc::clone(&all);
        let tell = move |change| told.get().expect("set below").broadcast(Change(change));
        let change = system.reduction(grid * grid, |a, b| a + b, tell);
        let blocks = system.array("block", grid * grid, |n, blocks| {
            let (row, column) = (n / grid, n % grid);
            let around = [
                (row > 0).then(|| n - grid),
                (row + 1 < grid).then(|| n + grid),
                (column > 0).then(|| n - 1),
                (column + 1 < grid).then(|| n + 1),
            ];
            let around = around.into_iter().enumerate();
            Block {
                size,
                cells: (0..(size + 2) * (size + 2)).map(|cell| ((cell + n) % 17) as f64).collect(),
                sweeps: if n == slow { sweeps } else { 1 },
                around: around.filter_map(|(side, n)| Some((side, n?))).collect(),
                blocks: blocks.clone(),
                step: 0,
                steps: 0,
                edges: [Vec::new(), Vec::new()],
                may_go_on: true,
                change: change.clone(),
            }
        });
        all.get_or_init(|| blocks.clone());
        Box::new(move || blocks.broadcast(Start(steps)))
    };
    println!("planted: block[{slow}] sweeps {sweeps} times in a step, the others once\n");
    let (workers, phases) = (demo::argument("--workers", 2), demo::argument("--phases", 21));
    let report = demo::demonstrate(workers, phases, &make);
    if let Some(phase) = report.phase(6) {
        println!("the path repeats {} tasks {} times", phase.period, report.steps().len() / phase.period);
    }
}
