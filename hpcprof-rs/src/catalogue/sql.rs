//! Reads rows whose ids count without gaps, and checks references to them.

use crate::model::tree::SourceLocation;
use rusqlite::{Connection, Error, Result, Row};

pub(super) fn inconsistent(what: &str) -> Error {
    Error::InvalidColumnName(format!("{what} has an impossible value"))
}

/// All rows of a query. The first column is an id; ids count from `first`.
pub(super) fn rows<T>(
    connection: &Connection,
    sql: &str,
    first: i64,
    mut read: impl FnMut(&Row<'_>) -> Result<T>,
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

/// The rows that a column may refer to.
#[derive(Clone, Copy)]
pub(super) struct References {
    first: i64,
    count: usize,
}

impl References {
    /// To a table whose ids count from 1.
    pub(super) fn to<T>(table: &[T]) -> References {
        References { first: 1, count: table.len() }
    }

    /// To the rows before one.
    pub(super) fn before(id: i64) -> References {
        References { first: 1, count: id as usize - 1 }
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
        Ok(self.optional(row.get(file)?)?.map(|file| SourceLocation { file, line: line.unwrap_or(0) }))
    }
}
