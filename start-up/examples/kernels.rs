//! Four kernels (the loop nests of TRED2 and a stencil) on work-stealing-rt: from which size it pays to
//! execute one in parallel, predicted from a calibration and measured; and what `par_for_adaptive` makes of
//! each size. Each worker's part is the same in each execution, so that neither imbalance nor communication
//! interferes.
//!
//! `kernels break-even`, `kernels adaptive`

use start_up::calibration::{Construct, Place, State};
use start_up::measure;
use start_up::model;
use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use work_stealing_rt::{ThreadPool, ThreadPoolBuilder, join, par_for, par_for_adaptive};

/// Largest size.
const MOST: usize = 320;
/// Executions of a series, and of these the first ones, which wake workers.
const SERIES: usize = 10;
const WAKING: usize = 2;
/// Turns of calibrating and measuring: on a virtual machine what one core needs to reach another changes.
const TURNS: usize = 15;

/// Numbers that threads write at different places.
struct Numbers(Vec<AtomicU64>);

impl Numbers {
    fn new(count: usize, value: f64) -> Numbers {
        Numbers((0..count).map(|_| AtomicU64::new(value.to_bits())).collect())
    }

    fn get(&self, at: usize) -> f64 {
        f64::from_bits(self.0[at].load(Relaxed))
    }

    fn set(&self, at: usize, value: f64) {
        self.0[at].store(value.to_bits(), Relaxed);
    }
}

/// TRED2's arrays, columns side by side. The values are such that no update changes their magnitude.
struct Data {
    z: Numbers,
    d: Numbers,
    e: Numbers,
    next: Numbers,
}

const fn at(row: usize, column: usize) -> usize {
    column * (MOST + 2) + row
}

