//! Reads a database: names and statistics when it is opened, contexts on demand. The folded tree is read in
//! part, as far as a view shows it.
//!
//! The file may come from anywhere. Its identity and version are checked first, and every
//! reference between tables is checked as it is read.

pub use crate::model::statistics;

mod code;
mod column;
mod contexts;
pub mod critical_path;
mod files;
pub mod folded;
pub mod keyed;
pub mod metrics;
pub mod spreads;
mod sql;
mod thread_values;
pub mod threads;
pub mod trace;

use crate::catalogue::metrics::{EFFORT, FIXED};
use crate::error::{Error, Result};
use crate::metrics::expression::{Expression, Fault, Problem, Variable};
use crate::metrics::unit::Unit;
use crate::model::advice::Advice;
use crate::model::code::Code;
use crate::model::errors::Errors;
use crate::model::hash::FastMap;
use crate::model::metrics::{Metric, ON_PATH, SQUARES, first_square};
use crate::model::statistics::Statistics;
use crate::model::tree::{Label, Tree};
use crate::schema;
use hpc_formats::profile::{Aggregation, LOCK_WAIT, SAMPLES};
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// What to do about a database that cannot be read.
pub const REBUILD: &str = "build it again with `hpcprof-rs MEASUREMENTS`";
const GIVE: &str = "give the database directory that `hpcprof-rs MEASUREMENTS` wrote";

/// More contexts than any machine that writes databases has memory for.
const MAX_CONTEXTS: u32 = 1 << 31;

/// Which call paths a view shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Projection {
    /// User-level frames: stolen tasks below their spawner.
    Logical,
    /// Machine frames as they lay on the threads' stacks.
    Physical,
}

impl Projection {
    /// Its name, on the command line and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Projection::Logical => "logical",
            Projection::Physical => "physical",
        }
    }
}

#[derive(Debug)]
pub struct Catalogue {
    pub path: PathBuf,
    pub metrics: Vec<Metric>,
    pub code: Code,
    /// The spans of the longest critical path without procedures, by procedure.
    pub zeroed_spans: FastMap<u32, i64>,
    pub statistics: Statistics,
    connection: Connection,
}

