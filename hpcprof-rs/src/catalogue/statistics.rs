//! What holds for the runs as a whole: how long, on how many cores, and how far the figures can be trusted.

use crate::catalogue::metrics::sum;
use crate::catalogue::sql::{References, inconsistent, rows};
use crate::model::experiment::UnprofiledProgram;
use hpc_formats::process::program_name;
use rusqlite::{Connection, Result};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Runs that were merged; the parts of one job are one run.
    pub runs: usize,
    /// Parts of runs: measurement directories, by host.
    pub parts: usize,
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// Cores that idleness is computed against on average, of all hosts of a run; the largest run's.
    pub cores: u32,
    /// Threads of all processes.
    pub threads: u64,
    /// From the first start to the last end, summed over the runs, each of which has its own clock. Hosts of
    /// one run worked at the same time.
    pub wall_ns: i64,
    /// All that occur.
    pub sizes: BTreeSet<u32>,
    /// Threads that could work at once, as many as the cores, of all runs together.
    pub takers: u32,
    /// Estimated wall time in which no thread worked: what effort on all cores does not fill.
    pub wait_ns: i64,
    /// Samples in the tree.
    pub samples: i64,
    /// Samples whose path reaches the program's entry.
    pub rooted: i64,
    /// The time that samples in the tree stand for.
    pub sampled_ns: i64,
    /// The same of those whose path reaches the program's entry.
    pub rooted_ns: i64,
    /// Lost and partial samples by cause.
    pub lost: BTreeMap<String, i64>,
    /// The time that they stand for.
    pub lost_ns: BTreeMap<String, i64>,
    /// CPU time that no sample stands for, with whose it is.
    pub missing: Vec<(String, i64)>,
    /// Programs that ran unprofiled.
    pub unprofiled: Vec<UnprofiledProgram>,
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
    /// For how long threads were ready to run and had no core, by the kernel's account.
    pub run_delay_ns: i64,
}

/// What ran in a measurement directory on one host.
struct Part {
    set: i64,
    /// Its host, by index.
    host: u32,
    /// What the user typed.
    command: Vec<String>,
}

struct Host {
    name: String,
    /// Whether it is known that its parts share a clock.
    has_clock: bool,
}

struct Process {
    /// Its part, by index.
    part: u32,
    start_monotonic_ns: i64,
    end_ns: i64,
    executable: String,
    arguments: Vec<String>,
    event: String,
    period_ns: i64,
    mean_cores: f64,
    threads: u32,
    cpu_ns: i64,
    estimated_wait_ns: i64,
    unknown_lock_wait_ns: i64,
    run_delay_ns: i64,
    // Sums over its threads.
    samples: i64,
    idle_ns: i64,
    oversubscribed_ns: i64,
    working_ns: i64,
    idleness_ns: i64,
}

impl Statistics {
    pub(super) fn read(connection: &Connection) -> Result<Statistics> {
        let hosts = read_hosts(connection)?;
        let parts = read_parts(connection, References::to(&hosts))?;
        let processes = read_processes(connection, References::to(&parts))?;
        let lost = counts(connection, "loss", "cause", "samples")?;
        let lost_ns = counts(connection, "loss", "cause", "time_ns")?;
        let partial = |of: &BTreeMap<String, i64>| {
            let partial = of.iter().filter(|(cause, _)| cause.starts_with("partial:"));
            sum(partial.map(|(_, n)| *n))
        };
        let all = |value: fn(&Process) -> i64| sum(processes.iter().map(value));
        let (samples, spinning_ns) = (all(|p| p.samples), all(|p| p.idle_ns));
        let in_tree_ns = all(|p| p.working_ns);
        let sampled_ns = in_tree_ns.saturating_add(spinning_ns);
        let runs = Run::all(&parts, &processes);
        let walls = runs.iter().map(|run| run.wall(&hosts));
        let first = processes.first();
        Ok(Statistics {
            program: first.map_or(String::new(), |p| {
                let (program, words) = match &*parts[p.part as usize].command {
                    [] => (&p.executable, &p.arguments),
                    typed => (&typed[0], &typed.to_vec()),
                };
                let arguments = words.iter().skip(1).map(String::as_str);
                let words = std::iter::once(program_name(program)).chain(arguments);
                words.collect::<Vec<_>>().join(" ")
            }),
            takers: connection.query_row("SELECT threads FROM takers", [], |row| row.get(0))?,
            event: first.map_or(String::new(), |p| p.event.clone()),
            period_ns: first.map_or(0, |p| p.period_ns),
            runs: runs.len(),
            parts: parts.len(),
            cores: runs.iter().map(Run::cores).max().unwrap_or(0),
            sizes: runs.iter().map(Run::cores).collect(),
            threads: processes.iter().map(|p| u64::from(p.threads)).sum(),
            wall_ns: sum(walls.clone()),
            wait_ns: sum(runs.iter().zip(walls).map(|(run, wall)| run.wait(wall))),
            hosts: hosts.into_iter().map(|host| host.name).collect(),
            samples,
            rooted: samples.saturating_sub(partial(&lost)),
            sampled_ns: in_tree_ns,
            rooted_ns: in_tree_ns.saturating_sub(partial(&lost_ns)),
            missing: read_missing(connection)?,
            unprofiled: read_unprofiled(connection)?,
            unknown_caller_samples: counts(connection, "spawnerless", "runtime", "samples")?,
            oversubscribed_ns: all(|p| p.oversubscribed_ns),
            cpu_ns: all(|p| p.cpu_ns).max(sampled_ns),
            spinning_ns,
            estimated_wait_ns: all(|p| p.estimated_wait_ns),
            unknown_lock_wait_ns: all(|p| p.unknown_lock_wait_ns),
            run_delay_ns: all(|p| p.run_delay_ns),
            executables: processes.into_iter().map(|p| p.executable).collect(),
            lost,
            lost_ns,
        })
    }

