//! The tables of names: load modules, source files, procedures, parallel loops.

use crate::catalogue::sql::{References, has, rows};
use crate::catalogue::tree::SourceLocation;
use hpc_formats::structure::Origin;
use rusqlite::{Connection, Result};

/// A procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// Its name.
    pub name: String,
    /// Index of its module.
    pub module: Option<u32>,
    /// Its declaration.
    pub declared: Option<SourceLocation>,
    /// Whose code it is.
    pub origin: Origin,
}

/// What was counted at the places where a loop's tasks are split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitCounts {
    /// Tasks that were split in two.
    pub splits: i64,
    /// Tasks that were stolen.
    pub steals: i64,
    /// Time in these, nanoseconds.
    pub stolen_ns: i64,
}

/// A parallel loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParallelLoop {
    /// What it is called.
    pub name: String,
    /// The procedure by which the program enters the library, by index.
    pub entry: u32,
    /// Where it is called.
    pub call: Option<SourceLocation>,
    /// `None` when the task runtime did not count.
    pub counts: Option<SplitCounts>,
    /// How many loops share the counts.
    pub shared_by: u32,
    /// Work and overhead of the loops that share the counts, nanoseconds.
    pub task_ns: i64,
}

impl ParallelLoop {
    /// Work and overhead by the number of splits, each of which adds one task. Nanoseconds.
    pub fn mean_task_ns(&self) -> Option<i64> {
        self.task_ns.checked_div(self.counts?.splits)
    }

    /// Time in a stolen task, without the tasks that were stolen from it in turn. Nanoseconds.
    pub fn mean_stolen_ns(&self) -> Option<i64> {
        let counts = self.counts?;
        counts.stolen_ns.checked_div(counts.steals)
    }
}

/// All names.
#[derive(Debug)]
pub struct Code {
    files: Vec<String>,
    modules: Vec<String>,
    procedures: Vec<Procedure>,
    loops: Vec<ParallelLoop>,
}

impl Code {
    /// The path of a source file.
    pub fn file(&self, index: u32) -> &str {
        &self.files[index as usize]
    }

    /// The path of a load module.
    pub fn module(&self, index: u32) -> &str {
        &self.modules[index as usize]
    }

    /// A procedure.
    pub fn procedure(&self, index: u32) -> &Procedure {
        &self.procedures[index as usize]
    }

    /// All procedures, by index.
    pub fn procedures(&self) -> &[Procedure] {
        &self.procedures
    }

    /// The path of a procedure's load module.
    pub fn module_of(&self, procedure: &Procedure) -> Option<&str> {
        procedure.module.map(|m| self.module(m))
    }

    /// A parallel loop.
    pub fn parallel_loop(&self, index: u32) -> &ParallelLoop {
        &self.loops[index as usize]
    }

    /// Whether there are any.
    pub fn has_loops(&self) -> bool {
        !self.loops.is_empty()
    }

    pub(super) fn read(connection: &Connection) -> Result<Code> {
        let paths = |sql| rows(connection, sql, 1, |row| row.get(1));
        let files = paths("SELECT id, path FROM file ORDER BY id")?;
        let modules = paths("SELECT id, path FROM module ORDER BY id")?;
        let (file, module) = (References::to(&files), References::to(&modules));
        let sql = "SELECT id, name, module, origin, file, line FROM procedure ORDER BY id";
        let procedures = rows(connection, sql, 1, |row| {
            Ok(Procedure {
                name: row.get(1)?,
                module: module.optional(row.get(2)?)?,
                declared: file.location(row, 4)?,
                origin: match row.get::<_, i64>(3)? {
                    1 => Origin::Runtime,
                    2 => Origin::System,
                    _ => Origin::User,
                },
            })
        })?;
        let loops = read_loops(connection, References::to(&procedures), file)?;
        Ok(Code {
            files,
            modules,
            procedures,
            loops,
        })
    }

    pub(super) fn file_references(&self) -> References {
        References::to(&self.files)
    }

    pub(super) fn procedure_references(&self) -> References {
        References::to(&self.procedures)
    }

    pub(super) fn loop_references(&self) -> References {
        References::to(&self.loops)
    }
}

/// None of a database that was built before there were any.
fn read_loops(
    connection: &Connection,
    procedure: References,
    file: References,
) -> Result<Vec<ParallelLoop>> {
    if !has(connection, "parallel_loop", "id")? || !has(connection, "machinery", "context")? {
        return Ok(Vec::new());
    }
    let sql = "SELECT id, name, entry, file, line, splits, steals, stolen_ns, shared_by, task_ns
        FROM parallel_loop ORDER BY id";
    rows(connection, sql, 1, |row| {
        let count = |column| row.get::<_, Option<i64>>(column);
        let (splits, steals, stolen_ns) = (count(5)?, count(6)?, count(7)?);
        Ok(ParallelLoop {
            name: row.get(1)?,
            entry: procedure.index(row.get(2)?)?,
            call: file.location(row, 3)?,
            counts: splits.map(|splits| SplitCounts {
                splits,
                steals: steals.unwrap_or(0),
                stolen_ns: stolen_ns.unwrap_or(0),
            }),
            shared_by: row.get(8)?,
            task_ns: row.get(9)?,
        })
    })
}
