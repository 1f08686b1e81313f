//! The metrics of a database. Amounts are whole base units (nanoseconds, counts, bytes), so sums are exact in
//! any order: totals, sums of exclusive values and recorded samples agree to the bit.

use hpc_formats::profile::{Aggregation, SAMPLES, Unit};

/// Position of useful work among the metrics of a database.
pub const WORK: usize = 0;
pub const IDLENESS: usize = 1;
/// Position of overhead. Its categories follow, in their order; then samples, then what else was counted.
pub const OVERHEAD: usize = 2;
/// Names of the first metrics, by position.
pub const FIXED: [&str; 3] = ["work", "idleness", "overhead"];
/// Prefix of the metric of one overhead category.
pub const CATEGORY_PREFIX: &str = "overhead:";

/// Name of the metric of samples on the critical path.
pub const ON_PATH: &str = "on_path";
/// Name of the span of the critical path if a procedure took no time. It belongs to procedures, not contexts.
pub const ZEROED: &str = "zeroed";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Stable name, as in the JSON views.
    pub name: String,
    pub unit: Unit,
    pub aggregation: Aggregation,
    /// Position of the metric that this one is a part of.
    pub part_of: Option<usize>,
    pub description: String,
}

/// Base units, in which amounts are stored, of one unit: nanoseconds of a second, else 1.
pub const fn per_unit(unit: Unit) -> i64 {
    match unit {
        Unit::Seconds => 1_000_000_000,
        Unit::SquareSeconds => 1_000_000_000_000,
        Unit::Count | Unit::Bytes | Unit::Ratio => 1,
    }
}

/// Names of the sums of squares, the last metrics of a database: of work, idleness, overhead and effort.
pub const SQUARES: [&str; 4] = ["squares:work", "squares:idleness", "squares:overhead", "squares:effort"];

/// Position of the first of [`SQUARES`] among so many metrics.
pub fn first_square(metrics: usize) -> usize {
    metrics.saturating_sub(SQUARES.len())
}

impl Metric {
    /// A metric whose values add up.
    pub fn sum(name: String, unit: Unit, part_of: Option<usize>, description: String) -> Metric {
        Metric { name, unit, aggregation: Aggregation::Sum, part_of, description }
    }

    /// Whether it is a part of effort, which all views show unasked.
    pub fn is_effort(&self) -> bool {
        FIXED.contains(&self.name.as_str()) || self.name.starts_with(CATEGORY_PREFIX)
    }

    /// Whether it is there for the sake of standard errors alone.
    pub fn is_square(&self) -> bool {
        SQUARES.contains(&self.name.as_str())
    }

    /// Whether JSON and CSV have it unasked.
    pub fn is_shown(&self) -> bool {
        self.is_effort() || self.name == ON_PATH
    }
}

/// All metrics: work, idleness, overhead, its categories, samples, `others` that were counted, and the sums
/// of squares.
pub fn all(categories: &[String], others: &[Metric]) -> Vec<Metric> {
    const DESCRIPTIONS: [&str; 3] = [
        "useful work of threads that work",
        "waiting of idle cores, charged to the contexts that worked meanwhile",
        "work in code tagged as parallelisation overhead, all categories",
    ];
    let seconds = |name: &str, part_of, description: &str| {
        Metric::sum(name.to_owned(), Unit::Seconds, part_of, description.to_owned())
    };
    let fixed = FIXED.iter().zip(DESCRIPTIONS);
    let fixed = fixed.map(|(name, description)| seconds(name, None, description));
    let parts = categories.iter().map(|category| {
        let description = format!("overhead of the category `{category}`");
        seconds(&format!("{CATEGORY_PREFIX}{category}"), Some(OVERHEAD), &description)
    });
    let samples =
        Metric::sum(SAMPLES.to_owned(), Unit::Count, None, "samples of threads that work".to_owned());
    let squares = SQUARES.iter().map(|name| {
        let of = name.trim_start_matches("squares:");
        let description = format!("sum of the squares of each sample's {of}");
        Metric::sum((*name).to_owned(), Unit::SquareSeconds, None, description)
    });
    fixed.chain(parts).chain([samples]).chain(others.iter().cloned()).chain(squares).collect()
}
