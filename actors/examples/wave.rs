//! The wave equation on a square of blocks with halo exchange (the paper's figure 8): each block is one flow
//! of control, which waits for its neighbours' edges in their order. One block takes longer than the others.
//!
//! `cargo run --release -p work-stealing-actors --example wave -- [--grid N] [--block N] [--steps N]
//! [--slow BLOCK] [--sweeps N] [--workers N] [--phases N] [--control 1]`

mod demo;

use std::sync::{Arc, Mutex};

use work_stealing_actors::{Array, Begin, Inbox, Part, Script, System};

/// The sides of a block: above, below, left, right. Each is beside the other of its pair.
const SIDES: usize = 4;

/// A neighbour's edge, which is awaited by step and side.
struct Edge(Vec<f64>);

fn number(step: usize, side: usize) -> u64 {
    (SIDES * step + side) as u64
}

/// A block with a frame of one cell.
struct Block {
    size: usize,
    /// The state now, and one step before.
    cells: [Vec<f64>; 2],
}

impl Block {
    fn new(size: usize, is_struck: bool) -> Block {
        let mut cells = vec![0.0; (size + 2) * (size + 2)];
        cells[(size + 2) * (size / 2) + size / 2] = f64::from(u8::from(is_struck));
        Block { size, cells: [cells.clone(), cells] }
    }

    /// The places of a side's cells, `depth` cells into the block: 0 is the frame.
    fn edge(&self, side: usize, depth: usize) -> impl Iterator<Item = usize> + use<> {
        let (size, width) = (self.size, self.size + 2);
        let at = if side % 2 == 0 { depth } else { size + 1 - depth };
        (1..=size).map(move |n| if side < 2 { at * width + n } else { n * width + at })
    }

    fn step(&mut self) {
        let (width, [now, last]) = (self.size + 2, &mut self.cells);
        for row in 1..=self.size {
            for here in row * width + 1..=row * width + self.size {
                let around = now[here - 1] + now[here + 1] + now[here - width] + now[here + width];
                last[here] = 2.0 * now[here] - last[here] + 0.25 * (around - 4.0 * now[here]);
            }
        }
        self.cells.swap(0, 1);
    }
}

/// The body of a block: its neighbours by side, and how often it computes each step.
async fn body(
    inbox: Inbox,
    mut block: Block,
    around: Vec<(usize, usize)>,
    blocks: Array<Script>,
    (steps, sweeps): (usize, usize),
    energy: Arc<Mutex<f64>>,
) {
    for step in 0..steps {
        for (side, neighbour) in &around {
            let edge = block.edge(*side, 1).map(|cell| block.cells[0][cell]).collect();
            blocks[*neighbour].send((number(step, side ^ 1), Edge(edge)));
        }
        // Each edge is copied when it comes.
        let cells = Mutex::new(&mut block);
        let copy = |side: usize| -> Part<'_> {
            let (inbox, cells) = (&inbox, &cells);
            Box::pin(async move {
                let Edge(edge) = inbox.when(number(step, side)).await;
                let block = &mut *cells.lock().expect("no panic");
                block.edge(side, 0).zip(edge).for_each(|(cell, value)| block.cells[0][cell] = value);
            })
        };
        inbox.overlap(around.iter().map(|(side, _)| copy(*side)).collect()).await;
        for _ in 1..sweeps {
            std::hint::black_box(&mut Block { size: block.size, cells: block.cells.clone() }).step();
        }
        block.step();
    }
    *energy.lock().expect("no panic") += block.cells[0].iter().map(|x| x * x).sum::<f64>();
}

fn main() {
    let (grid, size) = (demo::argument("--grid", 4), demo::argument("--block", 64));
    let (steps, slow) = (demo::argument("--steps", 40), demo::argument("--slow", grid * grid - 1));
    let sweeps = demo::argument("--sweeps", 8);
    let make = move |system: &System| -> Box<dyn Fn() + Sync> {
        let setup = system.setup().name("block");
        Box::new(move || {
            // A body runs once, so each phase has blocks of its own.
            let energy = Arc::<Mutex<f64>>::default();
            let blocks = setup.array(grid * grid, |n, blocks| {
                let (row, column) = (n / grid, n % grid);
                let around = [
                    (row > 0).then(|| n - grid),
                    (row + 1 < grid).then(|| n + grid),
                    (column > 0).then(|| n - 1),
                    (column + 1 < grid).then(|| n + 1),
                ];
                let around = around.into_iter().enumerate();
                let around = around.filter_map(|(side, n)| Some((side, n?))).collect();
                let (blocks, energy) = (blocks.clone(), Arc::clone(&energy));
                let block = Block::new(size, n == 0);
                let work = (steps, if n == slow { sweeps } else { 1 });
                Script::new(move |inbox| body(inbox, block, around, blocks, work, energy))
            });
            blocks.broadcast(Begin);
        })
    };
    println!("planted: block[{slow}] computes each step {sweeps} times, the others once\n");
    let (workers, phases) = (demo::argument("--workers", 2), demo::argument("--phases", 21));
    demo::demonstrate(workers, phases, &make);
}
