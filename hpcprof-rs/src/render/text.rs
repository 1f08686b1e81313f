//! Prints a view as a tree of text. A row has shares of the total effort and of the metric sorted by, amounts
//! in seconds, and the name, cut in the middle to fit a screen. The hot path is marked.

use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{FIXED, IDLENESS, MetricSelector, OVERHEAD, WORK, effort};
use crate::error::one_line;
use crate::model::metrics::{ON_PATH, ZEROED};
use crate::model::tree::{Label, TreeNode};
use crate::render::chance;
use crate::render::numbers::{derived, percent, seconds};
use crate::render::style::Style;
use crate::render::table::Table;
use crate::render::{loops, names};
use crate::views::view::{View, ViewKind};
use std::io::{self, Write};

/// A column of amounts.
#[derive(Clone, Copy)]
enum Column {
    /// Share of the total effort.
    Effort,
    /// Share of the total of the metric sorted by.
    Share,
    /// Inclusive value of the expression sorted by.
    Derived,
    /// Span of the critical path without the procedure.
    Zeroed,
    /// Inclusive seconds of a metric.
    Inclusive(usize),
    /// Exclusive seconds of a metric.
    Exclusive(usize),
    /// Threads that have work.
    Threads,
    /// Most work of a thread by the mean.
    Imbalance,
    /// Standard error of inclusive work, seconds.
    Error,
}

struct Printer<'a> {
    view: &'a View,
    catalogue: &'a Catalogue,
    metric: MetricSelector<'a>,
    style: Style,
    columns: Vec<Column>,
}

/// Prints `view`, which is sorted by `metric`, below a line that sums it up.
pub fn print(
    view: &View,
    catalogue: &Catalogue,
    metric: MetricSelector<'_>,
    headline: Option<&str>,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    let printer =
        Printer { view, catalogue, metric, style, columns: columns(view, catalogue, metric, style) };
    printer.head(headline, out)?;
    let mut table = printer.begin(out)?;
    let hot = printer.hot_path();
    // (node, whether it is the last of its siblings, the guides before it)
    let roots = view.roots.iter().rev();
    let mut stack: Vec<(u32, bool, String)> = roots.map(|r| (*r, true, String::new())).collect();
    while let Some((id, is_last, guides)) = stack.pop() {
        let node = view.node(id);
        if node.label.is_pruned() && printer.is_little(id) {
            continue;
        }
        // An only child continues its parent's column: long call chains stay readable.
        let (branch, below) = match (node.parent, is_last) {
            (None, _) => ("", ""),
            (Some(_), true) => ("└ ", "  "),
            (Some(_), false) => ("├ ", "│ "),
        };
        printer.row(id, &format!("{guides}{branch}"), hot.contains(&id), &mut table)?;
        let children = &view.children[id as usize];
        for (position, child) in children.iter().enumerate().rev() {
            let is_last = position + 1 == children.len();
            stack.push((*child, is_last, format!("{guides}{below}")));
        }
    }
    printer.chance().map_or(Ok(()), |line| table.remark(&line))
}

/// Prints some rows below the line of titles: nodes, each with the lines that lead to it.
pub fn rows(
    view: &View,
    catalogue: &Catalogue,
    metric: MetricSelector<'_>,
    rows: &[(u32, String)],
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    let columns = columns(view, catalogue, metric, style);
    let printer = Printer { view, catalogue, metric, style, columns };
    let mut table = printer.begin(out)?;
    rows.iter().try_for_each(|(id, guides)| printer.row(*id, guides, false, &mut table))
}

fn columns(view: &View, catalogue: &Catalogue, metric: MetricSelector<'_>, style: Style) -> Vec<Column> {
    let mut columns = vec![Column::Effort];
    let sorted = match metric {
        MetricSelector::Effort | MetricSelector::Derived(_) => None,
        MetricSelector::Metric(metric) => Some(metric),
    };
    columns.extend(metric.derived().map(|_| Column::Derived));
    columns.extend(sorted.map(|_| Column::Share));
    let is_on_path = |metric: usize| catalogue.metrics[metric].name == ON_PATH;
    columns.extend(sorted.filter(|m| is_on_path(*m)).map(|_| Column::Zeroed));
    // In the bottom-up view a caller has no exclusive amounts, and a root's equal its inclusive.
    let both = view.kind == ViewKind::TopDown;
    let wide = style.width >= 110;
    let category = sorted.filter(|metric| *metric >= FIXED.len());
    let has_spreads = view.spreads.iter().any(Option::is_some);
    for metric in (0..FIXED.len()).chain(category) {
        // Spreads are of work, and names need room.
        if has_spreads && !wide && ![Some(WORK), sorted].contains(&Some(metric)) {
            continue;
        }
        columns.push(Column::Inclusive(metric));
        if both && (wide || sorted == Some(metric)) {
            columns.push(Column::Exclusive(metric));
        }
    }
    if has_spreads {
        columns.extend([Column::Threads, Column::Imbalance, Column::Error]);
    }
    columns
}

