//! Reads the critical paths of processes.

use crate::catalogue::Catalogue;
use crate::catalogue::sql::inconsistent;
use crate::error::Result;
use crate::model::code::{Code, Procedure};
use crate::model::critical_path::{self, CriticalPath};
use crate::model::hash::FastMap;
use hpc_formats::critical_path::Place;
use hpc_formats::process::program_name;
use rusqlite::{Connection, Result as SqlResult};
use std::sync::Arc;

/// A process that tracked its critical path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrackedProcess {
    id: i64,
    /// Key of its run.
    pub run: String,
    /// Name of its host; empty if unknown.
    pub host: String,
    pub pid: u32,
    pub program: String,
    /// Cores that it may use; at least 1.
    pub cores: u32,
    /// Threads that it had, one after the other or at once.
    pub threads: u32,
    /// The length of its path, nanoseconds.
    pub span: u64,
}

impl Catalogue {
    /// The processes that tracked their critical paths, the longest path first.
    pub fn tracked_processes(&self) -> Result<Vec<TrackedProcess>> {
        self.query(read_processes)
    }

    pub fn critical_path(&self, process: &TrackedProcess) -> Result<CriticalPath> {
        self.query(|connection| read(connection, process.id))
    }
}

fn read_processes(connection: &Connection) -> SqlResult<Vec<TrackedProcess>> {
    let sql =
        "SELECT p.id, r.key, h.name, p.pid, p.executable, p.cores, c.span_ns, p.threads FROM critical_path c
        JOIN process p ON p.id = c.process JOIN run r ON r.id = p.run JOIN host h ON h.id = r.host
        ORDER BY c.span_ns DESC, p.id";
    let mut query = connection.prepare(sql)?;
    let processes = query.query_map([], |row| {
        Ok(TrackedProcess {
            id: row.get(0)?,
            run: row.get(1)?,
            host: row.get(2)?,
            pid: row.get(3)?,
            program: program_name(&row.get::<_, String>(4)?).to_owned(),
            cores: row.get::<_, u32>(5)?.max(1),
            span: row.get(6)?,
            threads: row.get(7)?,
        })
    })?;
    processes.collect()
}

fn read(connection: &Connection, process: i64) -> SqlResult<CriticalPath> {
    let sql = "SELECT path FROM critical_path WHERE process = ?";
    let json: String = connection.query_row(sql, [process], |row| row.get(0))?;
    critical_path::decode(&json).ok_or_else(|| inconsistent("critical_path.path"))
}

/// The spans of the longest path without procedures, by procedure. Of several instances of a generic
/// procedure it is the one that gains most: all together gain no less.
pub(super) fn zeroed_spans(connection: &Connection, code: &Code) -> SqlResult<FastMap<u32, i64>> {
    let processes = read_processes(connection)?;
    let Some(longest) = processes.first() else {
        return Ok(FastMap::default());
    };
    let mut by_place: FastMap<Arc<Place>, u64> = FastMap::default();
    for procedure in read(connection, longest.id)?.procedures {
        let span = by_place.entry(procedure.name.place).or_insert(u64::MAX);
        *span = procedure.zeroed_span.min(*span);
    }
    let place = |procedure: &Procedure| {
        let declared = procedure.declared;
        Place {
            name: procedure.name.clone(),
            module: code.module_of(procedure).unwrap_or_default().to_owned(),
            file: declared.map_or("", |at| code.file(at.file)).to_owned(),
            line: declared.map_or(0, |at| at.line),
        }
    };
    let spans = (0..).zip(&code.procedures);
    let spans = spans.filter_map(|(index, p)| Some((index, *by_place.get(&place(p))? as i64)));
    Ok(spans.collect())
}
