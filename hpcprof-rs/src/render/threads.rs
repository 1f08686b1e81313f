//! Prints the table of threads as text that fits the screen, as JSON (`hpcprof-rs/threads/1`, FORMATS.md) and
//! as comma-separated values.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{IDLENESS, MetricSelector, OVERHEAD};
use crate::catalogue::threads::Thread;
use crate::error::one_line;
use crate::model::errors::Sampled;
use crate::render::chance;
use crate::render::csv::write_to;
use crate::render::json;
use crate::render::names;
use crate::render::numbers::{derived, exact_seconds, seconds};
use crate::render::style::Style;
use crate::render::table::Table;
use crate::views::threads::{self, Amount, Column, Spread, Summary, total_of};
use hpc_formats::json::{OrNull, Text, array, list, map, members, object};
use std::io::{self, Write};

const SCHEMA: &str = "hpcprof-rs/threads/1";
/// Width of a column of amounts.
const CELL: usize = 9;
/// Columns that a name keeps.
const LEAST_NAME: usize = 24;

#[derive(Clone, Copy, Debug)]
pub struct Threads<'a> {
    pub table: &'a threads::Table<'a>,
    pub catalogue: &'a Catalogue,
    pub metric: MetricSelector<'a>,
    /// The procedure in whose contexts the values are; `None` for all contexts.
    pub context: Option<&'a str>,
    /// Threads that are left out; the summaries have them.
    pub more: usize,
}

