//! This runtime beside rayon and chili, on the same kernels.
//!
//! One duty: print a table of medians, taken in rounds of all candidates in drawn orders, so that a change of
//! the machine's speed hits all alike and none always follows the same other one. Arguments: `--rounds N`
//! (default 15), `--fib N` (default 36), `--only KERNEL`. The spread is half the width of the median's 95 %
//! interval, in % of it. *To rayon* is the median of the ratios within one round.

use statistics::{estimate, median, paired};
use std::hint::black_box;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

/// The kernels over the other runtimes, and the macro that makes them over any `join`.
#[macro_use]
#[path = "../../fixtures/runtimes/src/kernels.rs"]
mod kernels;

/// Medians with intervals. Its tests belong to the package that it lies in.
#[allow(unused_imports)]
#[path = "../../xtask/src/statistics.rs"]
mod statistics;

use kernels::{insertion_sort, multiply_rows, partition, serial, with_chili, with_rayon};

kernels!(ours, work_stealing_rt::join);

/// One measured cell: a candidate with a number of workers.
struct Candidate {
    name: &'static str,
    workers: usize,
    run: Box<dyn Fn(&Input) -> f64>,
}

/// The sizes of the problems.
struct Input {
    fib: u64,
    queens: u32,
    sort: Vec<u32>,
    n: usize,
    matrix: Vec<f32>,
    steals: u32,
}

impl Input {
    fn new(fib: u64) -> Self {
        let mut x = 1_u32;
        let sort = std::iter::repeat_with(|| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            x
        });
        let n = 512;
        Input {
            fib,
            queens: 12,
            sort: sort.take(1_000_000).collect(),
            n,
            matrix: (0..n * n).map(|i| (i % 7) as f32).collect(),
            steals: 20_000,
        }
    }
}

fn seconds(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

/// Seconds of one kernel, by its name, with the given module and context.
macro_rules! run_kernel {
    ($kernel:expr, $input:expr, $module:ident $(, $ctx:expr)?) => {{
        let input: &Input = $input;
        match $kernel {
            "fib" => seconds(|| {
                black_box($module::fib($($ctx,)? black_box(input.fib)));
            }),
            "nqueens" => seconds(|| {
                let full = (1 << input.queens) - 1;
                black_box($module::queens($($ctx,)? black_box(full), 0, 0, 0));
            }),
            "quicksort" => {
                let mut data = input.sort.clone();
                let time = seconds(|| $module::quicksort($($ctx,)? &mut data));
                assert!(data.is_sorted());
                time
            }
            "matmul" => {
                // Its pages are there before the time begins.
                let mut c = vec![black_box(1.0_f32); input.n * input.n];
                c.fill(0.0);
                let time = seconds(|| {
                    $module::matmul($($ctx,)? input.n, &input.matrix, &input.matrix, &mut c);
                });
                black_box(c);
                time
            }
            other => unreachable!("no kernel is called {other}"),
        }
    }};
}

/// Mean seconds of a join whose second half must be stolen.
macro_rules! steal_round_trip {
    ($rounds:expr, $join:path) => {{
        let rounds: u32 = $rounds;
        let time = seconds(|| {
            for _ in 0..rounds {
                let stolen = AtomicBool::new(false);
                $join(
                    || {
                        while !stolen.load(Ordering::Acquire) {
                            std::hint::spin_loop();
                        }
                    },
                    || stolen.store(true, Ordering::Release),
                );
            }
        });
        time / f64::from(rounds)
    }};
}

/// Mean seconds of a round trip of one word between two threads: what the machine allows a
/// steal, whose task must travel there and whose end must travel back.
fn ping_pong(rounds: u32) -> f64 {
    let (ping, pong) = (AtomicU32::new(0), AtomicU32::new(0));
    let await_round = |word: &AtomicU32, round| {
        while word.load(Ordering::Acquire) != round {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for round in 0..=rounds {
                await_round(&ping, round);
                pong.store(round + 1, Ordering::Release);
            }
        });
        await_round(&pong, 1);
        let time = seconds(|| {
            for round in 1..=rounds {
                ping.store(round, Ordering::Release);
                await_round(&pong, round + 1);
            }
        });
        time / f64::from(rounds)
    })
}

const KERNELS: [&str; 5] = ["fib", "nqueens", "quicksort", "matmul", "steal"];

