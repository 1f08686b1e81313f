//! Writes the large tables as Parquet: each run, its contexts with its values, and the values of its threads
//! (FORMATS.md). Amounts are whole base units. Each run has folders of its own, so that many databases are
//! one partitioned dataset.

use crate::error::{Error, Result};
use crate::model::code::Code;
use crate::model::experiment::{Experiment, ProcessSummary};
use crate::model::statistics::signed;
use crate::model::symbols::Kind;
use crate::model::tree::{Label, SourceLocation, TreeNode, Values};
use crate::passes::merge::number::Numbers;
use crate::passes::merge::values::{Sink, Sums, ThreadValue};
use crate::schema;
use crate::table::{Column, Field, Table};
use hpc_formats::process::program_name;
use parquet::basic::Encoding;
use parquet::data_type::ByteArray;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use std::fs::{File, create_dir_all};
use std::io::{self, Write};
use std::iter::repeat_n;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Rows of the values of threads that are written together.
const ROWS: usize = 1 << 18;
/// Rows of contexts that are written together: they have more columns.
const CONTEXT_ROWS: usize = 1 << 16;
pub(super) const REMEDY: &str = "check that the disk has room, or give -o a directory on another disk";

/// A Parquet file of the database, as it was written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DataFile {
    /// Path in the database directory.
    pub path: String,
    pub bytes: u64,
    /// CRC-32 of all its bytes.
    pub crc32: u32,
}

/// A file with the checksum of what is written.
struct Summed {
    file: File,
    bytes: u64,
    sum: crc32fast::Hasher,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub(super) struct ColumnFile {
    path: PathBuf,
    table: Table<Summed>,
}

impl ColumnFile {
    pub(super) fn create(
        path: PathBuf,
        columns: &[Field<'_>],
        properties: WriterPropertiesBuilder,
    ) -> Result<ColumnFile> {
        if let Some(folder) = path.parent() {
            create_dir_all(folder).map_err(Error::io("create", folder))?;
        }
        let file = Summed {
            file: File::create(&path).map_err(Error::io("create", &path))?,
            bytes: 0,
            sum: crc32fast::Hasher::new(),
        };
        let table = Table::begin(file, columns, properties).map_err(|e| failed(&path, &e))?;
        Ok(ColumnFile { path, table })
    }

    pub(super) fn write(&mut self, columns: &mut [Field<'_>]) -> Result<()> {
        self.table.write(columns).map_err(|e| failed(&self.path, &e))
    }

    /// Ends the file, which is in a database directory.
    fn close(self, directory: &Path) -> Result<DataFile> {
        let ColumnFile { path, table } = self;
        let Summed { bytes, sum, .. } = table.close().map_err(|e| failed(&path, &e))?;
        let inside = path.strip_prefix(directory).unwrap_or(&path);
        Ok(DataFile { path: inside.to_string_lossy().into_owned(), bytes, crc32: sum.finalize() })
    }
}

fn failed(path: &Path, error: &parquet::errors::ParquetError) -> Error {
    Error::input(path, format!("cannot write: {error}"), REMEDY)
}

pub struct ColumnFiles<'a> {
    pub directory: &'a Path,
    pub experiment: &'a Experiment,
    pub logical: Projection<'a>,
    /// What only its contexts have.
    pub own: Own<'a>,
    /// The physical projection, where it differs.
    pub physical: Option<Projection<'a>>,
    /// Whether each run has traces.
    pub traced: Vec<bool>,
    /// The files that are complete.
    pub files: Mutex<Vec<DataFile>>,
}

pub struct Projection<'a> {
    pub contexts: &'a Numbers,
    pub scopes: Vec<u32>,
}

/// What only contexts of the logical projection have.
pub struct Own<'a> {
    /// The folded context of each that has values.
    pub folded: &'a [Option<u32>],
    pub keys: Vec<i64>,
}

/// A part of the values of a run's threads.
pub struct Part {
    table: ColumnFile,
    columns: [Field<'static>; 4],
    rows: usize,
}

impl Part {
    fn flush(&mut self) -> Result<()> {
        self.rows = 0;
        self.table.write(&mut self.columns)
    }
}

impl ColumnFiles<'_> {
    pub(super) fn close(&self, table: ColumnFile) -> Result<()> {
        let file = table.close(self.directory)?;
        // Nothing panics while it is held.
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.push(file);
        Ok(())
    }

    pub(super) fn folder(&self, table: &str, run: usize) -> PathBuf {
        let run = format!("run={}", self.experiment.runs[run].key);
        self.directory.join(table).join(run)
    }

