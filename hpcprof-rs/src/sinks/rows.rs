//! Inserts many rows into a table of the catalogue. A statement inserts several of them, as executing one
//! costs about as much as a row.

use rusqlite::types::{ToSqlOutput, Value};
use rusqlite::{Connection, Result, ToSql};

/// Parameters of a statement, at most.
const PARAMETERS: usize = 512;

/// Inserts a row of a table for each of `items`. `add` gets an item with its number, from 1.
pub(super) fn insert<T>(
    connection: &Connection,
    table: &'static str,
    items: impl IntoIterator<Item = T>,
    mut add: impl FnMut(&mut Rows<'_>, i64, T) -> Result<()>,
) -> Result<()> {
    let mut rows = Rows::new(connection, table);
    for (number, item) in (1..).zip(items) {
        add(&mut rows, number, item)?;
    }
    rows.end()
}

pub(super) struct Rows<'c> {
    connection: &'c Connection,
    table: &'static str,
    /// Values of a row.
    width: usize,
    /// Values of rows that are not yet inserted.
    waiting: Vec<Value>,
}

impl<'c> Rows<'c> {
    pub(super) fn new(connection: &'c Connection, table: &'static str) -> Rows<'c> {
        Rows { connection, table, width: 0, waiting: Vec::new() }
    }

    /// Inserts a row, maybe with later ones. All have as many values.
    pub(super) fn add(&mut self, row: &[&dyn ToSql]) -> Result<()> {
        self.width = row.len();
        for value in row {
            self.waiting.push(match value.to_sql()? {
                ToSqlOutput::Owned(value) => value,
                ToSqlOutput::Borrowed(value) => value.into(),
                _ => unreachable!("numbers and texts are one of these"),
            });
        }
        if self.waiting.len() + self.width > PARAMETERS { self.insert() } else { Ok(()) }
    }

    /// Inserts the rows that are left.
    pub(super) fn end(mut self) -> Result<()> {
        if self.waiting.is_empty() { Ok(()) } else { self.insert() }
    }

    fn insert(&mut self) -> Result<()> {
        let row = format!("({})", vec!["?"; self.width].join(","));
        let rows = vec![row; self.waiting.len() / self.width].join(",");
        let sql = format!("INSERT INTO {} VALUES {rows}", self.table);
        let mut statement = self.connection.prepare_cached(&sql)?;
        for (index, value) in (1..).zip(self.waiting.drain(..)) {
            statement.raw_bind_parameter(index, value)?;
        }
        statement.raw_execute().map(drop)
    }
}
