//! The first screen after building a database: at most 25 lines that say what ran, how good the
//! measurement is, where effort went, which contexts matter, and what to look at next.

use crate::advice::efficiency::{Thresholds, Verdict};
use crate::advice::findings::{findings, mostly};
use crate::advice::quality;
use crate::advice::rows::{Row, is_unnamed, own_time, rows};
use crate::catalogue::Catalogue;
use crate::catalogue::metrics::{IDLENESS, MetricSelector, OVERHEAD, WORK, busy, effort};
use crate::catalogue::statistics::Statistics;
use crate::error::{Error, Result, one_line};
use crate::model::advice::Cause;
use crate::model::errors::Sampled;
use crate::model::symbols::GENERATED;
use crate::model::tree::Label;
use crate::render::names;
use crate::render::numbers::{percent, seconds};
use crate::render::style::Style;
use crate::views::prune::Limits;
use crate::views::top_down;
use crate::views::view::View;
use hpc_formats::profile::{LOCK_WAIT, LONG_POLL, OVERSUBSCRIPTION, STANDSTILL};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LINES: usize = 25;
/// Most and fewest rows of the table of contexts.
const CONTEXTS: (usize, usize) = (10, 4);
/// Lines beside the rows and those about the measurement.
const OTHER_LINES: usize = 12;
/// Contexts below this share of the effort are not read, percent: no row depends on one.
const LEAST_READ: f64 = 0.1;
/// What is worth doing that is said, and the least share of the wall time to gain by it.
const ADVICE: usize = 2;
const LEAST_GAIN: f64 = 0.05;
/// Idleness and overhead of less than this share of the effort are not what to look at next.
const LEAST_LOSS: f64 = 0.1;

pub fn print(
    catalogue: &Catalogue,
    thresholds: Thresholds,
    style: Style,
    out: &mut impl Write,
) -> Result<()> {
    let view = stored_view(catalogue)?;
    let run = &catalogue.statistics;
    let serial = quality::serial(run, busy(&view.totals), view.totals[IDLENESS], in_regions(&view));
    let waste = view.totals[IDLENESS].saturating_add(view.totals[OVERHEAD]);
    let is_whole = run.missing.is_empty() && !quality::forbids_verdicts(run, waste);
    let judged = match serial {
        _ if !is_whole => Judged::Nothing,
        Some(_) => Judged::Spinning,
        None => Judged::All,
    };
    let width = style.width.max(60);
    let advice = match judged {
        Judged::All => findings(&view, catalogue, thresholds)?.unwrap_or_default(),
        _ => Vec::new(),
    };
    let least = quality::wall_of_run(run) * LEAST_GAIN;
    let advice = advice.iter().filter(|of| of.most.is_some_and(|(most, _)| most >= least)).take(ADVICE);
    let has_advice = advice.clone().any(|of| of.cause == Cause::Oversubscription);
    let notes = quality::lines(run, has_advice).into_iter().chain(serial);
    let advice = advice.flat_map(|of| names::wrap(&of.line(), width));
    let screen = Screen {
        catalogue,
        notes: notes.flat_map(|n| names::wrap(&one_line(&n), width)).collect(),
        advice: advice.collect(),
        run,
        view: &view,
        judged,
        thresholds,
        style,
    };
    screen.print(out).map_err(Error::output)
}

/// The contexts that advice is about, with how their work is spread over threads.
pub fn stored_view(catalogue: &Catalogue) -> Result<View> {
    let limits = Limits { depth: None, threshold: Some(LEAST_READ) };
    top_down::read(catalogue, limits, MetricSelector::Effort, true)
}

/// The effort in parallel loops and regions.
fn in_regions(view: &View) -> i64 {
    let is_region = |node: u32| matches!(view.node(node).label, Label::ParallelLoop(_));
    let mut outer = view.roots.clone();
    let mut sum: i64 = 0;
    while let Some(node) = outer.pop() {
        match is_region(node) {
            true => sum = sum.saturating_add(effort(view.inclusive.of(node))),
            false => outer.extend(&view.children[node as usize]),
        }
    }
    sum
}

/// Where code that a program has made while it ran has no names.
const UNNAMED: &str = "generated code has no names: have its compiler write a map for perf (node \
     --perf-basic-prof, python -X perf)";

