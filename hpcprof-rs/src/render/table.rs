//! Tables of text: numbers on the right of their columns, then a text in what is left of the line.

use crate::render::names;
use crate::render::style::Style;
use std::io::{self, Write};

pub struct Table<'o> {
    out: &'o mut dyn Write,
    style: Style,
    widths: Vec<usize>,
}

impl<'o> Table<'o> {
    /// Begins with a line of the columns' titles, each with the width of its column, and that of the text.
    pub fn begin<T: AsRef<str>>(
        out: &'o mut dyn Write,
        style: Style,
        columns: &[(T, usize)],
        text: &str,
    ) -> io::Result<Table<'o>> {
        let widths = columns.iter().map(|(_, width)| *width).collect();
        let table = Table { out, style, widths };
        let titles = table.cells(columns.iter().map(|(title, _)| title.as_ref()));
        let line = format!("{titles}  {text}");
        writeln!(table.out, "{}", style.bold(line.trim_end()))?;
        Ok(table)
    }

    fn cells<T: AsRef<str>>(&self, cells: impl IntoIterator<Item = T>) -> String {
        let cells = cells.into_iter().zip(&self.widths);
        cells.map(|(cell, width)| format!("{:>width$}", cell.as_ref())).collect()
    }

    /// A row. `text` gets the columns that are left for it.
    pub fn row<T: AsRef<str>>(
        &mut self,
        cells: impl IntoIterator<Item = T>,
        text: impl FnOnce(usize) -> String,
    ) -> io::Result<()> {
        self.marked(cells, "  ", text)
    }

    /// A row with a mark before its text.
    pub fn marked<T: AsRef<str>>(
        &mut self,
        cells: impl IntoIterator<Item = T>,
        mark: &str,
        text: impl FnOnce(usize) -> String,
    ) -> io::Result<()> {
        let cells = self.cells(cells);
        let room = self.style.line.saturating_sub(cells.chars().count() + mark.chars().count());
        let line = format!("{cells}{mark}{}", text(room));
        writeln!(self.out, "{}", line.trim_end())
    }

    /// A row with a name, which keeps at least some columns.
    pub fn named<T: AsRef<str>>(
        &mut self,
        cells: impl IntoIterator<Item = T>,
        name: &str,
        least: usize,
    ) -> io::Result<()> {
        self.row(cells, |room| names::middle(name, room.max(least)))
    }

    /// Says how many rows are left out, if any are.
    pub fn more(&mut self, rows: usize) -> io::Result<()> {
        match rows {
            0 => Ok(()),
            more => self.row(["…"], |_| format!("{more} more")),
        }
    }

    /// A line in bold.
    pub fn title(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{}", self.style.bold(line))
    }

    /// A line in faint colour.
    pub fn remark(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{}", self.style.faint(line))
    }
}
