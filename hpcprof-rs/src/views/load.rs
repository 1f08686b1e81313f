//! Reads a database: tables of names at once, the contexts of one projection on demand.
//!
//! The file may come from anywhere: its identity and version are checked first, and every
//! reference between tables is checked as it is read.

use crate::error::{Error, Result};
use crate::model::symbols::Kind;
use crate::sinks::schema;
use crate::views::tree::{Call, Place, Tree, TreeNode};
use hpc_formats::structure::Origin;
use rusqlite::{Connection, OpenFlags, Row};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const REBUILD: &str = "build it again with `hpcprof-rs MEASUREMENTS`";

/// Which call paths a view shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Projection {
    /// User-level frames: stolen tasks below their spawner.
    Logical,
    /// Machine frames as they lay on the threads' stacks.
    Physical,
}

impl Projection {
    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Projection::Logical => "logical",
            Projection::Physical => "physical",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Projection::Logical => schema::LOGICAL,
            Projection::Physical => schema::PHYSICAL,
        }
    }
}

/// A procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcedureRow {
    /// Its name.
    pub name: String,
    /// Index of its module.
    pub module: Option<u32>,
    /// Its declaration.
    pub declared: Option<Place>,
    /// Whose code it is.
    pub origin: Origin,
}

/// A parallel loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopRow {
    /// What it is called.
    pub name: String,
    /// The procedure by which the program enters the library, by index.
    pub entry: u32,
    /// Where it is called.
    pub call: Option<Place>,
    /// Splits, steals and the time in stolen tasks, nanoseconds; `None` when they were not counted.
    pub counts: Option<(i64, i64, i64)>,
    /// How many loops share the counts.
    pub shared_by: u32,
    /// Work and overhead of the loops that share the counts, nanoseconds.
    pub task_ns: i64,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // as in the schema
pub struct ProcessRow {
    pub pid: u32,
    pub image: i64,
    pub executable: String,
    pub arguments: Vec<String>,
    pub event: String,
    pub period_ns: i64,
    pub cores: u32,
    pub threads: u32,
    pub end_ns: i64,
    pub end_reason: Option<String>,
    /// The run that it is of: only processes of one run share a clock.
    pub run: i64,
    /// CPU time of the process; 0 when unknown.
    pub cpu_ns: i64,
    pub estimated_wait_ns: i64,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // as in the schema
pub struct ThreadRow {
    /// Its process, by index.
    pub process: u32,
    pub samples: i64,
    pub idle_ns: i64,
    pub oversubscribed_ns: i64,
    /// Work and overhead that it recorded.
    pub working_ns: i64,
    /// Idleness that it recorded.
    pub idleness_ns: i64,
}

/// Programs that ran unprofiled.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // as in the schema
pub struct UnprofiledRow {
    pub program: String,
    pub reason: String,
    pub times: i64,
}

/// A database, without its contexts.
#[derive(Debug)]
pub struct Database {
    /// The directory.
    pub path: PathBuf,
    /// Metric names by index.
    pub metrics: Vec<String>,
    /// Source files by index.
    pub files: Vec<String>,
    /// Module paths by index.
    pub modules: Vec<String>,
    /// Procedures by index.
    pub procedures: Vec<ProcedureRow>,
    /// Parallel loops by index.
    pub loops: Vec<LoopRow>,
    /// Processes.
    pub processes: Vec<ProcessRow>,
    /// Threads.
    pub threads: Vec<ThreadRow>,
    /// Lost and partial samples by cause.
    pub losses: BTreeMap<String, i64>,
    /// Samples in tasks whose spawner the task runtime does not tell, by runtime.
    pub spawnerless: BTreeMap<String, i64>,
    /// CPU time that no sample stands for, nanoseconds, with what it is of.
    pub missing: Vec<(String, i64)>,
    /// Programs that ran unprofiled.
    pub unprofiled: Vec<UnprofiledRow>,
    /// Warnings of the build.
    pub notes: Vec<String>,
    connection: Connection,
}

/// The directory and the file of a database, given either.
pub fn database_file(path: &Path) -> PathBuf {
    if path.is_dir() {
        path.join(schema::FILE_NAME)
    } else {
        path.to_owned()
    }
}

impl Database {
    /// Opens a database directory (or the file in it).
    pub fn open(path: &Path) -> Result<Database> {
        let file = database_file(path);
        if !file.is_file() {
            return Err(Error::Input {
                path: path.to_owned(),
                problem: if path.exists() {
                    format!("is not a database (no {} in it)", schema::FILE_NAME)
                } else {
                    "does not exist".to_owned()
                },
                remedy: "give the database directory that `hpcprof-rs MEASUREMENTS` wrote",
            });
        }
        let bad = |e: rusqlite::Error| damaged(path, &e);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&file, flags).map_err(bad)?;
        let pragma = |name: &str| {
            connection.query_row(&format!("PRAGMA {name}"), [], |r| r.get::<_, i64>(0))
        };
        if pragma("application_id").map_err(bad)? != schema::APPLICATION_ID {
            return Err(Error::Input {
                path: path.to_owned(),
                problem: "is a SQLite file, but not a database of hpcprof-rs".to_owned(),
                remedy: "give the database directory that `hpcprof-rs MEASUREMENTS` wrote",
            });
        }
        let version = pragma("user_version").map_err(bad)?;
        if version != schema::VERSION {
            return Err(Error::Input {
                path: path.to_owned(),
                problem: format!(
                    "database version {version} is not readable by this version ({})",
                    schema::VERSION
                ),
                remedy: REBUILD,
            });
        }
        Self::read(path, connection).map_err(bad)
    }