    /// Estimated wall time in which nobody worked since others had the cores: threads were ready to run, and
    /// not because there are more of them than cores.
    pub fn others_ns(&self) -> i64 {
        self.run_delay_ns.saturating_sub(self.oversubscribed_ns).clamp(0, self.wait_ns)
    }

    /// For how long threads waited for a core that the program's own threads had. As many threads as cores
    /// can wait at once while others have these.
    pub fn competition_ns(&self) -> i64 {
        let cores = i64::from(self.cores);
        match self.run_delay_ns {
            _ if self.threads <= u64::from(self.cores) && self.oversubscribed_ns == 0 => 0,
            0 => self.oversubscribed_ns,
            delay => delay.saturating_sub(self.others_ns().saturating_mul(cores)).max(0),
        }
    }

    /// CPU time that no sample stands for.
    pub fn missing_ns(&self) -> i64 {
        sum(self.missing.iter().map(|(_, ns)| *ns))
    }

    /// Share of the samples that are rooted, each by the time that it stands for.
    pub fn rooted_percent(&self) -> f64 {
        match self.sampled_ns {
            0 => self.rooted as f64 * 100.0 / self.samples.max(1) as f64,
            all => self.rooted_ns as f64 * 100.0 / all as f64,
        }
    }
}

/// The parts of one job, which ran at the same time, by host.
#[derive(Default)]
struct Run(BTreeMap<u32, OnHost>);

/// What ran on one host.
#[derive(Default)]
struct OnHost {
    /// Most cores that a process could use on average.
    cores: f64,
    /// When each part ran.
    spans: Vec<Span>,
    effort: i64,
    /// Time in which someone worked, as far as samples know.
    busy: f64,
}

impl OnHost {
    /// Mean n while someone worked.
    fn mean_cores(&self) -> f64 {
        if self.busy > 0.0 { self.effort as f64 / self.busy } else { self.cores }
    }
}

/// First start and last end by the clock of a host, nanoseconds.
type Span = (i64, i64);

impl Run {
    fn all(parts: &[Part], processes: &[Process]) -> Vec<Run> {
        let mut runs: BTreeMap<i64, Run> = BTreeMap::new();
        let mut spans: BTreeMap<u32, Span> = BTreeMap::new();
        for process in processes {
            let (start, end) = (process.start_monotonic_ns, process.end_ns);
            let span = spans.entry(process.part).or_insert((start, end));
            *span = (span.0.min(start), span.1.max(end));
            let part = &parts[process.part as usize];
            let run = runs.entry(part.set).or_default();
            let host = run.0.entry(part.host).or_default();
            let effort = sum([process.working_ns, process.idleness_ns].into_iter());
            host.cores = host.cores.max(process.mean_cores);
            if process.mean_cores > 0.0 {
                host.effort = host.effort.saturating_add(effort);
                host.busy += effort as f64 / process.mean_cores;
            }
        }
        for (part, span) in spans {
            let Part { set, host, .. } = &parts[part as usize];
            let run = runs.entry(*set).or_default();
            run.0.entry(*host).or_default().spans.push(span);
        }
        runs.into_values().collect()
    }

    fn cores(&self) -> u32 {
        let cores = self.0.values().map(|host| host.mean_cores().round() as u32);
        cores.fold(0, u32::saturating_add)
    }

    /// How long it took: on the host that took longest.
    fn wall(&self, hosts: &[Host]) -> i64 {
        let walls = self.0.iter().map(|(host, OnHost { spans, .. })| {
            let longest = spans.iter().map(|s| s.1.saturating_sub(s.0)).max();
            match hosts[*host as usize].has_clock {
                true => covered(spans.clone()),
                false => longest.unwrap_or(0),
            }
        });
        walls.max().unwrap_or(0).max(0)
    }

