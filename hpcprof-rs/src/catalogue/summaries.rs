//! Reads the views and the advice that a database has ready.

use crate::catalogue::Catalogue;
use crate::catalogue::sql::inconsistent;
use crate::error::Result;
use crate::model::advice::Advice;
use crate::model::tree::Tree;

impl Catalogue {
    pub fn advice(&self) -> Result<Advice> {
        self.query(|connection| {
            let json: String = connection.query_row("SELECT json FROM advice", [], |row| row.get(0))?;
            serde_json::from_str(&json).map_err(|_| inconsistent("advice.json"))
        })
    }

    /// The stored view with a name.
    pub fn summary(&self, view: &str) -> Result<Tree> {
        self.query(|connection| {
            let sql = "SELECT tree FROM summary WHERE view = ?";
            let json: String = connection.query_row(sql, [view], |row| row.get(0))?;
            let tree: Option<Tree> = serde_json::from_str(&json).ok();
            let tree = tree.filter(|tree| tree.is_sound(&self.code, self.metrics.len()));
            tree.ok_or_else(|| inconsistent("summary.tree"))
        })
    }
}
