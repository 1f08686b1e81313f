//! The efficiency table (paper, table 1): what to do about a context, by its idleness and overhead.

use crate::catalogue::metrics::{IDLENESS, OVERHEAD, effort};

/// From which share of a context's effort idleness and overhead count as high.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Thresholds {
    /// Percent of idleness.
    pub idleness: f64,
    /// Percent of overhead.
    pub overhead: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds { idleness: 20.0, overhead: 10.0 }
    }
}

/// A cell of the efficiency table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Effective,
    Coarsen,
    Refine,
    Change,
    /// Most of its time goes into this procedure, which waits without blocking.
    Spins(&'static str),
}

impl Verdict {
    pub fn of(values: &[i64], thresholds: Thresholds) -> Verdict {
        let total = effort(values).max(1) as f64;
        let share = |metric: usize| values[metric] as f64 * 100.0 / total;
        match (share(IDLENESS) >= thresholds.idleness, share(OVERHEAD) >= thresholds.overhead) {
            (false, false) => Verdict::Effective,
            (false, true) => Verdict::Coarsen,
            (true, false) => Verdict::Refine,
            (true, true) => Verdict::Change,
        }
    }

    pub fn advice(self) -> String {
        match self {
            Verdict::Effective => "effective: tune serial code".to_owned(),
            Verdict::Coarsen => "coarsen the tasks".to_owned(),
            Verdict::Refine => "refine: more parallelism".to_owned(),
            Verdict::Change => "change the parallelisation".to_owned(),
            Verdict::Spins(by) => format!("spins in {by}: wait for an event instead"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_cells() {
        let t = Thresholds::default();
        assert_eq!(Verdict::of(&[80, 10, 5], t), Verdict::Effective);
        assert_eq!(Verdict::of(&[80, 5, 15], t), Verdict::Coarsen);
        assert_eq!(Verdict::of(&[60, 35, 5], t), Verdict::Refine);
        assert_eq!(Verdict::of(&[40, 40, 20], t), Verdict::Change);
        assert_eq!(Verdict::of(&[0, 0, 0], t), Verdict::Effective);
    }
}
