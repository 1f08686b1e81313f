//! Prints a view as a tree of text: amounts in seconds first, shares of the total effort and of
//! the metric sorted by, the hot path marked, names cut in the middle to fit a screen.

use crate::error::one_line;
use crate::model::symbols::Kind;
use crate::views::load::{Database, Sort, effort};
use crate::views::loops;
use crate::views::names;
use crate::views::quality;
use crate::views::summary::Summary;
use crate::views::tree::{Call, Label, View, ViewNode};
use std::io::{self, IsTerminal, Write};

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Columns of the screen.
    pub width: usize,
    /// Columns that a line of a tree may take. Where there is no screen, names are not cut.
    pub line: usize,
    /// Whether to use colours.
    pub colour: bool,
}

impl Style {
    /// For standard output: its width where it is a terminal, else that in `COLUMNS` if it is set; colours on
    /// a terminal, unless `NO_COLOR` is set and not empty.
    pub fn for_stdout() -> Style {
        let terminal = io::stdout().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
        let screen = terminal_size::terminal_size()
            .filter(|_| terminal)
            .map(|(width, _)| usize::from(width.0))
            .or(columns)
            .map(|width| width.clamp(60, 400));
        Style {
            width: screen.unwrap_or(140),
            line: screen.unwrap_or(usize::MAX),
            colour: terminal && !no_colour,
        }
    }

    /// `text` in bold.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// `text` in a faint colour.
    pub fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// `text` within the ANSI sequence `code`.
    pub fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Seconds with as many decimals as matter.
pub fn seconds(nanoseconds: i64) -> String {
    let value = nanoseconds as f64 / 1e9;
    match value.abs() {
        v if v >= 10_000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// `part` as a percentage of `whole`.
pub fn percent(part: i64, whole: i64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}", part as f64 * 100.0 / whole as f64)
}

/// A column of amounts.
#[derive(Clone, Copy)]
enum Column {
    /// Share of the total effort.
    Effort,
    /// Share of the total of the metric sorted by.
    Share,
    /// Inclusive seconds of a metric.
    Inclusive(usize),
    /// Exclusive seconds of a metric.
    Exclusive(usize),
}

struct Printer<'a> {
    view: &'a View,
    database: &'a Database,
    sort: Sort,
    style: Style,
    columns: Vec<Column>,
}

/// Prints `view`, which is sorted by `sort`, below a line that sums it up.
pub fn print(
    view: &View,
    database: &Database,
    sort: Sort,
    headline: Option<&str>,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    let printer = Printer {
        view,
        database,
        sort,
        style,
        columns: columns(view, sort, style),
    };
    printer.head(headline, out)?;
    let hot = printer.hot_path();
    let chosen = sort.or_effort(&view.totals);
    // (node, level, whether it is the last of its siblings, the guides before it)
    let mut stack: Vec<(u32, bool, String)> = Vec::new();
    for root in view.roots.iter().rev() {
        stack.push((*root, true, String::new()));
    }
    while let Some((id, last, guides)) = stack.pop() {
        let node = &view.nodes[id as usize];
        // Little of the metric that was pruned by, and little else.
        let is_little = |sort: Sort| {
            let total = sort.of(&view.totals);
            sort.of(view.inclusive_of(id)).saturating_mul(100) < total
        };
        let small = is_little(chosen) && is_little(Sort::Effort);
        if node.kind == "pruned" && small {
            continue;
        }
        let is_root = node.parent.is_none();
        let branch = match (is_root, last) {
            (true, _) => "",
            (false, true) => "└ ",
            (false, false) => "├ ",
        };
        printer.row(id, &format!("{guides}{branch}"), hot.contains(&id), out)?;
        let below = match (is_root, last) {
            (true, _) => guides,
            // An only child continues its parent's column: long call chains stay readable.
            (false, true) => format!("{guides}  "),
            (false, false) => format!("{guides}│ "),
        };
        for (position, child) in node.children.iter().enumerate().rev() {
            stack.push((*child, position + 1 == node.children.len(), below.clone()));
        }
    }
    Ok(())
}

fn columns(view: &View, sort: Sort, style: Style) -> Vec<Column> {
    let mut columns = vec![Column::Effort];
    let sorted = match sort {
        Sort::Effort => None,
        Sort::Metric(metric) => Some(metric),
    };
    if sorted.is_some() {
        columns.push(Column::Share);
    }
    // In the bottom-up view a caller has no exclusive amounts, and a root's equal its inclusive.
    let both = view.name == "top-down";
    let wide = style.width >= 110;
    for metric in 0..3.min(view.metrics) {
        columns.push(Column::Inclusive(metric));
        if both && (wide || sorted == Some(metric)) {
            columns.push(Column::Exclusive(metric));
        }
    }
    if let Some(category) = sorted.filter(|m| *m >= 3) {
        columns.push(Column::Inclusive(category));
        if both {
            columns.push(Column::Exclusive(category));
        }
    }
    columns
}

const CELL: usize = 9;
/// Columns that a name keeps whatever else there is to say.
const LEAST_NAME: usize = 12;
/// Columns that it has before the counts of its loop.
const NAME_BEFORE_COUNTS: usize = 20;

impl Printer<'_> {
    fn head(&self, headline: Option<&str>, out: &mut impl Write) -> io::Result<()> {
        let run = Summary::of(self.database);
        let total = effort(&self.view.totals);
        let missing = match run.missing_ns() {
            0 => String::new(),
            ns => format!(", {} s of CPU time missing", seconds(ns)),
        };
        writeln!(
            out,
            "{} of {}: effort {} s = work {} + idleness {} + overhead {} s, {} cores, {:.1} % of {} samples rooted{missing}",
            self.view.name,
            names::middle(&one_line(&run.program), 40),
            seconds(total),
            seconds(self.view.totals[0]),
            seconds(self.view.totals[1]),
            seconds(self.view.totals[2]),
            run.cores,
            quality::rooted_percent(&run),
            run.samples,
        )?;
        if let Some(headline) = headline {
            writeln!(out, "{headline}")?;
        }
        let mut line = String::new();
        for column in &self.columns {
            let width = self.width(*column);
            line.push_str(&format!("{:>width$}", self.title(*column)));
        }
        let what = match self.view.name {
            "bottom-up" => "procedure, then its callers",
            "flat" => "module, file, procedure, loop",
            _ => "calling context",
        };
        line.push_str(&format!("  {what}"));
        writeln!(out, "{}", self.style.bold(&line))
    }

