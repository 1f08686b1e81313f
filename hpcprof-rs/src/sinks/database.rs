//! Writes an experiment as a SQLite database.

use crate::error::{Error, Result};
use crate::model::contexts::{ContextIndex, ContextTree, MetricKey};
use crate::model::experiment::Experiment;
use crate::model::loops::ParallelLoops;
use crate::model::metrics::{self, IDLENESS, Metric, OVERHEAD, WORK};
use crate::model::symbols::{Line, ModuleIndex, Symbols, Text};
use crate::model::warnings::Warnings;
use crate::schema;
use crate::sinks::order::{self, ProcedureOrder};
use crate::sinks::staged_directory::StagedDirectory;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::path::Path;

const REMEDY: &str = "check that the disk has room, or give -o a directory on another disk";

/// Writes the database into a staged directory, which the caller publishes.
pub fn write(
    experiment: &Experiment,
    warnings: &Warnings,
    directory: &StagedDirectory,
) -> Result<()> {
    write_file(experiment, warnings, &directory.file()).map_err(|e| Error::Input {
        path: directory.target().to_owned(),
        problem: format!("cannot write the database: {e}"),
        remedy: REMEDY,
    })
}

fn write_file(experiment: &Experiment, warnings: &Warnings, path: &Path) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    // The file becomes visible only when it is complete, so it needs no journal.
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF;
         PRAGMA cache_size = -65536; PRAGMA application_id = {}; PRAGMA user_version = {};",
        schema::APPLICATION_ID,
        schema::VERSION
    ))?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(schema::CREATE)?;
    let metrics = metrics::all(&experiment.categories);
    write_metrics(&transaction, &metrics)?;
    write_processes(&transaction, experiment)?;
    write_threads(&transaction, experiment, &metrics)?;
    let symbols = &experiment.symbols;
    let order = order::procedures(symbols);
    let files = write_files(&transaction, experiment)?;
    write_procedures(&transaction, symbols, &order, &files)?;
    let writer = ContextWriter {
        connection: &transaction,
        symbols,
        order: &order,
        files: &files,
        categories: &experiment.categories,
    };
    let (logical, physical) = (&experiment.logical, &experiment.physical);
    let loops = writer.write_loops(&experiment.loops)?;
    let frames = &experiment.loops.frames;
    let next = writer.write(logical, 1, |context| {
        frames.get(&context).map(|index| loops[index.0 as usize])
    })?;
    writer.name(schema::LOGICAL, 1, next)?;
    if logical.contexts.as_slice() == physical.contexts.as_slice()
        && logical.exclusive_values == physical.exclusive_values
    {
        writer.name(schema::PHYSICAL, 1, next)?;
    } else {
        let end = writer.write(physical, next, |_| None)?;
        writer.name(schema::PHYSICAL, next, end)?;
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
    for line in warnings.lines() {
        transaction.execute("INSERT INTO note(text) VALUES (?)", [line])?;
    }
    transaction.commit()?;
    connection.close().map_err(|(_, e)| e)
}

/// SQLite has signed integers only; a forged counter beyond them is cut.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn write_metrics(connection: &Connection, metrics: &[Metric]) -> rusqlite::Result<()> {
    for (id, metric) in metrics.iter().enumerate() {
        connection.execute(
            "INSERT INTO metric VALUES (?, ?, 'nanoseconds', ?, ?)",
            params![
                id as i64,
                metric.name,
                metric.part_of.map(|m| m as i64),
                metric.description
            ],
        )?;
    }
    Ok(())
}

fn write_processes(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<()> {
    for (id, p) in experiment.processes.iter().enumerate() {
        let (start, cpu) = (&p.start, p.cpu());
        connection.execute(
            "INSERT INTO process VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            params![
                id as i64 + 1,
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
                p.run as i64 + 1,
                signed(cpu.process_ns),
                signed(cpu.children_ns),
                signed(cpu.unsampled_ns),
                signed(cpu.estimated_wait_ns)
            ],
        )?;
    }
    Ok(())
}

