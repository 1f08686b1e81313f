//! Reads the tables of names: load modules, source files, procedures, parallel loops, scopes.

use crate::catalogue::sql::{References, inconsistent, rows};
use crate::model::code::{Code, Module, ParallelLoop, Procedure, SplitCounts};
use crate::model::symbols::Kind;
use crate::model::tree::{Call, Label, TreeNode};
use hpc_formats::structure::Origin;
use rusqlite::{Connection, Result, Row};

pub(super) fn read(connection: &Connection) -> Result<Code> {
    let sql = "SELECT id, path FROM file ORDER BY id";
    let files: Vec<String> = rows(connection, sql, 1, |row| row.get(1))?;
    let sql = "SELECT id, path, build_id, analysed FROM module ORDER BY id";
    let modules = rows(connection, sql, 1, |row| {
        Ok(Module { path: row.get(1)?, build_id: row.get(2)?, analysed: row.get(3)? })
    })?;
    let (file, module) = (References::to(&files), References::to(&modules));
    let read = |table: &str, position: &str| {
        let columns = format!("id, name, module, origin, file, line, {position}");
        let sql = format!("SELECT {columns} FROM {table} ORDER BY id");
        rows(connection, &sql, 1, |row| {
            let origin: String = row.get(3)?;
            Ok(Procedure {
                name: row.get(1)?,
                module: module.optional(row.get(2)?)?,
                declared: file.location(row, 4)?,
                origin: Origin::from_name(&origin).ok_or_else(|| inconsistent("an origin"))?,
                position: row.get(6)?,
            })
        })
    };
    let (procedures, regions) = (read("procedure", "0")?, read("region", "position")?);
    let loops = read_loops(connection, References::to(&procedures), file)?;
    Ok(Code { files, modules, procedures, regions, loops })
}

fn read_loops(connection: &Connection, procedure: References, file: References) -> Result<Vec<ParallelLoop>> {
    let sql = "SELECT id, name, quoted, entry, file, line, splits, steals, stolen_ns, shared_by, task_ns,
            executions, outside, chunks, iterations
        FROM parallel_loop ORDER BY id";
    rows(connection, sql, 1, |row| {
        let count = |column| row.get::<_, Option<i64>>(column);
        let (splits, steals, stolen_ns) = (count(6)?, count(7)?, count(8)?);
        let more = |column| Ok::<_, rusqlite::Error>(count(column)?.unwrap_or(0));
        let (executions, outside) = (more(11)?, more(12)?);
        let (chunks, iterations) = (more(13)?, more(14)?);
        Ok(ParallelLoop {
            name: row.get(1)?,
            quoted: row.get(2)?,
            entry: procedure.index(row.get(3)?)?,
            call: file.location(row, 4)?,
            counts: splits.map(|splits| SplitCounts {
                splits,
                steals: steals.unwrap_or(0),
                stolen_ns: stolen_ns.unwrap_or(0),
                executions,
                outside,
                chunks,
                iterations,
            }),
            shared_by: row.get(9)?,
            task_ns: row.get(10)?,
        })
    })
}

/// The columns that [`scope`] reads, of a table or join with the alias `s`.
pub(super) const SCOPE_COLUMNS: &str = "s.kind, s.procedure, s.region, s.parallel_loop, s.file, s.line, \
    s.call_file, s.call_line, s.calls, s.is_runtime";

/// Reads a context of the scope that the [`SCOPE_COLUMNS`] of a row from column `first` on tell.
pub(super) fn scope(row: &Row<'_>, first: usize, code: &Code) -> Result<TreeNode> {
    let file = References::to(&code.files);
    let kind = row.get_ref(first)?.as_str()?;
    let wrong = || inconsistent("scope.kind");
    let number = |column: usize, of: References| {
        of.optional(row.get(first + column)?)?.ok_or_else(|| inconsistent("scope.procedure"))
    };
    let procedure = || number(1, References::to(&code.procedures));
    let region = || number(2, References::to(&code.regions));
    let label = match Kind::from_name(kind).ok_or_else(wrong)? {
        Kind::Procedure => Label::Procedure(procedure()?),
        Kind::Inlined => Label::Inlined(procedure()?),
        Kind::Loop => Label::Loop(region()?),
        Kind::Partial => Label::Partial(region()?),
        Kind::Line => Label::Line(file.location(row, first + 4)?.ok_or_else(wrong)?),
        Kind::ParallelLoop => Label::ParallelLoop(number(3, References::to(&code.loops))?),
        Kind::Module | Kind::File | Kind::Pruned => return Err(wrong()),
    };
    let calls: Option<String> = row.get(first + 8)?;
    Ok(TreeNode {
        call: match (calls.as_deref(), file.location(row, first + 6)?) {
            (Some("several"), _) => Call::Several,
            (_, Some(location)) => Call::Unique(location),
            (_, None) => Call::Unknown,
        },
        is_runtime: row.get(first + 9)?,
        ..TreeNode::new(None, label)
    })
}

pub(super) fn read_scopes(connection: &Connection, code: &Code) -> Result<Vec<TreeNode>> {
    let sql = format!("SELECT s.id, {SCOPE_COLUMNS} FROM scope s ORDER BY s.id");
    rows(connection, &sql, 1, |row| scope(row, 1, code))
}