/// Columns that a name and its place have, however deep they are.
const LEAST_ROW: usize = 24;
/// Least width of a column of amounts.
const CELL: usize = 9;
/// Most characters of an expression in its column's title.
const TITLE: usize = 24;
/// Columns that a name keeps whatever else there is to say.
const LEAST_NAME: usize = 12;
/// Columns that a name has before the counts of its loop are shown.
const NAME_BEFORE_COUNTS: usize = 20;

impl Printer<'_> {
    fn head(&self, headline: Option<&str>, out: &mut impl Write) -> io::Result<()> {
        let run = &self.catalogue.statistics;
        let total = effort(&self.view.totals);
        let missing = match run.missing_ns() {
            0 => String::new(),
            ns => format!(", {} s of CPU time missing", seconds(ns)),
        };
        let head = format!(
            "{} of {}: effort {} s = work {} + idleness {} + overhead {} s, {}, \
             {:.1} % of {} samples rooted{missing}",
            self.view.kind.name(),
            names::middle(&one_line(&run.program), 40),
            seconds(total),
            seconds(self.view.totals[WORK]),
            seconds(self.view.totals[IDLENESS]),
            seconds(self.view.totals[OVERHEAD]),
            names::counted(u64::from(run.cores), "core"),
            run.rooted_percent(),
            run.samples,
        );
        writeln!(out, "{}", names::wrap(&head, self.style.line).join("\n"))?;
        if let Some(headline) = headline {
            writeln!(out, "{headline}")?;
        }
        Ok(())
    }

    fn begin<'o>(&self, out: &'o mut dyn Write) -> io::Result<Table<'o>> {
        let titled = self.columns.iter().map(|column| {
            let title = self.title(*column);
            let width = CELL.max(title.chars().count() + 1);
            (title, width)
        });
        let what = match self.view.kind {
            ViewKind::BottomUp => "procedure, then its callers",
            ViewKind::Flat => "module, file, procedure, loop",
            ViewKind::TopDown => "calling context",
        };
        Table::begin(out, self.style, &titled.collect::<Vec<_>>(), what)
    }

    fn title(&self, column: Column) -> String {
        let short = |metric: usize| one_line(short(&self.catalogue.metrics[metric].name));
        match (column, self.metric) {
            (Column::Share, MetricSelector::Metric(m)) => format!("{} %", short(m)),
            (Column::Derived, MetricSelector::Derived(expression)) => {
                let text = names::middle(&one_line(expression.text()), TITLE);
                format!("{text} ({})", expression.unit())
            }
            (Column::Effort | Column::Share | Column::Derived, _) => "effort %".to_owned(),
            (Column::Zeroed, _) => ZEROED.to_owned(),
            (Column::Inclusive(m), _) => short(m),
            (Column::Exclusive(m), _) => format!("own {}", short(m)),
            (Column::Threads, _) => "threads".to_owned(),
            (Column::Imbalance, _) => "max/mean".to_owned(),
            (Column::Error, _) => "work ±".to_owned(),
        }
    }

    fn row(&self, id: u32, guides: &str, hot: bool, table: &mut Table<'_>) -> io::Result<()> {
        let (inclusive, exclusive) = (self.view.inclusive.of(id), self.view.exclusive.of(id));
        let repeats = self.repeats(id);
        let spread = self.view.spreads[id as usize].as_ref();
        let cells = self.columns.iter().map(|column| match column {
            _ if repeats => String::new(),
            Column::Effort => percent(effort(inclusive), effort(&self.view.totals)),
            Column::Share => percent(self.metric.of(inclusive), self.metric.of(&self.view.totals)),
            Column::Derived => self.metric.value(inclusive).map_or("-".to_owned(), derived),
            Column::Zeroed => {
                let label = self.view.node(id).label;
                or_dash(self.catalogue.zeroed_span(label).map(seconds))
            }
            Column::Inclusive(m) => amount(inclusive[*m]),
            Column::Exclusive(m) => amount(exclusive[*m]),
            Column::Threads => or_dash(spread.map(|s| s.threads)),
            Column::Imbalance => or_dash(spread.and_then(|s| s.imbalance()).map(derived)),
            Column::Error => or_dash(spread.and_then(|_| {
                let work = self.catalogue.errors().of(WORK, inclusive)?;
                Some(seconds(work.error.round() as i64))
            })),
        });
        table.marked(cells, if hot { "▶ " } else { "  " }, |room| {
            let (depth, most) = (guides.chars().count(), room.saturating_sub(LEAST_ROW));
            // Of a deep tree the lower levels are shown.
            let guides: String = match depth > most {
                true => "…".chars().chain(guides.chars().skip(depth + 1 - most)).collect(),
                false => guides.to_owned(),
            };
            let text = self.describe(id, room.saturating_sub(depth.min(most)).max(LEAST_ROW));
            let text = match (hot, self.view.node(id).label) {
                (true, _) => self.style.paint("1;31", &text),
                (_, Label::Pruned(_) | Label::Partial(_)) => self.style.faint(&text),
                _ => text,
            };
            format!("{}{text}", self.style.faint(&guides))
        })
    }

    /// Whether a node has little of the metric that the view was pruned by, and little effort.
    fn is_little(&self, id: u32) -> bool {
        let totals = &self.view.totals;
        [self.metric.or_effort(totals), MetricSelector::Effort].iter().all(|m| {
            let size = |values: &[i64]| m.value(values).map_or(0.0, f64::abs);
            size(self.view.inclusive.of(id)) * 100.0 < size(totals)
        })
    }

    /// Whether a caller is the only one, so that its numbers are those of the line above.
    fn repeats(&self, id: u32) -> bool {
        let parent = self.view.node(id).parent;
        self.view.kind == ViewKind::BottomUp
            && parent.is_some_and(|p| self.view.inclusive.of(p) == self.view.inclusive.of(id))
    }

    /// The name with its location, in at most `room` columns.
    fn describe(&self, id: u32, room: usize) -> String {
        let node = self.view.node(id);
        let name = names::shown(&self.catalogue.code, node.label);
        let mut extras = Vec::new();
        if node.recursion > 1 {
            extras.push(format!(" (recursion, {} deep)", node.recursion));
        }
        extras.extend(self.location(node).map(|location| format!("  {location}")));
        let before_counts = extras.len();
        let parallel_loop = node.label.parallel_loop(&self.catalogue.code);
        extras.extend(parallel_loop.into_iter().flat_map(loops::summary));
        // The last extra matters least: it is dropped first where there is no room.
        let length = |extras: &[String]| extras.iter().map(|e| e.chars().count()).sum::<usize>();
        let name_with_counts = name.chars().count().clamp(LEAST_NAME, NAME_BEFORE_COUNTS);
        let least = |extras: &[String]| match extras.len() > before_counts {
            true => name_with_counts,
            false => LEAST_NAME,
        };
        while length(&extras) + least(&extras) > room && extras.pop().is_some() {}
        let room = room - length(&extras);
        format!("{}{}", names::middle(&name, room), extras.concat())
    }

    fn location(&self, node: &TreeNode) -> Option<String> {
        let code = &self.catalogue.code;
        let procedure = match node.label {
            Label::ParallelLoop(l) => {
                return code.parallel_loop(l).call.map(|at| names::location(code, at));
            }
            // The name of a loop says where it is.
            Label::Loop(_) => return None,
            label => label.code(code)?,
        };
        if let Some(at) = procedure.declared {
            return Some(names::location(code, at));
        }
        if let Some(at) = node.call.location() {
            return Some(format!("called at {}", names::location(code, at)));
        }
        let module = code.module_of(procedure)?;
        let shown = || format!("in {}", one_line(names::base_name(module)));
        (!procedure.name.starts_with('[')).then(shown)
    }

    /// A remark if the order of some siblings may be chance.
    fn chance(&self) -> Option<String> {
        let lists = self.view.children.iter().chain([&self.view.roots]).map(|siblings| {
            let shown = siblings.iter().filter(|id| !self.view.node(**id).label.is_pruned());
            let values = shown.map(|id| self.view.inclusive.of(*id));
            values.filter_map(|v| self.metric.sampled(self.catalogue.errors(), v)).collect()
        });
        chance::line(lists)
    }

    /// From the largest root down, as long as one child holds at least half of its parent; nothing where the
    /// values of children do not make up that of their parent.
    fn hot_path(&self) -> Vec<u32> {
        if !self.metric.adds_up() {
            return Vec::new();
        }
        let amount = |id: u32| self.metric.of(self.view.inclusive.of(id));
        let largest = |ids: &[u32]| {
            ids.iter()
                .copied()
                .filter(|id| !self.view.node(*id).label.is_pruned())
                .max_by_key(|id| (amount(*id), std::cmp::Reverse(*id)))
        };
        let mut path = Vec::new();
        let mut next = largest(&self.view.roots).filter(|id| amount(*id) > 0);
        while let Some(id) = next {
            path.push(id);
            next = largest(&self.view.children[id as usize])
                .filter(|child| amount(*child) > 0 && amount(*child) >= amount(id) / 2);
        }
        path
    }
}

/// Seconds; a dash stands for zero.
fn amount(nanoseconds: i64) -> String {
    match nanoseconds {
        0 => "-".to_owned(),
        n => seconds(n),
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |v| v.to_string())
}

/// A metric's name as a column title.
fn short(name: &str) -> &str {
    match name {
        "idleness" => "idle",
        "overhead" => "ovhd",
        other => other.rsplit(':').next().unwrap_or(other),
    }
}
