//! Measures what it costs to start each construct, as the paper does: a balanced loop without memory, with
//! a multiple of p iterations, in which nothing but the start-up is overhead.
//!
//! | file | duty |
//! |---|---|
//! | `balanced` | the loop, its timing, and what follows for t_PS |
//! | `constructs` | the loop in each construct of Rust |
//! | `passes` | measuring again until it is steady |
//! | `openmp` | the loop in OpenMP's runtimes, where they are installed |

mod balanced;
mod constructs;
mod openmp;
mod passes;

use crate::calibration::{Calibration, Construct, Row};
use balanced::Loop;
use openmp::Library;
use passes::Passes;
use std::time::{Duration, Instant};

/// Measures constructs on up to `cores` workers, once and then again what is not steady, as long as a further
/// pass is over before the `limit`. Returns what is not steady, too. `progress` is told what is measured
/// next, and what cannot be.
pub fn calibrate(
    cores: u32,
    constructs: &[Construct],
    limit: Duration,
    mut progress: impl FnMut(&str),
) -> (Calibration, Vec<Row>) {
    let begin = Instant::now();
    let balanced = Loop::new();
    let mut passes = Passes::default();
    let is_asked = |construct: &Construct| constructs.contains(construct);
    let mut libraries = Vec::new();
    for runtime in openmp::LIBRARIES.into_iter().filter(|l| is_asked(&l.construct)) {
        match Library::open(runtime) {
            Err(problem) => progress(&format!("{}: {problem}", runtime.construct.name())),
            Ok(library) => libraries.push(library),
        }
    }
    for pass in 1.. {
        progress(&format!("pass {pass}"));
        let from = Instant::now();
        for workers in worker_counts(cores) {
            let of = |passes: &Passes, construct| {
                passes.are_steady(|row| (row.construct, row.workers) == (construct, workers))
            };
            let left = constructs.iter().copied().filter(|construct| !of(&passes, *construct));
            let left: Vec<Construct> = left.collect();
            let is_left = |construct| left.contains(&construct);
            constructs::measure(&balanced, workers, &is_left, &mut |row| passes.add(row));
        }
        // Last, as their workers spin long after a region.
        for library in &libraries {
            for workers in worker_counts(cores) {
                let is_it = |row: &Row| (row.construct, row.workers) == (library.construct(), workers);
                if !passes.are_steady(is_it) {
                    library.measure(&balanced, workers).into_iter().for_each(|row| passes.add(row));
                }
            }
        }
        if passes.are_steady(|_| true) || begin.elapsed() + from.elapsed() > limit {
            break;
        }
    }
    let mut calibration = Calibration::of_this_machine(cores);
    let unsteady;
    (calibration.rows, unsteady) = passes.results();
    (calibration, unsteady)
}

/// 2, 3, 4, 6, 8, 12 … and all cores.
fn worker_counts(cores: u32) -> Vec<u32> {
    let steps = (1..).flat_map(|power| [1_u32 << power, 3 << (power - 1)]);
    let mut counts: Vec<u32> = steps.take_while(|p| *p < cores).collect();
    if cores >= 2 {
        counts.push(cores);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_workers_end_with_all_cores() {
        assert!(worker_counts(1).is_empty());
        assert_eq!(worker_counts(2), [2]);
        assert_eq!(worker_counts(4), [2, 3, 4]);
        assert_eq!(worker_counts(16), [2, 3, 4, 6, 8, 12, 16]);
    }
}
