//! Blocked sparse Cholesky factorisation: the case study of Tallent and Mellor-Crummey (2009,
//! section 5.4) written for this runtime.
//!
//! A symmetric matrix is a quad-tree whose leaves are small dense blocks; an absent subtree is
//! zero. Factorisation, back-substitution and Schur complement recurse over the quadrants and run
//! independent quadrants in parallel, down to two by two blocks. The driver around them is
//! deliberately serial, as in the paper: generating, copying, counting and freeing the trees happen
//! on one worker, and a profile has to show that the other workers idle meanwhile.
//!
//! Inputs: `-n` rows, `-z` stored non-zeros (diagonal included), `--threads`.
//! Invariants: only the lower triangle is stored; elements above the diagonal of a diagonal block
//! stay zero. The run fails when `max |A - L L^T|` exceeds [`TOLERANCE`].

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;
use work_stealing_rt::{ThreadPoolBuilder, join};

/// Rows and columns of a leaf block, as in Cilk's example.
const BLOCK: usize = 4;
/// Largest accepted `max |A - L L^T|`; the diagonal's elements are of the order of 1 to 10.
const TOLERANCE: f64 = 1e-9;

/// A dense leaf, row by row.
type Block = [[f64; BLOCK]; BLOCK];

/// A square matrix, or a quadrant of one.
enum Matrix {
    /// All zero.
    Zero,
    /// A dense block.
    Leaf(Box<Block>),
    /// The quadrants: upper left, upper right, lower left, lower right.
    Quad(Box<[Matrix; 4]>),
}

use Matrix::{Leaf, Quad, Zero};

impl Matrix {
    /// The leaf block, created as zeroes when absent.
    fn block_mut(&mut self) -> &mut Block {
        if let Zero = self {
            *self = Leaf(Box::new([[0.0; BLOCK]; BLOCK]));
        }
        match self {
            Leaf(block) => block,
            _ => unreachable!("a block is asked for at leaf depth only"),
        }
    }

    /// The quadrants, created as zeroes when absent.
    fn quadrants_mut(&mut self) -> &mut [Matrix; 4] {
        if let Zero = self {
            *self = Quad(Box::new([Zero, Zero, Zero, Zero]));
        }
        match self {
            Quad(quadrants) => quadrants,
            _ => unreachable!("quadrants are asked for above leaf depth only"),
        }
    }
}

// ---------------------------------------------------------------- kernels on dense blocks

/// Factors a block in place: the lower triangle of `a` becomes its Cholesky factor.
#[inline(never)]
fn block_cholesky(a: &mut Block) {
    for k in 0..BLOCK {
        let pivot = a[k][k].sqrt();
        a[k][k] = pivot;
        for row in &mut a[k + 1..] {
            row[k] /= pivot;
        }
        for i in k + 1..BLOCK {
            for j in k + 1..=i {
                a[i][j] -= a[i][k] * a[j][k];
            }
        }
    }
}

/// Solves `X * l^T = a` for X, in place of `a`; `l` is lower triangular.
#[inline(never)]
fn block_backsub(a: &mut Block, l: &Block) {
    for row in a {
        for k in 0..BLOCK {
            let x = row[k] / l[k][k];
            row[k] = x;
            for j in k + 1..BLOCK {
                row[j] -= x * l[j][k];
            }
        }
    }
}

/// `r -= a * b^T`.
#[inline(never)]
fn block_schur_full(a: &Block, b: &Block, r: &mut Block) {
    let mut transposed = [[0.0; BLOCK]; BLOCK];
    for (j, row) in b.iter().enumerate() {
        for (k, value) in row.iter().enumerate() {
            transposed[k][j] = *value;
        }
    }
    for (out, left) in r.iter_mut().zip(a) {
        let mut sum = [0.0; BLOCK];
        for (factor, row) in left.iter().zip(&transposed) {
            for (s, value) in sum.iter_mut().zip(row) {
                *s += factor * value;
            }
        }
        for (o, s) in out.iter_mut().zip(&sum) {
            *o -= s;
        }
    }
}

