//! Writes what each thread did when, as Parquet: one row a slice, threads one after the other; beside it the
//! edges between threads (FORMATS.md).

use crate::error::Result;
use crate::model::statistics::signed;
use crate::passes::edges::TraceEdge;
use crate::passes::slices;
use crate::passes::traces::Row;
use crate::schema;
use crate::sinks::columns::{ColumnFile, ColumnFiles};
use crate::table::{Column, Field};
use parquet::basic::Encoding;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

const ROWS: usize = 1 << 16;

fn edge_columns(edges: &[TraceEdge], begin: u64) -> [Field<'static>; 8] {
    let int = |of: fn(&TraceEdge) -> i32| Column::Int(edges.iter().map(of).collect());
    let long = |of: fn(&TraceEdge) -> u64| {
        Column::Long(edges.iter().map(|edge| of(edge).saturating_sub(begin) as i64).collect())
    };
    let kinds = edges.iter().map(|edge| ByteArray::from(edge.edge.name()));
    let on_path = edges.iter().map(|edge| edge.on_path.map(|number| number as i32));
    [
        ("process", int(|edge| edge.to.0.0 as i32 + 1)),
        ("ordinal", int(|edge| edge.to.0.1 as i32)),
        ("time", long(|edge| edge.to.1)),
        ("from_process", int(|edge| edge.from.0.0 as i32 + 1)),
        ("from_ordinal", int(|edge| edge.from.0.1 as i32)),
        ("from_time", long(|edge| edge.from.1)),
        ("edge", Column::Text(kinds.collect())),
        ("on_path", Column::OptionalInt(on_path.collect())),
    ]
}

fn columns(rows: &[Row]) -> [Field<'static>; 8] {
    let id = |index: usize| index as i32 + 1;
    let long = |of: fn(&Row) -> u64| Column::Long(rows.iter().map(|row| signed(of(row))).collect());
    let rows = rows.iter();
    let contexts = rows.clone().map(|row| row.context.map(|context| context as i32 + 1));
    let states = rows.clone().map(|row| ByteArray::from(slices::name(row.slice.state)));
    [
        ("process", Column::Int(rows.clone().map(|row| id(row.process)).collect())),
        ("ordinal", Column::Int(rows.clone().map(|row| row.ordinal as i32).collect())),
        ("thread", Column::OptionalInt(rows.clone().map(|row| row.thread.map(id)).collect())),
        ("time", long(|row| row.slice.start)),
        ("duration", long(|row| row.slice.end - row.slice.start)),
        ("state", Column::Text(states.collect())),
        ("context", Column::OptionalInt(contexts.collect())),
        ("sampled", long(|row| row.slice.sampled)),
    ]
}

impl ColumnFiles<'_> {
    /// Writes the slices of a run, which `each` hands out one after the other.
    pub fn write_trace(
        &self,
        run: usize,
        each: impl FnOnce(&mut dyn FnMut(&Row) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let mut properties = WriterProperties::builder();
        for name in ["time", "duration"] {
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(name), false)
                .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
        }
        let path = self.folder(schema::TRACES, run).join(schema::TRACE_FILE);
        let mut table = ColumnFile::create(path, &columns(&[]), properties)?;
        let mut rows: Vec<Row> = Vec::new();
        each(&mut |row| {
            rows.push(*row);
            if rows.len() == ROWS {
                table.write(&mut columns(&rows))?;
                rows.clear();
            }
            Ok(())
        })?;
        table.write(&mut columns(&rows))?;
        self.close(table)
    }

    /// Writes the edges of a run, which has some, and begins then.
    pub fn write_edges(&self, (run, begin): (usize, u64), edges: &[TraceEdge]) -> Result<()> {
        let path = self.folder(schema::TRACES, run).join(schema::EDGES_FILE);
        let mut table = ColumnFile::create(path, &edge_columns(&[], begin), WriterProperties::builder())?;
        edges.chunks(ROWS).try_for_each(|edges| table.write(&mut edge_columns(edges, begin)))?;
        self.close(table)
    }
}
