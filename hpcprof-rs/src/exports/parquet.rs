//! One Parquet table of all contexts (FORMATS.md): what each is, its own amounts and those of all below it.
//! Other engines read it: DuckDB, ClickHouse, pandas, Polars.

use crate::exports::stacks::Stacks;
use crate::table::{ALWAYS, Column, INT, LONG, MAYBE, TEXT, Table};
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use std::io::{self, Seek, Write};

/// Contexts that are written together.
const ROWS: usize = 1 << 16;

pub(super) fn write(stacks: &Stacks<'_>, out: &mut dyn Write) -> io::Result<()> {
    // The writer of Parquet files wants a file of its own.
    let mut file = tempfile::tempfile()?;
    write_table(stacks, &mut file).map_err(io::Error::other)?;
    file.rewind()?;
    io::copy(&mut file, out).map(|_| ())
}

fn write_table(stacks: &Stacks<'_>, file: &mut std::fs::File) -> parquet::errors::Result<()> {
    let inclusive = stacks
        .metrics
        .iter()
        .map(|m| format!("inclusive_{}", m.name));
    let inclusive: Vec<String> = inclusive.collect();
    let mut fields = vec![
        ("id", INT, ALWAYS),
        ("parent", INT, MAYBE),
        ("depth", INT, ALWAYS),
        ("kind", TEXT, ALWAYS),
        ("name", TEXT, ALWAYS),
        ("module", TEXT, MAYBE),
        ("file", TEXT, MAYBE),
        ("line", INT, MAYBE),
    ];
    fields.extend(
        stacks
            .metrics
            .iter()
            .map(|m| (m.name.as_str(), LONG, ALWAYS)),
    );
    fields.extend(inclusive.iter().map(|name| (name.as_str(), LONG, ALWAYS)));
    let mut table = Table::begin(file, &fields, WriterProperties::builder())?;
    let mut depths: Vec<i32> = Vec::new();
    let all: Vec<u32> = stacks.contexts().collect();
    let number = |context: u32| context as i32 + 1;
    for contexts in all.chunks(ROWS) {
        for context in contexts {
            let depth = stacks
                .caller(*context)
                .map_or(0, |c| depths[c as usize] + 1);
            depths.push(depth);
        }
        let each = || contexts.iter().copied();
        let labels = || each().map(|c| stacks.label(c));
        let places = || labels().map(|label| stacks.declared(label));
        let text = |text: String| ByteArray::from(text.into_bytes());
        let mut columns = vec![
            Column::Int(each().map(number).collect()),
            Column::OptionalInt(each().map(|c| stacks.caller(c).map(number)).collect()),
            Column::Int(each().map(|c| depths[c as usize]).collect()),
            Column::Text(each().map(|c| ByteArray::from(stacks.kind(c))).collect()),
            Column::Text(labels().map(|label| text(stacks.name(label))).collect()),
            Column::OptionalText(labels().map(|l| stacks.module(l).map(text)).collect()),
            Column::OptionalText(
                places()
                    .map(|at| at.map(|at| text(stacks.file(at.file))))
                    .collect(),
            ),
            Column::OptionalInt(places().map(|at| at.map(|at| at.line as i32)).collect()),
        ];
        for metric in 0..stacks.metrics.len() {
            columns.push(Column::Long(
                each().map(|c| stacks.own(c)[metric]).collect(),
            ));
        }
        for metric in 0..stacks.metrics.len() {
            columns.push(Column::Long(
                each().map(|c| stacks.inclusive(c)[metric]).collect(),
            ));
        }
        table.write(&mut columns)?;
    }
    table.close().map(|_| ())
}
