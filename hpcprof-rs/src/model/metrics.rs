//! The metrics of a database and their identities. All values are whole nanoseconds, so that
//! sums are exact in any order: totals, sums of exclusives and samples recorded agree to the bit.

/// Index of a metric in its [`MetricTable`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MetricId(pub u16);

/// Time that threads spent on useful work.
pub const WORK: MetricId = MetricId(0);
/// Waiting of idle cores, charged to those who worked.
pub const IDLENESS: MetricId = MetricId(1);
/// Time in code with an overhead tag, all categories.
pub const OVERHEAD: MetricId = MetricId(2);
/// Prefix of the metric of one overhead category.
pub const CATEGORY_PREFIX: &str = "overhead:";

/// A metric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Stable name, as in the JSON views.
    pub name: String,
    /// The metric that this one is a part of.
    pub part_of: Option<MetricId>,
    /// One sentence.
    pub description: String,
}

/// All metrics: the three fixed ones, then the overhead categories by name.
#[derive(Clone, Debug)]
pub struct MetricTable {
    metrics: Vec<Metric>,
}

impl MetricTable {
    /// The table for the overhead categories that occur.
    pub fn new<'a>(categories: impl IntoIterator<Item = &'a str>) -> Self {
        let fixed = [
            ("work", "useful work of threads that work"),
            (
                "idleness",
                "waiting of idle cores, charged to the contexts that worked meanwhile",
            ),
            (
                "overhead",
                "work in code tagged as parallelisation overhead, all categories",
            ),
        ];
        let mut metrics: Vec<Metric> = fixed
            .into_iter()
            .map(|(name, description)| Metric {
                name: name.to_owned(),
                part_of: None,
                description: description.to_owned(),
            })
            .collect();
        let mut names: Vec<&str> = categories.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        names.truncate(usize::from(u16::MAX) - 8);
        metrics.extend(names.into_iter().map(|category| Metric {
            name: format!("{CATEGORY_PREFIX}{category}"),
            part_of: Some(OVERHEAD),
            description: format!("overhead of the category `{category}`"),
        }));
        MetricTable { metrics }
    }

    /// In the order of their ids.
    pub fn all(&self) -> &[Metric] {
        &self.metrics
    }

    /// The metric of a category.
    pub fn category(&self, category: &str) -> Option<MetricId> {
        let found = self.metrics.iter().position(|m| {
            m.part_of.is_some() && m.name.strip_prefix(CATEGORY_PREFIX) == Some(category)
        });
        found.map(|i| MetricId(i as u16))
    }
}