/// `r -= a * b^T`, the lower triangle only.
#[inline(never)]
fn block_schur_half(a: &Block, b: &Block, r: &mut Block) {
    for i in 0..BLOCK {
        for j in 0..=i {
            let dot: f64 = a[i].iter().zip(&b[j]).map(|(x, y)| x * y).sum();
            r[i][j] -= dot;
        }
    }
}

// ---------------------------------------------------------------- parallel recursions

/// Factors `a` in place: its lower triangle becomes L with `L * L^T = a`.
fn cholesky(a: &mut Matrix) {
    match a {
        Zero => {}
        Leaf(block) => block_cholesky(block),
        Quad(quadrants) => {
            let [a00, _, a10, a11] = &mut **quadrants;
            if let Zero = a10 {
                join(|| cholesky(a00), || cholesky(a11));
            } else {
                cholesky(a00);
                backsub(a10, a00);
                mul_and_subt(true, a10, a10, a11);
                cholesky(a11);
            }
        }
    }
}

/// Solves `X * l^T = a` for X, in place of `a`.
fn backsub(a: &mut Matrix, l: &Matrix) {
    match (a, l) {
        (Zero, _) => {}
        (Leaf(a), Leaf(l)) => block_backsub(a, l),
        (Quad(a), Quad(l)) => {
            let [a00, a01, a10, a11] = &mut **a;
            let [l00, _, l10, l11] = &**l;
            join(|| backsub_row(a00, a01, l00, l10, l11), || backsub_row(a10, a11, l00, l10, l11));
        }
        _ => unreachable!("the diagonal of a factor has no zero block"),
    }
}

/// Back-substitution of one block row: `left`, then `right`, which depends on it.
fn backsub_row(left: &mut Matrix, right: &mut Matrix, l00: &Matrix, l10: &Matrix, l11: &Matrix) {
    backsub(left, l00);
    mul_and_subt(false, left, l10, right);
    backsub(right, l11);
}

/// `r -= a * b^T`; when `lower`, only the lower triangle of `r` is wanted.
fn mul_and_subt(lower: bool, a: &Matrix, b: &Matrix, r: &mut Matrix) {
    match (a, b) {
        (Zero, _) | (_, Zero) => {}
        (Leaf(a), Leaf(b)) if lower => block_schur_half(a, b, r.block_mut()),
        (Leaf(a), Leaf(b)) => block_schur_full(a, b, r.block_mut()),
        (Quad(a), Quad(b)) => {
            // r_ij -= a_i0 * b_j0^T, then r_ij -= a_i1 * b_j1^T: each round writes every quadrant
            // once. Quadrants that are single blocks are less than a task should be.
            let round = if a.iter().any(|quadrant| matches!(quadrant, Leaf(_))) {
                multiply_blocks
            } else {
                multiply_in_parallel
            };
            let r = r.quadrants_mut();
            round(lower, [&a[0], &a[2]], [&b[0], &b[2]], r);
            round(lower, [&a[1], &a[3]], [&b[1], &b[3]], r);
        }
        _ => unreachable!("leaves of all matrices lie at one depth"),
    }
}

/// `r_ij -= a_i * b_j^T` for the quadrants of `r`, all in parallel.
fn multiply_in_parallel(lower: bool, a: [&Matrix; 2], b: [&Matrix; 2], r: &mut [Matrix; 4]) {
    let [r00, r01, r10, r11] = r;
    let upper_row = || {
        if lower {
            mul_and_subt(true, a[0], b[0], r00);
        } else {
            join(|| mul_and_subt(false, a[0], b[0], r00), || mul_and_subt(false, a[0], b[1], r01));
        }
    };
    join(upper_row, || {
        join(|| mul_and_subt(false, a[1], b[0], r10), || mul_and_subt(lower, a[1], b[1], r11))
    });
}

