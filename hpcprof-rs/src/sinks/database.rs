//! Writes the catalogue of a database: names, runs, threads, and the folded tree with its values.

use crate::error::{Error, Result};
use crate::model::code::{Code, ParallelLoop, Procedure};
use crate::model::experiment::Experiment;
use crate::model::keys;
use crate::model::metrics::{Metric, per_unit, standard_error};
use crate::model::summary::Summary;
use crate::model::symbols::Kind;
use crate::model::tree::{Call, SourceLocation, TreeNode, Values};
use crate::model::warnings::Warnings;
use crate::passes::merge::values::Spreads;
use crate::schema;
use crate::sinks::columns::DataFile;
use crate::sinks::critical_path;
use crate::sinks::rows::Rows;
use crate::sinks::scopes::Scopes;
use crate::sinks::staged_directory::StagedDirectory;
use hpc_formats::profile::SAMPLES;
use rusqlite::{Connection, params};
use std::path::Path;

const REMEDY: &str = "check that the disk has room, or give -o a directory on another disk";

/// A catalogue that is being written, into a staged directory, which the caller publishes.
#[derive(Debug)]
pub struct Catalogue<'a> {
    connection: Connection,
    experiment: &'a Experiment,
    scopes: Scopes,
    directory: &'a StagedDirectory,
}

