//! Reads rows whose ids count without gaps, and checks references to them.

use crate::catalogue::tree::SourceLocation;
use rusqlite::{Connection, Error, Result, Row};

pub(super) fn inconsistent(what: &str) -> Error {
    Error::InvalidColumnName(format!("{what} has an impossible value"))
}

/// All rows of a query. The first column is an id; ids count from `first`.
pub(super) fn rows<T>(
    connection: &Connection,
    sql: &str,
    first: i64,
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut query = connection.prepare(sql)?;
    let mut rows = query.query([])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(0)?.checked_sub(first) != Some(out.len() as i64) {
            return Err(inconsistent("an id"));
        }
        out.push(read(row)?);
    }
    Ok(out)
}

/// The same of a table that databases of an older version lack; its ids count from 1.
pub(super) fn rows_if_any<T>(
    connection: &Connection,
    table: &str,
    sql: &str,
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    match has(connection, table, "id")? {
        true => rows(connection, sql, 1, read),
        false => Ok(Vec::new()),
    }
}

/// Whether there is a table with this column: databases of an older version lack some.
pub(super) fn has(connection: &Connection, table: &str, column: &str) -> Result<bool> {
    let sql = "SELECT COUNT(*) FROM pragma_table_info(?) WHERE name = ?";
    let count: i64 = connection.query_row(sql, [table, column], |row| row.get(0))?;
    Ok(count > 0)
}

/// The rows that a column may refer to.
#[derive(Clone, Copy)]
pub(super) struct References {
    pub(super) first: i64,
    pub(super) count: usize,
}

impl References {
    /// To a table whose ids count from 1.
    pub(super) fn to<T>(table: &[T]) -> References {
        References {
            first: 1,
            count: table.len(),
        }
    }

    /// The last id.
    pub(super) fn last(self) -> i64 {
        self.first.saturating_add(self.count as i64 - 1)
    }

    /// The index of the row with an id.
    pub(super) fn index(self, id: i64) -> Result<u32> {
        id.checked_sub(self.first)
            .and_then(|index| u32::try_from(index).ok())
            .filter(|index| (*index as usize) < self.count)
            .ok_or_else(|| inconsistent("a reference"))
    }

    /// The same where there may be none.
    pub(super) fn optional(self, id: Option<i64>) -> Result<Option<u32>> {
        id.map(|id| self.index(id)).transpose()
    }

    /// A location: columns `file`, which is such a reference, and `file + 1`, the line.
    pub(super) fn location(self, row: &Row<'_>, file: usize) -> Result<Option<SourceLocation>> {
        let line: Option<u32> = row.get(file + 1)?;
        Ok(self.optional(row.get(file)?)?.map(|file| SourceLocation {
            file,
            line: line.unwrap_or(0),
        }))
    }
}