/// A statistic of a column: its name, and its value.
type Statistic = (&'static str, fn(&Spread) -> Option<Amount>);

/// What is told of each column. The last one has no unit.
const STATISTICS: [Statistic; 6] = [
    ("sum", |s| s.sum),
    ("min", |s| s.least),
    ("mean", |s| s.mean.map(Amount::Real)),
    ("max", |s| s.most),
    ("sigma", |s| s.sigma.map(Amount::Real)),
    ("imbalance", |s| s.imbalance.map(Amount::Real)),
];
const IMBALANCE: &str = "imbalance";

impl Threads<'_> {
    fn name(&self, column: Column<'_>) -> String {
        match column {
            Column::Samples => "samples".to_owned(),
            Column::Effort => "effort".to_owned(),
            Column::Metric(metric) => self.catalogue.metrics[metric].name.clone(),
            Column::Cpu => "cpu".to_owned(),
            Column::Spinning => "spinning".to_owned(),
            Column::Derived(expression) => expression.text().to_owned(),
        }
    }

    /// Prints text: at most `most` threads and as many processes.
    pub fn text(&self, most: usize, style: Style, out: &mut impl Write) -> io::Result<()> {
        const LEAST: usize = LEAST_NAME / 2;
        let columns = self.shown(style.width);
        self.head(style, out)?;
        let titled = columns.iter().map(|c| (self.title(*c), self.width(*c)));
        let mut table = Table::begin(out, style, &titled.collect::<Vec<_>>(), "thread")?;
        let cells = |thread: &Thread| -> Vec<String> {
            let cells = columns.iter().map(|c| cell(*c, c.of(thread), false));
            cells.collect()
        };
        let threads = &self.table.threads;
        let (listed_threads, more) = threads.split_at(threads.len().min(most));
        for thread in listed_threads {
            table.row(cells(thread), |room| {
                let room = room.max(LEAST);
                names::middle(&self.thread_name(thread, room), room)
            })?;
        }
        if !more.is_empty() {
            let rest = total_of(&more.iter().collect::<Vec<_>>());
            table.named(cells(&rest), &format!("{} more threads", more.len()), LEAST)?;
        }
        let processes = &self.table.processes;
        let (listed, more) = processes.split_at(processes.len().min(most));
        for process in listed {
            let sums = columns.iter().map(|c| cell(*c, self.spread(process, *c).sum, false));
            table.named(sums, &self.process_name(process), LEAST)?;
        }
        if !more.is_empty() {
            table.named([""; 0], &format!("{} more processes", more.len()), LEAST)?;
        }
        let all = &self.table.all;
        for (name, statistic) in STATISTICS {
            let value = |c: &Column<'_>| statistic(self.spread(all, *c));
            let cells = columns.iter().map(|c| cell(*c, value(c), name == IMBALANCE));
            let name = match name {
                "sum" => format!("sum of {}", counted(all.threads)),
                IMBALANCE => "max/mean".to_owned(),
                other => other.to_owned(),
            };
            table.named(cells, &name, LEAST)?;
        }
        // How much of a whole thread was sampled is given by its CPU time.
        let is_part = self.context.is_some() && self.metric.adds_up();
        let rows = listed_threads.iter().filter(|_| is_part).filter_map(|thread| {
            let amount = self.metric.value(&thread.values)?;
            let error = amount / (thread.samples.max(1) as f64).sqrt();
            Some(Sampled { amount, error, shared: 0.0 })
        });
        chance::line([rows.collect()].into_iter()).map_or(Ok(()), |line| table.remark(&line))
    }

    fn head(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let run = &self.catalogue.statistics;
        let program = one_line(&run.program);
        let text = match self.context {
            None => format!("threads of {program}: {}", counted(self.table.all.threads)),
            Some(name) => format!(
                "threads of {program} in {}: {} of {}",
                one_line(name),
                self.table.all.threads,
                counted(run.threads as usize)
            ),
        };
        writeln!(out, "{}", names::middle(&text, style.line))
    }

    fn spread<'s>(&self, summary: &'s Summary, column: Column<'_>) -> &'s Spread {
        let position = self.table.columns.iter().position(|c| *c == column);
        &summary.spreads[position.unwrap_or(0)]
    }

    fn process_name(&self, summary: &Summary) -> String {
        let imbalance = self.spread(summary, Column::Effort).imbalance;
        let imbalance = imbalance.map_or("-".to_owned(), derived);
        let threads = counted(summary.threads);
        let of = summary.process.as_ref().map_or(String::new(), |p| self.process(p));
        format!("process {of}: {threads}, max/mean {imbalance}")
    }

    fn process(&self, thread: &Thread) -> String {
        let host = match self.catalogue.statistics.hosts.len() > 1 {
            true => format!(" on {}", one_line(&thread.host)),
            false => String::new(),
        };
        format!("{} {}{host}", one_line(&thread.program), thread.pid)
    }

    fn thread_name(&self, thread: &Thread, room: usize) -> String {
        let process = match self.table.processes.is_empty() {
            true => String::new(),
            false => format!(", {}", self.process(thread)),
        };
        let ids = format!(" ({} tid {}{process})", thread.ordinal, thread.tid);
        let rest = room.saturating_sub(ids.chars().count()).max(LEAST_NAME / 2);
        format!("{}{ids}", names::middle(&one_line(&thread.name), rest))
    }

    fn title(&self, column: Column<'_>) -> String {
        match column {
            Column::Metric(IDLENESS) => "idle".to_owned(),
            Column::Derived(expression) => {
                let text = names::middle(&one_line(expression.text()), LEAST_NAME);
                format!("{text} ({})", expression.unit())
            }
            column => one_line(&self.name(column)),
        }
    }

    fn width(&self, column: Column<'_>) -> usize {
        CELL.max(self.title(column).chars().count() + 1)
    }

    /// The columns that leave room for names.
    fn shown(&self, width: usize) -> Vec<Column<'_>> {
        let mut columns = self.table.columns.clone();
        let last = [
            Column::Spinning,
            Column::Cpu,
            Column::Samples,
            Column::Effort,
            Column::Metric(OVERHEAD),
            Column::Metric(IDLENESS),
        ];
        for column in last {
            let taken: usize = columns.iter().map(|c| self.width(*c)).sum();
            if taken + 2 + LEAST_NAME > width {
                columns.retain(|c| *c != column);
            }
        }
        columns
    }

    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        let threads::Table { columns, threads, processes, all } = self.table;
        let program = &self.catalogue.statistics.program;
        let described = columns.iter().map(|c| {
            let unit = match c {
                Column::Samples => "count".to_owned(),
                Column::Derived(expression) => expression.unit().to_string(),
                _ => "seconds".to_owned(),
            };
            object!("name": Text(&self.name(*c)), "unit": Text(&unit))
        });
        let threads = threads.iter().map(|thread| {
            let value = |c: &Column<'_>| OrNull(value(*c, c.of(thread), false));
            let own = members!(
                "ordinal": thread.ordinal, "tid": thread.tid, "name": Text(&thread.name),
                "values": map(columns.iter().map(|c| (self.name(*c), value(c))))
            );
            format!("{{{},{own}}}", process_fields(thread))
        });
        let report = object!(
            "schema": Text(SCHEMA), "program": Text(program), "context": OrNull(self.context.map(Text)),
            "columns": array(described), "threads": list(threads),
            "processes": list(processes.iter().map(|p| self.summary(p))), "all": self.summary(all),
            "more": self.more
        );
        writeln!(out, "{report}")
    }

    fn summary(&self, summary: &Summary) -> String {
        let columns = self.table.columns.iter().zip(&summary.spreads);
        let columns = columns.map(|(column, spread)| {
            let statistics = STATISTICS.map(|(name, statistic)| {
                (name, OrNull(value(*column, statistic(spread), name == IMBALANCE)))
            });
            (self.name(*column), map(statistics))
        });
        let process = summary.process.as_ref();
        let process = process.map_or(String::new(), |p| format!("{},", process_fields(p)));
        let own = members!("threads": summary.threads, "statistics": map(columns));
        format!("{{{process}{own}}}")
    }

    /// Prints comma-separated values. The first column says what a row is: a thread, or a statistic.
    pub fn csv(&self, out: &mut impl Write) -> io::Result<()> {
        write_to(out, |out| self.write_csv(out))
    }

    fn write_csv<W: Write>(&self, out: &mut csv::Writer<W>) -> csv::Result<()> {
        for name in "row,run,host,pid,program,ordinal,tid,name,threads".split(',') {
            out.write_field(name)?;
        }
        let columns = &self.table.columns;
        out.write_record(columns.iter().map(|c| one_line(&self.name(*c))))?;
        for thread in &self.table.threads {
            out.write_field("thread")?;
            write_process(Some(thread), out)?;
            out.write_field(thread.ordinal.to_string())?;
            out.write_field(thread.tid.to_string())?;
            out.write_field(one_line(&thread.name))?;
            out.write_field("1")?;
            let values = columns.iter().map(|c| value(*c, c.of(thread), false));
            out.write_record(values.map(Option::unwrap_or_default))?;
        }
        for summary in self.table.processes.iter().chain([&self.table.all]) {
            for (name, statistic) in STATISTICS {
                out.write_field(name)?;
                write_process(summary.process.as_ref(), out)?;
                for empty in ["", "", ""] {
                    out.write_field(empty)?;
                }
                out.write_field(summary.threads.to_string())?;
                let values = columns.iter().zip(&summary.spreads);
                let values = values.map(|(c, s)| value(*c, statistic(s), name == IMBALANCE));
                out.write_record(values.map(Option::unwrap_or_default))?;
            }
        }
        out.flush()?;
        Ok(())
    }
}

