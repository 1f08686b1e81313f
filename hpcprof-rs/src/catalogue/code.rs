//! Reads the tables of names: load modules, source files, procedures, parallel loops, scopes.

use crate::catalogue::sql::{References, inconsistent, rows};
use crate::model::code::{Code, Module, ParallelLoop, Procedure, SplitCounts};
use crate::model::symbols::Kind;
use crate::model::tree::{Call, SourceLocation, TreeNode};
use hpc_formats::structure::Origin;
use rusqlite::{Connection, Result, Row};

/// Reads all names.
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
    let mut procedures = read("procedure", "0")?;
    let procedure_count = procedures.len();
    let loops = read_loops(connection, References::to(&procedures), file)?;
    procedures.extend(read("region", "position")?);
    Ok(Code { files, modules, procedures, procedure_count, loops })
}

fn read_loops(
    connection: &Connection,
    procedure: References,
    file: References,
) -> Result<Vec<ParallelLoop>> {
    let sql =
        "SELECT id, name, quoted, entry, file, line, splits, steals, stolen_ns, shared_by, task_ns,
            executions, outside
        FROM parallel_loop ORDER BY id";
    rows(connection, sql, 1, |row| {
        let count = |column| row.get::<_, Option<i64>>(column);
        let (splits, steals, stolen_ns) = (count(6)?, count(7)?, count(8)?);
        let (executions, outside) = (count(11)?.unwrap_or(0), count(12)?.unwrap_or(0));
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
            }),
            shared_by: row.get(9)?,
            task_ns: row.get(10)?,
        })
    })
}

/// What contexts of a scope are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Scope {
    kind: Kind,
    procedure: u32,
    parallel_loop: Option<u32>,
    location: Option<SourceLocation>,
    call: Call,
    is_runtime: bool,
}

/// The columns that [`Scope::read`] reads, of a table or join with the alias `s`.
pub(super) const SCOPE_COLUMNS: &str = "s.kind, s.procedure, s.region, s.parallel_loop, s.file, s.line, \
    s.call_file, s.call_line, s.calls, s.is_runtime";

impl Scope {
    /// Reads the [`SCOPE_COLUMNS`] of a row from column `first` on.
    pub(super) fn read(row: &Row<'_>, first: usize, code: &Code) -> Result<Scope> {
        let (procedures, regions) = code.procedures.split_at(code.procedure_count);
        let file = References::to(&code.files);
        let kind = row.get_ref(first)?.as_str()?;
        let procedure = References::to(procedures).optional(row.get(first + 1)?)?;
        let region = References::to(regions).optional(row.get(first + 2)?)?;
        let region = region.map(|r| r + code.procedure_count as u32);
        let parallel_loop = References::to(&code.loops).optional(row.get(first + 3)?)?;
        let entry = parallel_loop.map(|index| code.parallel_loop(index).entry);
        let calls: Option<String> = row.get(first + 8)?;
        Ok(Scope {
            kind: Kind::from_name(kind).ok_or_else(|| inconsistent("scope.kind"))?,
            procedure: region
                .or(entry)
                .or(procedure)
                .ok_or_else(|| inconsistent("scope.procedure"))?,
            parallel_loop,
            location: file.location(row, first + 4)?,
            call: match (calls.as_deref(), file.location(row, first + 6)?) {
                (Some("several"), _) => Call::Several,
                (_, Some(location)) => Call::Unique(location),
                (_, None) => Call::Unknown,
            },
            is_runtime: row.get(first + 9)?,
        })
    }

    /// A context of this scope.
    pub(super) fn node(&self, parent: Option<u32>, recursion: u32) -> TreeNode {
        TreeNode {
            parent,
            kind: self.kind,
            procedure: self.procedure,
            location: self.location,
            call: self.call,
            is_runtime: self.is_runtime,
            parallel_loop: self.parallel_loop,
            recursion,
        }
    }
}

/// Reads all scopes.
pub(super) fn read_scopes(connection: &Connection, code: &Code) -> Result<Vec<Scope>> {
    let sql = format!("SELECT s.id, {SCOPE_COLUMNS} FROM scope s ORDER BY s.id");
    rows(connection, &sql, 1, |row| Scope::read(row, 1, code))
}
