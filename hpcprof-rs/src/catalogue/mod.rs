//! Reads a database: names and statistics when it is opened, the contexts of a projection on demand.
//!
//! The file may come from anywhere. Its identity and version are checked first, and every
//! reference between tables is checked as it is read.

pub mod code;
mod contexts;
pub mod metrics;
mod sql;
pub mod statistics;
pub mod tree;

use crate::catalogue::code::Code;
use crate::catalogue::metrics::{EFFORT, FIXED, MetricInfo};
use crate::catalogue::statistics::Statistics;
use crate::catalogue::tree::Tree;
use crate::error::{Error, Result};
use crate::metrics::expression::{Expression, Variable};
use crate::metrics::unit::Unit;
use crate::schema;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};

const REBUILD: &str = "build it again with `hpcprof-rs MEASUREMENTS`";
const GIVE: &str = "give the database directory that `hpcprof-rs MEASUREMENTS` wrote";

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
            Projection::Logical => schema::LOGICAL,
            Projection::Physical => schema::PHYSICAL,
        }
    }
}

/// An open database.
#[derive(Debug)]
pub struct Catalogue {
    /// The directory.
    pub path: PathBuf,
    /// Metric names by position.
    pub metrics: Vec<String>,
    /// What they are, by position.
    pub metric_table: Vec<MetricInfo>,
    /// Names of code.
    pub code: Code,
    /// About the runs as a whole.
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
        let refused = |problem: String, remedy| Error::Input {
            path: path.to_owned(),
            problem,
            remedy,
        };
        if !file.is_file() {
            let problem = match path.exists() {
                true => format!("is not a database (no {} in it)", schema::FILE_NAME),
                false => "does not exist".to_owned(),
            };
            return Err(refused(problem, GIVE));
        }
        let damaged = |e: rusqlite::Error| damaged(path, &e);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&file, flags).map_err(damaged)?;
        let pragma = |name: &str| -> rusqlite::Result<i64> {
            connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
        };
        if pragma("application_id").map_err(damaged)? != schema::APPLICATION_ID {
            let problem = "is a SQLite file, but not a database of hpcprof-rs";
            return Err(refused(problem.to_owned(), GIVE));
        }
        let version = pragma("user_version").map_err(damaged)?;
        if version != schema::VERSION {
            let readable = schema::VERSION;
            let problem =
                format!("database version {version} is not readable by this version ({readable})");
            return Err(refused(problem, REBUILD));
        }
        Self::read(path, connection).map_err(damaged)
    }

    fn read(path: &Path, connection: Connection) -> rusqlite::Result<Catalogue> {
        let sql = "SELECT id, name FROM metric ORDER BY id";
        let metrics: Vec<String> = sql::rows(&connection, sql, 0, |row| row.get(1))?;
        if !metrics.iter().take(FIXED.len()).eq(FIXED) {
            return Err(sql::inconsistent("metric"));
        }
        let sql = "SELECT id, unit, description FROM metric ORDER BY id";
        let metric_table = sql::rows(&connection, sql, 0, |row| {
            let unit = match row.get::<_, String>(1)?.as_str() {
                "nanoseconds" => Some(Unit::SECONDS),
                name => Unit::named(name),
            };
            Ok(MetricInfo {
                unit: unit.ok_or_else(|| sql::inconsistent("metric.unit"))?,
                description: row.get(2)?,
            })
        })?;
        Ok(Catalogue {
            path: path.to_owned(),
            metrics,
            metric_table,
            code: Code::read(&connection)?,
            statistics: Statistics::read(&connection)?,
            connection,
        })
    }

    /// Reads the contexts of a projection.
    pub fn contexts(&self, projection: Projection) -> Result<Tree> {
        contexts::read(&self.connection, &self.code, self.metrics.len(), projection)
            .map_err(|e| damaged(&self.path, &e))
    }

    /// The metric with a name, `effort`, or an expression of them, whose variables are effort and then all
    /// metrics.
    pub fn metric(&self, text: &str) -> Result<Expression> {
        let effort = Variable {
            name: EFFORT,
            unit: Unit::SECONDS,
            adds_up: true,
        };
        let metrics = self.metrics.iter().zip(&self.metric_table);
        let metrics = metrics.map(|(name, info)| Variable {
            name,
            unit: info.unit,
            adds_up: true,
        });
        let variables: Vec<Variable<'_>> = std::iter::once(effort).chain(metrics).collect();
        Expression::parse(text, &variables).map_err(|problem| {
            Error::Usage(format!(
                "{}; {} has: {EFFORT}, {}",
                problem.describe(text),
                self.path.display(),
                self.metrics.join(", ")
            ))
        })
    }
}

fn damaged(path: &Path, error: &rusqlite::Error) -> Error {
    Error::Input {
        path: path.to_owned(),
        problem: format!("damaged database: {error}"),
        remedy: REBUILD,
    }
}
