//! Writes the catalogue of a database: names, runs, threads, and the folded tree with its values.

use crate::error::{Error, Result};
use crate::model::advice::Advice;
use crate::model::code::{Code, ParallelLoop};
use crate::model::critical_path;
use crate::model::errors::Errors;
use crate::model::experiment::Experiment;
use crate::model::keys;
use crate::model::metrics::per_unit;
use crate::model::statistics::{Statistics, signed};
use crate::model::tree::{self, Call, Label, SourceLocation, TreeNode, Values};
use crate::model::warnings::Warnings;
use crate::passes::merge::values::Spreads;
use crate::schema;
use crate::sinks::columns::{DataFile, REMEDY};
use crate::sinks::rows::{Rows, insert};
use crate::sinks::scopes::Scopes;
use crate::sinks::staged_directory::StagedDirectory;
use hpc_formats::profile::SAMPLES;
use rusqlite::{Connection, params};
use std::path::Path;

/// A catalogue that is being written, into a staged directory, which the caller publishes.
#[derive(Debug)]
pub struct Catalogue<'a> {
    connection: Connection,
    experiment: &'a Experiment,
    directory: &'a StagedDirectory,
}

impl<'a> Catalogue<'a> {
    /// Writes what does not need values. The folded tree is the one that views open with: contexts in
    /// preorder, and their scopes.
    pub fn begin(
        experiment: &'a Experiment,
        folded: (&[TreeNode], &[u32]),
        scopes: &Scopes,
        warnings: &Warnings,
        directory: &'a StagedDirectory,
    ) -> Result<Catalogue<'a>> {
        let written = begin_file(experiment, folded, scopes, warnings, &directory.file());
        let connection = written.map_err(|e| failed(directory, &e))?;
        Ok(Catalogue { connection, experiment, directory })
    }

    /// Writes the values of the folded tree: its contexts' parents, their exclusive values, and how the
    /// values of threads are spread.
    pub fn write_values(&self, parents: &[Option<u32>], exclusive: &Values, spreads: &Spreads) -> Result<()> {
        let metrics = &self.experiment.metrics;
        let totals = exclusive.totals();
        let samples = metrics.iter().position(|m| m.name == SAMPLES).map_or(0, |at| totals[at]);
        let errors = Errors { metrics, samples };
        let total = |rows: &mut Rows<'_>, number, total| rows.add(params![number - 1, total]);
        insert(&self.connection, "total", totals, total)
            .and_then(|()| write_values(&self.connection, errors, parents, exclusive, spreads))
            .map_err(|e| failed(self.directory, &e))
    }

    /// Writes parallel loops, and what is known of the files beside it, which are written.
    pub fn end(self, loops: &[ParallelLoop], files: &[DataFile]) -> Result<()> {
        let directory = self.directory;
        self.end_file(loops, files).map_err(|e| failed(directory, &e))
    }

    fn end_file(self, loops: &[ParallelLoop], files: &[DataFile]) -> rusqlite::Result<()> {
        let connection = &self.connection;
        write_loops(connection, loops)?;
        insert(connection, "data_file", files, |rows, _, file| {
            rows.add(params![file.path, signed(file.bytes), file.crc32])
        })?;
        connection.execute_batch("COMMIT")?;
        self.connection.close().map_err(|(_, e)| e)
    }
}

/// Adds the advice to a database that is complete but for that, and not published.
pub fn add_advice(directory: &StagedDirectory, advice: &Advice) -> Result<()> {
    let add = || {
        let connection = Connection::open(directory.path().join(schema::FILE_NAME))?;
        connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")?;
        let json = serde_json::to_string(advice);
        let json = json.map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
        connection.execute("INSERT INTO advice VALUES(?)", [json])
    };
    add().map(drop).map_err(|e| failed(directory, &e))
}

fn failed(directory: &StagedDirectory, error: &rusqlite::Error) -> Error {
    let problem = format!("cannot write the database: {error}");
    Error::input(directory.target(), problem, REMEDY)
}