    fn title(&self, column: Column) -> String {
        let short = |metric: usize| one_line(short(&self.database.metrics[metric]));
        match (column, self.sort) {
            (Column::Effort, _) | (Column::Share, Sort::Effort) => "effort %".to_owned(),
            (Column::Share, Sort::Metric(m)) => format!("{} %", short(m)),
            (Column::Inclusive(m), _) => short(m),
            (Column::Exclusive(m), _) => format!("own {}", short(m)),
        }
    }

    fn width(&self, column: Column) -> usize {
        CELL.max(self.title(column).chars().count() + 1)
    }

    fn row(&self, id: u32, guides: &str, hot: bool, out: &mut impl Write) -> io::Result<()> {
        let (inclusive, exclusive) = (self.view.inclusive_of(id), self.view.exclusive_of(id));
        let mut line = String::new();
        let repeats = self.repeats(id);
        for column in &self.columns {
            let cell = match column {
                _ if repeats => String::new(),
                Column::Effort => percent(effort(inclusive), effort(&self.view.totals)),
                Column::Share => percent(self.sort.of(inclusive), self.sort.of(&self.view.totals)),
                Column::Inclusive(m) => amount(inclusive[*m]),
                Column::Exclusive(m) => amount(exclusive[*m]),
            };
            let width = self.width(*column);
            line.push_str(&format!("{cell:>width$}"));
        }
        let mark = if hot { "▶ " } else { "  " };
        let room = self
            .style
            .line
            .saturating_sub(line.chars().count() + 2 + guides.chars().count())
            .max(24);
        let text = self.describe(id, room);
        let text = match (hot, self.view.nodes[id as usize].kind) {
            (true, _) => self.style.paint("1;31", &text),
            (_, "pruned" | "partial") => self.style.faint(&text),
            _ => text,
        };
        writeln!(out, "{line}{mark}{}{text}", self.style.faint(guides))
    }

    /// Whether a caller is the only one, so that its numbers are those of the line above.
    fn repeats(&self, id: u32) -> bool {
        let parent = self.view.nodes[id as usize].parent;
        self.view.name == "bottom-up"
            && parent.is_some_and(|p| self.view.inclusive_of(p) == self.view.inclusive_of(id))
    }

    /// The name with its place, in at most `room` columns.
    fn describe(&self, id: u32, room: usize) -> String {
        let node = &self.view.nodes[id as usize];
        let name = names::shown(self.database, &node.label);
        let mut extras = Vec::new();
        if node.recursion > 1 {
            extras.push(format!(" (recursion, {} deep)", node.recursion));
        }
        if let Some(place) = self.place(node) {
            extras.push(format!("  {place}"));
        }
        let before_counts = extras.len();
        if let Some(row) = loops::of(&node.label, self.database) {
            extras.extend(loops::summary(row));
        }
        // What matters less comes last, and goes first where there is no room.
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

    fn place(&self, node: &ViewNode) -> Option<String> {
        if let Some(row) = loops::of(&node.label, self.database) {
            return row.call.map(|at| names::place(self.database, at));
        }
        let Label::Procedure(procedure) = node.label else {
            return None;
        };
        if node.kind == Kind::Loop.name() {
            // Its name says where it is.
            return None;
        }
        let row = &self.database.procedures[procedure as usize];
        match (row.declared, node.call) {
            (Some(at), _) => Some(names::place(self.database, at)),
            (None, Call::Unique(at)) => {
                Some(format!("called at {}", names::place(self.database, at)))
            }
            _ => {
                let module = row.module.map(|m| &self.database.modules[m as usize])?;
                Some(format!("in {}", one_line(names::base_name(module))))
                    .filter(|_| !row.name.starts_with('['))
            }
        }
    }

    /// From the largest root down, as long as one child holds at least half of its parent.
    fn hot_path(&self) -> Vec<u32> {
        let amount = |id: u32| self.sort.of(self.view.inclusive_of(id));
        let largest = |ids: &[u32]| {
            ids.iter()
                .copied()
                .filter(|id| self.view.nodes[*id as usize].kind != "pruned")
                .max_by_key(|id| (amount(*id), std::cmp::Reverse(*id)))
        };
        let mut path = Vec::new();
        let mut next = largest(&self.view.roots).filter(|id| amount(*id) > 0);
        while let Some(id) = next {
            path.push(id);
            next = largest(&self.view.nodes[id as usize].children)
                .filter(|child| amount(*child) > 0 && amount(*child) >= amount(id) / 2);
        }
        path
    }
}

/// An empty cell says "nothing" faster than zeros do.
fn amount(nanoseconds: i64) -> String {
    if nanoseconds == 0 {
        "-".to_owned()
    } else {
        seconds(nanoseconds)
    }
}

/// A metric's name as a column title.
fn short(name: &str) -> &str {
    match name {
        "idleness" => "idle",
        "overhead" => "ovhd",
        other => other.rsplit(':').next().unwrap_or(other),
    }
}