    /// The part of its wall time that its effort does not fill.
    fn wait(&self, wall: i64) -> i64 {
        let effort: i64 = sum(self.0.values().map(|host| host.effort));
        let cores: f64 = self.0.values().map(OnHost::mean_cores).sum();
        let attributed = if cores > 0.0 { effort as f64 / cores } else { wall as f64 };
        wall.saturating_sub(attributed.round() as i64).max(0)
    }
}

/// The time within any of the spans.
fn covered(mut spans: Vec<Span>) -> i64 {
    spans.sort_unstable();
    let mut until = i64::MIN;
    let mut time = 0_i64;
    for (start, end) in spans {
        let start = start.max(until);
        time = time.saturating_add(end.saturating_sub(start).max(0));
        until = until.max(end);
    }
    time
}

fn read_hosts(connection: &Connection) -> Result<Vec<Host>> {
    let sql = "SELECT id, name, boot FROM host ORDER BY id";
    rows(connection, sql, 1, |row| {
        let boot: String = row.get(2)?;
        Ok(Host { name: row.get(1)?, has_clock: !boot.is_empty() })
    })
}

fn read_parts(connection: &Connection, hosts: References) -> Result<Vec<Part>> {
    let sql = "SELECT id, run_set, host, command FROM run ORDER BY id";
    rows(connection, sql, 1, |row| {
        let command = serde_json::from_str(&row.get::<_, String>(3)?);
        Ok(Part {
            set: row.get(1)?,
            host: hosts.index(row.get(2)?)?,
            command: command.map_err(|_| inconsistent("run.command"))?,
        })
    })
}

fn read_processes(connection: &Connection, parts: References) -> Result<Vec<Process>> {
    let sql =
        "SELECT id, image, executable, arguments, event, period_ns, mean_cores, threads, end_ns, run,
        cpu_ns, estimated_wait_ns, unknown_lock_wait_ns, COALESCE(t.samples, 0), COALESCE(t.idle, 0),
        COALESCE(t.oversubscribed, 0), COALESCE(v.working, 0), COALESCE(v.idleness, 0),
        run_delay_ns FROM process
        LEFT JOIN (SELECT process, SUM(samples) AS samples, SUM(idle_ns) AS idle,
            SUM(oversubscribed_ns) AS oversubscribed FROM thread GROUP BY process) t ON t.process = id
        LEFT JOIN (SELECT process, SUM(value) FILTER (WHERE metric IN (0, 2)) AS working,
            SUM(value) FILTER (WHERE metric = 1) AS idleness
            FROM thread_value JOIN thread ON id = thread GROUP BY process) v ON v.process = id
        ORDER BY id";
    rows(connection, sql, 1, |row| {
        let arguments: String = row.get(3)?;
        let arguments = serde_json::from_str(&arguments);
        Ok(Process {
            start_monotonic_ns: row.get(1)?,
            executable: row.get(2)?,
            arguments: arguments.map_err(|_| inconsistent("process.arguments"))?,
            event: row.get(4)?,
            period_ns: row.get(5)?,
            mean_cores: row.get(6)?,
            threads: row.get(7)?,
            end_ns: row.get(8)?,
            part: parts.index(row.get(9)?)?,
            cpu_ns: row.get(10)?,
            estimated_wait_ns: row.get(11)?,
            unknown_lock_wait_ns: row.get(12)?,
            samples: row.get(13)?,
            idle_ns: row.get(14)?,
            oversubscribed_ns: row.get(15)?,
            working_ns: row.get(16)?,
            idleness_ns: row.get(17)?,
            run_delay_ns: row.get(18)?,
        })
    })
}

fn read_missing(connection: &Connection) -> Result<Vec<(String, i64)>> {
    let sql = "SELECT id, what, nanoseconds FROM missing ORDER BY id";
    rows(connection, sql, 1, |row| Ok((row.get(1)?, row.get(2)?)))
}

fn read_unprofiled(connection: &Connection) -> Result<Vec<UnprofiledProgram>> {
    let sql = "SELECT id, program, reason, times FROM unprofiled ORDER BY id";
    rows(connection, sql, 1, |row| {
        Ok(UnprofiledProgram { program: row.get(1)?, reason: row.get(2)?, times: row.get(3)? })
    })
}

/// Sums of a column of a table, by key.
fn counts(
    connection: &Connection,
    table: &str,
    key: &str,
    column: &str,
) -> Result<BTreeMap<String, i64>> {
    let sql = format!("SELECT {key}, SUM({column}) FROM {table} GROUP BY 1");
    let mut query = connection.prepare(&sql)?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}
