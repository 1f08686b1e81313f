//! Reads the contexts of one projection with their values.

use crate::catalogue::Projection;
use crate::catalogue::code::Code;
use crate::catalogue::sql::{References, inconsistent};
use crate::catalogue::tree::{Call, Tree, TreeNode};
use crate::model::symbols::Kind;
use rusqlite::{Connection, Result};

pub(super) fn read(
    connection: &Connection,
    code: &Code,
    metrics: usize,
    projection: Projection,
) -> Result<Tree> {
    let (first, last): (i64, i64) = connection.query_row(
        "SELECT first, last FROM projection WHERE name = ?",
        [projection.name()],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let mut tree = Tree::new(metrics);
    read_nodes(connection, code, first, last, &mut tree)?;
    let contexts = References {
        first,
        count: tree.nodes.len(),
    };
    if code.has_loops() {
        read_loops(connection, contexts, code.loop_references(), &mut tree)?;
    }
    read_values(connection, contexts, metrics, &mut tree)?;
    Ok(tree)
}

fn read_nodes(
    connection: &Connection,
    code: &Code,
    first: i64,
    last: i64,
    tree: &mut Tree,
) -> Result<()> {
    let (file, procedure) = (code.file_references(), code.procedure_references());
    let mut query = connection.prepare(
        "SELECT id, parent, kind, procedure, support, file, line, call_file, call_line
         FROM context WHERE id BETWEEN ? AND ? ORDER BY id",
    )?;
    let mut rows = query.query([first, last])?;
    while let Some(row) = rows.next()? {
        let above = References {
            first,
            count: tree.nodes.len(),
        };
        if row.get::<_, i64>(0)?.checked_sub(first) != Some(tree.nodes.len() as i64) {
            return Err(inconsistent("context.id"));
        }
        tree.push(TreeNode {
            parent: above.optional(row.get(1)?)?,
            kind: Kind::from_number(row.get(2)?).ok_or_else(|| inconsistent("context.kind"))?,
            procedure: procedure.index(row.get(3)?)?,
            location: file.location(row, 5)?,
            call: file.location(row, 7)?.map_or(Call::Unknown, Call::Unique),
            is_runtime: row.get(4)?,
            recursion: 1,
            parallel_loop: None,
        });
    }
    Ok(())
}

/// Which contexts are frames of parallel loops.
fn read_loops(
    connection: &Connection,
    contexts: References,
    loops: References,
    tree: &mut Tree,
) -> Result<()> {
    let sql = "SELECT context, parallel_loop FROM machinery WHERE context BETWEEN ? AND ?";
    let mut query = connection.prepare(sql)?;
    let mut rows = query.query([contexts.first, contexts.last()])?;
    while let Some(row) = rows.next()? {
        let node = contexts.index(row.get(0)?)? as usize;
        tree.nodes[node].parallel_loop = Some(loops.index(row.get(1)?)?);
    }
    Ok(())
}

fn read_values(
    connection: &Connection,
    contexts: References,
    metrics: usize,
    tree: &mut Tree,
) -> Result<()> {
    let metrics = References {
        first: 0,
        count: metrics,
    };
    let sql = "SELECT context, metric, value FROM value WHERE context BETWEEN ? AND ?";
    let mut query = connection.prepare(sql)?;
    let mut rows = query.query([contexts.first, contexts.last()])?;
    while let Some(row) = rows.next()? {
        let node = contexts.index(row.get(0)?)?;
        let metric = metrics.index(row.get(1)?)? as usize;
        tree.exclusive.add_one(node, metric, row.get(2)?);
    }
    Ok(())
}
