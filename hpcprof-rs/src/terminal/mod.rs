//! The reports in a terminal: a tree of contexts that expands, its source, and what other commands print.
//!
//! [`state`] says what a key does and what is shown, [`draw`] paints that, `pane` is a tree of which only
//! rows on the screen are made. This file has the terminal itself, which is left as it was found: at the end,
//! on an error, a panic, SIGINT or SIGTERM. SIGHUP keeps its default: the viewer ends with its terminal.

pub mod draw;
mod pane;
pub mod state;

use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use state::{Report, State};
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a signal may wait for the end of a pause between keys.
const PAUSE: Duration = Duration::from_millis(200);

/// Shows a database until the user leaves.
pub fn show(catalogue: &Catalogue, report: &Report<'_>) -> Result<()> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let problem = "tui needs a terminal: elsewhere `hpcprof-rs top-down` prints the same";
        return Err(Error::Usage(problem.to_owned()));
    }
    // What cannot be read is said on the screen that the user has.
    let mut state = State::new(catalogue, report)?;
    let ended = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM] {
        flag::register_usize(signal, Arc::clone(&ended), signal as usize).map_err(Error::output)?;
    }
    let result = ratatui::try_init().and_then(|mut screen| watch(&mut screen, &mut state, &ended));
    ratatui::restore();
    match ended.load(Ordering::Relaxed) {
        0 => result,
        signal => low_level::emulate_default_handler(signal as i32),
    }
    .map_err(Error::output)
}

/// Paints and takes keys until one of them, or a signal, ends it.
fn watch(screen: &mut DefaultTerminal, state: &mut State<'_>, ended: &AtomicUsize) -> io::Result<()> {
    loop {
        screen.draw(|frame| draw::draw(state, frame))?;
        while !event::poll(PAUSE)? {
            if ended.load(Ordering::Relaxed) != 0 {
                return Ok(());
            }
        }
        let is_key = |kind| matches!(kind, KeyEventKind::Press | KeyEventKind::Repeat);
        match event::read()? {
            Event::Key(key) if is_key(key.kind) && !state.key(key) => return Ok(()),
            _ => {}
        }
    }
}
