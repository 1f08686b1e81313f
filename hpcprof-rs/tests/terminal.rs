//! The reports in a terminal of 80 x 24, key by key. The terminal itself is not part of it.

use crate::support::program::full_run;
use crate::support::*;
use hpcprof_rs::catalogue::Catalogue;
use hpcprof_rs::error::Result;
use hpcprof_rs::terminal::draw::draw;
use hpcprof_rs::terminal::state::State;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;

/// What commands print, which other tests look at.
fn report(words: &[&str], width: usize) -> Result<String> {
    Ok((0..60).map(|n| format!("{words:?} {width} line {n}\n")).collect())
}

struct Screen<'a> {
    state: State<'a>,
    terminal: Terminal<TestBackend>,
}

impl<'a> Screen<'a> {
    fn new(catalogue: &'a Catalogue) -> Screen<'a> {
        let state = State::new(catalogue, &report).expect("a state");
        Screen { state, terminal: Terminal::new(TestBackend::new(80, 24)).expect("a screen") }
    }

    /// The lines of the screen after some keys, `>` for Enter.
    fn after(&mut self, keys: &str) -> Vec<String> {
        for key in keys.chars() {
            let key = if key == '>' { KeyCode::Enter } else { KeyCode::Char(key) };
            assert!(self.state.key(key.into()), "the user stays");
        }
        self.terminal.draw(|frame| draw(&mut self.state, frame)).expect("drawn");
        let cells = self.terminal.backend().buffer().content().chunks(80);
        let line = |row: &[ratatui::buffer::Cell]| -> String { row.iter().map(|c| c.symbol()).collect() };
        cells.map(|row| line(row).trim_end().to_owned()).collect()
    }

    /// The row at the cursor.
    fn row(&mut self, keys: &str) -> String {
        self.after(keys);
        let reversed =
            |cell: &&ratatui::buffer::Cell| cell.modifier.contains(ratatui::style::Modifier::REVERSED);
        let cells = self.terminal.backend().buffer().content().iter().filter(reversed);
        cells.map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
    }
}

#[test]
fn a_tree_opens_closes_and_zooms() {
    let database = database(&full_run());
    let catalogue = Catalogue::open(&database).expect("a database");
    let mut screen = Screen::new(&catalogue);
    let first = screen.after("");
    has(&first[0], "top-down of logical contexts, by effort");
    has(&first[1], "effort %");
    has(&first[23], "? keys");
    let rows = |lines: &[String]| lines[2..23].iter().filter(|l| !l.is_empty()).count();
    // Closing the root leaves the roots alone; opening it again shows what was open.
    let closed = screen.after("gh");
    assert!(rows(&closed) < rows(&first), "{closed:#?}");
    has(&screen.row(""), "+ ");
    assert_eq!(rows(&screen.after("l")), rows(&first));
    // The cursor moves by rows, to the row above, and zooms to a row of its own.
    let below = screen.row("j");
    assert_ne!(screen.row("g"), below);
    let zoomed = screen.after("jz");
    assert!(rows(&zoomed) < rows(&first), "{zoomed:#?}");
    assert_eq!(rows(&screen.after("u")), rows(&first));
}

#[test]
fn a_search_opens_what_leads_to_a_name() {
    let database = database(&full_run());
    let catalogue = Catalogue::open(&database).expect("a database");
    let mut screen = Screen::new(&catalogue);
    screen.after("ghhh");
    has(&screen.row("/LEAF>"), "app::leaf");
    let first = screen.state.pane().node();
    screen.after("n");
    assert_ne!(screen.state.pane().node(), first, "there are several");
    has(&screen.after("/no such name>")[23], "nothing has `no such name`");
    has(&screen.after("/half")[23], "/half");
}

#[test]
fn metrics_projections_and_views_change() {
    let database = database(&full_run());
    let catalogue = Catalogue::open(&database).expect("a database");
    let mut screen = Screen::new(&catalogue);
    for (key, title) in [
        ("m", "by work"),
        ("m", "by idleness"),
        ("M", "by work"),
        ("p", "top-down of physical contexts"),
        ("2", "bottom-up of physical contexts"),
        ("p3", "flat of logical contexts"),
    ] {
        has(&screen.after(key)[0], title);
    }
    // The order is that of the metric, and amounts are those of the view as text.
    let row = screen.row("2g");
    let text = show_on(80, &database, "bottom-up --metric work");
    let amounts: Vec<&str> = row.split_whitespace().take(4).collect();
    let text: Vec<&str> = text.split_whitespace().collect();
    has(&text.join(" "), &amounts.join(" "));
}

#[test]
fn reports_are_texts_that_scroll() {
    let database = database(&full_run());
    let catalogue = Catalogue::open(&database).expect("a database");
    let mut screen = Screen::new(&catalogue);
    let threads = screen.after("4");
    has(&threads[0], "threads");
    has(&threads[1], "[\"threads\"] 80 line 0");
    has(&screen.after("/line 44>")[1], "line 44");
    has(&screen.after("G")[22], "line 59");
    // All of the keys fit.
    let help = screen.after("?").join("\n");
    has(&help, "calling contexts from the entry");
    has(&help, "- is open.");
}

#[test]
fn a_source_that_is_gone_is_said() {
    let database = database(&full_run());
    let catalogue = Catalogue::open(&database).expect("a database");
    let mut screen = Screen::new(&catalogue);
    has(&screen.after("/leaf>s")[23], "there is no such file here");
    assert!(!screen.state.key(KeyCode::Char('q').into()), "q leaves");
}

#[test]
fn without_a_terminal_there_is_a_remedy() {
    let database = database(&full_run());
    let output = command(&database, &["tui", "."]);
    assert_eq!(output.status.code(), Some(1));
    has(&String::from_utf8_lossy(&output.stderr), "tui needs a terminal");
}
