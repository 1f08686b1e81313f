//! LU factorisation of a matrix by tiles, without pivoting: a wavefront in which the order of tasks matters.
//!
//! An actor for each tile. The diagonal tile is factored, the tiles of its row and column are solved, all
//! others behind are updated. One tile, planted, computes each update several times.
//!
//! `cargo run --release -p work-stealing-actors --example lu -- [--tiles N] [--size N] [--slow TILE]
//! [--times N] [--workers N] [--phases N] [--control 1]`

mod demo;

use std::collections::HashMap;
use std::sync::Arc;

use work_stealing_actors::{Array, Context, Handle, System};

type Block = Arc<Vec<f64>>;

struct Tile {
    row: usize,
    column: usize,
    tiles: usize,
    size: usize,
    /// How often an update is computed.
    times: usize,
    cells: Vec<f64>,
    /// Updates that are done.
    done: usize,
    diagonal: Option<Block>,
    /// Left and upper factors that have arrived, by step.
    factors: HashMap<usize, [Option<Block>; 2]>,
    matrix: Array<Tile>,
}

/// The tile gets its entries of the matrix.
#[derive(Clone)]
struct Load;
/// The diagonal tile of this tile's row or column is factored.
struct Diagonal(Block);
/// A factor for an update: step, whether it is the upper one.
struct Factor(usize, bool, Block);
/// A task of the tile: all it needs is there.
struct Update(usize);
struct Decompose;
struct Solve;
/// Gives the tile's entries.
struct Give(std::sync::mpsc::Sender<(usize, usize, Vec<f64>)>);

impl Tile {
    fn last(&self) -> usize {
        self.row.min(self.column)
    }

    fn go_on_if_updated(&self, context: &Context<'_, Self>) {
        if self.done < self.last() {
            return;
        }
        if self.row == self.column {
            context.address().send(Decompose);
        } else if self.diagonal.is_some() {
            context.address().send(Solve);
        }
    }

    /// Sends a factor to the tiles behind in this tile's row or column.
    fn tell(&self, is_upper: bool) {
        let block: Block = Arc::new(self.cells.clone());
        for n in self.last() + 1..self.tiles {
            let at = if is_upper { n * self.tiles + self.column } else { self.row * self.tiles + n };
            self.matrix[at].send(Factor(self.last(), is_upper, Arc::clone(&block)));
        }
    }
}

impl Handle<Load> for Tile {
    fn handle(&mut self, _: Load, context: &mut Context<'_, Self>) {
        let (n, order) = (self.size, self.size * self.tiles);
        let entry = |at: usize| entry(self.row * n + at / n, self.column * n + at % n, order);
        self.cells = (0..n * n).map(entry).collect();
        self.done = 0;
        if self.last() == 0 && self.row == self.column {
            self.go_on_if_updated(context);
        }
    }
}

impl Handle<Decompose> for Tile {
    fn handle(&mut self, _: Decompose, _: &mut Context<'_, Self>) {
        let n = self.size;
        for k in 0..n {
            for i in k + 1..n {
                let factor = self.cells[i * n + k] / self.cells[k * n + k];
                self.cells[i * n + k] = factor;
                for j in k + 1..n {
                    self.cells[i * n + j] -= factor * self.cells[k * n + j];
                }
            }
        }
        let block: Block = Arc::new(self.cells.clone());
        for n in self.row + 1..self.tiles {
            self.matrix[n * self.tiles + self.column].send(Diagonal(Arc::clone(&block)));
            self.matrix[self.row * self.tiles + n].send(Diagonal(Arc::clone(&block)));
        }
    }
}

impl Handle<Diagonal> for Tile {
    fn handle(&mut self, Diagonal(block): Diagonal, context: &mut Context<'_, Self>) {
        self.diagonal = Some(block);
        self.go_on_if_updated(context);
    }
}

