//! Reads the critical paths of processes.

use crate::catalogue::sql::{References, inconsistent, rows};
use crate::catalogue::{Catalogue, damaged};
use crate::error::Result;
use crate::model::code::Code;
use crate::model::critical_path::{CriticalPath, Known, Procedure, Segment};
use crate::model::hash::FastMap;
use hpc_formats::critical_path::{Edge, Level, Near, Place, Quality, RankShare, Start};
use hpc_formats::process::program_name;
use hpc_formats::structure::Origin;
use rusqlite::{Connection, Result as SqlResult, Row};
use std::sync::Arc;

/// A process that tracked its critical path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrackedProcess {
    /// Its id in the database.
    id: i64,
    /// Key of its run.
    pub run: String,
    /// Name of its host; empty if unknown.
    pub host: String,
    /// The process's id on its host.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// Cores that it may use; at least 1.
    pub cores: u32,
    /// The length of its path, nanoseconds.
    pub span: u64,
}

impl Catalogue {
    /// The processes that tracked their critical paths, the longest path first.
    pub fn tracked_processes(&self) -> Result<Vec<TrackedProcess>> {
        read_processes(&self.connection).map_err(|e| damaged(&self.path, &e))
    }

    /// The critical path of a process.
    pub fn critical_path(&self, process: &TrackedProcess) -> Result<CriticalPath> {
        read(&self.connection, &self.code, process.id).map_err(|e| damaged(&self.path, &e))
    }
}

fn read_processes(connection: &Connection) -> SqlResult<Vec<TrackedProcess>> {
    let sql =
        "SELECT p.id, r.key, h.name, p.pid, p.executable, p.cores, c.span_ns FROM critical_path c
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
        })
    })?;
    processes.collect()
}

fn read(connection: &Connection, code: &Code, process: i64) -> SqlResult<CriticalPath> {
    let sql = "SELECT complete, work_ns, span_ns, burdened_span_ns, wall_ns, spawn_cost_ns, message_cost_ns,
        resyncs, exact_edges, woken_edges, span_at_least_ns, grains FROM critical_path WHERE process = ?";
    let mut path = connection.query_row(sql, [process], |row| {
        Ok(CriticalPath {
            complete: row.get(0)?,
            work: row.get(1)?,
            span: row.get(2)?,
            burdened_span: row.get(3)?,
            span_at_least: row.get(10)?,
            wall: row.get(4)?,
            spawn_cost: row.get(5)?,
            message_cost: row.get(6)?,
            quality: Quality {
                resyncs: row.get(7)?,
                exact_edges: row.get(8)?,
                woken_edges: row.get(9)?,
                grains: row.get(11)?,
                lost_edges: Vec::new(),
            },
            ..CriticalPath::default()
        })
    })?;
    let sql = "SELECT cores, time_ns, work_ns FROM path_level WHERE process = ? ORDER BY cores";
    let mut query = connection.prepare(sql)?;
    let levels = query.query_map([process], |row| {
        Ok(Level { cores: row.get(0)?, time: row.get(1)?, work: row.get(2)? })
    })?;
    path.levels = levels.collect::<SqlResult<_>>()?;
    let sql = "SELECT id, name, module, file, line FROM path_place ORDER BY id";
    let places = rows(connection, sql, 1, |row| Ok(Arc::new(place(row, 1)?)))?;
    let references = References::to(&places);
    let at = |row: &Row<'_>, column: usize| -> SqlResult<Arc<Place>> {
        let index = references.index(row.get(column)?)?;
        Ok(Arc::clone(&places[index as usize]))
    };
    let sql = "SELECT edge, thread, time_ns, count, begin_place, end_place, rank FROM path_segment";
    path.segments = of(connection, sql, process, |row| {
        Ok(Segment {
            edge: edge(row)?,
            thread: row.get(1)?,
            time: row.get(2)?,
            count: row.get(3)?,
            begin: at(row, 4)?,
            end: at(row, 5)?,
            rank: row.get(6)?,
        })
    })?;
    let sql = "SELECT place, work_ns, on_path_ns, zeroed_span_ns FROM path_procedure";
    path.procedures = of(connection, sql, process, |row| {
        Ok(Procedure {
            name: Known { place: at(row, 0)?, is_user: true },
            work: row.get(1)?,
            on_path: row.get(2)?,
            zeroed_span: row.get(3)?,
        })
    })?;
    let mut by_place: FastMap<Arc<Place>, &mut bool> = FastMap::default();
    for Procedure { name, .. } in &mut path.procedures {
        by_place.insert(Arc::clone(&name.place), &mut name.is_user);
    }
    for (procedure, place) in code.procedures.iter().zip(declared(code)) {
        if let Some(is_user) = by_place.get_mut(&place) {
            **is_user = procedure.origin == Origin::User;
        }
    }
    let sql = "SELECT thread, time_ns, slack_ns, begin_place, end_place FROM path_branch";
    path.near = of(connection, sql, process, |row| {
        Ok(Near {
            thread: row.get(0)?,
            time: row.get(1)?,
            slack: row.get(2)?,
            begin: at(row, 3)?,
            end: at(row, 4)?,
        })
    })?;
    let sql = "SELECT edge, first_ns, count, time_ns, beside_ns, place FROM path_start";
    path.starts = of(connection, sql, process, |row| {
        Ok(Start {
            edge: edge(row)?,
            first: row.get(1)?,
            count: row.get(2)?,
            time: row.get(3)?,
            beside: row.get(4)?,
            place: at(row, 5)?,
        })
    })?;
    let sql = "SELECT rank, work_ns, on_path_ns FROM path_rank";
    path.ranks = of(connection, sql, process, |row| {
        Ok(RankShare { rank: row.get(0)?, work: row.get(1)?, on_path: row.get(2)? })
    })?;
    let sql = "SELECT cause, edges FROM lost_edge WHERE process = ? ORDER BY edges DESC, cause";
    let mut query = connection.prepare(sql)?;
    let lost = query.query_map([process], |row| Ok((row.get(0)?, row.get(1)?)))?;
    path.quality.lost_edges = lost.collect::<SqlResult<_>>()?;
    Ok(path)
}