/// The body of a loop over `0..size`.
type Body = fn(&Data, usize, usize);
/// A loop to be measured.
type Loop<'a> = dyn Fn() + Sync + 'a;
/// Name, body, and whether iterations become shorter and shorter.
type Kernel = (&'static str, Body, bool);

/// Figure 2 of the paper, and five-point relaxation as in its figure 4.
const KERNELS: [Kernel; 4] = [
    (
        "TRED2, first nest",
        |data, size, j| {
            let (z, d) = (&data.z, &data.d);
            z.set(at(j, size + 1), d.get(j));
            let mut g = 0.0;
            for k in 0..=j {
                g += z.get(at(j, k)) * d.get(k);
            }
            for k in j + 1..size {
                g += z.get(at(k, j)) * d.get(k);
            }
            data.e.set(j, g);
        },
        false,
    ),
    (
        "TRED2, second nest",
        |data, size, j| {
            let (temp1, temp2) = (data.d.get(j), data.d.get(j + 1));
            for k in j..size {
                let change = temp1 * data.d.get(k) + temp2 * data.d.get(k);
                data.z.set(at(k, j), data.z.get(at(k, j)) - change);
            }
        },
        true,
    ),
    (
        "TRED2, third nest",
        |data, size, j| {
            let mut g = 0.0;
            for k in 0..size {
                g += data.z.get(at(k, size)) * data.z.get(at(k, j));
            }
            for k in 0..size {
                data.z.set(at(k, j), data.z.get(at(k, j)) - g * data.d.get(k));
            }
        },
        false,
    ),
    (
        "stencil",
        |data, size, j| {
            let x = |row, column| data.z.get(at(row, column));
            for i in 1..size {
                let around = x(i - 1, j + 1) + x(i + 1, j + 1) + x(i, j) + x(i, j + 2);
                data.next.set(at(i, j + 1), 0.25 * around);
            }
        },
        false,
    ),
];

fn serial(data: &Data, size: usize, body: Body) {
    (0..size).for_each(|j| body(data, size, j));
}

/// The median of a series of executions.
fn series(mut execute: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        execute();
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..SERIES).map(time).collect();
    times.drain(..WAKING);
    median(times.iter().map(|t| t.as_nanos() as f64).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Medians over rounds of what each of them takes, in turns.
fn compare<const N: usize>(rounds: usize, mut executes: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut times = [(); N].map(|()| Vec::new());
    for _ in 0..rounds {
        for (times, execute) in times.iter_mut().zip(&mut executes) {
            times.push(series(&mut **execute));
        }
    }
    times.map(median)
}

/// Executes on a worker of the pool, or here.
fn at_place<R: Send>(place: Place, pool: &ThreadPool, run: impl FnOnce() -> R + Send) -> R {
    match place {
        Place::Worker => pool.install(run),
        Place::Outside => run(),
    }
}

/// Executes a part of the leaves of a tree of joins, one for each worker, with equal work.
fn joins(data: &Data, size: usize, (_, body, is_triangle): Kernel, leaves: Range<usize>, all: usize) {
    if leaves.len() > 1 {
        let middle = leaves.start + leaves.len() / 2;
        let kernel = ("", body, is_triangle);
        join(
            || joins(data, size, kernel, leaves.start..middle, all),
            || joins(data, size, kernel, middle..leaves.end, all),
        );
        return;
    }
    let bound = |leaf: usize| {
        let share = leaf as f64 / all as f64;
        let share = if is_triangle { 1.0 - (1.0 - share).sqrt() } else { share };
        (share * size as f64).round() as usize
    };
    (bound(leaves.start)..bound(leaves.end)).for_each(|j| body(data, size, j));
}

/// Where a gain becomes positive for good: the size and the serial time. `times` has sizes with serial and
/// parallel times.
fn crossing(times: &[(usize, f64, f64)], gain: impl Fn(f64, f64) -> f64) -> Option<(f64, f64)> {
    let gains: Vec<f64> = times.iter().map(|(_, s, p)| gain(*s, *p)).collect();
    let last = gains.iter().rposition(|gain| *gain <= 0.0)?;
    let share = -gains[last] / (gains.get(last + 1)? - gains[last]);
    let between = |a: f64, b: f64| a + share * (b - a);
    let (below, above) = (times[last], times[last + 1]);
    Some((between(below.0 as f64, above.0 as f64), between(below.1, above.1)))
}

fn break_even(data: &Data, pool: &ThreadPool) {
    let p = pool.current_num_threads();
    let limit = Duration::from_secs(1);
    println!(
        "kernel: start-up; break-even in serial time and in size, predicted / measured; deviation of the size"
    );
    for kernel in KERNELS {
        let (name, body, _) = kernel;
        // Each size is a tenth larger than the one before.
        let sizes = std::iter::successors(Some(8_usize), |size| Some(size + size.div_ceil(10)));
        let sizes: Vec<usize> = sizes.take_while(|size| *size < MOST).collect();
        let mut turns: Vec<[f64; 6]> = Vec::new();
        for _ in 0..TURNS {
            let (calibration, _) = measure::calibrate(p as u32, &[Construct::Join], limit, |_| ());
            let start_up = |state| calibration.start_up_ns(Construct::Join, Place::Worker, state, p as u32);
            let start_up = start_up(State::Awake).expect("just measured");
            let time = |size: &usize| {
                let mut serial = || serial(data, *size, body);
                let mut parallel = || joins(data, *size, kernel, 0..p, p);
                let [serial, parallel] = compare(15, [&mut serial, &mut parallel]);
                (*size, serial, parallel)
            };
            let times: Vec<_> = pool.install(|| sizes.iter().map(time).collect());
            let predicted = crossing(&times, |serial, _| model::gain(serial, start_up, p as u32));
            let measured = crossing(&times, |serial, parallel| serial - parallel);
            if let (Some((l, t)), Some((size, time))) = (predicted, measured) {
                turns.push([start_up, t, time, l, size, 100.0 * (l / size - 1.0)]);
            }
        }
        let quantile = |column: usize, share: usize| {
            let mut values: Vec<f64> = turns.iter().map(|turn| turn[column]).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() * share / 4).copied().unwrap_or(f64::NAN)
        };
        let [start_up, t, time, l, size, deviation] = [0, 1, 2, 3, 4, 5].map(|c| quantile(c, 2));
        println!(
            "{name}: {start_up:.0} ns; {t:.0} / {time:.0} ns; {l:.1} / {size:.1}; \
             {deviation:+.1} % [{:+.1}, {:+.1}], {} of {TURNS} turns have both between 8 and {MOST}",
            quantile(5, 1),
            quantile(5, 3),
            turns.len()
        );
    }
}

fn adaptive(data: &Data, pool: &ThreadPool) {
    println!("kernel, place, size: par_for; par_for_adaptive / par_for, par_for again / par_for");
    let compare = |name: &str, place: Place, size: &str, rounds, today: &Loop<'_>, new: &Loop<'_>| {
        let run = || compare(rounds, [&mut || today(), &mut || new(), &mut || today()]);
        let [time, adaptive, again] = at_place(place, pool, run);
        let (place, ratios) = (place.name(), [adaptive, again].map(|other| other / time));
        println!("{name}, {place}, {size}: {time:.0} ns; {:.3}, {:.3}", ratios[0], ratios[1]);
    };
    for place in [Place::Outside, Place::Worker] {
        for (name, body, _) in KERNELS {
            let today = |size| par_for(0..size, |j| body(data, size, j));
            let new = |size| par_for_adaptive(0..size, |j| body(data, size, j));
            for size in [2, 5, 10, 20, 40, 60, 80, 110, 160, 230, MOST - 1] {
                compare(name, place, &size.to_string(), 201, &|| today(size), &|| new(size));
            }
            let (today, new) = (|| (1..128).for_each(today), || (1..128).for_each(new));
            compare(name, place, "1 to 127 in turn", 21, &today, &new);
        }
        for size in [1, 10, 100, 1_000, 10_000, 1_000_000] {
            let body = |i| {
                black_box(i);
            };
            let (today, new) = (|| par_for(0..size, body), || par_for_adaptive(0..size, body));
            compare("empty", place, &size.to_string(), 201, &today, &new);
        }
    }
}

fn main() {
    let area = (MOST + 2) * (MOST + 2);
    let data = Data {
        z: Numbers::new(area, 1.0),
        d: Numbers::new(MOST + 2, 1e-20),
        e: Numbers::new(MOST + 2, 0.0),
        next: Numbers::new(area, 1.0),
    };
    let pool = ThreadPoolBuilder::new().build().expect("threads");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["break-even"] => break_even(&data, &pool),
        ["adaptive"] => adaptive(&data, &pool),
        _ => eprintln!("usage: kernels break-even | kernels adaptive"),
    }
    black_box(data.e.get(0));
}
