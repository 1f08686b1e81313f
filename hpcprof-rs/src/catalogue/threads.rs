//! Reads the threads of all runs: their values as a whole, and in the contexts of a procedure.

use crate::catalogue::keyed::{Ranges, add_range};
use crate::catalogue::sql::References;
use crate::catalogue::{Catalogue, sql};
use crate::error::{Error, Result};
use hpc_formats::process::program_name;
use rusqlite::{Connection, OptionalExtension as _};

/// A thread of a run. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Thread {
    /// Key of its run.
    pub run: String,
    /// Name of its host; empty if unknown.
    pub host: String,
    /// Its process: a number that is unique in the database.
    pub process: i64,
    pub pid: u32,
    pub program: String,
    /// Its number in the process, from 1 in the order of creation.
    pub ordinal: u32,
    /// The kernel's id.
    pub tid: u32,
    pub name: String,
    pub samples: i64,
    /// CPU time by the kernel; 0 if unknown.
    pub cpu_ns: i64,
    /// Time in spinning waits and in searches for work.
    pub spinning_ns: i64,
    pub values: Vec<i64>,
}

/// Contexts of the folded tree, with all below them.
#[derive(Clone, PartialEq, Debug)]
pub struct Contexts {
    /// Their procedure, region or parallel loop.
    pub name: String,
    /// First and last ids, in order, none within another one.
    pub ranges: Ranges,
}

/// Names of a message that asks to choose one.
const CHOICES: usize = 5;

impl Catalogue {
    /// All threads, in the order of runs and processes.
    pub fn threads(&self) -> Result<Vec<Thread>> {
        self.query(|connection| self.read_threads(connection))
    }

    fn read_threads(&self, connection: &Connection) -> rusqlite::Result<Vec<Thread>> {
        let sql = "SELECT t.id, r.key, h.name, p.id, p.pid, p.executable, t.ordinal, t.tid, t.name,
            t.samples, t.cpu_ns, t.idle_ns FROM thread t JOIN process p ON p.id = t.process
            JOIN run r ON r.id = p.run JOIN host h ON h.id = r.host ORDER BY t.id";
        let mut threads = sql::rows(connection, sql, 1, |row| {
            Ok(Thread {
                run: row.get(1)?,
                host: row.get(2)?,
                process: row.get(3)?,
                pid: row.get(4)?,
                program: program_name(&row.get::<_, String>(5)?).to_owned(),
                ordinal: row.get(6)?,
                tid: row.get(7)?,
                name: row.get(8)?,
                samples: row.get(9)?,
                cpu_ns: row.get(10)?,
                spinning_ns: row.get(11)?,
                values: vec![0; self.metrics.len()],
            })
        })?;
        let ids = References::to(&threads);
        let mut query = connection.prepare("SELECT thread, metric, value FROM thread_value")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let thread = &mut threads[ids.index(row.get(0)?)? as usize];
            thread.values[self.metric_at(row.get(1)?)?] = row.get(2)?;
        }
        Ok(threads)
    }

    /// The contexts of a key (16 hexadecimal digits), or of a procedure whose name is `text` or ends with it.
    pub fn find_contexts(&self, text: &str) -> Result<Contexts> {
        self.query(|connection| find(connection, text))?.map_err(Error::Usage)
    }

    /// The threads that have values in these contexts, with these values. Their CPU times are those of all
    /// contexts.
    pub fn threads_in(&self, contexts: &Contexts) -> Result<Vec<Thread>> {
        let threads = self.threads()?;
        let values = self.values_in(&contexts.ranges, threads.len())?;
        let rows = threads.into_iter().zip(values);
        let rows = rows.filter_map(|(thread, values)| {
            let values = values.filter(|v| v.iter().any(|value| *value != 0))?;
            Some(Thread { samples: self.samples(&values), values, ..thread })
        });
        Ok(rows.collect())
    }
}

/// The contexts, or why there are none.
fn find(connection: &Connection, text: &str) -> rusqlite::Result<std::result::Result<Contexts, String>> {
    const SELECT: &str = "SELECT c.id, c.last FROM context c";
    let is_key = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if let (true, Ok(key)) = (is_key, u64::from_str_radix(text, 16)) {
        let sql = format!("{SELECT} WHERE c.key = ? ORDER BY c.id");
        let ranges = ranges(connection, &sql, key as i64)?;
        if let Some((first, _)) = ranges.first() {
            let sql = "SELECT n.name FROM context c JOIN named_scope n ON n.id = c.scope WHERE c.id = ?";
            let name = connection.query_row(sql, [first], |row| row.get(0)).optional()?;
            let name = name.unwrap_or_else(|| text.to_owned());
            return Ok(Ok(Contexts { name, ranges }));
        }
    }
    let sql = "SELECT DISTINCT name FROM named_scope WHERE (name = ?1 OR
        substr(name, -length('::' || ?1)) = '::' || ?1) AND id IN (SELECT scope FROM context)
        ORDER BY name = ?1 DESC, name";
    let mut query = connection.prepare(sql)?;
    let names = query.query_map([text], |row| row.get(0))?;
    let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
    let name = match names.as_slice() {
        [] => {
            return Ok(Err(format!(
                "no context of `{text}` in the default view: give a procedure as `top-down` names it"
            )));
        }
        [name] => name,
        [name, ..] if name == text => name,
        several => {
            let listed = &several[..several.len().min(CHOICES)];
            let names = listed.join(", ");
            return Ok(Err(format!(
                "`{text}` may be one of {} procedures: give one, as {names}",
                several.len()
            )));
        }
    };
    let sql = format!("{SELECT} WHERE c.scope IN (SELECT id FROM named_scope WHERE name = ?) ORDER BY c.id");
    let ranges = ranges(connection, &sql, name)?;
    let name = name.clone();
    Ok(Ok(Contexts { name, ranges }))
}

/// First and last ids of contexts, without those that lie within others.
fn ranges(connection: &Connection, sql: &str, parameter: impl rusqlite::ToSql) -> rusqlite::Result<Ranges> {
    let mut query = connection.prepare(sql)?;
    let mut rows = query.query([parameter])?;
    let mut ranges = Ranges::new();
    while let Some(row) = rows.next()? {
        add_range(&mut ranges, (row.get(0)?, row.get(1)?));
    }
    Ok(ranges)
}