/// The same for quadrants that are blocks, one after the other.
fn multiply_blocks(lower: bool, a: [&Matrix; 2], b: [&Matrix; 2], r: &mut [Matrix; 4]) {
    for (i, row) in a.into_iter().enumerate() {
        for (j, column) in b.into_iter().enumerate() {
            if !(lower && i < j) {
                mul_and_subt(lower && i == j, row, column, &mut r[2 * i + j]);
            }
        }
    }
}

// ---------------------------------------------------------------- serial helpers of the driver

/// The element at (`row`, `column`) of a matrix with `size` rows.
fn get_element(mut matrix: &Matrix, mut size: usize, mut row: usize, mut column: usize) -> f64 {
    loop {
        match matrix {
            Zero => return 0.0,
            Leaf(block) => return block[row][column],
            Quad(quadrants) => {
                size /= 2;
                matrix = &quadrants[row / size * 2 + column / size];
                (row, column) = (row % size, column % size);
            }
        }
    }
}

/// Adds `value` to the element at (`row`, `column`) of a matrix with `size` rows.
fn add_element(mut matrix: &mut Matrix, mut size: usize, mut row: usize, mut column: usize, value: f64) {
    while size > BLOCK {
        size /= 2;
        matrix = &mut matrix.quadrants_mut()[row / size * 2 + column / size];
        (row, column) = (row % size, column % size);
    }
    matrix.block_mut()[row][column] += value;
}

/// A reproducible generator of indices (Marsaglia's xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * bound as u64) >> 32) as usize
    }
}

/// A random sparse matrix of `n` rows and `nonzeros` stored elements, diagonally dominant and so
/// positive definite. Rows beyond `n` in the last block are those of the unit matrix.
#[inline(never)]
fn generate_matrix(n: usize, nonzeros: usize, size: usize) -> Matrix {
    let mut matrix = Zero;
    for i in 0..n.next_multiple_of(BLOCK) {
        add_element(&mut matrix, size, i, i, 1.0);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut missing = nonzeros - n;
    while missing > 0 {
        let (row, column) = (random.below(n), random.below(n));
        if row <= column || get_element(&matrix, size, row, column) != 0.0 {
            continue;
        }
        add_element(&mut matrix, size, row, column, 0.1);
        add_element(&mut matrix, size, row, row, 0.1);
        add_element(&mut matrix, size, column, column, 0.1);
        missing -= 1;
    }
    matrix
}

/// A deep copy.
#[inline(never)]
fn copy_matrix(matrix: &Matrix) -> Matrix {
    match matrix {
        Zero => Zero,
        Leaf(block) => Leaf(block.clone()),
        Quad(quadrants) => Quad(Box::new([
            copy_matrix(&quadrants[0]),
            copy_matrix(&quadrants[1]),
            copy_matrix(&quadrants[2]),
            copy_matrix(&quadrants[3]),
        ])),
    }
}

/// Number of dense blocks.
#[inline(never)]
fn num_blocks(matrix: &Matrix) -> usize {
    match matrix {
        Zero => 0,
        Leaf(_) => 1,
        Quad(quadrants) => quadrants.iter().map(num_blocks).sum(),
    }
}

/// Number of elements that are not zero.
#[inline(never)]
fn num_nonzeros(matrix: &Matrix) -> usize {
    match matrix {
        Zero => 0,
        Leaf(block) => block.iter().flatten().filter(|x| **x != 0.0).count(),
        Quad(quadrants) => quadrants.iter().map(num_nonzeros).sum(),
    }
}

/// Largest magnitude of an element; NaN counts as infinite.
#[inline(never)]
fn magnitude(matrix: &Matrix) -> f64 {
    match matrix {
        Zero => 0.0,
        Leaf(block) => block.iter().flatten().fold(0.0, |largest, x| {
            let size = if x.is_nan() { f64::INFINITY } else { x.abs() };
            f64::max(largest, size)
        }),
        Quad(quadrants) => quadrants.iter().map(magnitude).fold(0.0, f64::max),
    }
}

/// Gives every block and every inner node back to the allocator, one by one.
#[inline(never)]
fn free_matrix(matrix: Matrix) {
    match matrix {
        Zero => {}
        Leaf(block) => drop(block),
        Quad(quadrants) => {
            for quadrant in *quadrants {
                free_matrix(quadrant);
            }
        }
    }
}

// ---------------------------------------------------------------- driver

/// What the command line asks for.
struct Options {
    n: usize,
    nonzeros: usize,
    threads: usize,
}

const USAGE: &str = "usage: cholesky [-n ROWS] [-z NONZEROS] [--threads N]
  -n ROWS       rows of the matrix (default 3000)
  -z NONZEROS   stored non-zeros of its lower triangle, diagonal included (default 10 a row)
  --threads N   workers (default 0: one for each available core)";

fn parse_options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let (mut n, mut nonzeros, mut threads) = (3000, None, 0);
    while let Some(name) = args.next() {
        let mut number = || -> Result<usize, String> {
            let value = args.next().ok_or(format!("{name} needs a value"))?;
            value.parse().map_err(|_| format!("{name}: not a number: {value}"))
        };
        match name.as_str() {
            "-n" => n = number()?,
            "-z" => nonzeros = Some(number()?),
            "--threads" => threads = number()?,
            _ => return Err(format!("unknown argument: {name}\n{USAGE}")),
        }
    }
    if !(1..=100_000).contains(&n) {
        return Err(format!("-n: between 1 and 100000, not {n}"));
    }
    // The generator draws until an element is free: keep half of the triangle free.
    let most = n + n * (n - 1) / 4;
    let nonzeros = nonzeros.unwrap_or((10 * n).min(most));
    if !(n..=most).contains(&nonzeros) {
        return Err(format!("-z: between {n} and {most} for -n {n}, not {nonzeros}"));
    }
    Ok(Options { n, nonzeros, threads })
}