/// Where such code hides its callers.
const WITHOUT_CALLERS: &str = "they are in code that the program has generated, whose callers can't be found";

/// Which verdicts the figures can carry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judged {
    All,
    /// Of a serial program only that a context spins.
    Spinning,
    /// None: time is missing, or much of it was spent waiting.
    Nothing,
}

/// The heads of the figures.
const HEADS: [&str; 4] = ["effort %", "work", "idle", "overhead"];

/// How wide the columns of the table are.
struct Layout {
    place: usize,
    name: usize,
    figures: [usize; 4],
}

impl Layout {
    fn line(&self, at: &str, name: &str, figures: [String; 4], verdict: &str) -> String {
        let figures = figures.iter().zip(self.figures).map(|(text, width)| format!("{text:>width$}"));
        let (place, width) = (self.place, self.name);
        format!("{at:<place$} {name:<width$}{}{verdict}", figures.collect::<String>())
    }
}

struct Screen<'a> {
    catalogue: &'a Catalogue,
    run: &'a Statistics,
    /// About the measurement.
    notes: Vec<String>,
    advice: Vec<String>,
    view: &'a View,
    judged: Judged,
    thresholds: Thresholds,
    style: Style,
}

impl Screen<'_> {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        self.head(out)?;
        self.bar(out)?;
        self.contexts(out)?;
        self.next(out)
    }

    fn head(&self, out: &mut impl Write) -> io::Result<()> {
        let run = self.run;
        let rate = match run.period_ns {
            1.. => format!(" at {:.0} Hz", 1e9 / run.period_ns as f64),
            _ => String::new(),
        };
        let several = |n: usize, what: &str| match n {
            0 | 1 => String::new(),
            n => format!(", {n} {what}"),
        };
        let threads = names::counted(run.threads, "thread");
        let event = match run.event.as_str() {
            "" => "the event".to_owned(),
            event => one_line(event),
        };
        let program = names::middle(&one_line(&run.program), self.style.width);
        writeln!(out, "{}", self.style.bold(&program))?;
        let head = format!(
            "wall {} s{}{}, {threads}{}, {}, {} samples of {event}{rate}",
            seconds(run.wall_ns),
            several(run.runs, "runs"),
            several(if run.parts > run.runs { run.parts } else { 0 }, "parts"),
            several(run.executables.len(), "processes"),
            names::counted(u64::from(run.cores), "core"),
            run.samples,
        );
        writeln!(out, "{}", names::wrap(&head, self.style.width).join("\n"))?;
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        for line in &self.advice {
            writeln!(out, "{}", self.style.bold(line))?;
        }
        writeln!(out)
    }

    fn bar(&self, out: &mut impl Write) -> io::Result<()> {
        const WIDTH: usize = 50;
        if self.run.samples == 0 {
            return Ok(());
        }
        let totals = &self.view.totals;
        let total = effort(totals);
        let part = |value: i64| {
            if total == 0 { 0 } else { (value as f64 / total as f64 * WIDTH as f64).round() as usize }
        };
        let (idle, overhead) = (part(totals[IDLENESS]), part(totals[OVERHEAD]));
        let work = WIDTH.saturating_sub(idle + overhead);
        writeln!(
            out,
            "[{}{}{}]  effort {} s",
            self.style.paint("32", &"#".repeat(work)),
            self.style.paint("33", &".".repeat(idle.min(WIDTH))),
            self.style.paint("31", &"x".repeat(overhead.min(WIDTH))),
            seconds(total)
        )?;
        let share = |value: i64| format!("{} s ({} %)", seconds(value), percent(value, total));
        let parts = format!(
            "# work {}   . idleness {}   x overhead {}",
            share(totals[WORK]),
            share(totals[IDLENESS]),
            share(totals[OVERHEAD])
        );
        match self.is_narrow() {
            true => writeln!(out, "{}", names::wrap(&parts, self.style.width).join("\n"))?,
            false => writeln!(out, "{parts}")?,
        }
        let mut times = Vec::new();
        let is_said = |time| quality::is_worth_a_word(time, self.run);
        let waits = is_said(self.run.wait_ns) && !quality::is_mostly_waiting(self.run);
        if self.run.cores > 0 && waits {
            times.push(quality::wait(self.run));
        }
        if is_said(self.run.competition_ns()) && !quality::competes(self.run) {
            let beyond = seconds(self.run.competition_ns());
            times.push(format!("oversubscription {beyond} s"));
        }
        if !times.is_empty() {
            let times = names::wrap(&times.join("; "), self.style.width);
            writeln!(out, "{}", times.join("\n"))?;
        }
        for line in self.waits() {
            writeln!(out, "{}", names::wrap(&line, self.style.width).join("\n"))?;
        }
        writeln!(out)
    }

    /// What threads waited for, and where most of that was.
    fn waits(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some((all, most, name)) = self.mostly(LOCK_WAIT) {
            lines.push(format!("lock-wait {all} s: {most} s while {name} held the lock"));
        }
        if let Some((all, most, name)) = self.mostly(LONG_POLL) {
            lines.push(format!("{LONG_POLL} {all} s: tasks kept their workers; {most} s spawned by {name}"));
        }
        let slept = self.mostly(STANDSTILL).filter(|_| quality::is_mostly_waiting(self.run));
        if let Some((all, most, name)) = slept {
            lines.push(format!("nobody worked: threads waited {all} s, {most} s of that in {name}"));
        }
        let delayed = mostly(self.catalogue, OVERSUBSCRIPTION).filter(|_| quality::competes(self.run));
        if let Some((all, most, name)) = delayed {
            lines.push(format!("threads that had no core: {} % of that in {name}", percent(most, all)));
        }
        lines
    }

    /// As [`mostly`], in seconds.
    fn mostly(&self, metric: &str) -> Option<(String, String, String)> {
        let (all, most, name) = mostly(self.catalogue, metric)?;
        Some((seconds(all), seconds(most), name))
    }

    fn contexts(&self, out: &mut impl Write) -> io::Result<()> {
        if self.run.samples == 0 {
            let why = match self.run.missing.is_empty() {
                true => {
                    "the program used less CPU time than one period; \
                     measure a longer run or a higher rate (-e cpu-time@1000)"
                }
                false => "nothing is known of where the missing time went",
            };
            return writeln!(out, "no samples: {why}");
        }
        if self.run.rooted_percent() < quality::LEAST_ROOTED {
            let lost = one_line(&quality::lost(self.run));
            let held_back = self.run.lost_ns.get(quality::HELD_BACK).copied().unwrap_or(0);
            let remedy = match held_back > self.run.lost_ns.values().sum::<i64>() / 2 {
                true => "signals were blocked by a system call of the program's own, or perf was off",
                false if self.ends_in_generated_code() => WITHOUT_CALLERS,
                false => "build with frame or unwind information and measure again",
            };
            let text = format!(
                "no verdict: fewer than {:.0} % of the samples are rooted ({lost}); {remedy}",
                quality::LEAST_ROOTED,
            );
            return writeln!(out, "{}\n", names::wrap(&text, self.style.width).join("\n"));
        }
        let rows = rows(self.view, self.catalogue, self.thresholds);
        if rows.is_empty() {
            return writeln!(out, "no procedure of the program's own has 1 % of the effort\n");
        }
        let chance = self.chance(&rows);
        let other = OTHER_LINES + self.notes.len() + self.advice.len() + usize::from(chance.is_some());
        let room = LINES.saturating_sub(other);
        let (shown, hidden) = rows.split_at(rows.len().min(room.clamp(CONTEXTS.1, CONTEXTS.0)));
        let layout = self.layout(shown);
        let verdict = if shown.iter().any(|r| !self.advice(r.verdict).is_empty()) { "  verdict" } else { "" };
        let head = layout.line("file:line", "context", HEADS.map(str::to_owned), verdict);
        writeln!(out, "{}", self.style.bold(&head))?;
        for row in shown {
            self.row(row, &layout, out)?;
        }
        if !hidden.is_empty() {
            let more = names::counted(hidden.len() as u64, "more context");
            writeln!(out, "{more} of at least 1 % each")?;
        }
        if let Some(unnamed) = self.unnamed() {
            writeln!(out, "{}", names::wrap(&unnamed, self.style.width).join("\n"))?;
        }
        if shown.iter().any(|row| row.name == GENERATED) {
            writeln!(out, "{}", names::wrap(UNNAMED, self.style.width).join("\n"))?;
        }
        if let Some(chance) = chance {
            writeln!(out, "{chance}")?;
        }
        if self.judged != Judged::All {
            return writeln!(out);
        }
        let high = format!(
            "high means: idleness >= {} %, overhead >= {} % of a context's effort",
            self.thresholds.idleness, self.thresholds.overhead
        );
        writeln!(out, "{}\n", self.style.faint(&high))
    }

    /// Whether most of what is not rooted has no caller above code that the program has generated.
    fn ends_in_generated_code(&self) -> bool {
        let view = self.view;
        let partial = view.roots.iter().filter(|root| matches!(view.node(**root).label, Label::Partial(_)));
        let outermost = partial.flat_map(|root| &view.children[*root as usize]);
        let signed = outermost.map(|node| {
            let is_generated = view.node(*node).label.module(&self.catalogue.code) == Some(GENERATED);
            effort(view.inclusive.of(*node)) * if is_generated { 1 } else { -1 }
        });
        signed.sum::<i64>() > 0
    }

    /// A remark if the order of rows may be chance: there are few samples, and the efforts of neighbours
    /// differ by less than twice the standard error of their difference.
    fn chance(&self, rows: &[Row]) -> Option<String> {
        let errors = self.catalogue.errors();
        let rows = rows.iter().take(CONTEXTS.0);
        let rows: Vec<Sampled> = rows.map(|row| errors.of_effort(&row.values)).collect();
        let first = rows.first().filter(|row| row.is_few())?;
        let is_chance = |pair: &[Sampled]| pair[0].may_follow(pair[1]);
        rows.windows(2).any(is_chance).then(|| {
            let error = format!("few samples (first row: ±{:.0} %)", first.percent());
            format!("{error}: rows that differ by less may be in another order")
        })
    }

    /// On a narrow terminal the verdict is its first word.
    fn is_narrow(&self) -> bool {
        self.style.width < 110
    }

    /// Empty where the figures can't carry the verdict.
    fn advice(&self, verdict: Verdict) -> String {
        let text = match (self.judged, verdict) {
            (Judged::All, _) | (Judged::Spinning, Verdict::Spins(_)) => verdict.advice(),
            _ => String::new(),
        };
        match text.split([' ', ':']).next() {
            Some(word) if self.is_narrow() => word.to_owned(),
            _ => text,
        }
    }

    /// How wide the columns are: figures have what they need, and places leave most of the rest to names.
    fn layout(&self, shown: &[Row]) -> Layout {
        let longest = |text: &dyn Fn(&Row) -> String| shown.iter().map(|r| text(r).chars().count()).max();
        let figure = |at: usize| longest(&|row| self.figures(row)[at].clone()).unwrap_or(0);
        let figures = [0, 1, 2, 3].map(|at| figure(at).max(HEADS[at].len()) + 1);
        let verdict = longest(&|row| self.advice(row.verdict)).map_or(0, |longest| longest + 2);
        let room = self.style.width.saturating_sub(figures.iter().sum::<usize>() + verdict + 1);
        let place = longest(&|row| row.place(self.view, &self.catalogue.code)).unwrap_or(0);
        let name = longest(&|row| self.name(row, room)).unwrap_or(0);
        let place = place.min(room.saturating_sub(name).max(room * 2 / 5)).max(9);
        Layout { place, name: name.max(7).min(room.saturating_sub(place).max(16)), figures }
    }

    fn figures(&self, row: &Row) -> [String; 4] {
        [
            percent(effort(&row.values), effort(&self.view.totals)),
            seconds(row.values[WORK]),
            seconds(row.values[IDLENESS]),
            seconds(row.values[OVERHEAD]),
        ]
    }

    /// What a row is called, in so many characters.
    fn name(&self, row: &Row, width: usize) -> String {
        let most = row.mostly.as_deref().map(one_line);
        let mut name = one_line(&row.name);
        if name.starts_with("omp ") {
            // Its place has the clauses.
            name = name.split(' ').take_while(|word| !word.contains('(')).collect::<Vec<_>>().join(" ");
        }
        // Whom it calls says more than an address; it is not said for the price of a name.
        let name = match most {
            Some(most) if is_unnamed(&name) => format!("mostly {most}"),
            Some(most) => {
                // Where both are long, each has half of the room, if that is enough.
                let room = width.saturating_sub(" (mostly )".len());
                let leaf = match room.saturating_sub(name.chars().count()) {
                    left if left >= most.chars().count().min(10) => left,
                    _ if room >= 36 => most.chars().count().min(room / 2),
                    _ => 0,
                };
                match leaf {
                    0 => name,
                    _ => format!(
                        "{} (mostly {})",
                        names::middle(&name, room - leaf),
                        names::middle(&most, leaf)
                    ),
                }
            }
            None if row.rest => {
                let room = width.saturating_sub(" (the rest)".len());
                format!("{} (the rest)", names::middle(&name, room))
            }
            None => name,
        };
        names::middle(&name, width)
    }

    /// Modules whose code has much of the time and no names.
    fn unnamed(&self) -> Option<String> {
        let code = &self.catalogue.code;
        let mut of_modules: BTreeMap<&str, i64> = BTreeMap::new();
        for (procedure, time) in own_time(self.view, &self.view.roots, &[]) {
            let procedure = code.procedure(procedure);
            if let Some(module) = code.module_of(procedure).filter(|_| is_unnamed(&procedure.name)) {
                *of_modules.entry(names::base_name(module)).or_default() += time;
            }
        }
        let all = busy(&self.view.totals).max(1);
        of_modules.retain(|_, time| *time as f64 >= all as f64 * LEAST_LOSS);
        let of = |(module, time): (&&str, &i64)| format!("{module} ({} % of the work)", percent(*time, all));
        let modules: Vec<String> = of_modules.iter().map(of).collect();
        (!modules.is_empty()).then(|| {
            let modules = one_line(&modules.join(", "));
            format!("no names in {modules}: build with -g and without -s, or install its debug package")
        })
    }

    fn row(&self, row: &Row, layout: &Layout, out: &mut impl Write) -> io::Result<()> {
        let location = row.place(self.view, &self.catalogue.code);
        let verdict = match (self.advice(row.verdict), row.verdict) {
            (text, _) if text.is_empty() => text,
            (text, Verdict::Effective) => format!("  {}", self.style.paint("32", &text)),
            (text, _) => format!("  {}", self.style.paint("33", &text)),
        };
        let location = names::middle(&location, layout.place);
        let name = self.name(row, layout.name);
        writeln!(out, "{}", layout.line(&location, &name, self.figures(row), &verdict))
    }

    fn next(&self, out: &mut impl Write) -> io::Result<()> {
        let is_tracked = self.catalogue.is_tracked();
        if self.run.samples == 0 && !is_tracked {
            return Ok(());
        }
        let totals = &self.view.totals;
        let view = if is_tracked { "critical-path" } else { "bottom-up" };
        let is_loss = |metric: usize| {
            totals[metric] as f64 >= effort(totals) as f64 * LEAST_LOSS
                && totals[metric] >= totals[IDLENESS].max(totals[OVERHEAD])
        };
        let metric = match () {
            () if is_tracked => "",
            () if self.mostly(LOCK_WAIT).is_some() => " --metric lock-wait",
            () if is_loss(IDLENESS) => " --metric idleness",
            () if is_loss(OVERHEAD) => " --metric overhead",
            () => "",
        };
        writeln!(out, "next: hpcprof-rs {view} {}{metric}", shell_word(&self.catalogue.path))
    }
}

/// Quotes a path for a shell where it needs it.
fn shell_word(path: &Path) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=@%,:".contains(c);
    match path.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) if one_line(text) == text => format!("'{}'", text.replace('\'', "'\\''")),
        // Some bytes are no text, or steer a terminal.
        _ => {
            let bytes = path.as_os_str().as_bytes().iter();
            let escaped = bytes.map(|b| match b {
                b if b.is_ascii() && plain(char::from(*b)) => char::from(*b).to_string(),
                b => format!("\\x{b:02x}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}