    fn read(path: &Path, connection: Connection) -> rusqlite::Result<Database> {
        let c = &connection;
        let (metric_ids, metrics) = numbered(c, "SELECT id, name FROM metric ORDER BY id", text)?;
        check_metrics(&metric_ids, &metrics)?;
        let (file_ids, files) = numbered(c, "SELECT id, path FROM file ORDER BY id", text)?;
        let (module_ids, modules) = numbered(c, "SELECT id, path FROM module ORDER BY id", text)?;
        let sql = "SELECT id, name, module, file, line, origin FROM procedure ORDER BY id";
        let (procedure_ids, procedures) = numbered(c, sql, |row| {
            Ok(ProcedureRow {
                name: row.get(1)?,
                module: optional(row.get(2)?, &module_ids)?,
                declared: place(row.get(3)?, row.get(4)?, &file_ids)?,
                origin: match row.get::<_, i64>(5)? {
                    1 => Origin::Runtime,
                    2 => Origin::System,
                    _ => Origin::User,
                },
            })
        })?;
        check_dense(&file_ids)?;
        check_dense(&procedure_ids)?;
        let loops = read_loops(c, procedures.len(), &file_ids)?;
        let (process_ids, processes) = read_processes(c)?;
        let threads = read_threads(c, &process_ids)?;
        let mut losses = BTreeMap::new();
        let mut query = c.prepare("SELECT cause, SUM(samples) FROM loss GROUP BY cause")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            losses.insert(row.get(0)?, row.get(1)?);
        }
        drop(rows);
        drop(query);
        let (_, notes) = numbered(c, "SELECT id, text FROM note ORDER BY id", text)?;
        Ok(Database {
            path: path.to_owned(),
            metrics,
            files,
            modules,
            procedures,
            loops,
            processes,
            threads,
            losses,
            spawnerless: read_spawnerless(c)?,
            missing: read_missing(c)?,
            unprofiled: read_unprofiled(c)?,
            notes,
            connection,
        })
    }

    /// The contexts of a projection.
    pub fn contexts(&self, projection: Projection) -> Result<Tree> {
        self.read_contexts(projection)
            .map_err(|e| damaged(&self.path, &e))
    }

    fn read_contexts(&self, projection: Projection) -> rusqlite::Result<Tree> {
        let mut tree = Tree::new(self.metrics.len());
        let (first, last) = self.connection.query_row(
            "SELECT first, last FROM projection WHERE name = ?",
            [projection.key()],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
        )?;
        let files = Bound::of(self.files.len());
        let procedures = Bound::of(self.procedures.len());
        let mut query = self.connection.prepare(
            "SELECT id, parent, kind, procedure, file, line, call_file, call_line, support
             FROM context WHERE id BETWEEN ? AND ? ORDER BY id",
        )?;
        let mut rows = query.query([first, last])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let known = Bound {
                first,
                rows: tree.nodes.len(),
            };
            if id.checked_sub(first) != Some(tree.nodes.len() as i64) {
                return Err(inconsistent("context.id"));
            }
            let parent = row.get::<_, Option<i64>>(1)?;
            let parent = parent.map(|p| known.index(p)).transpose()?;
            let call = match files.place(row.get(6)?, row.get(7)?)? {
                Some(place) => Call::Unique(place),
                None => Call::Unknown,
            };
            let node = TreeNode {
                parent,
                kind: Kind::from_number(row.get(2)?).ok_or_else(|| inconsistent("context.kind"))?,
                procedure: procedures.index(row.get(3)?)?,
                place: files.place(row.get(4)?, row.get(5)?)?,
                call,
                support: row.get(8)?,
                recursion: 1,
                parallel_loop: None,
            };
            tree.push(node);
        }
        self.read_machinery(first, &mut tree)?;
        self.read_values(first, &mut tree)?;
        Ok(tree)
    }

    fn read_machinery(&self, first: i64, tree: &mut Tree) -> rusqlite::Result<()> {
        if self.loops.is_empty() || tree.nodes.is_empty() {
            return Ok(());
        }
        let known = Bound {
            first,
            rows: tree.nodes.len(),
        };
        let loops = Bound::of(self.loops.len());
        let last = first.saturating_add(tree.nodes.len() as i64 - 1);
        let sql = "SELECT context, parallel_loop FROM machinery WHERE context BETWEEN ? AND ?";
        let mut query = self.connection.prepare(sql)?;
        let mut rows = query.query([first, last])?;
        while let Some(row) = rows.next()? {
            let node = known.index(row.get(0)?)? as usize;
            tree.nodes[node].parallel_loop = Some(loops.index(row.get(1)?)?);
        }
        Ok(())
    }

    fn read_values(&self, first: i64, tree: &mut Tree) -> rusqlite::Result<()> {
        let known = Bound {
            first,
            rows: tree.nodes.len(),
        };
        let metrics = Bound {
            first: 0,
            rows: self.metrics.len(),
        };
        let last = first.saturating_add(tree.nodes.len() as i64 - 1);
        let sql = "SELECT context, metric, value FROM value WHERE context BETWEEN ? AND ?";
        let mut query = self.connection.prepare(sql)?;
        let mut rows = query.query([first, last])?;
        while let Some(row) = rows.next()? {
            let node = known.index(row.get(0)?)? as usize;
            let metric = metrics.index(row.get(1)?)? as usize;
            let slot = &mut tree.exclusive[node * self.metrics.len() + metric];
            *slot = slot.saturating_add(row.get(2)?);
        }
        Ok(())
    }

    /// The position of a metric, with `effort` for the sum of the first three.
    pub fn metric(&self, name: &str) -> Result<Sort> {
        if name == "effort" {
            return Ok(Sort::Effort);
        }
        let found = self.metrics.iter().position(|m| m == name);
        found.map(Sort::Metric).ok_or_else(|| {
            Error::Usage(format!(
                "no metric `{name}` in {}; it has: effort, {}",
                self.path.display(),
                self.metrics.join(", ")
            ))
        })
    }
}

