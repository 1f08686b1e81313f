//! Adds up the values of threads in some contexts, from the Parquet files of all runs. Files are read in
//! batches, so memory follows the number of threads; of a batch without such a context no other column is
//! read.

use crate::model::metrics::Metric;
use crate::schema;
use parquet::basic::Type as PhysicalType;
use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Rows that are read together.
const BATCH: usize = 1 << 16;

/// Contexts of the folded tree: ranges of ids with their ends, in order, none within another one.
pub(super) type Ranges = [(i64, i64)];

/// Values of threads by metric; `None` for threads without any.
pub(super) type ByThread = Vec<Option<Vec<i64>>>;

/// The values of all threads in the contexts that are folded into some of the ranges.
pub(super) fn read(
    database: &Path,
    ranges: &Ranges,
    metrics: &[Metric],
    threads: usize,
) -> Result<ByThread> {
    let mut values: ByThread = vec![None; threads];
    let contexts = files(&database.join(schema::CONTEXTS), |name| {
        name == schema::LOGICAL_FILE
    })?;
    let mut wanted = Ids::default();
    for file in contexts {
        read_contexts(&file, ranges, &mut wanted)?;
    }
    let parts = files(&database.join(schema::THREAD_VALUES), |name| {
        name.starts_with("part-") && name.ends_with(".parquet")
    })?;
    for file in parts {
        read_values(&file, &wanted, metrics, &mut values)?;
    }
    Ok(values)
}

/// The files of all runs in a folder, whose names `is_file` knows.
fn files(folder: &Path, is_file: impl Fn(&str) -> bool) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for run in std::fs::read_dir(folder)? {
        for entry in std::fs::read_dir(run?.path())? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(&is_file) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// A set of ids of contexts.
#[derive(Default)]
struct Ids(Vec<u64>);

impl Ids {
    fn insert(&mut self, id: i32) {
        let Ok(id) = usize::try_from(id) else { return };
        if id / 64 >= self.0.len() {
            self.0.resize(id / 64 + 1, 0);
        }
        self.0[id / 64] |= 1 << (id % 64);
    }

    fn contains(&self, id: i32) -> bool {
        let word = usize::try_from(id).ok().and_then(|id| self.0.get(id / 64));
        word.is_some_and(|word| word >> (id % 64) & 1 == 1)
    }
}

fn is_within(ranges: &Ranges, id: i32) -> bool {
    let id = i64::from(id);
    let before = ranges.partition_point(|(first, _)| *first <= id);
    before.checked_sub(1).is_some_and(|at| id <= ranges[at].1)
}

/// Finds the contexts that are folded into the ranges.
fn read_contexts(file: &Path, ranges: &Ranges, wanted: &mut Ids) -> Result<()> {
    let reader = SerializedFileReader::new(File::open(file)?)?;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        let mut ids = Column::<Int32Type>::open(group.as_ref(), "id", PhysicalType::INT32)?;
        let mut folded = Column::<Int32Type>::open(group.as_ref(), "folded", PhysicalType::INT32)?;
        for rows in batches(group.as_ref()) {
            ids.read(rows)?;
            folded.read(rows)?;
            let mut known = folded.values.iter();
            for (id, level) in ids.values.iter().zip(&folded.levels) {
                let target = if *level > 0 { known.next() } else { None };
                if target.is_some_and(|target| is_within(ranges, *target)) {
                    wanted.insert(*id);
                }
            }
        }
    }
    Ok(())
}

/// Adds the values of a file in wanted contexts to those of their threads.
fn read_values(file: &Path, wanted: &Ids, metrics: &[Metric], values: &mut ByThread) -> Result<()> {
    let wrong = || ParquetError::General("a reference leads nowhere".to_owned());
    let reader = SerializedFileReader::new(File::open(file)?)?;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        let group = group.as_ref();
        let mut contexts = Column::<Int32Type>::open(group, "context", PhysicalType::INT32)?;
        let mut threads = Column::<Int32Type>::open(group, "thread", PhysicalType::INT32)?;
        let mut names = Column::<ByteArrayType>::open(group, "metric", PhysicalType::BYTE_ARRAY)?;
        let mut amounts = Column::<Int64Type>::open(group, "value", PhysicalType::INT64)?;
        for rows in batches(group) {
            contexts.read(rows)?;
            if !contexts.values.iter().any(|id| wanted.contains(*id)) {
                threads.skip(rows)?;
                names.skip(rows)?;
                amounts.skip(rows)?;
                continue;
            }
            threads.read(rows)?;
            names.read(rows)?;
            amounts.read(rows)?;
            for (row, _) in contexts
                .values
                .iter()
                .enumerate()
                .filter(|(_, id)| wanted.contains(**id))
            {
                let name = names.values[row].data();
                let metric = metrics.iter().position(|m| m.name.as_bytes() == name);
                let thread = usize::try_from(threads.values[row]).ok();
                let thread = thread.and_then(|t| values.get_mut(t.checked_sub(1)?));
                let (Some(metric), Some(thread)) = (metric, thread) else {
                    return Err(wrong());
                };
                let sum = &mut thread.get_or_insert_with(|| vec![0; metrics.len()])[metric];
                *sum = sum.saturating_add(amounts.values[row]);
            }
        }
    }
    Ok(())
}

/// The numbers of rows of the batches of a row group.
fn batches(group: &dyn RowGroupReader) -> impl Iterator<Item = usize> + use<> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    (0..rows)
        .step_by(BATCH)
        .map(move |begin| BATCH.min(rows - begin))
}

/// A column of a row group, and what was read of it last.
struct Column<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    /// Of an optional column whether each row has a value.
    levels: Vec<i16>,
}

impl<T: DataType> Column<T> {
    fn open(group: &dyn RowGroupReader, name: &str, kind: PhysicalType) -> Result<Self> {
        let columns = group.metadata().columns();
        let is_it = |c: &parquet::file::metadata::ColumnChunkMetaData| {
            c.column_path().string() == name && c.column_type() == kind
        };
        let index = columns.iter().position(is_it);
        let wrong = || ParquetError::General(format!("no column `{name}` of the right type"));
        let reader = group.get_column_reader(index.ok_or_else(wrong)?)?;
        Ok(Column {
            reader: get_typed_column_reader(reader),
            values: Vec::new(),
            levels: Vec::new(),
        })
    }

    fn read(&mut self, rows: usize) -> Result<()> {
        self.values.clear();
        self.levels.clear();
        let mut records = 0;
        while records < rows {
            let (read, _, _) = self.reader.read_records(
                rows - records,
                Some(&mut self.levels),
                None,
                &mut self.values,
            )?;
            if read == 0 {
                return Err(ParquetError::General("a column ends early".to_owned()));
            }
            records += read;
        }
        // Without levels every row has a value.
        match self.levels.is_empty() && self.values.len() != rows {
            true => Err(ParquetError::General("a column has gaps".to_owned())),
            false => Ok(()),
        }
    }

    fn skip(&mut self, rows: usize) -> Result<()> {
        self.reader.skip_records(rows).map(|_| ())
    }
}