fn candidates(kernel: &'static str) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let steal = kernel == "steal";
    let mut add = |name, workers, run: Box<dyn Fn(&Input) -> f64>| {
        candidates.push(Candidate { name, workers, run });
    };
    if steal {
        add("ping-pong", 2, Box::new(|input| ping_pong(input.steals)));
    } else {
        add(
            "sequential",
            1,
            Box::new(move |input| run_kernel!(kernel, input, serial)),
        );
    }
    for workers in if steal { vec![2] } else { vec![1, 2] } {
        let pool = work_stealing_rt::ThreadPoolBuilder::new()
            .num_threads(workers)
            .build();
        let pool = pool.expect("threads for a pool");
        add(
            "work-stealing-rt",
            workers,
            Box::new(move |input| {
                pool.install(|| match kernel {
                    "steal" => steal_round_trip!(input.steals, work_stealing_rt::join),
                    _ => run_kernel!(kernel, input, ours),
                })
            }),
        );
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build();
        let pool = pool.expect("threads for a pool");
        add(
            "rayon",
            workers,
            Box::new(move |input| {
                pool.install(|| match kernel {
                    "steal" => steal_round_trip!(input.steals, rayon::join),
                    _ => run_kernel!(kernel, input, with_rayon),
                })
            }),
        );
        if steal {
            // chili shares at heartbeats of 0.1 ms: a join is not a steal there.
            continue;
        }
        let pool = chili::ThreadPool::with_config(chili::Config {
            thread_count: NonZero::new(workers),
            ..chili::Config::default()
        });
        add(
            "chili",
            workers,
            Box::new(move |input| {
                let mut scope = pool.scope();
                run_kernel!(kernel, input, with_chili, &mut scope)
            }),
        );
    }
    candidates
}

fn compare(kernel: &'static str, input: &Input, rounds: usize) {
    let candidates = candidates(kernel);
    let mut times = vec![Vec::with_capacity(rounds); candidates.len()];
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    for round in 0..=rounds {
        fastrand::shuffle(&mut order);
        for &index in &order {
            let time = (candidates[index].run)(input);
            if round > 0 {
                times[index].push(time);
            }
        }
    }
    let sequential = median(times[0].clone()).expect("rounds");
    for (candidate, times_of) in candidates.iter().zip(&times) {
        let time = estimate(times_of).expect("rounds");
        let head = format!(
            "{kernel:<10} {:<17} {:>7}",
            candidate.name, candidate.workers
        );
        let spread = (time.high - time.low) / 2.0 / time.median * 100.0;
        if kernel == "steal" {
            print!(
                "{head} {:>9.0} ns {spread:>6.1} %          ",
                time.median * 1e9
            );
        } else {
            let speed_up = sequential / time.median;
            print!(
                "{head} {:>9.3} ms {spread:>6.1} % {speed_up:>7.2}x ",
                time.median * 1e3
            );
        }
        let rayon = candidates
            .iter()
            .position(|c| c.name == "rayon" && c.workers == candidate.workers);
        let ratio = rayon.and_then(|rayon| paired(times_of, &times[rayon]));
        if let Some(ratio) = ratio.filter(|_| candidate.name == "work-stealing-rt") {
            print!(
                "  {:.3} [{:.3}, {:.3}]",
                ratio.median, ratio.low, ratio.high
            );
        }
        if kernel == "fib" && candidate.workers == 1 {
            let per_join = (time.median - sequential) / joins(input.fib) * 1e9;
            print!(
                "   {per_join:.2} ns/join, T1/Tseq {:.2}",
                time.median / sequential
            );
        }
        println!();
    }
}

/// Joins of `fib(n)`: one for each call that is not a leaf.
fn joins(n: u64) -> f64 {
    serial::fib(n + 1) as f64 - 1.0
}

fn main() {
    let (mut rounds, mut fib, mut only) = (15, 36, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_default();
        match arg.as_str() {
            "--rounds" => rounds = value().parse().expect("--rounds needs a number"),
            "--fib" => fib = value().parse().expect("--fib needs a number"),
            "--only" => only = Some(value()),
            _ => {}
        }
    }
    let input = Input::new(fib);
    println!(
        "kernel     runtime           workers       median  spread speed-up  to rayon [95 % interval]"
    );
    for kernel in KERNELS {
        if only.as_ref().is_none_or(|only| only == kernel) {
            compare(kernel, &input, rounds);
        }
    }
}
