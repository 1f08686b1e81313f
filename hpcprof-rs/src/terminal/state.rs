//! What is on the screen, and what a key makes of it. Nothing here knows the terminal.

use super::pane::Pane;
use crate::catalogue::metrics::{EFFORT, MetricSelector};
use crate::catalogue::{Catalogue, Projection};
use crate::error::{Result, one_line};
use crate::exports::stacks::Stacks;
use crate::page::{Costs, line_costs};
use crate::render::names;
use crate::render::numbers::seconds;
use crate::sources::source_text::SourceFiles;
use crate::views::fold::FoldOptions;
use crate::views::view::ViewKind;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Prints what a command says of the database: its words but the database, and the columns of the screen.
pub type Report<'a> = dyn Fn(&[&str], usize) -> Result<String> + 'a;

/// The keys, as `?` explains them.
const HELP: &str = "\
1 2 3       calling contexts from the entry, from the cost to its callers, by file
4 5 6 7 8   threads, critical path, advice, regions, first screen
up down, j k, PgUp PgDn, Home End
right, l, Enter    open a row, and what is below it as long as there is no choice
left, h     close it, or go to the row above it
f           follow the cost: open what leads to its largest part
z u         show this row and what is below it alone; back to what was shown before
/ n         search names in the whole tree, or in a text; the next one
m M         the next metric, the one before it: for the order and the columns
p           paths of the program, or of the machine
s           source of the row, with what its lines cost
t           what each thread did in this row's procedure
Esc         from a text back to the tree
q           leave; Ctrl-Z stops it until `fg`

work + idleness + overhead = effort. Idleness is what other cores lost while
this ran; overhead is the part of the work that serves parallelism alone.
+ can be opened, - is open.";

/// A text on the screen.
pub struct Text {
    pub title: String,
    pub lines: Vec<String>,
    /// The first line on the screen.
    pub top: usize,
}

pub struct State<'a> {
    pub catalogue: &'a Catalogue,
    report: &'a Report<'a>,
    /// The trees that were asked for.
    panes: Vec<(ViewKind, Projection, Pane)>,
    shown: usize,
    pub kind: ViewKind,
    pub projection: Projection,
    /// The metric: 0 is effort, then all of the database.
    metric: usize,
    /// A text that lies over the tree.
    pub text: Option<Text>,
    /// What is being typed to search for.
    pub typed: Option<String>,
    sought: String,
    /// A line about the last key.
    pub message: String,
    /// Columns and rows that a tree or a text has.
    pub size: (usize, usize),
    /// What lines of the source cost, by file and line.
    costs: Option<Costs>,
}

impl<'a> State<'a> {
    /// The tree of calling contexts, opened along what costs most.
    pub fn new(catalogue: &'a Catalogue, report: &'a Report<'a>) -> Result<State<'a>> {
        let mut state = State {
            catalogue,
            report,
            panes: Vec::new(),
            shown: 0,
            kind: ViewKind::TopDown,
            projection: Projection::Logical,
            metric: 0,
            text: None,
            typed: None,
            sought: String::new(),
            message: String::new(),
            size: (80, 20),
            costs: None,
        };
        state.show(ViewKind::TopDown, Projection::Logical)?;
        let metric = state.metric();
        let pane = state.pane();
        pane.follow(|values| metric.value(values).unwrap_or(0.0));
        pane.cursor = 0;
        Ok(state)
    }

    /// What trees are sorted by.
    pub fn metric(&self) -> MetricSelector<'a> {
        self.metric.checked_sub(1).map_or(MetricSelector::Effort, MetricSelector::Metric)
    }

    pub fn metric_name(&self) -> String {
        let own = self.metric.checked_sub(1).map(|metric| one_line(&self.catalogue.metrics[metric].name));
        own.unwrap_or_else(|| EFFORT.to_owned())
    }

    pub fn pane(&mut self) -> &mut Pane {
        &mut self.panes[self.shown].2
    }

    /// Puts a tree on the screen; it is made when it is first asked for.
    fn show(&mut self, kind: ViewKind, projection: Projection) -> Result<()> {
        let known = self.panes.iter().position(|(k, p, _)| (*k, *p) == (kind, projection));
        if known.is_none() {
            self.panes.push((kind, projection, Pane::new(self.catalogue, kind, projection)?));
        }
        self.shown = known.unwrap_or(self.panes.len() - 1);
        (self.kind, self.projection, self.text) = (kind, projection, None);
        self.sort();
        Ok(())
    }

    fn sort(&mut self) {
        let metric = self.metric();
        let pane = self.pane();
        let at = pane.node();
        pane.view.sort(metric);
        pane.list(at);
    }

