//! What holds for the runs as a whole: how long, on how many cores, and how far the figures can be trusted.

use crate::catalogue::metrics::sum;
use crate::catalogue::sql::{References, inconsistent, rows};
use hpc_formats::process::program_name;
use rusqlite::{Connection, Result};
use std::collections::BTreeMap;

/// A program that ran unprofiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unprofiled {
    /// Path of the executable.
    pub program: String,
    /// Why.
    pub reason: String,
    /// How often it was started.
    pub times: i64,
}

/// All processes and threads together. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Statistics {
    /// The first process's program with its arguments.
    pub program: String,
    /// The first process's event, as the user gave it; empty when unknown.
    pub event: String,
    /// Sampling period of the first process.
    pub period_ns: i64,
    /// Paths of the processes' executables.
    pub executables: Vec<String>,
    /// Runs that were merged.
    pub runs: usize,
    /// Cores that idleness is computed against.
    pub cores: u32,
    /// Threads of all processes.
    pub threads: u64,
    /// From the first start to the last end, summed over the runs, each of which has its own clock.
    pub wall_ns: i64,
    /// Wall time in which nobody worked on the node, as far as its length tells.
    pub wait_ns: i64,
    /// Samples in the tree.
    pub samples: i64,
    /// Samples whose path reaches the program's entry.
    pub rooted: i64,
    /// Lost and partial samples by cause.
    pub lost: BTreeMap<String, i64>,
    /// CPU time that no sample stands for, with whose it is.
    pub missing: Vec<(String, i64)>,
    /// Programs that ran unprofiled.
    pub unprofiled: Vec<Unprofiled>,
    /// Samples in tasks whose callers the task runtime does not tell, by runtime.
    pub unknown_caller_samples: BTreeMap<String, i64>,
    /// Share of working threads beyond the cores.
    pub oversubscribed_ns: i64,
    /// CPU time: what the kernel counted or what was sampled, whichever is more.
    pub cpu_ns: i64,
    /// CPU time in spinning waits and in schedulers' searches for work.
    pub spinning_ns: i64,
    /// Waiting that no hook saw.
    pub estimated_wait_ns: i64,
    /// Waiting for locks that no context is charged with.
    pub unknown_lock_wait_ns: i64,
}

struct Process {
    /// Only processes of one run share a clock.
    run: i64,
    start_monotonic_ns: i64,
    end_ns: i64,
    executable: String,
    arguments: Vec<String>,
    event: String,
    period_ns: i64,
    cores: u32,
    threads: u32,
    cpu_ns: i64,
    estimated_wait_ns: i64,
    unknown_lock_wait_ns: i64,
}

struct Thread {
    /// Its process, by index.
    process: u32,
    samples: i64,
    idle_ns: i64,
    oversubscribed_ns: i64,
    working_ns: i64,
    idleness_ns: i64,
}

impl Statistics {
    pub(super) fn read(connection: &Connection) -> Result<Statistics> {
        let processes = read_processes(connection)?;
        let threads = read_threads(connection, References::to(&processes))?;
        let lost = counts(connection, "loss", "cause")?;
        let partial = lost
            .iter()
            .filter(|(cause, _)| cause.starts_with("partial:"));
        let samples = sum(threads.iter().map(|t| t.samples));
        let spinning_ns = sum(threads.iter().map(|t| t.idle_ns));
        let sampled_ns = sum(threads.iter().map(|t| t.working_ns)).saturating_add(spinning_ns);
        let mut runs: BTreeMap<i64, Vec<(&Process, i64)>> = BTreeMap::new();
        let mut efforts = vec![0_i64; processes.len()];
        for thread in &threads {
            let effort = &mut efforts[thread.process as usize];
            *effort = sum([*effort, thread.working_ns, thread.idleness_ns].into_iter());
        }
        for (process, effort) in processes.iter().zip(efforts) {
            runs.entry(process.run).or_default().push((process, effort));
        }
        let (walls, waits): (Vec<i64>, Vec<i64>) = runs.values().map(|r| wall_and_wait(r)).unzip();
        let first = processes.first();
        Ok(Statistics {
            program: first.map_or(String::new(), |p| {
                let arguments = p.arguments.iter().skip(1).map(String::as_str);
                let words = std::iter::once(program_name(&p.executable)).chain(arguments);
                words.collect::<Vec<_>>().join(" ")
            }),
            event: first.map_or(String::new(), |p| p.event.clone()),
            period_ns: first.map_or(0, |p| p.period_ns),
            runs: runs.len(),
            cores: processes.iter().map(|p| p.cores).max().unwrap_or(0),
            threads: processes.iter().map(|p| u64::from(p.threads)).sum(),
            wall_ns: sum(walls.into_iter()),
            wait_ns: sum(waits.into_iter()),
            samples,
            rooted: samples.saturating_sub(sum(partial.map(|(_, n)| *n))),
            missing: read_missing(connection)?,
            unprofiled: read_unprofiled(connection)?,
            unknown_caller_samples: counts(connection, "spawnerless", "runtime")?,
            oversubscribed_ns: sum(threads.iter().map(|t| t.oversubscribed_ns)),
            cpu_ns: sum(processes.iter().map(|p| p.cpu_ns)).max(sampled_ns),
            spinning_ns,
            estimated_wait_ns: sum(processes.iter().map(|p| p.estimated_wait_ns)),
            unknown_lock_wait_ns: sum(processes.iter().map(|p| p.unknown_lock_wait_ns)),
            executables: processes.into_iter().map(|p| p.executable).collect(),
            lost,
        })
    }

