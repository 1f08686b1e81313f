//! The threads of all runs as a table, with the spread of each column over the threads of a process and over
//! all.

use crate::catalogue::metrics::{IDLENESS, MetricSelector, OVERHEAD, WORK, effort, sum};
use crate::catalogue::threads::Thread;
use crate::metrics::expression::Expression;
use crate::views::view::largest_first;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Column<'a> {
    Samples,
    /// Work, idleness and overhead together, nanoseconds.
    Effort,
    /// A part of effort by position, nanoseconds.
    Metric(usize),
    /// CPU time by the kernel, nanoseconds.
    Cpu,
    /// Time in spinning waits and searches for work, nanoseconds.
    Spinning,
    /// An expression, in its unit.
    Derived(&'a Expression),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Amount {
    /// A count, or nanoseconds.
    Whole(i64),
    Real(f64),
}

impl Amount {
    /// As a number.
    pub fn real(self) -> f64 {
        match self {
            Amount::Whole(amount) => amount as f64,
            Amount::Real(value) => value,
        }
    }
}

impl Column<'_> {
    /// Its value for a thread; `None` where an expression is undefined.
    pub fn of(self, thread: &Thread) -> Option<Amount> {
        Some(Amount::Whole(match self {
            Column::Samples => thread.samples,
            Column::Effort => effort(&thread.values),
            Column::Metric(metric) => thread.values[metric],
            Column::Cpu => thread.cpu_ns,
            Column::Spinning => thread.spinning_ns,
            Column::Derived(expression) => {
                let value = MetricSelector::Derived(expression).value(&thread.values)?;
                return Some(Amount::Real(value));
            }
        }))
    }

    /// Whether its whole amounts are nanoseconds.
    pub fn is_time(self) -> bool {
        !matches!(self, Column::Samples | Column::Derived(_))
    }
}

/// How the values of a column are spread over threads. Nothing is known where no thread has a value.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// The sum; of an expression that does not add up its value for the sums of its variables.
    pub sum: Option<Amount>,
    pub least: Option<Amount>,
    pub most: Option<Amount>,
    /// Mean, in the unit of the values.
    pub mean: Option<f64>,
    pub sigma: Option<f64>,
    /// Largest value by the mean of all that could have had a part; `None` where values do not add up or have
    /// no mean.
    pub imbalance: Option<f64>,
}

impl Spread {
    /// At least `takers` threads could have had a part.
    fn new(column: Column<'_>, threads: &[&Thread], takers: u32) -> Spread {
        let amounts: Vec<Amount> = threads.iter().filter_map(|t| column.of(t)).collect();
        let order = |a: &&Amount, b: &&Amount| a.real().total_cmp(&b.real());
        let count = amounts.len() as f64;
        let total: f64 = amounts.iter().map(|a| a.real()).sum();
        let mean = (count > 0.0).then_some(total / count);
        let most = amounts.iter().max_by(order).copied();
        let adds_up = match column {
            Column::Derived(expression) => expression.adds_up(),
            _ => true,
        };
        Spread {
            sum: column.of(&total_of(threads)),
            least: amounts.iter().min_by(order).copied(),
            most,
            mean,
            sigma: mean.map(|mean| {
                let squares = amounts.iter().map(|a| (a.real() - mean).powi(2));
                (squares.sum::<f64>() / count).sqrt()
            }),
            imbalance: most
                .filter(|_| adds_up && total != 0.0)
                .map(|most| most.real() * count.max(f64::from(takers)) / total),
        }
    }
}

pub fn total_of(threads: &[&Thread]) -> Thread {
    let metrics = threads.iter().map(|t| t.values.len()).max().unwrap_or(OVERHEAD + 1);
    let all = |value: &dyn Fn(&Thread) -> i64| sum(threads.iter().map(|t| value(t)));
    Thread {
        samples: all(&|t| t.samples),
        cpu_ns: all(&|t| t.cpu_ns),
        spinning_ns: all(&|t| t.spinning_ns),
        values: (0..metrics).map(|m| all(&|t| t.values[m])).collect(),
        ..Thread::default()
    }
}

/// What some threads have together.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// A thread of the process that it is about; `None` for all processes.
    pub process: Option<Thread>,
    pub threads: usize,
    /// Spreads by column.
    pub spreads: Vec<Spread>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Table<'a> {
    pub columns: Vec<Column<'a>>,
    /// Threads, those with most of the metric first.
    pub threads: Vec<Thread>,
    /// Processes in their order, if there are several.
    pub processes: Vec<Summary>,
    /// All threads.
    pub all: Summary,
}

/// Arranges threads by a metric. Their CPU times are known where they are not those in some contexts only.
/// At least `takers` threads could have had a part.
pub fn arrange<'a>(
    mut threads: Vec<Thread>,
    metric: MetricSelector<'a>,
    has_cpu: bool,
    takers: u32,
) -> Table<'a> {
    let mut columns = vec![Column::Samples, Column::Effort];
    columns.extend([WORK, IDLENESS, OVERHEAD].map(Column::Metric));
    if has_cpu {
        columns.extend([Column::Cpu, Column::Spinning]);
    }
    match metric {
        MetricSelector::Metric(m) if m > OVERHEAD => columns.push(Column::Metric(m)),
        _ => columns.extend(metric.derived().map(Column::Derived)),
    }
    let summary = |process: Option<&Thread>, threads: &[&Thread]| Summary {
        process: process.cloned(),
        threads: threads.len(),
        spreads: {
            let takers = if process.is_none() { takers } else { 0 };
            columns.iter().map(|c| Spread::new(*c, threads, takers)).collect()
        },
    };
    let everyone: Vec<&Thread> = threads.iter().collect();
    let all = summary(None, &everyone);
    let mut processes: Vec<Summary> = everyone
        .chunk_by(|a, b| a.process == b.process)
        .map(|threads| summary(threads.first().copied(), threads))
        .collect();
    if processes.len() == 1 {
        processes.clear();
    }
    threads.sort_by(|a, b| largest_first(metric, &a.values, &b.values));
    Table { columns, threads, processes, all }
}