/// What nodes are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// Work, idleness and overhead together.
    Effort,
    /// One metric, by index.
    Metric(usize),
}

impl Sort {
    /// Itself, or effort where nothing was recorded for the metric: that cannot choose.
    pub fn or_effort(self, totals: &[i64]) -> Sort {
        match self.of(totals) {
            0 => Sort::Effort,
            _ => self,
        }
    }

    /// Its amount in a node's values.
    pub fn of(self, values: &[i64]) -> i64 {
        match self {
            Sort::Effort => effort(values),
            Sort::Metric(index) => values.get(index).copied().unwrap_or(0),
        }
    }
}

/// Work, idleness and overhead together.
pub fn effort(values: &[i64]) -> i64 {
    values.iter().take(3).fold(0, |a, b| a.saturating_add(*b))
}

fn damaged(path: &Path, error: &rusqlite::Error) -> Error {
    Error::Input {
        path: path.to_owned(),
        problem: format!("damaged database: {error}"),
        remedy: REBUILD,
    }
}

fn inconsistent(what: &str) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnName(format!("{what} has an impossible value"))
}

fn text(row: &Row<'_>) -> rusqlite::Result<String> {
    row.get(1)
}

type Ids = HashMap<i64, u32>;

/// Rows in the order of their ids, and the position of each id.
fn numbered<T>(
    connection: &Connection,
    sql: &str,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<(Ids, Vec<T>)> {
    let mut query = connection.prepare(sql)?;
    let mut rows = query.query([])?;
    let (mut ids, mut out) = (Ids::new(), Vec::new());
    while let Some(row) = rows.next()? {
        ids.insert(row.get(0)?, out.len() as u32);
        out.push(read(row)?);
    }
    Ok((ids, out))
}

/// Contexts refer to files and procedures by number, which must be 1, 2, 3 ….
fn check_dense(ids: &Ids) -> rusqlite::Result<()> {
    let dense = ids.iter().all(|(id, index)| *id == i64::from(*index) + 1);
    dense.then_some(()).ok_or_else(|| inconsistent("an id"))
}

fn check_metrics(ids: &Ids, names: &[String]) -> rusqlite::Result<()> {
    let fixed = ["work", "idleness", "overhead"];
    let dense = ids.iter().all(|(id, index)| *id == i64::from(*index));
    let named = names.len() >= 3 && names.iter().zip(fixed).all(|(a, b)| a == b);
    (dense && named)
        .then_some(())
        .ok_or_else(|| inconsistent("metric"))
}

fn optional(id: Option<i64>, ids: &Ids) -> rusqlite::Result<Option<u32>> {
    match id {
        None => Ok(None),
        Some(id) => match ids.get(&id) {
            Some(index) => Ok(Some(*index)),
            None => Err(inconsistent("a reference")),
        },
    }
}

fn place(file: Option<i64>, line: Option<u32>, ids: &Ids) -> rusqlite::Result<Option<Place>> {
    Ok(optional(file, ids)?.map(|file| (file, line.unwrap_or(0))))
}

/// Checks references to a table whose rows have consecutive ids.
#[derive(Clone, Copy)]
struct Bound {
    first: i64,
    rows: usize,
}

impl Bound {
    /// A table that begins with 1.
    fn of(rows: usize) -> Bound {
        Bound { first: 1, rows }
    }

    fn index(&self, id: i64) -> rusqlite::Result<u32> {
        id.checked_sub(self.first)
            .and_then(|index| u32::try_from(index).ok())
            .filter(|index| (*index as usize) < self.rows)
            .ok_or_else(|| inconsistent("a reference"))
    }

    fn place(&self, file: Option<i64>, line: Option<u32>) -> rusqlite::Result<Option<Place>> {
        match file {
            None => Ok(None),
            Some(id) => Ok(Some((self.index(id)?, line.unwrap_or(0)))),
        }
    }
}

/// Whether the database has a table: those of an older version lack the later ones.
fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?";
    let count: i64 = connection.query_row(sql, [name], |row| row.get(0))?;
    Ok(count > 0)
}