fn write_process<W: Write>(thread: Option<&Thread>, out: &mut csv::Writer<W>) -> csv::Result<()> {
    out.write_field(thread.map_or("", |t| t.run.as_str()))?;
    out.write_field(thread.map_or(String::new(), |t| one_line(&t.host)))?;
    out.write_field(thread.map_or(String::new(), |t| t.pid.to_string()))?;
    out.write_field(thread.map_or(String::new(), |t| one_line(&t.program)))
}

fn process_fields(t: &Thread) -> String {
    json::process(&t.run, &t.host, t.pid, &t.program)
}

fn counted(threads: usize) -> String {
    names::counted(threads as u64, "thread")
}

/// A value to read; `is_plain` for a number without a unit.
fn cell(column: Column<'_>, amount: Option<Amount>, is_plain: bool) -> String {
    match amount {
        None => "-".to_owned(),
        Some(amount) if is_plain => derived(amount.real()),
        Some(amount) if amount.real() == 0.0 => "-".to_owned(),
        Some(amount) if column.is_time() => seconds(amount.real().round() as i64),
        Some(Amount::Whole(amount)) => amount.to_string(),
        Some(Amount::Real(value)) => derived(value),
    }
}

/// A value with all its digits, in seconds if it is a time.
fn value(column: Column<'_>, amount: Option<Amount>, is_plain: bool) -> Option<String> {
    Some(match amount? {
        Amount::Whole(amount) if column.is_time() => exact_seconds(amount),
        Amount::Whole(amount) => amount.to_string(),
        Amount::Real(value) if column.is_time() && !is_plain => (value / 1e9).to_string(),
        Amount::Real(value) => value.to_string(),
    })
}