/// The spans of the longest path without procedures, by procedure. Of several instances of a generic
/// procedure it is the one that gains most: all together gain no less.
pub(super) fn zeroed_spans(connection: &Connection, code: &Code) -> SqlResult<FastMap<u32, i64>> {
    let sql = "SELECT l.name, l.module, l.file, l.line, p.zeroed_span_ns FROM path_procedure p
        JOIN path_place l ON l.id = p.place
        WHERE p.process = (SELECT process FROM critical_path ORDER BY span_ns DESC, process LIMIT 1)";
    let mut query = connection.prepare(sql)?;
    let mut rows = query.query([])?;
    let mut by_place: FastMap<Place, i64> = FastMap::default();
    while let Some(row) = rows.next()? {
        let span = row.get(4)?;
        let known = by_place.entry(place(row, 0)?).or_insert(span);
        *known = span.min(*known);
    }
    if by_place.is_empty() {
        return Ok(FastMap::default());
    }
    let spans = (0..)
        .zip(declared(code))
        .filter_map(|(index, place)| Some((index, *by_place.get(&place)?)));
    Ok(spans.collect())
}

/// Where the procedures are declared.
fn declared(code: &Code) -> impl Iterator<Item = Place> {
    code.procedures.iter().map(|procedure| {
        let declared = procedure.declared;
        Place {
            name: procedure.name.clone(),
            module: code.module_of(procedure).unwrap_or_default().to_owned(),
            file: declared.map_or("", |at| code.file(at.file)).to_owned(),
            line: declared.map_or(0, |at| at.line),
        }
    })
}

/// The edge in a row's first column.
fn edge(row: &Row<'_>) -> SqlResult<Edge> {
    let name = row.get_ref(0)?.as_str()?;
    Edge::from_name(name).ok_or_else(|| inconsistent("an edge's name"))
}

/// The place in four columns of a row.
fn place(row: &Row<'_>, first: usize) -> SqlResult<Place> {
    Ok(Place {
        name: row.get(first)?,
        module: row.get(first + 1)?,
        file: row.get(first + 2)?,
        line: row.get(first + 3)?,
    })
}

/// The rows of a process in their order.
fn of<T>(
    connection: &Connection,
    sql: &str,
    process: i64,
    read: impl FnMut(&Row<'_>) -> SqlResult<T>,
) -> SqlResult<Vec<T>> {
    let mut query = connection.prepare(&format!("{sql} WHERE process = ? ORDER BY id"))?;
    query.query_map([process], read)?.collect()
}
