//! The first screen after building a database: at most 25 lines that say what ran, how good the
//! measurement is, where effort went, which contexts matter, and what to look at next.

use crate::error::one_line;
use crate::views::efficiency::{Row, Thresholds, Verdict, rows};
use crate::views::fold::{FoldOptions, fold};
use crate::views::json::where_is;
use crate::views::load::{Database, Projection, effort};
use crate::views::names;
use crate::views::quality;
use crate::views::summary::Summary;
use crate::views::text::{Style, percent, seconds};
use crate::views::top_down;
use crate::views::tree::View;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Lines of the screen.
const LINES: usize = 25;
/// Most and fewest rows of the table of contexts.
const CONTEXTS: (usize, usize) = (10, 4);
/// Lines beside the rows and those about the measurement.
const OTHER_LINES: usize = 12;
/// Below this share of rooted samples no verdict is given, percent.
const LEAST_ROOTED: f64 = 80.0;

/// Prints the first screen.
pub fn print(
    database: &Database,
    thresholds: Thresholds,
    style: Style,
    out: &mut impl Write,
) -> crate::error::Result<()> {
    let tree = database.contexts(Projection::Logical)?;
    let tree = fold(
        &tree,
        database,
        FoldOptions {
            projection: Projection::Logical,
            lines: false,
            loops: false,
            std_inlined: false,
            runtime_frames: false,
            recursion: true,
            start_up: true,
        },
    );
    let view = top_down::arrange(&tree);
    let run = Summary::of(database);
    let working = view.totals[0].saturating_add(view.totals[2]);
    let mut notes = quality::lines(&run);
    let serial = quality::serial(&run, database.processes.len(), working, view.totals[1]);
    let is_whole = run.missing.is_empty() && !quality::is_mostly_waiting(&run);
    let judged = match serial {
        _ if !is_whole => Judged::Nothing,
        Some(_) => Judged::Spinning,
        None => Judged::All,
    };
    notes.extend(serial);
    let width = style.width.max(60);
    let notes = notes.iter().flat_map(|n| names::wrap(&one_line(n), width));
    let screen = Screen {
        database,
        notes: notes.collect(),
        run,
        view: &view,
        judged,
        thresholds,
        style,
    };
    screen.print(out).map_err(crate::error::Error::output)
}

/// Which verdicts the figures can carry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judged {
    /// All.
    All,
    /// Of a serial program only that a context spins.
    Spinning,
    /// None: time is missing, or much of it was spent waiting.
    Nothing,
}

