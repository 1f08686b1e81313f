//! Parquet files, written one group of rows after the other.

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use std::io::Write;
use std::sync::Arc;

/// A column of a row group.
pub enum Column {
    Int(Vec<i32>),
    OptionalInt(Vec<Option<i32>>),
    Long(Vec<i64>),
    Text(Vec<ByteArray>),
    OptionalText(Vec<Option<ByteArray>>),
}

/// A column with its name.
pub type Field<'a> = (&'a str, Column);

impl Column {
    pub fn is_text(&self) -> bool {
        matches!(self, Column::Text(_) | Column::OptionalText(_))
    }

    fn schema(&self, name: &str) -> Result<Type> {
        let kind = match self {
            Column::Int(_) | Column::OptionalInt(_) => PhysicalType::INT32,
            Column::Long(_) => PhysicalType::INT64,
            Column::Text(_) | Column::OptionalText(_) => PhysicalType::BYTE_ARRAY,
        };
        let repetition = match self {
            Column::OptionalInt(_) | Column::OptionalText(_) => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        Type::primitive_type_builder(name, kind)
            .with_repetition(repetition)
            .with_logical_type(self.is_text().then_some(LogicalType::String))
            .build()
    }

    /// Writes all values, which are gone afterwards.
    fn write(&mut self, out: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match self {
            Column::Int(values) => write::<Int32Type>(values, out),
            Column::Long(values) => write::<Int64Type>(values, out),
            Column::Text(values) => write::<ByteArrayType>(values, out),
            Column::OptionalInt(values) => write_optional::<Int32Type>(values, out),
            Column::OptionalText(values) => write_optional::<ByteArrayType>(values, out),
        }
    }
}

fn write<T: DataType>(values: &mut Vec<T::T>, out: &mut SerializedColumnWriter<'_>) -> Result<()> {
    out.typed::<T>().write_batch(values, None, None)?;
    values.clear();
    Ok(())
}

fn write_optional<T: DataType>(
    values: &mut Vec<Option<T::T>>,
    out: &mut SerializedColumnWriter<'_>,
) -> Result<()> {
    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let known: Vec<T::T> = values.drain(..).flatten().collect();
    out.typed::<T>().write_batch(&known, Some(&levels), None)?;
    Ok(())
}

pub struct Table<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> Table<W> {
    /// Begins a file with columns of these names and types. Their values are not written.
    pub fn begin(out: W, columns: &[Field<'_>], properties: WriterPropertiesBuilder) -> Result<Table<W>> {
        let compression = Compression::ZSTD(ZstdLevel::default());
        let properties = properties.set_compression(compression).build();
        let fields = columns.iter().map(|(name, column)| column.schema(name).map(Arc::new));
        let fields = fields.collect::<Result<_>>()?;
        let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
        let writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        Ok(Table(writer))
    }

    /// Writes a group of rows: all columns, of one length. The columns are empty afterwards.
    pub fn write(&mut self, columns: &mut [Field<'_>]) -> Result<()> {
        let mut group = self.0.next_row_group()?;
        for (_, column) in columns {
            let Some(mut out) = group.next_column()? else {
                break;
            };
            column.write(&mut out)?;
            out.close()?;
        }
        group.close().map(drop)
    }

    /// Ends the file; returns what it was written to.
    pub fn close(self) -> Result<W> {
        self.0.into_inner()
    }
}
