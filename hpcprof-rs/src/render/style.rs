//! How text is printed: the width of the screen, and colours.

use std::io::{self, IsTerminal};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Columns of the screen.
    pub width: usize,
    /// Columns that a line of a tree may take. Where there is no screen, names are not cut.
    pub line: usize,
    pub colour: bool,
}

impl Style {
    /// For standard output. Its width is the terminal's, else that in `COLUMNS` if it is set. It has colours
    /// on a terminal, unless `NO_COLOR` is set and not empty.
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

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// `text` within the ANSI sequence `code`.
    pub fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