struct Screen<'a> {
    database: &'a Database,
    run: Summary,
    /// About the measurement.
    notes: Vec<String>,
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
        let run = &self.run;
        let event = self.database.processes.first().map_or("", |p| &p.event);
        let rate = if run.period_ns > 0 {
            format!(" at {:.0} Hz", 1e9 / run.period_ns as f64)
        } else {
            String::new()
        };
        let several = |n: usize, what: &str| match n {
            0 | 1 => String::new(),
            n => format!(", {n} {what}"),
        };
        let threads = match run.threads {
            1 => "1 thread".to_owned(),
            n => format!("{n} threads"),
        };
        let program = names::middle(&one_line(&run.program), self.style.width);
        writeln!(out, "{}", self.style.bold(&program))?;
        writeln!(
            out,
            "wall {} s{}, {threads}{}, {} cores, {} samples of {}{rate}",
            seconds(run.wall_ns),
            several(run.runs, "runs"),
            several(self.database.processes.len(), "processes"),
            run.cores,
            run.samples,
            if event.is_empty() {
                "the event".to_owned()
            } else {
                one_line(event)
            },
        )?;
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        writeln!(out)
    }

    fn bar(&self, out: &mut impl Write) -> io::Result<()> {
        if self.run.samples == 0 {
            return Ok(());
        }
        let totals = &self.view.totals;
        let total = effort(totals);
        let width = 50_usize;
        let part = |value: i64| {
            if total == 0 {
                0
            } else {
                (value as f64 / total as f64 * width as f64).round() as usize
            }
        };
        let (idle, overhead) = (part(totals[1]), part(totals[2]));
        let work = width.saturating_sub(idle + overhead);
        writeln!(
            out,
            "[{}{}{}]  effort {} s",
            self.style.paint("32", &"#".repeat(work)),
            self.style.paint("33", &".".repeat(idle.min(width))),
            self.style.paint("31", &"x".repeat(overhead.min(width))),
            seconds(total)
        )?;
        let share = |value: i64| format!("{} s ({} %)", seconds(value), percent(value, total));
        write!(
            out,
            "# work {}   . idleness {}   x overhead {}",
            share(totals[0]),
            share(totals[1]),
            share(totals[2])
        )?;
        writeln!(out)?;
        let mut times = Vec::new();
        if self.run.cores > 0 && !quality::is_mostly_waiting(&self.run) {
            times.push(quality::wait(&self.run));
        }
        if self.run.oversubscribed_ns > 0 {
            times.push(format!(
                "oversubscription {} s",
                seconds(self.run.oversubscribed_ns)
            ));
        }
        if !times.is_empty() {
            writeln!(out, "{}", times.join("; "))?;
        }
        writeln!(out)
    }

    fn contexts(&self, out: &mut impl Write) -> io::Result<()> {
        if self.run.samples == 0 {
            let why = match self.run.missing.is_empty() {
                true => {
                    "the program used less CPU time than one period; measure a longer run or a higher rate (-e cpu-time@1000)"
                }
                false => "nothing is known of where the missing time went",
            };
            return writeln!(out, "no samples: {why}");
        }
        if quality::rooted_percent(&self.run) < LEAST_ROOTED {
            let lost = one_line(&quality::lost(&self.run));
            return writeln!(
                out,
                "no verdict: fewer than {LEAST_ROOTED:.0} % of the samples are rooted ({lost}); build with frame or unwind information and measure again\n",
            );
        }
        let rows = rows(self.view, self.database, self.thresholds);
        let room = LINES.saturating_sub(OTHER_LINES + self.notes.len());
        let rows_shown = &rows[..rows.len().min(room.clamp(CONTEXTS.1, CONTEXTS.0))];
        let has_verdict = rows_shown
            .iter()
            .any(|r| !self.advice(r.verdict).is_empty());
        let places = rows_shown.iter().map(|r| self.place(r).chars().count());
        let longest = places.max();
        let place_width = match longest {
            Some(longest) if self.is_narrow() => longest.clamp(9, 24),
            _ => 24,
        };
        let name_width = self
            .style
            .width
            .saturating_sub(place_width + 4 * 9 + 5 + self.verdict_width())
            .clamp(16, 60);
        let head = format!(
            "{:<place_width$} {:<name_width$}{:>9}{:>9}{:>9}{:>9}{}",
            "file:line",
            "context",
            "effort %",
            "work",
            "idle",
            "overhead",
            if has_verdict { "  verdict" } else { "" }
        );
        writeln!(out, "{}", self.style.bold(&head))?;
        for row in rows_shown {
            self.row(row, place_width, name_width, out)?;
        }
        let hidden = rows.len() - rows_shown.len();
        if hidden > 0 {
            writeln!(out, "{} more contexts of at least 1 % each", hidden)?;
        }
        if self.judged != Judged::All {
            return writeln!(out);
        }
        writeln!(
            out,
            "{}\n",
            self.style.faint(&format!(
                "high means: idleness >= {} %, overhead >= {} % of a context's effort",
                self.thresholds.idleness, self.thresholds.overhead
            ))
        )
    }

    /// On a narrow terminal the verdict is its first word.
    fn is_narrow(&self) -> bool {
        self.style.width < 110
    }

    fn verdict_width(&self) -> usize {
        if self.is_narrow() { 9 } else { 27 }
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

    /// Where a row's context is.
    fn place(&self, row: &Row) -> String {
        let (module, place) = where_is(&self.view.nodes[row.place as usize], self.database);
        match (place, module) {
            (Some(place), _) => names::place(self.database, place),
            (None, Some(module)) => one_line(names::base_name(module)),
            (None, None) => String::new(),
        }
    }

    fn row(
        &self,
        row: &Row,
        place_width: usize,
        name_width: usize,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let place = self.place(row);
        let rest = if row.rest { " (the rest)" } else { "" };
        let room = name_width.saturating_sub(rest.len());
        let name = format!("{}{rest}", names::middle(&one_line(&row.name), room));
        let verdict = match (self.advice(row.verdict), row.verdict) {
            (text, _) if text.is_empty() => text,
            (text, Verdict::Effective) => format!("  {}", self.style.paint("32", &text)),
            (text, _) => format!("  {}", self.style.paint("33", &text)),
        };
        writeln!(
            out,
            "{:<place_width$} {name:<name_width$}{:>9}{:>9}{:>9}{:>9}{verdict}",
            names::middle(&place, place_width),
            percent(effort(&row.values), effort(&self.view.totals)),
            seconds(row.values[0]),
            seconds(row.values[1]),
            seconds(row.values[2]),
        )
    }

    fn next(&self, out: &mut impl Write) -> io::Result<()> {
        if self.run.samples == 0 {
            return Ok(());
        }
        let totals = &self.view.totals;
        let metric = if totals[1] >= totals[2] && totals[1] * 50 >= effort(totals) {
            " --metric idleness"
        } else if totals[2] * 50 >= effort(totals) {
            " --metric overhead"
        } else {
            ""
        };
        writeln!(
            out,
            "next: hpcprof-rs bottom-up {}{metric}",
            shell_word(&self.database.path)
        )
    }
}

/// Quotes a path for a shell where it needs it.
fn shell_word(path: &Path) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=@%,:".contains(c);
    match path.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) if one_line(text) == text => format!("'{}'", text.replace('\'', "'\\''")),
        // What steers a terminal or is no text: byte by byte.
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
