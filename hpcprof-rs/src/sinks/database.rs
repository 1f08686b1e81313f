//! Writes the catalogue of a database: names, runs, threads, and the folded tree with its values.

use crate::error::{Error, Result};
use crate::model::code::{Code, Procedure};
use crate::model::experiment::Experiment;
use crate::model::hash::FastMap;
use crate::model::keys;
use crate::model::metrics::{Metric, per_unit, standard_error};
use crate::model::summary::Summary;
use crate::model::symbols::Kind;
use crate::model::tree::{Call, SourceLocation, Tree};
use crate::model::warnings::Warnings;
use crate::passes::merge::values::Spreads;
use crate::schema;
use crate::sinks::columns::DataFile;
use crate::sinks::critical_path;
use crate::sinks::scopes::ScopeIds;
use crate::sinks::staged_directory::StagedDirectory;
use hpc_formats::profile::SAMPLES;
use rusqlite::{Connection, params};
use std::path::Path;

const REMEDY: &str = "check that the disk has room, or give -o a directory on another disk";

/// The tree and the views that are ready to be shown.
#[derive(Clone, Copy, Debug)]
pub struct FoldedTree<'a> {
    /// Its contexts, in preorder, and their values.
    pub tree: &'a Tree,
    /// How the values of threads are spread.
    pub spreads: &'a Spreads,
    /// The scopes of all trees.
    pub scopes: &'a ScopeIds,
    /// Views with their names, and the scopes of their nodes.
    pub summaries: &'a [(&'static str, Summary, Vec<Option<u32>>)],
}

/// Writes the catalogue into a staged directory, which the caller publishes.
pub fn write(
    experiment: &Experiment,
    folded: FoldedTree<'_>,
    files: &[DataFile],
    warnings: &Warnings,
    directory: &StagedDirectory,
) -> Result<()> {
    write_file(experiment, folded, files, warnings, &directory.file()).map_err(|e| Error::Input {
        path: directory.target().to_owned(),
        problem: format!("cannot write the database: {e}"),
        remedy: REMEDY,
    })
}

