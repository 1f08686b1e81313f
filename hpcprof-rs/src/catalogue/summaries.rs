//! Reads the views that a database has ready.

use crate::catalogue::Catalogue;
use crate::catalogue::code::{self, SCOPE_COLUMNS};
use crate::catalogue::sql::inconsistent;
use crate::error::Result;
use crate::model::tree::{Label, Tree, TreeNode};
use rusqlite::{Connection, Result as SqlResult};

impl Catalogue {
    /// The stored view with a name.
    pub fn summary(&self, view: &str) -> Result<Tree> {
        self.query(|connection| self.read_summary(connection, view))
    }

    fn read_summary(&self, connection: &Connection, view: &str) -> SqlResult<Tree> {
        let mut summary = Tree::new(self.metrics.len());
        let sql = format!(
            "SELECT n.id, n.parent, n.recursion, n.nodes, n.scope, {SCOPE_COLUMNS}
             FROM summary n LEFT JOIN scope s ON s.id = n.scope WHERE n.view = ? ORDER BY n.id"
        );
        let mut query = connection.prepare(&sql)?;
        let mut rows = query.query([view])?;
        let mut ids: Vec<i64> = Vec::new();
        while let Some(row) = rows.next()? {
            let parent: Option<i64> = row.get(1)?;
            let known =
                |id: i64| ids.binary_search(&id).map_err(|_| inconsistent("summary.parent"));
            let parent = parent.map(known).transpose()?.map(|p| p as u32);
            let node = match row.get::<_, Option<i64>>(4)? {
                Some(_) => code::scope(row, 5, &self.code)?,
                None => TreeNode::new(None, Label::Pruned(row.get(3)?)),
            };
            summary.push(TreeNode { parent, recursion: row.get(2)?, ..node });
            ids.push(row.get(0)?);
        }
        let sql = "SELECT summary, metric, value FROM summary_value
            WHERE summary BETWEEN ? AND ?";
        let mut query = connection.prepare(sql)?;
        let mut rows = query.query([ids.first(), ids.last()])?;
        while let Some(row) = rows.next()? {
            let node = ids.binary_search(&row.get(0)?);
            let node = node.map_err(|_| inconsistent("summary_value.summary"))?;
            let metric = self.metric_at(row.get(1)?)?;
            summary.exclusive.add_one(node as u32, metric, row.get(2)?);
        }
        Ok(summary)
    }
}