/// Whether a table has a column: those of an older version lack the later ones.
fn has_column(connection: &Connection, table: &str, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT COUNT(*) FROM pragma_table_info(?) WHERE name = ?";
    let count: i64 = connection.query_row(sql, [table, name], |row| row.get(0))?;
    Ok(count > 0)
}

/// Loops with dense ids; none of a database that was built before there were any.
fn read_loops(
    connection: &Connection,
    procedures: usize,
    files: &Ids,
) -> rusqlite::Result<Vec<LoopRow>> {
    if !has_table(connection, "parallel_loop")? || !has_table(connection, "machinery")? {
        return Ok(Vec::new());
    }
    let procedures = Bound::of(procedures);
    let sql = "SELECT id, name, entry, file, line, splits, steals, stolen_ns, shared_by, task_ns
        FROM parallel_loop ORDER BY id";
    let (ids, rows) = numbered(connection, sql, |row| {
        let splits: Option<i64> = row.get(5)?;
        let (steals, stolen) = (row.get::<_, Option<i64>>(6)?, row.get::<_, Option<i64>>(7)?);
        Ok(LoopRow {
            name: row.get(1)?,
            entry: procedures.index(row.get(2)?)?,
            call: place(row.get(3)?, row.get(4)?, files)?,
            counts: splits.map(|n| (n, steals.unwrap_or(0), stolen.unwrap_or(0))),
            shared_by: row.get(8)?,
            task_ns: row.get(9)?,
        })
    })?;
    check_dense(&ids)?;
    Ok(rows)
}