fn write_threads(
    connection: &Connection,
    experiment: &Experiment,
    metrics: &[Metric],
) -> rusqlite::Result<()> {
    for (id, t) in (1_i64..).zip(&experiment.threads) {
        let header = &t.header;
        connection.execute(
            "INSERT INTO thread VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            params![
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
            ],
        )?;
        for (runtime, samples) in &t.unknown_caller_samples {
            connection.execute(
                "INSERT INTO spawnerless VALUES (?, ?, ?)",
                params![id, signed(*samples), runtime.name()],
            )?;
        }
        for (index, metric) in metrics.iter().enumerate() {
            if let Some(value) = t.totals.get(&metric.name) {
                connection.execute(
                    "INSERT INTO thread_value VALUES (?, ?, ?)",
                    params![id, index as i64, value],
                )?;
            }
        }
    }
    Ok(())
}

/// The id of each text that is a file's path; 0 for other texts.
type FileIds = Vec<i64>;

/// Numbers and writes the files that procedures and contexts mention, sorted by path.
fn write_files(connection: &Connection, experiment: &Experiment) -> rusqlite::Result<FileIds> {
    let symbols = &experiment.symbols;
    let mut seen = vec![false; symbols.text_count()];
    let mut mention = |line: Option<Line>| {
        if let Some(line) = line {
            seen[line.file.0 as usize] = true;
        }
    };
    for procedure in &symbols.procedures {
        mention(procedure.declared);
    }
    for tree in [&experiment.logical, &experiment.physical] {
        for context in &tree.contexts {
            mention(context.line);
            mention(context.call);
        }
    }
    let mut used: Vec<(&str, Text)> = (0..seen.len() as u32)
        .map(Text)
        .filter(|text| seen[text.0 as usize])
        .map(|text| (symbols.text(text), text))
        .collect();
    used.sort_unstable();
    let mut ids = vec![0; symbols.text_count()];
    let mut insert = connection.prepare("INSERT INTO file VALUES (?, ?)")?;
    for (id, (path, text)) in (1..).zip(used) {
        insert.execute(params![id, path])?;
        ids[text.0 as usize] = id;
    }
    Ok(ids)
}

fn write_procedures(
    connection: &Connection,
    symbols: &Symbols,
    order: &ProcedureOrder,
    files: &[i64],
) -> rusqlite::Result<()> {
    // Numbers of modules depend on nothing but their paths and build ids.
    let mut modules: Vec<usize> = (0..symbols.modules.len()).collect();
    modules.sort_by_key(|m| (&symbols.modules[*m].path, &symbols.modules[*m].build_id));
    let mut module_ids = vec![0_i64; modules.len()];
    for (id, index) in (1..).zip(modules) {
        let module = &symbols.modules[index];
        module_ids[index] = id;
        let build_id: String = module.build_id.iter().map(|b| format!("{b:02x}")).collect();
        connection.execute(
            "INSERT INTO module VALUES (?, ?, ?, ?)",
            params![
                id,
                module.path,
                build_id,
                symbols.analysed.contains(&ModuleIndex(index as u32))
            ],
        )?;
    }
    let mut insert = connection.prepare("INSERT INTO procedure VALUES (?, ?, ?, ?, ?, ?)")?;
    for (id, index) in (1_i64..).zip(&order.sorted) {
        let procedure = &symbols.procedures[index.0 as usize];
        let (file, line) = location_columns(procedure.declared, files);
        insert.execute(params![
            id,
            symbols.text(procedure.name),
            procedure.module.map(|m| module_ids[m.0 as usize]),
            file,
            line,
            procedure.origin as u8
        ])?;
    }
    Ok(())
}

fn location_columns(line: Option<Line>, files: &[i64]) -> (Option<i64>, Option<i64>) {
    match line {
        Some(line) => (
            files.get(line.file.0 as usize).copied(),
            Some(i64::from(line.line)),
        ),
        None => (None, None),
    }
}

struct ContextWriter<'a> {
    connection: &'a Connection,
    symbols: &'a Symbols,
    order: &'a ProcedureOrder,
    files: &'a [i64],
    /// Overhead categories, sorted.
    categories: &'a [String],
}

