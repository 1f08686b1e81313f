//! Reads the contexts of one projection with their values, from the Parquet files of all runs.

use crate::catalogue::code::Scope;
use crate::catalogue::files::DataFile;
use crate::model::metrics::Metric;
use crate::model::tree::{Tree, TreeNode, Values};
use parquet::basic::Type as PhysicalType;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{FileReader, RowGroupReader};

/// What is known of the contexts that are read.
pub(super) struct Names<'a> {
    pub(super) scopes: &'a [Scope],
    pub(super) loops: usize,
    pub(super) metrics: &'a [Metric],
}

/// Reads a tree of `contexts` contexts. Each is in the files of the runs in which it has values.
pub(super) fn read(files: &[DataFile], contexts: usize, names: &Names<'_>) -> Result<Tree> {
    let missing = || ParquetError::General("contexts are missing".to_owned());
    let readers: Vec<_> = files.iter().map(DataFile::open).collect::<Result<_>>()?;
    let rows = readers
        .iter()
        .map(|r| r.metadata().file_metadata().num_rows());
    let rows = rows.fold(0, i64::saturating_add);
    // Memory is for contexts that are there.
    if i64::try_from(contexts).is_ok_and(|contexts| contexts > rows) {
        return Err(missing());
    }
    let mut nodes: Vec<Option<TreeNode>> = vec![None; contexts];
    let mut exclusive = Values::of_nodes(names.metrics.len(), contexts);
    for reader in readers {
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            let rows = Columns::new(group.as_ref());
            let ids = rows.ints("id")?;
            let parents = rows.optional("parent")?;
            let scopes = rows.ints("scope")?;
            let loops = rows.optional("parallel_loop")?;
            let wrong = || ParquetError::General("a reference leads nowhere".to_owned());
            for (row, id) in ids.iter().enumerate() {
                let index = |id: i32, count: usize| {
                    let index = usize::try_from(id.wrapping_sub(1)).ok();
                    index
                        .filter(|i| *i < count)
                        .map(|i| i as u32)
                        .ok_or_else(wrong)
                };
                let id = index(*id, contexts)?;
                // A parent comes before its children.
                let parent = parents[row].map(|p| index(p, id as usize)).transpose()?;
                let scope = &names.scopes[index(scopes[row], names.scopes.len())? as usize];
                let known = loops[row].map(|l| index(l, names.loops)).transpose()?;
                nodes[id as usize] = Some(TreeNode {
                    parallel_loop: known,
                    ..scope.node(parent, 1)
                });
            }
            for (position, metric) in names.metrics.iter().enumerate() {
                let amounts = rows.longs(&metric.name)?;
                for (id, amount) in ids.iter().zip(amounts) {
                    exclusive.add_one(*id as u32 - 1, position, amount);
                }
            }
        }
    }
    let nodes = nodes
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(missing)?;
    Ok(Tree { nodes, exclusive })
}

/// The columns of a row group by name.
struct Columns<'a> {
    group: &'a dyn RowGroupReader,
    rows: usize,
}

impl<'a> Columns<'a> {
    fn new(group: &'a dyn RowGroupReader) -> Columns<'a> {
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        Columns { group, rows }
    }

    /// Values, and for an optional column whether each row has one.
    fn read<T: DataType>(&self, name: &str, kind: PhysicalType) -> Result<(Vec<T::T>, Vec<i16>)> {
        let wrong = || ParquetError::General(format!("no column `{name}` of the right type"));
        let columns = self.group.metadata().columns();
        let index = columns
            .iter()
            .position(|c| c.column_path().string() == name);
        let index = index
            .filter(|i| columns[*i].column_type() == kind)
            .ok_or_else(wrong)?;
        let mut reader = get_typed_column_reader::<T>(self.group.get_column_reader(index)?);
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let mut records = 0;
        while records < self.rows {
            let (read, _, _) =
                reader.read_records(self.rows - records, Some(&mut levels), None, &mut values)?;
            if read == 0 {
                return Err(ParquetError::General(format!("column `{name}` ends early")));
            }
            records += read;
        }
        Ok((values, levels))
    }

    fn ints(&self, name: &str) -> Result<Vec<i32>> {
        let values = self.read::<Int32Type>(name, PhysicalType::INT32)?.0;
        self.checked(values)
    }

    fn longs(&self, name: &str) -> Result<Vec<i64>> {
        let values = self.read::<Int64Type>(name, PhysicalType::INT64)?.0;
        self.checked(values)
    }

    fn checked<T>(&self, values: Vec<T>) -> Result<Vec<T>> {
        match values.len() == self.rows {
            true => Ok(values),
            false => Err(ParquetError::General("a column has gaps".to_owned())),
        }
    }

    fn optional(&self, name: &str) -> Result<Vec<Option<i32>>> {
        let (values, levels) = self.read::<Int32Type>(name, PhysicalType::INT32)?;
        let mut values = values.into_iter();
        let levels = self.checked(levels)?;
        let row = |level: i16| if level > 0 { values.next() } else { None };
        Ok(levels.into_iter().map(row).collect())
    }
}
