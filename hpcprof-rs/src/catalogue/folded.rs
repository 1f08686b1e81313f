//! Reads the folded tree, one level at a time: a view reads what it shows, whatever the tree's size.

use crate::catalogue::Catalogue;
use crate::catalogue::code::{self, SCOPE_COLUMNS};
use crate::catalogue::sql::inconsistent;
use crate::error::Result;
use crate::model::tree::TreeNode;
use rusqlite::Result as SqlResult;

#[derive(Clone, PartialEq, Debug)]
pub struct FoldedContext {
    /// What it is. Its parent is not filled in.
    pub node: TreeNode,
    pub key: i64,
    pub inclusive: Vec<i64>,
    pub exclusive: Vec<i64>,
    /// Its row, and the last row below it.
    rows: (i64, i64),
}

impl FoldedContext {
    pub(super) fn row(&self) -> i64 {
        self.rows.0
    }

    /// How many contexts there are at and below it.
    pub fn contexts(&self) -> u32 {
        (self.rows.1 - self.rows.0) as u32 + 1
    }
}

impl Catalogue {
    /// The contexts that `parent` calls, or the roots, in the order of the tree.
    pub fn callees(&self, parent: Option<&FoldedContext>) -> Result<Vec<FoldedContext>> {
        self.query(|connection| {
            let (mut row, last) = match parent {
                Some(parent) => (parent.rows.0 + 1, parent.rows.1),
                None => {
                    let sql = "SELECT COALESCE(MAX(id), 0) FROM context";
                    (1, connection.query_row(sql, [], |row| row.get(0))?)
                }
            };
            let mut callees = Vec::new();
            while row <= last {
                let context = self.folded_context(row, last)?;
                row = context.rows.1 + 1;
                callees.push(context);
            }
            Ok(callees)
        })
    }

    pub fn totals(&self) -> Result<Vec<i64>> {
        self.query(|connection| {
            let mut totals = vec![0; self.metrics.len()];
            let mut query = connection.prepare_cached("SELECT metric, value FROM total")?;
            let mut rows = query.query([])?;
            while let Some(row) = rows.next()? {
                totals[self.metric_at(row.get(0)?)?] = row.get(1)?;
            }
            Ok(totals)
        })
    }

    pub(super) fn metric_at(&self, id: i64) -> SqlResult<usize> {
        let metric = usize::try_from(id).ok();
        let metric = metric.filter(|m| *m < self.metrics.len());
        metric.ok_or_else(|| inconsistent("a metric"))
    }

    /// The context in a row. `last` is the last row below its parent.
    fn folded_context(&self, row: i64, last: i64) -> SqlResult<FoldedContext> {
        let sql = format!(
            "SELECT c.last, c.recursion, c.key, {SCOPE_COLUMNS}
             FROM context c JOIN scope s ON s.id = c.scope WHERE c.id = ?"
        );
        let mut query = self.connection.prepare_cached(&sql)?;
        let (own_last, node, key) = query.query_row([row], |found| {
            let node = code::scope(found, 3, &self.code)?;
            let node = TreeNode { recursion: found.get(1)?, ..node };
            Ok((found.get::<_, i64>(0)?, node, found.get(2)?))
        })?;
        if own_last < row || own_last > last {
            return Err(inconsistent("context.last"));
        }
        let (mut inclusive, mut exclusive) = (vec![0; self.metrics.len()], vec![0; self.metrics.len()]);
        let sql = "SELECT metric, inclusive, exclusive FROM value WHERE context = ?";
        let mut query = self.connection.prepare_cached(sql)?;
        let mut rows = query.query([row])?;
        while let Some(found) = rows.next()? {
            let metric = self.metric_at(found.get(0)?)?;
            inclusive[metric] = found.get(1)?;
            exclusive[metric] = found.get(2)?;
        }
        Ok(FoldedContext { node, key, inclusive, exclusive, rows: (row, own_last) })
    }
}