    /// CPU time that no sample stands for.
    pub fn missing_ns(&self) -> i64 {
        sum(self.missing.iter().map(|(_, ns)| *ns))
    }

    /// Share of the samples that are rooted.
    pub fn rooted_percent(&self) -> f64 {
        self.rooted as f64 * 100.0 / self.samples.max(1) as f64
    }
}

/// The wall time of one run, and the part of it that the effort of its processes does not fill.
fn wall_and_wait(run: &[(&Process, i64)]) -> (i64, i64) {
    let start = run.iter().map(|(p, _)| p.start_monotonic_ns).min();
    let end = run.iter().map(|(p, _)| p.end_ns).max();
    let cores = run.iter().map(|(p, _)| i64::from(p.cores)).max();
    let wall = end.unwrap_or(0).saturating_sub(start.unwrap_or(0)).max(0);
    let effort = sum(run.iter().map(|(_, effort)| *effort));
    let attributed = effort.checked_div(cores.unwrap_or(0)).unwrap_or(wall);
    (wall, wall.saturating_sub(attributed).max(0))
}

fn read_processes(connection: &Connection) -> Result<Vec<Process>> {
    let sql =
        "SELECT id, image, executable, arguments, event, period_ns, cores, threads, end_ns, run,
        cpu_ns, estimated_wait_ns, unknown_lock_wait_ns FROM process ORDER BY id";
    rows(connection, sql, 1, |row| {
        let arguments: String = row.get(3)?;
        let arguments = serde_json::from_str(&arguments);
        Ok(Process {
            start_monotonic_ns: row.get(1)?,
            executable: row.get(2)?,
            arguments: arguments.map_err(|_| inconsistent("process.arguments"))?,
            event: row.get(4)?,
            period_ns: row.get(5)?,
            cores: row.get(6)?,
            threads: row.get(7)?,
            end_ns: row.get(8)?,
            run: row.get(9)?,
            cpu_ns: row.get(10)?,
            estimated_wait_ns: row.get(11)?,
            unknown_lock_wait_ns: row.get(12)?,
        })
    })
}

fn read_threads(connection: &Connection, processes: References) -> Result<Vec<Thread>> {
    let sql = "SELECT id, process, samples, idle_ns, oversubscribed_ns,
        (SELECT COALESCE(SUM(value), 0) FROM thread_value WHERE thread = id AND metric IN (0, 2)),
        (SELECT COALESCE(SUM(value), 0) FROM thread_value WHERE thread = id AND metric = 1)
        FROM thread ORDER BY id";
    rows(connection, sql, 1, |row| {
        Ok(Thread {
            process: processes.index(row.get(1)?)?,
            samples: row.get(2)?,
            idle_ns: row.get(3)?,
            oversubscribed_ns: row.get(4)?,
            working_ns: row.get(5)?,
            idleness_ns: row.get(6)?,
        })
    })
}

fn read_missing(connection: &Connection) -> Result<Vec<(String, i64)>> {
    let sql = "SELECT id, what, nanoseconds FROM missing ORDER BY id";
    rows(connection, sql, 1, |row| Ok((row.get(1)?, row.get(2)?)))
}

fn read_unprofiled(connection: &Connection) -> Result<Vec<Unprofiled>> {
    let sql = "SELECT id, program, reason, times FROM unprofiled ORDER BY id";
    rows(connection, sql, 1, |row| {
        Ok(Unprofiled {
            program: row.get(1)?,
            reason: row.get(2)?,
            times: row.get(3)?,
        })
    })
}

/// Samples in a table, by key.
fn counts(connection: &Connection, table: &str, key: &str) -> Result<BTreeMap<String, i64>> {
    let sql = format!("SELECT {key}, SUM(samples) FROM {table} GROUP BY 1");
    let mut query = connection.prepare(&sql)?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}
