//! Measures what it costs to start each construct, as the paper does: a balanced loop without memory, with
//! a multiple of p iterations, in which nothing but the start-up is overhead.
//!
//! | file | duty |
//! |---|---|
//! | `balanced` | the loop, its timing, and what follows for t_PS |
//! | `constructs` | the loop in each construct of Rust |
//! | `openmp` | the loop in OpenMP's runtimes, where they are installed |

mod balanced;
mod constructs;
mod openmp;

use crate::calibration::{Calibration, Construct, Row};
use balanced::Loop;

/// Measures constructs on up to `cores` workers. `progress` is told what is measured next, and what cannot
/// be.
pub fn calibrate(
    cores: u32,
    constructs: &[Construct],
    effort: Effort,
    mut progress: impl FnMut(&str),
) -> Calibration {
    let mut calibration = Calibration::of_this_machine(cores);
    let balanced = Loop::new(effort);
    let is_asked = |construct| constructs.contains(&construct);
    for workers in worker_counts(cores) {
        progress(&format!("{workers} workers"));
        let mut add = |row: Row| calibration.rows.push(row);
        constructs::measure(&balanced, workers, &is_asked, &mut add);
    }
    // Last, as their workers spin long after a region.
    for library in openmp::LIBRARIES.iter().filter(|l| is_asked(l.construct)) {
        match openmp::Library::open(*library) {
            Err(problem) => progress(&format!("{}: {problem}", library.construct.name())),
            Ok(opened) => {
                progress(library.construct.name());
                for workers in worker_counts(cores) {
                    calibration.rows.extend(opened.measure(&balanced, workers));
                }
            }
        }
    }
    calibration
}

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Rounds of a construct while its workers are awake, each of them of some executions.
    pub awake: u32,
    /// Executions of a construct after a pause.
    pub asleep: u32,
}

/// Tens of seconds on few cores.
impl Default for Effort {
    fn default() -> Self {
        Effort { awake: 200, asleep: 200 }
    }
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
