//! Reads the folded tree: one level at a time for what shows a part of it, whatever its size, or all of it.

use crate::catalogue::Catalogue;
use crate::catalogue::code::{self, SCOPE_COLUMNS};
use crate::catalogue::column::Column;
use crate::catalogue::contexts::index;
use crate::catalogue::files::DataFile;
use crate::catalogue::sql::{References, inconsistent, rows};
use crate::error::Result;
use crate::model::tree::{Tree, TreeNode, Values};
use crate::schema;
use parquet::data_type::{Int32Type, Int64Type};
use parquet::errors::Result as ParquetResult;
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

    /// All of it.
    pub fn folded(&self) -> Result<Tree> {
        let nodes = self.each_context(|node, _, _| node)?;
        let own: Vec<u32> = (0..nodes.len() as u32).collect();
        Ok(Tree { exclusive: self.folded_sums(&own, nodes.len())?, nodes })
    }

    /// The exclusive values of all of its contexts, added up in `sums` sums. `of` has the sum of each.
    pub fn folded_sums(&self, of: &[u32], sums: usize) -> Result<Values> {
        let mut values = Values::of_nodes(self.metrics.len(), sums);
        let files = self.files(schema::CONTEXTS, schema::LOGICAL_FILE)?;
        self.each_folded(&files, of.len(), self.metrics.len(), |context, metric, amount| {
            values.add_one(of[context as usize], metric, amount);
        })?;
        match values.totals() == self.totals()? {
            true => Ok(values),
            false => Err(self.unreadable(schema::CONTEXTS, "the values do not add up to the totals")),
        }
    }

    /// What `read` makes of each of its contexts, the last row below it, and its key.
    pub fn each_context<T>(&self, mut read: impl FnMut(TreeNode, i64, i64) -> T) -> Result<Vec<T>> {
        self.query(|connection| {
            let scopes = code::read_scopes(connection, &self.code)?;
            let of_scopes = References::to(&scopes);
            let sql = "SELECT id, parent, scope, recursion, last, key FROM context ORDER BY id";
            rows(connection, sql, 1, |row| {
                let parent = References::before(row.get(0)?).optional(row.get(1)?)?;
                let scope = of_scopes.index(row.get(2)?)?;
                let node = TreeNode { parent, recursion: row.get(3)?, ..scopes[scope as usize] };
                Ok(read(node, row.get(4)?, row.get(5)?))
            })
        })
    }

    /// Adds the exclusive values of some runs, of the first metrics: with each the context of the folded tree
    /// that has it, by number, and the metric.
    pub(super) fn each_folded(
        &self,
        files: &[DataFile],
        contexts: usize,
        metrics: usize,
        mut add: impl FnMut(u32, usize, i64),
    ) -> Result<()> {
        self.each_group(schema::CONTEXTS, files, |group| {
            let folded = Column::<Int32Type>::optional(group, "folded")?;
            let numbers = folded.rows().map(|id| id.map(|id| index(id, contexts)).transpose());
            let numbers: Vec<Option<u32>> = numbers.collect::<ParquetResult<_>>()?;
            for (position, metric) in self.metrics.iter().enumerate().take(metrics) {
                let amounts = Column::<Int64Type>::required(group, &metric.name)?;
                let known = numbers.iter().zip(&amounts.values).filter(|(_, amount)| **amount != 0);
                known.for_each(|(row, amount)| row.iter().for_each(|row| add(*row, position, *amount)));
            }
            Ok(())
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