fn begin_file(
    experiment: &Experiment,
    (folded, scopes_of): (&[TreeNode], &[u32]),
    scopes: &Scopes,
    warnings: &Warnings,
    path: &Path,
) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    // The file becomes visible only when it is complete, so it needs no journal.
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF;
         PRAGMA cache_size = -16384; PRAGMA application_id = {}; PRAGMA user_version = {};",
        schema::APPLICATION_ID,
        schema::VERSION
    ))?;
    connection.execute_batch("BEGIN")?;
    connection.execute_batch(schema::CREATE)?;
    write_metrics(&connection, experiment)?;
    write_runs(&connection, experiment)?;
    write_processes(&connection, experiment)?;
    write_threads(&connection, experiment)?;
    write_code(&connection, &experiment.code)?;
    write_scopes(&connection, scopes)?;
    write_contexts(&connection, &experiment.code, folded, scopes_of)?;
    let (logical, physical) = (experiment.logical_contexts, experiment.physical_contexts);
    let same_as = physical.is_none().then_some("logical");
    let projections = [("logical", logical, None), ("physical", physical.unwrap_or(logical), same_as)];
    insert(&connection, "projection", projections, |rows, _, (name, contexts, same_as)| {
        rows.add(params![name, contexts, same_as])
    })?;
    insert(&connection, "loss", &experiment.losses, |rows, _, ((process, cause), loss)| {
        let (samples, time) = (signed(loss.samples), signed(loss.nanoseconds));
        rows.add(params![*process as i64 + 1, cause, samples, time])
    })?;
    insert(&connection, "missing", &experiment.missing, |rows, id, missing| {
        rows.add(params![id, missing.what, signed(missing.nanoseconds)])
    })?;
    insert(&connection, "unprofiled", &experiment.unprofiled, |rows, id, row| {
        rows.add(params![id, row.program, row.reason, row.times])
    })?;
    insert(&connection, "critical_path", &experiment.critical_paths, |rows, _, (process, path)| {
        rows.add(params![*process as i64 + 1, signed(path.span), critical_path::encode(path)])
    })?;
    let statistics = serde_json::json!(Statistics::of(experiment)).to_string();
    insert(&connection, "statistics", [statistics], |rows, _, json| rows.add(params![json]))?;
    insert(&connection, "note", warnings.lines(), |rows, id, line| rows.add(params![id, line]))?;
    connection.execute_batch(&schema::create_views())?;
    Ok(connection)
}

/// The id of the row with an index.
fn id(index: u32) -> i64 {
    i64::from(index) + 1
}