impl<'a> Catalogue<'a> {
    /// Writes what does not need values. The folded tree is the one that views open with: contexts in
    /// preorder, and their scopes.
    pub fn begin(
        experiment: &'a Experiment,
        folded: (&[TreeNode], &[u32]),
        scopes: Scopes,
        warnings: &Warnings,
        directory: &'a StagedDirectory,
    ) -> Result<Catalogue<'a>> {
        let written = begin_file(experiment, folded, warnings, &directory.file());
        Ok(Catalogue {
            connection: written.map_err(|e| failed(directory, &e))?,
            experiment,
            scopes,
            directory,
        })
    }

    /// Writes the values of the folded tree: its contexts' parents, their exclusive values, and how the
    /// values of threads are spread.
    pub fn write_values(
        &self,
        parents: &[Option<u32>],
        exclusive: &Values,
        spreads: &Spreads,
    ) -> Result<()> {
        let samples_at = (self.experiment.metrics.iter()).position(|m| m.name == SAMPLES);
        write_totals(&self.connection, &exclusive.totals())
            .and_then(|()| write_values(&self.connection, samples_at, parents, exclusive, spreads))
            .map_err(|e| failed(self.directory, &e))
    }

    /// Writes parallel loops, views with their names, and what is known of the files beside it, which are
    /// written.
    pub fn end(
        self,
        loops: &[ParallelLoop],
        summaries: &[(&'static str, Summary)],
        files: &[DataFile],
    ) -> Result<()> {
        let directory = self.directory;
        let ended = self.end_file(loops, summaries, files);
        ended.map_err(|e| failed(directory, &e))
    }

    fn end_file(
        mut self,
        loops: &[ParallelLoop],
        summaries: &[(&'static str, Summary)],
        files: &[DataFile],
    ) -> rusqlite::Result<()> {
        let (connection, code) = (&self.connection, &self.experiment.code);
        write_loops(connection, loops)?;
        write_summaries(connection, summaries, |summary| {
            let nodes = summary.nodes.iter().map(|node| node.context);
            self.scopes.add_some(code, nodes)
        })?;
        write_scopes(connection, code, &self.scopes)?;
        for DataFile { path, bytes, crc32 } in files {
            let sql = "INSERT INTO data_file VALUES (?, ?, ?)";
            connection.execute(sql, params![path, signed(*bytes), crc32])?;
        }
        connection.execute_batch("COMMIT")?;
        self.connection.close().map_err(|(_, e)| e)
    }
}

fn failed(directory: &StagedDirectory, error: &rusqlite::Error) -> Error {
    Error::Input {
        path: directory.target().to_owned(),
        problem: format!("cannot write the database: {error}"),
        remedy: REMEDY,
    }
}

fn begin_file(
    experiment: &Experiment,
    (folded, scopes): (&[TreeNode], &[u32]),
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
    write_contexts(&connection, &experiment.code, folded, scopes)?;
    let (logical, physical) = (experiment.logical_contexts, experiment.physical_contexts);
    for (name, contexts, same_as) in [
        ("logical", logical, None),
        (
            "physical",
            physical.unwrap_or(logical),
            physical.is_none().then_some("logical"),
        ),
    ] {
        let sql = "INSERT INTO projection VALUES (?, ?, ?)";
        connection.execute(sql, params![name, contexts, same_as])?;
    }
    for ((process, cause), samples) in &experiment.losses {
        connection.execute(
            "INSERT INTO loss VALUES (?, ?, ?)",
            params![*process as i64 + 1, cause, signed(*samples)],
        )?;
    }
    for missing in &experiment.missing {
        connection.execute(
            "INSERT INTO missing(what, nanoseconds) VALUES (?, ?)",
            params![missing.what, signed(missing.nanoseconds)],
        )?;
    }
    for row in &experiment.unprofiled {
        connection.execute(
            "INSERT INTO unprofiled(program, reason, times) VALUES (?, ?, ?)",
            params![row.program, row.reason, row.times],
        )?;
    }
    critical_path::write(&connection, &experiment.critical_paths)?;
    for line in warnings.lines() {
        connection.execute("INSERT INTO note(text) VALUES (?)", [line])?;
    }
    connection.execute_batch(&schema::create_views())?;
    Ok(connection)
}

/// SQLite has signed integers only; a forged counter beyond them is cut.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The id of the row with an index.
fn id(index: u32) -> i64 {
    i64::from(index) + 1
}

fn write_metrics(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<()> {
    for (index, metric) in experiment.metrics.iter().enumerate() {
        let Metric {
            name,
            unit,
            aggregation,
            part_of,
            description,
        } = metric;
        connection.execute(
            "INSERT INTO metric VALUES (?, ?, ?, ?, ?, ?, ?)",
            params![
                index as i64,
                name,
                unit.name(),
                aggregation.name(),
                per_unit(*unit),
                part_of.map(|m| m as i64),
                description
            ],
        )?;
    }
    Ok(())
}

fn write_totals(connection: &Connection, totals: &[i64]) -> rusqlite::Result<()> {
    for (metric, total) in (0..).zip(totals) {
        connection.execute("INSERT INTO total VALUES (?, ?)", [metric, *total])?;
    }
    Ok(())
}

fn write_runs(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<()> {
    for (index, host) in (0..).zip(&experiment.hosts) {
        let sql = "INSERT INTO host VALUES (?, ?, ?)";
        connection.execute(sql, params![id(index), host.name, host.boot])?;
    }
    for (index, run) in (0..).zip(&experiment.runs) {
        connection.execute(
            "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                id(index),
                run.key,
                run.set as i64 + 1,
                run.host as i64 + 1,
                run.job,
                run.directory,
                signed(run.start_ns),
                signed(run.wall_ns)
            ],
        )?;
    }
    Ok(())
}

fn write_processes(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<()> {
    for (id, p) in experiment.processes.iter().enumerate() {
        let (start, cpu) = (&p.start, p.cpu());
        connection.execute(
            "INSERT INTO process VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            params![
                id as i64 + 1,
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
                p.end.as_ref().map_or(0, |end| end.workers),
                p.threads,
                signed(start.realtime_ns),
                signed(p.end_ns),
                p.end.as_ref().map(|end| &end.reason),
                signed(cpu.process_ns),
                signed(cpu.children_ns),
                signed(cpu.unsampled_ns),
                signed(cpu.estimated_wait_ns),
                signed(cpu.unknown_lock_wait_ns)
            ],
        )?;
    }
    Ok(())
}

fn write_threads(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<()> {
    let mut insert_value = connection.prepare("INSERT INTO thread_value VALUES (?, ?, ?)")?;
    let mut insert = connection.prepare("INSERT INTO thread VALUES (?,?,?,?,?,?,?,?,?,?,?)")?;
    for (id, t) in (1_i64..).zip(&experiment.threads) {
        let header = &t.header;
        insert.execute(params![
            id,
            t.process as i64 + 1,
            header.thread,
            header.tid,
            header.name,
            header.finished,
            signed(t.samples),
            signed(header.cpu_ns),
            signed(t.idle_ns),
            signed(t.oversubscribed_ns),
            header.creator_thread
        ])?;
        for (runtime, samples) in &t.unknown_caller_samples {
            connection.execute(
                "INSERT INTO spawnerless VALUES (?, ?, ?)",
                params![id, signed(*samples), runtime.name()],
            )?;
        }
        for (index, metric) in (0_i64..).zip(&experiment.metrics) {
            let value = match metric.name.as_str() {
                SAMPLES => signed(t.samples),
                name => t.totals.get(name).copied().unwrap_or(0),
            };
            if value != 0 {
                insert_value.execute([id, index, value])?;
            }
        }
    }
    Ok(())
}

fn write_code(connection: &Connection, code: &Code) -> rusqlite::Result<()> {
    let mut insert = connection.prepare("INSERT INTO file VALUES (?, ?)")?;
    for (index, path) in (0..).zip(&code.files) {
        insert.execute(params![id(index), path])?;
    }
    let mut insert = connection.prepare("INSERT INTO module VALUES (?, ?, ?, ?)")?;
    for (index, module) in (0..).zip(&code.modules) {
        insert.execute(params![
            id(index),
            module.path,
            module.build_id,
            module.analysed
        ])?;
    }
    let (procedures, regions) = code.procedures.split_at(code.procedure_count);
    for (table, rows) in [("procedure", procedures), ("region", regions)] {
        let sql = format!("INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?)");
        let mut insert = connection.prepare(&sql)?;
        for (index, row) in (0..).zip(rows) {
            let Procedure {
                name,
                module,
                declared,
                origin,
            } = row;
            let (file, line) = location(*declared);
            let module = module.map(id);
            insert.execute(params![id(index), name, module, file, line, origin.name()])?;
        }
    }
    Ok(())
}

fn write_loops(connection: &Connection, loops: &[ParallelLoop]) -> rusqlite::Result<()> {
    let mut insert =
        connection.prepare("INSERT INTO parallel_loop VALUES (?,?,?,?,?,?,?,?,?,?,?)")?;
    for (index, known) in (0..).zip(loops) {
        let (file, line) = location(known.call);
        let counts = known.counts;
        insert.execute(params![
            id(index),
            known.name,
            known.quoted,
            id(known.entry),
            file,
            line,
            counts.map(|c| c.splits),
            counts.map(|c| c.steals),
            counts.map(|c| c.stolen_ns),
            known.shared_by,
            known.task_ns
        ])?;
    }
    Ok(())
}

/// The columns of a file and a line.
fn location(at: Option<SourceLocation>) -> (Option<i64>, Option<u32>) {
    (at.map(|at| id(at.file)), at.map(|at| at.line))
}

fn write_scopes(connection: &Connection, code: &Code, scopes: &Scopes) -> rusqlite::Result<()> {
    let mut rows = Rows::new(connection, "scope", 11);
    for (index, scope) in (0..).zip(scopes.all()) {
        let (file, line) = location(scope.location);
        let (call_file, call_line) = location(scope.call.location());
        let calls = match scope.call {
            Call::Unknown => None,
            Call::Unique(_) => Some("one"),
            Call::Several => Some("several"),
        };
        rows.add(params![
            id(index),
            scope.kind.name(),
            scope.procedure.map(id),
            scope.region.map(|r| id(r - code.procedure_count as u32)),
            scope.parallel_loop.map(id),
            file,
            line,
            call_file,
            call_line,
            calls,
            scope.is_runtime
        ])?;
    }
    rows.end()
}

/// Writes the contexts of the folded tree, each of which has a scope.
fn write_contexts(
    connection: &Connection,
    code: &Code,
    nodes: &[TreeNode],
    scopes: &[u32],
) -> rusqlite::Result<()> {
    let count = nodes.len();
    // The last context below each.
    let mut last: Vec<u32> = (0..count as u32).collect();
    for (number, node) in nodes.iter().enumerate().rev() {
        if let Some(above) = node.parent {
            last[above as usize] = last[above as usize].max(last[number]);
        }
    }
    let keys = keys::contexts(nodes.iter().copied(), code);
    let mut rows = Rows::new(connection, "context", 8);
    let mut depths: Vec<u32> = Vec::with_capacity(count);
    // The nearest context at or above each that is no loop.
    let mut owners: Vec<u32> = Vec::with_capacity(count);
    let mut callers: Vec<Option<u32>> = Vec::with_capacity(count);
    for (number, node) in (0..).zip(nodes) {
        let above = node.parent;
        let depth = above.map_or(0, |p| depths[p as usize] + 1);
        depths.push(depth);
        let outer = above.map(|p| owners[p as usize]);
        let (owner, caller) = match (node.kind, outer) {
            (Kind::Loop, Some(outer)) => (outer, callers[outer as usize]),
            _ => (number, outer),
        };
        owners.push(owner);
        callers.push(caller);
        rows.add(params![
            id(number),
            id(last[number as usize]),
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

/// Writes the values of the folded tree. `samples_at` is the position of the number of samples among the
/// metrics.
fn write_values(
    connection: &Connection,
    samples_at: Option<usize>,
    parents: &[Option<u32>],
    exclusive: &Values,
    spreads: &Spreads,
) -> rusqlite::Result<()> {
    let inclusive = exclusive.inclusive(parents.iter().copied());
    let mut rows = Rows::new(connection, "value", 9);
    for number in 0..parents.len() as u32 {
        let samples = samples_at.map_or(0, |at| inclusive.of(number)[at]);
        let values = inclusive.of(number).iter().zip(exclusive.of(number));
        for (metric, (inclusive, exclusive)) in values.enumerate() {
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
                standard_error(*inclusive as f64, samples)
            ])?;
        }
    }
    rows.end()
}

/// Writes the stored views.
fn write_summaries(
    connection: &Connection,
    summaries: &[(&str, Summary)],
    mut scopes: impl FnMut(&Summary) -> Vec<Option<u32>>,
) -> rusqlite::Result<()> {
    let mut rows = Rows::new(connection, "summary", 6);
    let mut values = Rows::new(connection, "summary_value", 3);
    let mut before = 0;
    for (view, summary) in summaries {
        let scopes = scopes(summary);
        let own_id = |index: u32| id(before + index);
        for (index, node) in (0..).zip(&summary.nodes) {
            rows.add(params![
                own_id(index),
                view,
                node.parent.map(own_id),
                scopes[index as usize].map(id),
                node.context.map_or(1, |context| context.recursion),
                signed(node.nodes)
            ])?;
            for (metric, value) in summary.own.of(index).iter().enumerate() {
                if *value != 0 {
                    values.add(params![own_id(index), metric as i64, value])?;
                }
            }
        }
        before += summary.nodes.len() as u32;
    }
    rows.end()?;
    values.end()
}