    /// Carries a key out; says whether the user stays.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        self.message.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return key.code != KeyCode::Char('c');
        }
        if let Some(mut typed) = self.typed.take() {
            match key.code {
                KeyCode::Enter => {
                    self.sought = typed;
                    self.find();
                }
                KeyCode::Esc => {}
                code => {
                    match code {
                        KeyCode::Backspace => drop(typed.pop()),
                        KeyCode::Char(c) => typed.push(c),
                        _ => {}
                    }
                    self.typed = Some(typed);
                }
            }
            return true;
        }
        if key.code == KeyCode::Char('q') {
            return false;
        }
        if let Err(error) = self.command(key.code) {
            self.message = one_line(&error.to_string());
        }
        true
    }

    fn command(&mut self, key: KeyCode) -> Result<()> {
        let page = self.size.1.saturating_sub(1);
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.go(|at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at| at + 1),
            KeyCode::PageUp => self.go(|at| at.saturating_sub(page)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.go(|at| at + page),
            KeyCode::Home | KeyCode::Char('g') => self.go(|_| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(|_| usize::MAX),
            KeyCode::Char('/') => self.typed = Some(String::new()),
            KeyCode::Char('n') => self.find(),
            KeyCode::Char('?') => self.put("keys", HELP, 0),
            KeyCode::Esc => self.text = None,
            KeyCode::Char('1') => self.show(ViewKind::TopDown, self.projection)?,
            KeyCode::Char('2') => self.show(ViewKind::BottomUp, self.projection)?,
            KeyCode::Char('3') => self.show(ViewKind::Flat, self.projection)?,
            KeyCode::Char('4') => self.print(&["threads"])?,
            KeyCode::Char('5') => self.print(&["critical-path"])?,
            KeyCode::Char('6') => self.print(&["advise"])?,
            KeyCode::Char('7') => self.print(&["regions"])?,
            KeyCode::Char('8') => self.print(&[])?,
            key if self.text.is_none() => self.tree_command(key)?,
            _ => {}
        }
        Ok(())
    }

    fn tree_command(&mut self, key: KeyCode) -> Result<()> {
        let (metric, metrics) = (self.metric(), self.catalogue.variables().count());
        match key {
            KeyCode::Right | KeyCode::Enter | KeyCode::Char('l') => self.pane().expand(),
            KeyCode::Left | KeyCode::Char('h') => self.pane().collapse(),
            KeyCode::Char('f') => self.pane().follow(|values| metric.value(values).unwrap_or(0.0)),
            KeyCode::Char('z') => self.pane().zoom(true),
            KeyCode::Char('u') => self.pane().zoom(false),
            KeyCode::Char('m') => self.choose((self.metric + 1) % metrics),
            KeyCode::Char('M') => self.choose((self.metric + metrics - 1) % metrics),
            KeyCode::Char('p') => {
                let other = match self.projection {
                    Projection::Logical => Projection::Physical,
                    Projection::Physical => Projection::Logical,
                };
                self.show(self.kind, other)?;
            }
            KeyCode::Char('s') => self.source()?,
            KeyCode::Char('t') => {
                let pane = self.pane();
                let label = pane.node().map(|id| pane.view.node(id).label);
                let name = label.map(|label| names::label(&self.catalogue.code, label));
                if let Some(name) = name {
                    self.print(&["threads", "--context", &name])?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn choose(&mut self, metric: usize) {
        self.metric = metric;
        self.sort();
    }

    /// Moves the cursor of the tree, or the text.
    fn go(&mut self, to: impl Fn(usize) -> usize) {
        let height = self.size.1;
        match &mut self.text {
            Some(text) => text.top = to(text.top).min(text.lines.len().saturating_sub(height)),
            None => {
                let pane = self.pane();
                pane.cursor = to(pane.cursor).min(pane.rows.len().saturating_sub(1));
            }
        }
    }

    fn find(&mut self) {
        let (sought, catalogue) = (self.sought.clone(), self.catalogue);
        let found = match &mut self.text {
            Some(text) => {
                let lower = sought.to_lowercase();
                let mut next = text.lines.iter().skip(text.top + 1);
                let next = next.position(|line| line.to_lowercase().contains(&lower));
                next.map(|lines| text.top += lines + 1).is_some()
            }
            None => self.pane().find(catalogue, &sought),
        };
        if !found {
            self.message = format!("nothing has `{}`", one_line(&sought));
        }
    }

    fn put(&mut self, title: &str, text: &str, top: usize) {
        let lines = text.lines().map(str::to_owned).collect();
        self.text = Some(Text { title: title.to_owned(), lines, top });
    }

    /// Shows what a command says; no words are the first screen.
    fn print(&mut self, words: &[&str]) -> Result<()> {
        let text = (self.report)(words, self.size.0)?;
        self.put(words.first().unwrap_or(&"first screen"), &text, 0);
        Ok(())
    }

    /// Shows the source of the row at the cursor, with the cost of its lines.
    fn source(&mut self) -> Result<()> {
        let (catalogue, metric) = (self.catalogue, self.metric());
        let code = &catalogue.code;
        let pane = self.pane();
        let label = pane.node().map(|id| pane.view.node(id).label);
        let Some((label, at)) = label.and_then(|label| Some((label, label.location(code)?))) else {
            "this row has no source".clone_into(&mut self.message);
            return Ok(());
        };
        let path = code.file(at.file);
        let text = match SourceFiles::default().whole(label.module(code), path) {
            Ok(text) => text,
            Err(problem) => {
                self.message = format!("{}: {problem}", one_line(path));
                return Ok(());
            }
        };
        if self.costs.is_none() {
            let lines = FoldOptions { lines: true, start_up: false, recursion: false, ..FoldOptions::STORED };
            self.costs = Some(line_costs(&Stacks::read(catalogue, lines)?));
        }
        let numbered = (1_u32..).zip(text.lines()).map(|(number, line)| {
            let costs = self.costs.as_ref().and_then(|costs| costs.get(&(at.file, number)));
            let cost = costs.map_or(0, |(sums, _)| metric.of(sums));
            let cost = if cost == 0 { String::new() } else { seconds(cost) };
            format!("{cost:>9} {number:>5}  {}", one_line(&line.replace('\t', "    ")))
        });
        let lines = numbered.collect::<Vec<_>>().join("\n");
        let title = format!("{}, {}", names::at(path, at.line), self.metric_name());
        self.put(&title, &lines, (at.line as usize).saturating_sub(3));
        Ok(())
    }
}