fn write_metrics(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<()> {
    insert(connection, "metric", &experiment.metrics, |rows, number, m| {
        rows.add(params![
            number - 1,
            m.name,
            m.unit.name(),
            m.aggregation.name(),
            per_unit(m.unit),
            m.part_of.map(|m| m as i64),
            m.description
        ])
    })
}

fn write_runs(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<()> {
    insert(connection, "host", &experiment.hosts, |rows, id, host| {
        rows.add(params![id, host.name, host.boot])
    })?;
    insert(connection, "run", &experiment.runs, |rows, id, run| {
        rows.add(params![
            id,
            run.key,
            run.set as i64 + 1,
            run.host as i64 + 1,
            run.job,
            run.directory,
            serde_json::Value::from(run.command.clone()).to_string(),
            signed(run.start_ns),
            signed(run.wall_ns)
        ])
    })
}

fn write_processes(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<()> {
    insert(connection, "process", &experiment.processes, |rows, id, p| {
        let (start, cpu) = (&p.start, p.cpu());
        rows.add(params![
            id,
            p.run as i64 + 1,
            start.pid,
            start.ppid,
            signed(start.image),
            start.executable,
            serde_json::Value::from(start.arguments.clone()).to_string(),
            start.directory,
            start.event,
            start.source,
            signed(start.period_ns),
            start.cores,
            p.mean_cores(),
            p.end.as_ref().map_or(0, |end| end.workers),
            p.threads,
            signed(start.realtime_ns),
            signed(p.end_ns),
            p.end.as_ref().map(|end| &end.reason),
            signed(cpu.process_ns),
            signed(cpu.children_ns),
            signed(cpu.unsampled_ns),
            signed(cpu.estimated_wait_ns),
            signed(cpu.unknown_lock_wait_ns),
            signed(cpu.run_delay_ns)
        ])
    })
}

fn write_threads(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<()> {
    let mut values = Rows::new(connection, "thread_value");
    let mut unknown_callers = Rows::new(connection, "spawnerless");
    insert(connection, "thread", &experiment.threads, |rows, id, t| {
        for (runtime, samples) in &t.unknown_caller_samples {
            unknown_callers.add(params![id, signed(*samples), runtime.0])?;
        }
        for (index, metric) in (0_i64..).zip(&experiment.metrics) {
            let value = match metric.name.as_str() {
                SAMPLES => signed(t.samples),
                name => t.totals.get(name).copied().unwrap_or(0),
            };
            if value != 0 {
                values.add(params![id, index, value])?;
            }
        }
        rows.add(params![
            id,
            t.process as i64 + 1,
            t.header.thread,
            t.header.tid,
            t.header.name,
            t.header.finished,
            signed(t.samples),
            signed(t.header.cpu_ns),
            signed(t.idle_ns),
            signed(t.oversubscribed_ns),
            t.header.creator_thread
        ])
    })?;
    values.end()?;
    unknown_callers.end()
}

fn write_code(connection: &Connection, code: &Code) -> rusqlite::Result<()> {
    insert(connection, "file", &code.files, |rows, id, path| rows.add(params![id, path]))?;
    insert(connection, "module", &code.modules, |rows, id, m| {
        rows.add(params![id, m.path, m.build_id, m.analysed])
    })?;
    for (table, all) in [("procedure", &code.procedures), ("region", &code.regions)] {
        insert(connection, table, all, |rows, number, p| {
            let (file, line) = location(p.declared);
            let (module, origin) = (p.module.map(id), p.origin.name());
            let row = params![number, p.name, module, file, line, origin, p.position];
            rows.add(if table == "region" { row } else { &row[..6] })
        })?;
    }
    Ok(())
}

fn write_loops(connection: &Connection, loops: &[ParallelLoop]) -> rusqlite::Result<()> {
    insert(connection, "parallel_loop", loops, |rows, number, known| {
        let (file, line) = location(known.call);
        let counts = known.counts;
        rows.add(params![
            number,
            known.name,
            known.quoted,
            id(known.entry),
            file,
            line,
            counts.map(|c| c.splits),
            counts.map(|c| c.steals),
            counts.map(|c| c.stolen_ns),
            counts.map(|c| c.executions),
            counts.map(|c| c.outside),
            counts.map(|c| c.chunks),
            counts.map(|c| c.iterations),
            known.shared_by,
            known.task_ns
        ])
    })
}

/// The columns of a file and a line.
fn location(at: Option<SourceLocation>) -> (Option<i64>, Option<u32>) {
    (at.map(|at| id(at.file)), at.map(|at| at.line))
}

fn write_scopes(connection: &Connection, scopes: &Scopes) -> rusqlite::Result<()> {
    insert(connection, "scope", scopes.all(), |rows, number, scope| {
        let (own, parallel_loop) = match scope.label {
            Label::Line(at) => (Some(at), None),
            Label::ParallelLoop(index) => (None, Some(index)),
            _ => (None, None),
        };
        let (file, line) = location(own);
        let (call_file, call_line) = location(scope.call.location());
        let calls = match scope.call {
            Call::Unknown => None,
            Call::Unique(_) => Some("one"),
            Call::Several => Some("several"),
        };
        rows.add(params![
            number,
            scope.label.kind().name(),
            scope.procedure.map(id),
            scope.region.map(id),
            parallel_loop.map(id),
            file,
            line,
            call_file,
            call_line,
            calls,
            scope.is_runtime
        ])
    })
}

/// Writes the contexts of the folded tree, each of which has a scope.
fn write_contexts(
    connection: &Connection,
    code: &Code,
    nodes: &[TreeNode],
    scopes: &[u32],
) -> rusqlite::Result<()> {
    let count = nodes.len();
    let ends = tree::ends(nodes.iter().map(|node| node.parent));
    let keys = keys::contexts(nodes.iter().copied(), code);
    let mut rows = Rows::new(connection, "context");
    let mut depths: Vec<u32> = Vec::with_capacity(count);
    // The nearest context at or above each that is no loop.
    let mut owners: Vec<u32> = Vec::with_capacity(count);
    let mut callers: Vec<Option<u32>> = Vec::with_capacity(count);
    for (number, node) in (0..).zip(nodes) {
        let above = node.parent;
        let depth = above.map_or(0, |p| depths[p as usize] + 1);
        depths.push(depth);
        let outer = above.map(|p| owners[p as usize]);
        let (owner, caller) = match (node.label, outer) {
            (Label::Loop(_), Some(outer)) => (outer, callers[outer as usize]),
            _ => (number, outer),
        };
        owners.push(owner);
        callers.push(caller);
        rows.add(params![
            id(number),
            ends[number as usize],
            above.map(id),
            depth,
            id(scopes[number as usize]),
            caller.map(id),
            node.recursion,
            keys[number as usize]
        ])?;
    }
    rows.end()
}

/// Writes the values of the folded tree.
fn write_values(
    connection: &Connection,
    errors: Errors<'_>,
    parents: &[Option<u32>],
    exclusive: &Values,
    spreads: &Spreads,
) -> rusqlite::Result<()> {
    let inclusive = exclusive.inclusive(parents.iter().copied());
    let mut rows = Rows::new(connection, "value");
    for number in 0..parents.len() as u32 {
        let all = inclusive.of(number);
        for (metric, (inclusive, exclusive)) in all.iter().zip(exclusive.of(number)).enumerate() {
            if *inclusive == 0 {
                continue;
            }
            let spread = spreads.of(number, metric);
            rows.add(params![
                id(number),
                metric as i64,
                inclusive,
                exclusive,
                spread.map(|s| s.threads),
                spread.map(|s| s.least),
                spread.map(|s| s.most),
                spread.map(|s| s.sigma(*inclusive)),
                errors.of(metric, all).map(|sampled| sampled.error)
            ])?;
        }
    }
    rows.end()
}