impl Handle<Solve> for Tile {
    fn handle(&mut self, _: Solve, _: &mut Context<'_, Self>) {
        let (n, diagonal) = (self.size, self.diagonal.take().expect("it has arrived"));
        if self.row < self.column {
            // Unit lower triangle times result = tile.
            for k in 0..n {
                for i in k + 1..n {
                    for j in 0..n {
                        self.cells[i * n + j] -= diagonal[i * n + k] * self.cells[k * n + j];
                    }
                }
            }
        } else {
            // Result times upper triangle = tile.
            for i in 0..n {
                for k in 0..n {
                    self.cells[i * n + k] /= diagonal[k * n + k];
                    for j in k + 1..n {
                        self.cells[i * n + j] -= self.cells[i * n + k] * diagonal[k * n + j];
                    }
                }
            }
        }
        self.tell(self.row < self.column);
    }
}

impl Handle<Factor> for Tile {
    fn handle(&mut self, Factor(step, is_upper, block): Factor, context: &mut Context<'_, Self>) {
        let factors = self.factors.entry(step).or_default();
        factors[usize::from(is_upper)] = Some(block);
        if factors.iter().all(Option::is_some) {
            context.address().send(Update(step));
        }
    }
}

impl Handle<Update> for Tile {
    fn handle(&mut self, Update(step): Update, context: &mut Context<'_, Self>) {
        let n = self.size;
        let Some([Some(left), Some(upper)]) = self.factors.remove(&step) else {
            unreachable!("both have arrived");
        };
        let before = self.cells.clone();
        for _ in 0..self.times {
            self.cells.copy_from_slice(&before);
            for i in 0..n {
                for k in 0..n {
                    for j in 0..n {
                        self.cells[i * n + j] -= left[i * n + k] * upper[k * n + j];
                    }
                }
            }
        }
        self.done += 1;
        self.go_on_if_updated(context);
    }
}

impl Handle<Give> for Tile {
    fn handle(&mut self, Give(to): Give, _: &mut Context<'_, Self>) {
        to.send((self.row, self.column, self.cells.clone())).expect("the receiver waits");
    }
}

/// A matrix that needs no pivoting.
fn entry(row: usize, column: usize, order: usize) -> f64 {
    let off = ((row * 7 + column * 3) % 11) as f64 / 11.0;
    if row == column { order as f64 + off } else { off }
}

/// The greatest difference between the product of the factors and the matrix.
fn error(system: &System, matrix: &Array<Tile>, tiles: usize, size: usize) -> f64 {
    let (to, from) = std::sync::mpsc::channel();
    system.run(|| matrix.iter().for_each(|tile| tile.send(Give(to.clone())))).expect("no panic");
    drop(to);
    let order = tiles * size;
    let mut all = vec![0.0; order * order];
    for (row, column, cells) in from {
        for (n, cell) in cells.into_iter().enumerate() {
            all[(row * size + n / size) * order + column * size + n % size] = cell;
        }
    }
    let product = |i: usize, j: usize| {
        let lower = |k: usize| if k == i { 1.0 } else { all[i * order + k] };
        (0..=i.min(j)).map(|k| lower(k) * all[k * order + j]).sum::<f64>()
    };
    let differences = (0..order * order).map(|n| (n / order, n % order));
    differences.map(|(i, j)| (product(i, j) - entry(i, j, order)).abs()).fold(0.0, f64::max)
}

fn main() {
    let (tiles, size) = (demo::argument("--tiles", 6), demo::argument("--size", 48));
    let slow = demo::argument("--slow", tiles * tiles - 1);
    let times = demo::argument("--times", 14);
    let build = move |system: &System| {
        system.array("tile", tiles * tiles, |n, matrix| Tile {
            row: n / tiles,
            column: n % tiles,
            tiles,
            size,
            times: if n == slow { times } else { 1 },
            cells: Vec::new(),
            done: 0,
            diagonal: None,
            factors: HashMap::new(),
            matrix: matrix.clone(),
        })
    };
    // The first diagonal tile starts at once, so it comes last.
    let start = |matrix: &Array<Tile>| matrix.iter().rev().for_each(|tile| tile.send(Load));
    let system = System::new(2).expect("threads");
    let matrix = build(&system);
    system.run(|| start(&matrix)).expect("no panic");
    println!("greatest error of the factors: {:e}", error(&system, &matrix, tiles, size));
    let make = move |system: &System| -> Box<dyn Fn() + Sync> {
        let matrix = build(system);
        Box::new(move || start(&matrix))
    };
    let (workers, phases) = (demo::argument("--workers", 2), demo::argument("--phases", 21));
    demo::demonstrate(workers, phases, &make);
}
