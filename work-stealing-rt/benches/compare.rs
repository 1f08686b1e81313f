//! This runtime beside rayon and chili, on the same kernels.
//!
//! One duty: print a table of medians, taken in rounds that interleave all candidates, so that
//! a change of the machine's speed hits all alike. Arguments: `--rounds N` (default 15),
//! `--fib N` (default 36), `--only KERNEL`. A column's spread is half the distance of its
//! quartiles, in % of the median.

use std::hint::black_box;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

/// The kernels over the other runtimes, and the macro that makes them over any `join`.
#[macro_use]
#[path = "../../fixtures/runtimes/src/kernels.rs"]
mod kernels;

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
                let mut c = vec![0.0; input.n * input.n];
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

fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

fn compare(kernel: &'static str, input: &Input, rounds: usize) {
    let candidates = candidates(kernel);
    let mut times = vec![Vec::with_capacity(rounds); candidates.len()];
    for round in 0..=rounds {
        for (candidate, times) in candidates.iter().zip(&mut times) {
            let time = (candidate.run)(input);
            if round > 0 {
                times.push(time);
            }
        }
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    let sequential = quantile(&times[0], 0.5);
    for (candidate, times) in candidates.iter().zip(&times) {
        let median = quantile(times, 0.5);
        let spread = (quantile(times, 0.75) - quantile(times, 0.25)) / 2.0 / median * 100.0;
        let head = format!(
            "{kernel:<10} {:<17} {:>7}",
            candidate.name, candidate.workers
        );
        if kernel == "steal" {
            println!("{head} {:>9.0} ns {spread:>6.1} %", median * 1e9);
            continue;
        }
        let ratio = median / sequential;
        print!(
            "{head} {:>9.3} ms {spread:>6.1} % {:>8.2} x",
            median * 1e3,
            1.0 / ratio
        );
        if kernel == "fib" && candidate.workers == 1 {
            let per_join = (median - sequential) / joins(input.fib) * 1e9;
            print!("   {per_join:.2} ns/join, T1/Tseq {ratio:.2}");
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
    println!("kernel     runtime           workers       median  spread  speed-up");
    for kernel in KERNELS {
        if only.as_ref().is_none_or(|only| only == kernel) {
            compare(kernel, &input, rounds);
        }
    }
}
