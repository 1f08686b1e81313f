//! The first screen after building a database: at most 25 lines that say what ran, how good the
//! measurement is, where effort went, which contexts matter, and what to look at next.

use crate::views::efficiency::{Row, Thresholds, Verdict, rows};
use crate::views::fold::{FoldOptions, fold};
use crate::views::json::where_is;
use crate::views::load::{Database, Projection, Run, effort};
use crate::views::names;
use crate::views::text::{Style, percent, seconds};
use crate::views::top_down;
use crate::views::tree::View;
use std::io::{self, Write};

/// Rows of the table of contexts.
const CONTEXTS: usize = 10;
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
    let screen = Screen {
        database,
        run: database.run(),
        view: &view,
        thresholds,
        style,
    };
    screen.print(out).map_err(crate::error::Error::output)
}

struct Screen<'a> {
    database: &'a Database,
    run: Run,
    view: &'a View,
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

    fn rooted_percent(&self) -> f64 {
        if self.run.samples == 0 {
            return 0.0;
        }
        self.run.rooted as f64 * 100.0 / self.run.samples as f64
    }

    fn head(&self, out: &mut impl Write) -> io::Result<()> {
        let run = &self.run;
        let event = self.database.processes.first().map_or("", |p| &p.event);
        let rate = if run.period_ns > 0 {
            format!(" at {:.0} Hz", 1e9 / run.period_ns as f64)
        } else {
            String::new()
        };
        let processes = match self.database.processes.len() {
            1 => String::new(),
            n => format!(", {n} processes"),
        };
        let width = self.style.width;
        writeln!(
            out,
            "{}",
            self.style.bold(&names::middle(&run.program, width))
        )?;
        writeln!(
            out,
            "wall {} s, {} threads{processes}, {} cores, {} samples of {}{rate}",
            seconds(run.wall_ns),
            run.threads,
            run.cores,
            run.samples,
            if event.is_empty() { "the event" } else { event },
        )?;
        let lost: Vec<String> = run
            .lost
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(cause, n)| format!("{cause} {n}"))
            .collect();
        let lost = match lost.len() {
            0 => "none lost".to_owned(),
            _ => format!("not whole: {}", lost.join(", ")),
        };
        let quality = format!(
            "quality: {:.2} % of samples rooted at the program's entry, {lost}",
            self.rooted_percent()
        );
        writeln!(out, "{}", names::middle(&quality, width.max(60)))?;
        if let Some(line) = self.spawnerless() {
            writeln!(out, "{line}")?;
        }
        writeln!(out)
    }

    /// What a runtime that cooperates would add.
    fn spawnerless(&self) -> Option<String> {
        let share = self.run.spawnerless as f64 * 100.0 / self.run.samples.max(1) as f64;
        (share >= 0.1).then(|| {
            format!(
                "rayon's own scheduler ran the tasks: {share:.1} % of samples have no caller above their task; `cargo hpcrun` shows them"
            )
        })
    }

    fn bar(&self, out: &mut impl Write) -> io::Result<()> {
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
        if self.run.cores > 0 {
            let attributed = total / i64::from(self.run.cores);
            let wait = self.run.wall_ns.saturating_sub(attributed).max(0);
            write!(
                out,
                "unattributed wait: about {} s of the wall time (estimate: nobody worked, or others had the cores)",
                seconds(wait)
            )?;
            if self.run.oversubscribed_ns > 0 {
                write!(
                    out,
                    "; oversubscription {} s",
                    seconds(self.run.oversubscribed_ns)
                )?;
            }
            writeln!(out)?;
        }
        writeln!(out)
    }

    fn contexts(&self, out: &mut impl Write) -> io::Result<()> {
        if self.run.samples == 0 {
            return writeln!(
                out,
                "no samples: the program used less CPU time than one period; measure a longer run or a higher rate (-e cpu-time@1000)\n"
            );
        }
        if self.rooted_percent() < LEAST_ROOTED {
            return writeln!(
                out,
                "no verdict: fewer than {LEAST_ROOTED:.0} % of the samples are rooted; see `lost` above, build with frame or unwind information and measure again\n"
            );
        }
        let rows = rows(self.view, self.database, self.thresholds);
        let shown = rows.iter().take(CONTEXTS);
        let longest = shown.map(|r| self.place(r).chars().count()).max();
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
            "{:<place_width$} {:<name_width$}{:>9}{:>9}{:>9}{:>9}  verdict",
            "file:line", "context", "effort %", "work", "idle", "overhead"
        );
        writeln!(out, "{}", self.style.bold(&head))?;
        for row in rows.iter().take(CONTEXTS) {
            self.row(row, place_width, name_width, out)?;
        }
        let hidden = rows.len().saturating_sub(CONTEXTS);
        if hidden > 0 {
            writeln!(out, "{} more contexts of at least 1 % each", hidden)?;
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

    fn advice(&self, verdict: Verdict) -> &'static str {
        let text = verdict.advice();
        match text.split([' ', ':']).next() {
            Some(word) if self.is_narrow() => word,
            _ => text,
        }
    }

    /// Where a row's context is.
    fn place(&self, row: &Row) -> String {
        let (module, place) = where_is(&self.view.nodes[row.node as usize], self.database);
        match (place, module) {
            (Some(place), _) => names::place(self.database, place),
            (None, Some(module)) => names::base_name(module).to_owned(),
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
        let node = &self.view.nodes[row.node as usize];
        let place = self.place(row);
        let mut name = names::label(self.database, &node.label);
        if row.rest {
            name.push_str(" (the rest)");
        }
        let verdict = match row.verdict {
            Verdict::Effective => self.style.paint("32", self.advice(row.verdict)),
            _ => self.style.paint("33", self.advice(row.verdict)),
        };
        writeln!(
            out,
            "{:<place_width$} {:<name_width$}{:>9}{:>9}{:>9}{:>9}  {verdict}",
            names::middle(&place, place_width),
            names::middle(&name, name_width),
            percent(effort(&row.values), effort(&self.view.totals)),
            seconds(row.values[0]),
            seconds(row.values[1]),
            seconds(row.values[2]),
        )
    }

    fn next(&self, out: &mut impl Write) -> io::Result<()> {
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
            shell_word(&self.database.path.display().to_string())
        )
    }
}

/// Quotes a path for a shell where it needs it.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=@%,:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