impl ContextWriter<'_> {
    /// Says which contexts a projection has.
    fn name(&self, projection: &str, first: i64, end: i64) -> rusqlite::Result<()> {
        self.connection.execute(
            "INSERT INTO projection VALUES (?, ?, ?)",
            params![projection, first, end - 1],
        )?;
        Ok(())
    }

    /// Writes a tree with ids from `first`; returns the next free id. `loop_of` has the ids of the parallel
    /// loops that contexts are frames of.
    fn write(
        &self,
        tree: &ContextTree,
        first: i64,
        loop_of: impl Fn(ContextIndex) -> Option<i64>,
    ) -> rusqlite::Result<i64> {
        let placed = order::preorder(tree, self.symbols, self.order);
        let values = self.values(tree);
        let connection = self.connection;
        let mut insert = connection.prepare("INSERT INTO context VALUES (?,?,?,?,?,?,?,?,?,?)")?;
        let mut insert_frame = connection.prepare("INSERT INTO machinery VALUES (?, ?)")?;
        let mut insert_value = connection.prepare("INSERT INTO value VALUES (?, ?, ?)")?;
        for (id, place) in (first..).zip(&placed) {
            let context = &tree.contexts[place.context.0 as usize];
            let (file, line) = location_columns(context.line, self.files);
            let (call_file, call_line) = location_columns(context.call, self.files);
            let columns = [
                Some(id),
                Some(first + i64::from(place.subtree_end)),
                place.parent.map(|p| first + i64::from(p)),
                Some(context.kind as i64),
                Some(i64::from(self.order.rank(context.procedure)) + 1),
                file,
                line,
                call_file,
                call_line,
                Some(i64::from(context.is_runtime)),
            ];
            insert.execute(columns)?;
            if let Some(parallel_loop) = loop_of(place.context) {
                insert_frame.execute([id, parallel_loop])?;
            }
            for (_, metric, value) in values_of(&values, place.context.0) {
                insert_value.execute([id, *metric as i64, *value])?;
            }
        }
        Ok(first + placed.len() as i64)
    }

    /// Writes parallel loops; returns their ids.
    fn write_loops(&self, loops: &ParallelLoops) -> rusqlite::Result<Vec<i64>> {
        let ids = order::loops(loops, self.symbols, self.order);
        let ids: Vec<i64> = ids.into_iter().map(|rank| i64::from(rank) + 1).collect();
        let sql = "INSERT INTO parallel_loop VALUES (?,?,?,?,?,?,?,?,?,?,?)";
        let mut insert = self.connection.prepare(sql)?;
        for ((key, known), id) in loops.all.iter().zip(&ids) {
            let (file, line) = location_columns(key.call, self.files);
            let counts = known.counts;
            insert.execute(params![
                id,
                known.name,
                known.name_from_source,
                i64::from(self.order.rank(key.entry)) + 1,
                file,
                line,
                counts.map(|c| signed(c.splits)),
                counts.map(|c| signed(c.steals)),
                counts.map(|c| signed(c.stolen_ns)),
                known.sharing + 1,
                known.task_ns
            ])?;
        }
        Ok(ids)
    }

    /// Values sorted by context and metric, overhead both in all and by category.
    fn values(&self, tree: &ContextTree) -> Vec<(u32, usize, i64)> {
        let mut known: BTreeMap<Text, usize> = BTreeMap::new();
        let mut values = Vec::with_capacity(tree.exclusive_values.len());
        for ((context, metric), value) in &tree.exclusive_values {
            match metric {
                MetricKey::Work => values.push((context.0, WORK, *value)),
                MetricKey::Idleness => values.push((context.0, IDLENESS, *value)),
                MetricKey::Overhead(category) => {
                    values.push((context.0, OVERHEAD, *value));
                    let category = *known.entry(*category).or_insert_with(|| {
                        let name = self.symbols.text(*category);
                        self.categories.partition_point(|c| c.as_str() < name)
                    });
                    values.push((context.0, OVERHEAD + 1 + category, *value));
                }
            }
        }
        values.sort_unstable();
        // A context may have overhead of several categories: one sum for all of them.
        values.dedup_by(|next, kept| {
            let same = (next.0, next.1) == (kept.0, kept.1);
            if same {
                kept.2 = kept.2.saturating_add(next.2);
            }
            same
        });
        values
    }
}

/// The values of one context.
fn values_of(values: &[(u32, usize, i64)], context: u32) -> &[(u32, usize, i64)] {
    let start = values.partition_point(|v| v.0 < context);
    let count = values[start..].partition_point(|v| v.0 == context);
    &values[start..start + count]
}