impl Catalogue {
    /// Opens a database directory, or the file in it.
    pub fn open(path: &Path) -> Result<Catalogue> {
        let file = match path.is_dir() {
            true => path.join(schema::FILE_NAME),
            false => path.to_owned(),
        };
        if !file.is_file() {
            let problem = match path.exists() {
                true => format!("is not a database (no {} in it)", schema::FILE_NAME),
                false => "does not exist".to_owned(),
            };
            return Err(Error::input(path, problem, GIVE));
        }
        let mut head = Vec::new();
        let read = File::open(&file).and_then(|opened| opened.take(16).read_to_end(&mut head));
        read.map_err(Error::io("read", &file))?;
        if path == file && !head.starts_with(b"SQLite format 3") {
            return Err(Error::input(path, "is a file, but not a database of hpcprof-rs", GIVE));
        }
        let damaged = |e: rusqlite::Error| damaged(path, &e);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&file, flags).map_err(damaged)?;
        let pragma = |name: &str| -> rusqlite::Result<i64> {
            connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
        };
        if pragma("application_id").map_err(damaged)? != schema::APPLICATION_ID {
            let problem = "is a SQLite file, but not a database of hpcprof-rs";
            return Err(Error::input(path, problem, GIVE));
        }
        let version = pragma("user_version").map_err(damaged)?;
        if version != schema::VERSION {
            let readable = schema::VERSION;
            let problem = format!("database version {version} is not readable by this version ({readable})");
            return Err(Error::input(path, problem, REBUILD));
        }
        // One transaction, so that SQLite locks the file once.
        connection.execute_batch("BEGIN").map_err(damaged)?;
        Self::read(path, connection).map_err(damaged)
    }

    fn read(path: &Path, connection: Connection) -> rusqlite::Result<Catalogue> {
        let metrics = metrics::read(&connection)?;
        let names = || metrics.iter().map(|m| m.name.as_str());
        if !names().take(FIXED.len()).eq(FIXED) || !names().skip(first_square(metrics.len())).eq(SQUARES) {
            return Err(sql::inconsistent("metric"));
        }
        let code = code::read(&connection)?;
        Ok(Catalogue {
            path: path.to_owned(),
            metrics,
            zeroed_spans: critical_path::zeroed_spans(&connection, &code)?,
            code,
            statistics: read_statistics(&connection)?,
            connection,
        })
    }

    /// What `read` finds in the catalogue.
    fn query<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        read(&self.connection).map_err(|e| damaged(&self.path, &e))
    }

    pub fn contexts(&self, projection: Projection) -> Result<Tree> {
        let (contexts, same_as): (i64, Option<String>) = self.query(|connection| {
            let sql = "SELECT contexts, same_as FROM projection WHERE name = ?";
            connection.query_row(sql, [projection.name()], |row| row.try_into())
        })?;
        let projection = if same_as.is_some() { Projection::Logical } else { projection };
        let scopes = self.query(|connection| code::read_scopes(connection, &self.code))?;
        let totals = self.totals()?;
        let name = match projection {
            Projection::Logical => schema::LOGICAL_FILE,
            Projection::Physical => schema::PHYSICAL_FILE,
        };
        let files = self.files(schema::CONTEXTS, name)?;
        let names = contexts::Names { scopes: &scopes, loops: self.code.loops.len(), metrics: &self.metrics };
        // A damaged count must not make the reader allocate what is not there.
        let contexts = u32::try_from(contexts).ok().filter(|n| *n < MAX_CONTEXTS).unwrap_or(0);
        let problem = match contexts::read(&files, contexts as usize, &names) {
            Ok(tree) if tree.exclusive.totals() == totals => return Ok(tree),
            Ok(_) => "the values do not add up to the totals".to_owned(),
            Err(problem) => problem.to_string(),
        };
        Err(self.unreadable(schema::CONTEXTS, &problem))
    }

    pub fn advice(&self) -> Result<Advice> {
        self.query(|connection| {
            let json: String = connection.query_row("SELECT json FROM advice", [], |row| row.get(0))?;
            serde_json::from_str(&json).map_err(|_| sql::inconsistent("advice.json"))
        })
    }

    /// How many samples values stand for.
    pub fn samples(&self, values: &[i64]) -> i64 {
        let position = self.metrics.iter().position(|m| m.name == SAMPLES);
        position.map_or(0, |at| values[at])
    }

    pub fn errors(&self) -> Errors<'_> {
        Errors { metrics: &self.metrics, samples: self.statistics.samples }
    }

    pub fn is_tracked(&self) -> bool {
        self.metrics.iter().any(|m| m.name == ON_PATH)
    }

    /// The span of the critical path if a procedure took no time, where that is known.
    pub fn zeroed_span(&self, label: Label) -> Option<i64> {
        self.zeroed_spans.get(&label.procedure()?).copied()
    }

    /// The metrics that JSON and CSV have unasked, by position.
    pub fn shown_metrics(&self) -> impl Iterator<Item = (usize, &Metric)> {
        self.metrics.iter().enumerate().filter(|(_, m)| m.is_shown())
    }

    /// What expressions may name: effort and then all metrics but the squares, which come last.
    pub fn variables(&self) -> impl Iterator<Item = Variable<'_>> {
        let effort = Variable { name: EFFORT, unit: Unit::SECONDS, adds_up: true };
        let metrics = self.metrics.iter().filter(|metric| !metric.is_square());
        let metrics = metrics.map(|metric| Variable {
            name: &metric.name,
            unit: metric.unit.into(),
            adds_up: metric.aggregation == Aggregation::Sum,
        });
        std::iter::once(effort).chain(metrics)
    }

    /// The metric with a name, `effort`, or an expression of them.
    pub fn metric(&self, text: &str) -> Result<Expression> {
        let variables: Vec<Variable<'_>> = self.variables().collect();
        Expression::parse(text, &variables).map_err(|problem| self.no_expression(text, &problem, &variables))
    }

    /// Why a text is no expression over variables, the metrics and more.
    pub fn no_expression(&self, text: &str, problem: &Problem, variables: &[Variable<'_>]) -> Error {
        let database = self.path.display();
        let problem = match &problem.fault {
            Fault::UnknownName(_) if text.contains(LOCK_WAIT) => {
                let how = format!("`hpcrun-rs -e {LOCK_WAIT} PROGRAM`");
                format!("{LOCK_WAIT} was not measured ({how}); {database} has")
            }
            Fault::UnknownName(name) if name == text => {
                format!("no metric `{name}` in {database}; it has")
            }
            _ => format!("{}; {database} has", problem.describe(text)),
        };
        let names: Vec<&str> = variables.iter().map(|v| v.name).collect();
        Error::Usage(format!("{problem}: {}", names.join(", ")))
    }
}

fn read_statistics(connection: &Connection) -> rusqlite::Result<Statistics> {
    let sql = "SELECT json, threads FROM statistics, takers";
    let (json, takers): (String, u32) = connection.query_row(sql, [], |row| row.try_into())?;
    let known = serde_json::from_str(&json).map_err(|_| sql::inconsistent("statistics.json"));
    known.map(|known| Statistics { takers, ..known })
}

fn damaged(path: &Path, error: &rusqlite::Error) -> Error {
    Error::input(path, format!("damaged database: {error}"), REBUILD)
}