fn write_file(
    experiment: &Experiment,
    folded: FoldedTree<'_>,
    files: &[DataFile],
    warnings: &Warnings,
    path: &Path,
) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    // The file becomes visible only when it is complete, so it needs no journal.
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF;
         PRAGMA cache_size = -16384; PRAGMA application_id = {}; PRAGMA user_version = {};",
        schema::APPLICATION_ID,
        schema::VERSION
    ))?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(schema::CREATE)?;
    write_metrics(&transaction, experiment)?;
    write_runs(&transaction, experiment)?;
    write_processes(&transaction, experiment)?;
    write_threads(&transaction, experiment)?;
    write_code(&transaction, &experiment.code)?;
    write_scopes(&transaction, &experiment.code, folded.scopes)?;
    let samples_at = experiment.metrics.iter().position(|m| m.name == SAMPLES);
    write_contexts(&transaction, &experiment.code, samples_at, folded)?;
    write_summaries(&transaction, folded)?;
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
        transaction.execute(sql, params![name, contexts as i64, same_as])?;
    }
    for DataFile { path, bytes, crc32 } in files {
        let sql = "INSERT INTO data_file VALUES (?, ?, ?)";
        transaction.execute(sql, params![path, signed(*bytes), crc32])?;
    }
    for ((process, cause), samples) in &experiment.losses {
        transaction.execute(
            "INSERT INTO loss VALUES (?, ?, ?)",
            params![*process as i64 + 1, cause, signed(*samples)],
        )?;
    }
    for missing in &experiment.missing {
        transaction.execute(
            "INSERT INTO missing(what, nanoseconds) VALUES (?, ?)",
            params![missing.what, signed(missing.nanoseconds)],
        )?;
    }
    for row in &experiment.unprofiled {
        transaction.execute(
            "INSERT INTO unprofiled(program, reason, times) VALUES (?, ?, ?)",
            params![row.program, row.reason, row.times],
        )?;
    }
    critical_path::write(&transaction, &experiment.critical_paths)?;
    for line in warnings.lines() {
        transaction.execute("INSERT INTO note(text) VALUES (?)", [line])?;
    }
    transaction.execute_batch(&schema::create_views())?;
    transaction.commit()?;
    connection.close().map_err(|(_, e)| e)
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
        let total = experiment.totals.get(index).copied().unwrap_or(0);
        connection.execute("INSERT INTO total VALUES (?, ?)", [index as i64, total])?;
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
    let mut insert =
        connection.prepare("INSERT INTO parallel_loop VALUES (?,?,?,?,?,?,?,?,?,?,?)")?;
    for (index, known) in (0..).zip(&code.loops) {
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

fn write_scopes(connection: &Connection, code: &Code, scopes: &ScopeIds) -> rusqlite::Result<()> {
    let mut insert = connection.prepare("INSERT INTO scope VALUES (?,?,?,?,?,?,?,?,?,?,?)")?;
    for (index, scope) in (0..).zip(&scopes.all) {
        let (file, line) = location(scope.location);
        let (call_file, call_line) = location(scope.call.location());
        let calls = match scope.call {
            Call::Unknown => None,
            Call::Unique(_) => Some("one"),
            Call::Several => Some("several"),
        };
        insert.execute(params![
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
    Ok(())
}

/// Writes the folded tree. `samples_at` is the position of the number of samples among the metrics.
fn write_contexts(
    connection: &Connection,
    code: &Code,
    samples_at: Option<usize>,
    folded: FoldedTree<'_>,
) -> rusqlite::Result<()> {
    let tree = folded.tree;
    let count = tree.nodes.len();
    // The last context below each.
    let mut last: Vec<u32> = (0..count as u32).collect();
    for (number, node) in tree.nodes.iter().enumerate().rev() {
        if let Some(above) = node.parent {
            last[above as usize] = last[above as usize].max(last[number]);
        }
    }
    let keys = keys::contexts(tree, code);
    let inclusive = tree.inclusive();
    let mut insert = connection.prepare("INSERT INTO context VALUES (?,?,?,?,?,?,?,?)")?;
    let mut insert_value = connection.prepare("INSERT INTO value VALUES (?,?,?,?,?,?,?,?,?)")?;
    let mut depths: Vec<u32> = Vec::with_capacity(count);
    // The nearest context at or above each that is no loop.
    let mut owners: Vec<Option<u32>> = Vec::with_capacity(count);
    let mut callers: FastMap<u32, Option<u32>> = FastMap::default();
    for (number, node) in (0..).zip(&tree.nodes) {
        let above = node.parent;
        let depth = above.map_or(0, |p| depths[p as usize] + 1);
        depths.push(depth);
        let outer = above.and_then(|p| owners[p as usize]);
        let (owner, caller) = match (node.kind, outer) {
            (Kind::Loop, Some(outer)) => (outer, callers.get(&outer).copied().flatten()),
            _ => {
                callers.insert(number, outer);
                (number, outer)
            }
        };
        owners.push(Some(owner));
        insert.execute(params![
            id(number),
            id(last[number as usize]),
            above.map(id),
            depth,
            id(folded.scopes.folded[number as usize]),
            caller.map(id),
            node.recursion,
            keys[number as usize]
        ])?;
        let samples = samples_at.map_or(0, |at| inclusive.of(number)[at]);
        let values = inclusive.of(number).iter().zip(tree.exclusive.of(number));
        for (metric, (inclusive, exclusive)) in values.enumerate() {
            if *inclusive == 0 {
                continue;
            }
            let spread = folded.spreads.of(number, metric);
            insert_value.execute(params![
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
    Ok(())
}

/// Writes the stored views.
fn write_summaries(connection: &Connection, folded: FoldedTree<'_>) -> rusqlite::Result<()> {
    let mut insert = connection.prepare("INSERT INTO summary VALUES (?,?,?,?,?,?)")?;
    let mut insert_value = connection.prepare("INSERT INTO summary_value VALUES (?, ?, ?)")?;
    let mut before = 0;
    for (view, summary, scopes) in folded.summaries {
        let own_id = |index: u32| id(before + index);
        for (index, node) in (0..).zip(&summary.nodes) {
            insert.execute(params![
                own_id(index),
                view,
                node.parent.map(own_id),
                scopes[index as usize].map(id),
                node.context.map_or(1, |context| context.recursion),
                signed(node.nodes)
            ])?;
            for (metric, value) in summary.own.of(index).iter().enumerate() {
                if *value != 0 {
                    insert_value.execute(params![own_id(index), metric as i64, value])?;
                }
            }
        }
        before += summary.nodes.len() as u32;
    }
    Ok(())
}
