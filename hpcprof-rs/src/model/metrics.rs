//! The metrics of a database. All values are whole nanoseconds, so sums are exact in any order: totals, sums
//! of exclusive values and recorded samples agree to the bit.

/// Position of useful work in [`all`].
pub const WORK: usize = 0;
/// Position of idleness.
pub const IDLENESS: usize = 1;
/// Position of overhead. Its categories follow, in their order.
pub const OVERHEAD: usize = 2;
/// Names of the fixed metrics, by position.
pub const FIXED: [&str; 3] = ["work", "idleness", "overhead"];
/// Prefix of the metric of one overhead category.
pub const CATEGORY_PREFIX: &str = "overhead:";

/// A metric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Stable name, as in the JSON views.
    pub name: String,
    /// Position of the metric that this one is a part of.
    pub part_of: Option<usize>,
    /// One sentence.
    pub description: String,
}

/// All metrics: the fixed ones, then the overhead categories.
pub fn all(categories: &[String]) -> Vec<Metric> {
    const DESCRIPTIONS: [&str; 3] = [
        "useful work of threads that work",
        "waiting of idle cores, charged to the contexts that worked meanwhile",
        "work in code tagged as parallelisation overhead, all categories",
    ];
    let fixed = FIXED
        .iter()
        .zip(DESCRIPTIONS)
        .map(|(name, description)| Metric {
            name: (*name).to_owned(),
            part_of: None,
            description: description.to_owned(),
        });
    let parts = categories.iter().map(|category| Metric {
        name: format!("{CATEGORY_PREFIX}{category}"),
        part_of: Some(OVERHEAD),
        description: format!("overhead of the category `{category}`"),
    });
    fixed.chain(parts).collect()
}
