//! Parquet files, written one group of rows after the other.

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::Write;
use std::sync::Arc;

/// A column of a row group.
pub enum Column {
    /// Numbers.
    Int(Vec<i32>),
    /// Numbers, some of which are missing.
    OptionalInt(Vec<Option<i32>>),
    /// Amounts.
    Long(Vec<i64>),
    /// Texts.
    Text(Vec<ByteArray>),
    /// Texts, some of which are missing.
    OptionalText(Vec<Option<ByteArray>>),
}

/// Name, type and whether every row has a value.
pub type Field<'a> = (&'a str, PhysicalType, Repetition);

/// The type of [`Column::Int`].
pub const INT: PhysicalType = PhysicalType::INT32;
/// The type of [`Column::Long`].
pub const LONG: PhysicalType = PhysicalType::INT64;
/// The type of [`Column::Text`].
pub const TEXT: PhysicalType = PhysicalType::BYTE_ARRAY;
/// Of a column without missing values.
pub const ALWAYS: Repetition = Repetition::REQUIRED;
/// Of an optional column.
pub const MAYBE: Repetition = Repetition::OPTIONAL;

fn schema_of(columns: &[Field<'_>]) -> Result<Type> {
    let field = |(name, kind, repetition): &Field<'_>| {
        let logical = (*kind == TEXT).then_some(LogicalType::String);
        let column = Type::primitive_type_builder(name, *kind)
            .with_repetition(*repetition)
            .with_logical_type(logical);
        column.build().map(Arc::new)
    };
    let fields: Vec<_> = columns.iter().map(field).collect::<Result<_>>()?;
    Type::group_type_builder("rows").with_fields(fields).build()
}

/// A file that is being written.
pub struct Table<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> Table<W> {
    /// Begins a file with these columns.
    pub fn begin(
        out: W,
        columns: &[Field<'_>],
        properties: WriterPropertiesBuilder,
    ) -> Result<Table<W>> {
        let properties = properties
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let schema = Arc::new(schema_of(columns)?);
        Ok(Table(SerializedFileWriter::new(
            out,
            schema,
            Arc::new(properties),
        )?))
    }

    /// Writes a group of rows: all columns, of one length. The columns are empty afterwards.
    pub fn write(&mut self, columns: &mut [Column]) -> Result<()> {
        write(&mut self.0, columns)
    }

    /// Ends the file; returns what it was written to.
    pub fn close(self) -> Result<W> {
        self.0.into_inner()
    }
}

fn write<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &mut [Column],
) -> Result<()> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut out) = group.next_column()? else {
            break;
        };
        match column {
            Column::Int(values) => {
                out.typed::<Int32Type>().write_batch(values, None, None)?;
                values.clear();
            }
            Column::Long(values) => {
                out.typed::<Int64Type>().write_batch(values, None, None)?;
                values.clear();
            }
            Column::Text(values) => {
                out.typed::<ByteArrayType>()
                    .write_batch(values, None, None)?;
                values.clear();
            }
            Column::OptionalInt(values) => {
                let (known, levels) = present(values);
                out.typed::<Int32Type>()
                    .write_batch(&known, Some(&levels), None)?;
            }
            Column::OptionalText(values) => {
                let (known, levels) = present(values);
                out.typed::<ByteArrayType>()
                    .write_batch(&known, Some(&levels), None)?;
            }
        }
        out.close()?;
    }
    group.close()?;
    Ok(())
}

/// Takes the values that are not null, and says which they are.
fn present<T>(values: &mut Vec<Option<T>>) -> (Vec<T>, Vec<i16>) {
    let levels = values.iter().map(|v| i16::from(v.is_some())).collect();
    (values.drain(..).flatten().collect(), levels)
}