/// By runtime; in an older version there was rayon alone.
fn read_spawnerless(connection: &Connection) -> rusqlite::Result<BTreeMap<String, i64>> {
    if !has_table(connection, "spawnerless")? {
        return Ok(BTreeMap::new());
    }
    let runtime = match has_column(connection, "spawnerless", "runtime")? {
        true => "runtime",
        false => "'rayon'",
    };
    let sql = format!("SELECT {runtime}, SUM(samples) FROM spawnerless GROUP BY 1");
    let mut query = connection.prepare(&sql)?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

fn read_missing(connection: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    if !has_table(connection, "missing")? {
        return Ok(Vec::new());
    }
    let sql = "SELECT id, what, nanoseconds FROM missing ORDER BY id";
    let (_, rows) = numbered(connection, sql, |row| Ok((row.get(1)?, row.get(2)?)))?;
    Ok(rows)
}

fn read_unprofiled(connection: &Connection) -> rusqlite::Result<Vec<UnprofiledRow>> {
    if !has_table(connection, "unprofiled")? {
        return Ok(Vec::new());
    }
    let sql = "SELECT id, program, reason, times FROM unprofiled ORDER BY id";
    let (_, rows) = numbered(connection, sql, |row| {
        Ok(UnprofiledRow {
            program: row.get(1)?,
            reason: row.get(2)?,
            times: row.get(3)?,
        })
    })?;
    Ok(rows)
}

fn read_processes(connection: &Connection) -> rusqlite::Result<(Ids, Vec<ProcessRow>)> {
    let since = match has_column(connection, "process", "run")? {
        true => "run, cpu_ns, estimated_wait_ns",
        false => "1, 0, 0",
    };
    let sql = format!(
        "SELECT id, pid, image, executable, arguments, event, period_ns, cores, threads,
        end_ns, end_reason, {since} FROM process ORDER BY id"
    );
    numbered(connection, &sql, |row| {
        let arguments: String = row.get(4)?;
        Ok(ProcessRow {
            pid: row.get(1)?,
            image: row.get(2)?,
            executable: row.get(3)?,
            arguments: serde_json::from_str(&arguments)
                .map_err(|_| inconsistent("process.arguments"))?,
            event: row.get(5)?,
            period_ns: row.get(6)?,
            cores: row.get(7)?,
            threads: row.get(8)?,
            end_ns: row.get(9)?,
            end_reason: row.get(10)?,
            run: row.get(11)?,
            cpu_ns: row.get(12)?,
            estimated_wait_ns: row.get(13)?,
        })
    })
}

fn read_threads(connection: &Connection, processes: &Ids) -> rusqlite::Result<Vec<ThreadRow>> {
    let sql = "SELECT id, process, samples, idle_ns, oversubscribed_ns,
        (SELECT COALESCE(SUM(value), 0) FROM thread_value WHERE thread = id AND metric IN (0, 2)),
        (SELECT COALESCE(SUM(value), 0) FROM thread_value WHERE thread = id AND metric = 1)
        FROM thread ORDER BY id";
    let (_, rows) = numbered(connection, sql, |row| {
        let process = processes.get(&row.get(1)?);
        Ok(ThreadRow {
            process: *process.ok_or_else(|| inconsistent("thread.process"))?,
            samples: row.get(2)?,
            idle_ns: row.get(3)?,
            oversubscribed_ns: row.get(4)?,
            working_ns: row.get(5)?,
            idleness_ns: row.get(6)?,
        })
    })?;
    Ok(rows)
}