    /// Writes the one row of a run, with its totals.
    fn write_run(&self, run: usize, totals: &[i64]) -> Result<()> {
        let path = self.folder(schema::RUNS, run).join(schema::RUN_FILE);
        let of_run = |p: &&ProcessSummary| p.run == run;
        let processes: Vec<_> = self.experiment.processes.iter().filter(of_run).collect();
        let first = processes.iter().min_by_key(|p| (p.start.image, p.start.pid));
        let arguments = first.map_or(&[][..], |p| &p.start.arguments);
        let threads: u32 = processes.iter().map(|p| p.threads).sum();
        let run = &self.experiment.runs[run];
        let host = &self.experiment.hosts[run.host];
        let long = |amount: u64| Column::Long(vec![signed(amount)]);
        let text = |text: &str| Column::Text(vec![ByteArray::from(text)]);
        let program = first.map_or("", |p| program_name(&p.start.executable));
        let cores = processes.iter().map(|p| p.start.cores).max();
        let arguments = serde_json::Value::from(arguments).to_string();
        let mut row = vec![
            ("key", text(&run.key)),
            ("host", text(&host.name)),
            ("boot", text(&host.boot)),
            ("job", text(&run.job)),
            ("directory", text(&run.directory)),
            ("program", text(program)),
            ("arguments", text(&arguments)),
            ("start_ns", long(run.start_ns)),
            ("wall_ns", long(run.wall_ns)),
            ("cores", long(cores.unwrap_or(0).into())),
            ("processes", long(processes.len() as u64)),
            ("threads", long(threads.into())),
        ];
        for (metric, total) in self.experiment.metrics.iter().zip(totals) {
            row.push((&metric.name, Column::Long(vec![*total])));
        }
        let mut table = ColumnFile::create(path, &row, WriterProperties::builder())?;
        table.write(&mut row)?;
        self.close(table)
    }

    /// Writes the contexts in which a run has values, or which its trace may name, and those above them.
    fn write_contexts(
        &self,
        path: PathBuf,
        Projection { contexts, scopes }: &Projection<'_>,
        own: Option<&Own<'_>>,
        (values, is_traced): (&Values, bool),
    ) -> Result<()> {
        let mut depths = Vec::with_capacity(contexts.len() as usize);
        let mut is_used = vec![false; contexts.len() as usize];
        for (id, node) in contexts.nodes().enumerate() {
            depths.push(node.parent.map_or(0, |p| depths[p as usize] + 1));
            let is_named = is_traced && contexts.sampled[id];
            if is_named || values.of(id as u32).iter().any(|v| *v != 0) {
                is_used[id] = true;
            }
        }
        for (id, node) in contexts.nodes().enumerate().rev() {
            if let (true, Some(parent)) = (is_used[id], node.parent) {
                is_used[parent as usize] = true;
            }
        }
        let used: Vec<u32> = (0..contexts.len()).filter(|id| is_used[*id as usize]).collect();
        let code = &self.experiment.code;
        let texts = Texts::new(code);
        let id = |id: u32| id as i32 + 1;
        let line = |at: SourceLocation| at.line as i32;
        let columns = |ids: &[u32]| {
            let nodes: Vec<TreeNode> = ids.iter().map(|id| contexts.node(*id)).collect();
            let nodes = || nodes.iter();
            // A line has the name of what it is a line of.
            let named = |n: &TreeNode| match (n.label, n.parent) {
                (Label::Line(_), Some(parent)) => contexts.node(parent).label,
                _ => n.label,
            };
            let module = |n: &TreeNode| Some(texts.modules[named(n).code(code)?.module? as usize].clone());
            let place = |n: &TreeNode| n.label.location(code);
            let file = |n: &TreeNode| Some(texts.files[place(n)?.file as usize].clone());
            let kinds = nodes().map(|n| texts.kinds[n.label.kind() as usize - 1].clone());
            let names = nodes().map(|n| texts.name(named(n)));
            let depths = ids.iter().map(|at| depths[*at as usize]);
            let scopes = ids.iter().map(|at| id(scopes[*at as usize]));
            let parents = nodes().map(|n| n.parent.map(id));
            let lines = nodes().map(|n| place(n).map(line));
            let calls = nodes().map(|n| n.call.location().map(line));
            let loops = nodes().map(|n| n.parallel_loop.map(id));
            let mut columns = vec![
                ("id", Column::Int(ids.iter().map(|at| id(*at)).collect())),
                ("parent", Column::OptionalInt(parents.collect())),
                ("depth", Column::Int(depths.collect())),
                ("scope", Column::Int(scopes.collect())),
                ("kind", Column::Text(kinds.collect())),
                ("name", Column::Text(names.collect())),
                ("module", Column::OptionalText(nodes().map(module).collect())),
                ("file", Column::OptionalText(nodes().map(file).collect())),
                ("line", Column::OptionalInt(lines.collect())),
                ("call_line", Column::OptionalInt(calls.collect())),
                ("parallel_loop", Column::OptionalInt(loops.collect())),
            ];
            if let Some(Own { folded, keys }) = own {
                let folded = ids.iter().map(|at| folded[*at as usize].map(id));
                let keys = ids.iter().map(|at| keys[*at as usize]);
                columns.push(("folded", Column::OptionalInt(folded.collect())));
                columns.push(("key", Column::Long(keys.collect())));
            }
            for (at, metric) in self.experiment.metrics.iter().enumerate() {
                let amounts = ids.iter().map(|id| values.of(*id)[at]);
                columns.push((&metric.name, Column::Long(amounts.collect())));
            }
            columns
        };
        let mut table = ColumnFile::create(path, &columns(&[]), properties(&columns(&[])))?;
        for ids in used.chunks(CONTEXT_ROWS) {
            table.write(&mut columns(ids))?;
        }
        self.close(table)
    }
}