/// Times the phases, one after the other.
struct Clock(Instant);

impl Clock {
    fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Prints how long the phase took that ends now; the next one begins.
    fn phase_ends(&mut self, phase: &str) {
        println!("{phase:<14} {:>8.3} s", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}

/// The whole computation; returns the error of the factorisation.
#[inline(never)]
fn cholesky_main(options: &Options) -> f64 {
    let size = options.n.next_power_of_two().max(BLOCK);
    let mut clock = Clock::start();
    let mut original = generate_matrix(options.n, options.nonzeros, size);
    clock.phase_ends("generate");
    let mut factor = copy_matrix(&original);
    clock.phase_ends("copy");
    let (blocks, nonzeros) = (num_blocks(&original), num_nonzeros(&original));
    clock.phase_ends("count input");
    println!("input          {blocks} blocks, {nonzeros} non-zeros");

    cholesky(&mut factor);
    clock.phase_ends("factor");

    let (blocks, nonzeros) = (num_blocks(&factor), num_nonzeros(&factor));
    clock.phase_ends("count factor");
    println!("factor         {blocks} blocks, {nonzeros} non-zeros");
    mul_and_subt(true, &factor, &factor, &mut original);
    clock.phase_ends("verify");
    let error = magnitude(&original);
    clock.phase_ends("error");
    free_matrix(original);
    free_matrix(factor);
    clock.phase_ends("free");
    error
}

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "-h" || a == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match parse_options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("cholesky: {message}");
            return ExitCode::from(2);
        }
    };
    let pool = match ThreadPoolBuilder::new().num_threads(options.threads).build() {
        Ok(pool) => pool,
        Err(error) => {
            eprintln!("cholesky: cannot start the workers: {error}");
            return ExitCode::FAILURE;
        }
    };
    let start = Instant::now();
    let error = pool.install(|| cholesky_main(&options));
    println!(
        "n={} workers={} total {:.3} s, error {error:.2e}",
        options.n,
        pool.current_num_threads(),
        start.elapsed().as_secs_f64()
    );
    if error < TOLERANCE {
        ExitCode::SUCCESS
    } else {
        eprintln!("cholesky: wrong result: error {error:.2e} is above {TOLERANCE:.0e}");
        ExitCode::FAILURE
    }
}
