//! The reports in a terminal of 80 x 24, key by key, and the terminal itself, which signals leave as it was.

use crate::support::program::full_run;
use crate::support::*;
use hpcprof_rs::catalogue::Catalogue;
use hpcprof_rs::error::Result;
use hpcprof_rs::terminal::draw::draw;
use hpcprof_rs::terminal::state::State;
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use std::fs::File;
use std::io::{BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

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

const KEYS: &str = "? keys";
const ALTERNATE_SCREEN: [&str; 2] = ["\x1b[?1049h", "\x1b[?1049l"];
const CURSOR: [&str; 2] = ["\x1b[?25l", "\x1b[?25h"];

/// The command in a terminal of its own.
struct Viewer {
    child: Child,
    keyboard: File,
    terminal: OwnedFd,
    before: Termios,
    bytes: Receiver<u8>,
    /// What it has written since it was last asked for.
    written: String,
}

impl Viewer {
    fn start(database: &Path) -> Viewer {
        let pty = openpty(None, None).expect("a terminal");
        let before = tcgetattr(&pty.slave).expect("settings");
        resize(&pty.slave, 80, 24);
        let stream = || pty.slave.try_clone().expect("a stream");
        let mut command = Command::new(env!("CARGO_BIN_EXE_hpcprof-rs"));
        command.arg("tui").arg(database).env("TERM", "xterm-256color");
        command.stdin(stream()).stdout(stream()).stderr(stream());
        let child = command.spawn().expect("the command starts");
        let keyboard = File::from(pty.master);
        let screen = BufReader::new(keyboard.try_clone().expect("a stream"));
        let (sender, bytes) = channel();
        std::thread::spawn(move || screen.bytes().map_while(|b| sender.send(b.ok()?).ok()).count());
        let written = String::new();
        let mut viewer = Viewer { child, keyboard, terminal: pty.slave, before, bytes, written };
        viewer.sees(&[KEYS]);
        assert!(!viewer.is_as_before(), "keys are read one by one");
        viewer
    }

    /// Waits until it has written some texts in turn, and forgets what is before.
    fn sees(&mut self, texts: &[&str]) {
        for text in texts {
            while !self.written.contains(text) {
                let byte = self.bytes.recv_timeout(Duration::from_secs(60));
                let byte = byte.unwrap_or_else(|_| panic!("{text:?} is not in {:?}", self.written));
                self.written.push(char::from(byte));
            }
            let end = self.written.find(text).expect("it is there") + text.len();
            self.written.drain(..end);
        }
    }

    fn is_as_before(&self) -> bool {
        tcgetattr(&self.terminal).expect("settings") == self.before
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it is there");
    }

    fn ends(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("an end");
        self.sees(&[ALTERNATE_SCREEN[1], CURSOR[1]]);
        assert!(self.is_as_before());
        status
    }

    fn stops_and_goes_on(&mut self) {
        let state = waitpid(Pid::from_raw(self.child.id() as i32), Some(WaitPidFlag::WUNTRACED));
        assert!(matches!(state, Ok(WaitStatus::Stopped(..))), "{state:?}");
        self.sees(&[ALTERNATE_SCREEN[1], CURSOR[1]]);
        assert!(self.is_as_before());
        self.signal(Signal::SIGCONT);
        self.sees(&[ALTERNATE_SCREEN[0], KEYS, CURSOR[0]]);
        assert!(!self.is_as_before());
    }
}

fn resize(terminal: &OwnedFd, columns: u32, rows: u32) {
    let mut stty = Command::new("stty");
    stty.args(["cols", &columns.to_string(), "rows", &rows.to_string()]);
    let status = stty.stdin(terminal.try_clone().expect("a stream")).status();
    assert!(status.expect("stty").success());
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let database = database(&full_run());
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        let mut viewer = Viewer::start(&database);
        viewer.signal(signal);
        assert_eq!(viewer.ends().signal(), Some(signal as i32));
    }
}

#[test]
fn a_viewer_that_was_stopped_goes_on() {
    let database = database(&full_run());
    let mut viewer = Viewer::start(&database);
    viewer.signal(Signal::SIGTSTP);
    viewer.stops_and_goes_on();
    viewer.keyboard.write_all(b"j\x1a").expect("Ctrl-Z");
    viewer.stops_and_goes_on();
    viewer.keyboard.write_all(b"q").expect("a key");
    assert!(viewer.ends().success());
}

#[test]
fn any_size_has_a_screen() {
    let database = database(&full_run());
    let mut viewer = Viewer::start(&database);
    for turn in 0..40 {
        let (columns, rows) = [(1, 1), (3, 40), (300, 2), (500, 100), (20, 5)][turn % 5];
        resize(&viewer.terminal, columns, rows);
        viewer.signal(Signal::SIGWINCH);
        viewer.keyboard.write_all(&[b"jl?\x1bm2s1"[turn % 8]]).expect("a key");
    }
    // crossterm may keep a key that comes with a change of the size until the next one.
    while viewer.child.try_wait().expect("a state").is_none() {
        viewer.keyboard.write_all(b"q").expect("a key");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(viewer.ends().success());
}