fn properties(columns: &[Field<'_>]) -> WriterPropertiesBuilder {
    let delta = Encoding::DELTA_BINARY_PACKED;
    let encodings = [("id", delta), ("parent", delta), ("folded", delta), ("key", Encoding::PLAIN)];
    let mut properties = WriterProperties::builder();
    for (name, _) in columns.iter().filter(|(_, column)| column.is_text()) {
        let column = ColumnPath::from(*name);
        properties = properties.set_column_statistics_enabled(column, EnabledStatistics::None);
    }
    for (name, encoding) in encodings {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(name), false)
            .set_column_encoding(ColumnPath::from(name), encoding);
    }
    properties
}

/// All names as Parquet texts, which rows share.
struct Texts {
    kinds: [ByteArray; Kind::ALL.len()],
    procedures: Vec<ByteArray>,
    regions: Vec<ByteArray>,
    modules: Vec<ByteArray>,
    files: Vec<ByteArray>,
}

impl Texts {
    fn new(code: &Code) -> Texts {
        let text = |text: &String| ByteArray::from(text.as_str());
        Texts {
            kinds: Kind::ALL.map(|kind| ByteArray::from(kind.name())),
            procedures: code.procedures.iter().map(|p| text(&p.name)).collect(),
            regions: code.regions.iter().map(|r| text(&r.name)).collect(),
            modules: code.modules.iter().map(|m| text(&m.path)).collect(),
            files: code.files.iter().map(text).collect(),
        }
    }

    fn name(&self, label: Label) -> ByteArray {
        match label {
            Label::Loop(region) | Label::Partial(region) => self.regions[region as usize].clone(),
            label => label.procedure().map_or(ByteArray::new(), |p| self.procedures[p as usize].clone()),
        }
    }
}

impl Sink for ColumnFiles<'_> {
    type Part = Part;

    fn begin(&self, run: usize, part: usize) -> Result<Part> {
        let path = self.folder(schema::THREAD_VALUES, run).join(format!("part-{part:04}.parquet"));
        let columns = [
            ("thread", Column::Int(Vec::new())),
            ("metric", Column::Text(Vec::new())),
            ("context", Column::Int(Vec::new())),
            ("value", Column::Long(Vec::new())),
        ];
        let properties = WriterProperties::builder()
            .set_column_statistics_enabled(ColumnPath::from("metric"), EnabledStatistics::None)
            .set_column_dictionary_enabled(ColumnPath::from("context"), false)
            .set_column_encoding(ColumnPath::from("context"), Encoding::DELTA_BINARY_PACKED)
            .set_column_encoding(ColumnPath::from("value"), Encoding::DELTA_BINARY_PACKED);
        Ok(Part { table: ColumnFile::create(path, &columns, properties)?, columns, rows: 0 })
    }

    fn add(&self, part: &mut Part, thread: u32, values: &[ThreadValue]) -> Result<()> {
        let of_metrics = values.chunk_by(|a, b| a.metric == b.metric);
        for chunk in of_metrics.flat_map(|values| values.chunks(ROWS)) {
            if part.rows + chunk.len() > ROWS {
                part.flush()?;
            }
            let metric = &self.experiment.metrics[chunk[0].metric as usize];
            let name = ByteArray::from(metric.name.as_str());
            let rows = chunk.len();
            part.rows += rows;
            let [
                (_, Column::Int(threads)),
                (_, Column::Text(metrics)),
                (_, Column::Int(contexts)),
                (_, Column::Long(amounts)),
            ] = &mut part.columns
            else {
                unreachable!("columns stay as they were begun")
            };
            threads.extend(repeat_n(thread as i32 + 1, rows));
            metrics.extend(repeat_n(name, rows));
            contexts.extend(chunk.iter().map(|v| v.context as i32 + 1));
            amounts.extend(chunk.iter().map(|v| v.amount));
        }
        Ok(())
    }

    fn end(&self, mut part: Part) -> Result<()> {
        if part.rows > 0 {
            part.flush()?;
        }
        self.close(part.table)
    }

    fn run(&self, run: usize, Sums { logical, physical }: &Sums) -> Result<()> {
        let folder = self.folder(schema::CONTEXTS, run);
        self.write_run(run, &logical.totals())?;
        let write_logical = || {
            let path = folder.join(schema::LOGICAL_FILE);
            self.write_contexts(path, &self.logical, Some(&self.own), (logical, self.traced[run]))
        };
        let (Some(contexts), Some(values)) = (&self.physical, physical) else {
            return write_logical();
        };
        let write_physical = || {
            let path = folder.join(schema::PHYSICAL_FILE);
            self.write_contexts(path, contexts, None, (values, self.traced[run]))
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(write_physical);
            write_logical()?;
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}
