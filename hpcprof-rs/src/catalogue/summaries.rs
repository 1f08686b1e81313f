//! Reads the views that a database has ready.

use crate::catalogue::Catalogue;
use crate::catalogue::code::{SCOPE_COLUMNS, Scope};
use crate::catalogue::sql::inconsistent;
use crate::error::Result;
use crate::model::summary::{Summary, SummaryNode};
use rusqlite::{Connection, Result as SqlResult};

impl Catalogue {
    /// The stored view with a name.
    pub fn summary(&self, view: &str) -> Result<Summary> {
        self.query(|connection| self.read_summary(connection, view))
    }

    fn read_summary(&self, connection: &Connection, view: &str) -> SqlResult<Summary> {
        let mut summary = Summary::new(self.metrics.len());
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
            let scope: Option<i64> = row.get(4)?;
            let scope = scope.map(|_| Scope::read(row, 5, &self.code)).transpose()?;
            let recursion = row.get(2)?;
            let nodes = u64::try_from(row.get::<_, i64>(3)?);
            summary.push(SummaryNode {
                parent,
                context: scope.map(|scope| scope.node(parent, recursion)),
                nodes: nodes.map_err(|_| inconsistent("summary.nodes"))?,
            });
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
            summary.own.add_one(node as u32, metric, row.get(2)?);
        }
        Ok(summary)
    }
}
