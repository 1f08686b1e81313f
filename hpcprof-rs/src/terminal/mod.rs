//! The reports in a terminal: a tree of contexts that expands, its source, and what other commands print.
//!
//! [`state`] says what a key does and what is shown, [`draw`] paints that, `pane` is a tree of which only
//! rows on the screen are made. This file has the terminal itself, which is left as it was found: at the end,
//! on an error, a panic, or a signal that ends or stops the viewer, whatever it computes then.

pub mod draw;
mod pane;
pub mod state;

use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use state::{Report, State};
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long the screen may be empty after a stop.
const PAUSE: Duration = Duration::from_millis(200);

/// The viewer goes on after a stop, and its screen is empty.
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Shows a database until the user leaves.
pub fn show(catalogue: &Catalogue, report: &Report<'_>) -> Result<()> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let problem = "tui needs a terminal: elsewhere `hpcprof-rs top-down` prints the same";
        return Err(Error::Usage(problem.to_owned()));
    }
    // What cannot be read is said on the screen that the user has.
    let mut state = State::new(catalogue, report)?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGTSTP]).map_err(Error::output)?;
    thread::spawn(move || signals.forever().for_each(follow));
    let result = ratatui::try_init().and_then(|mut screen| watch(&mut screen, &mut state));
    let _held = hold();
    restore();
    result.map_err(Error::output)
}

/// Who writes to the terminal holds it.
fn hold() -> MutexGuard<'static, ()> {
    static TERMINAL: Mutex<()> = Mutex::new(());
    TERMINAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does what a signal does by default, with the terminal as it was found. If there is none any more, nobody
/// can be told.
fn follow(signal: i32) {
    let _held = hold();
    restore();
    let _ = low_level::emulate_default_handler(signal);
    let _ = ratatui::try_init();
    GOES_ON.store(true, Ordering::Relaxed);
}

fn restore() {
    let _ = ratatui::try_restore();
    let _ = execute!(io::stdout(), Show);
}

/// Paints and takes keys until one of them ends it.
fn watch(screen: &mut DefaultTerminal, state: &mut State<'_>) -> io::Result<()> {
    'paint: loop {
        let held = hold();
        if GOES_ON.swap(false, Ordering::Relaxed) {
            screen.clear()?;
        }
        screen.draw(|frame| draw::draw(state, frame))?;
        drop(held);
        while !event::poll(PAUSE)? {
            if GOES_ON.load(Ordering::Relaxed) {
                continue 'paint;
            }
        }
        let is_key = |kind| matches!(kind, KeyEventKind::Press | KeyEventKind::Repeat);
        match event::read()? {
            Event::Key(key) if !is_key(key.kind) => {}
            Event::Key(KeyEvent { code: KeyCode::Char('z'), modifiers: KeyModifiers::CONTROL, .. }) => {
                low_level::raise(SIGTSTP)?;
            }
            Event::Key(key) if !state.key(key) => return Ok(()),
            _ => {}
        }
    }
}
