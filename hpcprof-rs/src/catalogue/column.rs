//! A column of a Parquet file's row group, read in batches of rows.

use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::RowGroupReader;

pub(super) struct Column<T: DataType> {
    reader: ColumnReaderImpl<T>,
    /// The values of the rows that have one.
    pub(super) values: Vec<T::T>,
    /// Of an optional column whether each row has a value.
    levels: Vec<i16>,
}

impl<T: DataType> Column<T> {
    /// All of the column with a name, in which every row has a value.
    pub(super) fn required(group: &dyn RowGroupReader, name: &str) -> Result<Self> {
        let mut column = Self::begin(group, name)?;
        column.read(row_count(group)).map(|()| column)
    }

    /// The same, in which values may be missing.
    pub(super) fn optional(group: &dyn RowGroupReader, name: &str) -> Result<Self> {
        let mut column = Self::open(group, name, 1)?;
        column.read(row_count(group)).map(|()| column)
    }

    /// The column with a name, in which every row has a value, before its first row.
    pub(super) fn begin(group: &dyn RowGroupReader, name: &str) -> Result<Self> {
        Self::open(group, name, 0)
    }

    fn open(group: &dyn RowGroupReader, name: &str, level: i16) -> Result<Self> {
        let is_it = |c: &ColumnChunkMetaData| {
            let description = c.column_descr();
            let levels = (description.max_def_level(), description.max_rep_level());
            description.name() == name && c.column_type() == T::get_physical_type() && levels == (level, 0)
        };
        let index = group.metadata().columns().iter().position(is_it);
        let wrong = || ParquetError::General(format!("no column `{name}` of the right type"));
        let reader = group.get_column_reader(index.ok_or_else(wrong)?)?;
        Ok(Column { reader: get_typed_column_reader(reader), values: Vec::new(), levels: Vec::new() })
    }

    pub(super) fn read(&mut self, rows: usize) -> Result<()> {
        let Column { reader, values, levels } = self;
        values.clear();
        levels.clear();
        let mut records = 0;
        while records < rows {
            let (read, _, _) = reader.read_records(rows - records, Some(levels), None, values)?;
            if read == 0 {
                return Err(ParquetError::General("a column ends early".to_owned()));
            }
            records += read;
        }
        // A column in which every row has a value has no levels.
        match rows == levels.len().max(values.len()) {
            true => Ok(()),
            false => Err(ParquetError::General("a column has gaps".to_owned())),
        }
    }

    pub(super) fn skip(&mut self, rows: usize) -> Result<()> {
        self.reader.skip_records(rows).map(|_| ())
    }

    /// The values of an optional column, one for each row that was read.
    pub(super) fn rows(&self) -> impl Iterator<Item = Option<&T::T>> {
        let mut values = self.values.iter();
        let row = move |level: &i16| if *level > 0 { values.next() } else { None };
        self.levels.iter().map(row)
    }
}

pub(super) fn row_count(group: &dyn RowGroupReader) -> usize {
    usize::try_from(group.metadata().num_rows()).unwrap_or(0)
}
