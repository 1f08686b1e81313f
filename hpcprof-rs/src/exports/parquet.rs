//! One Parquet table of all contexts (FORMATS.md): what each is, its own amounts and those of all below it.
//! Other engines read it: DuckDB, ClickHouse, pandas, Polars.

use crate::exports::stacks::Stacks;
use crate::table::{Column, Table};
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use std::io::{self, Seek, Write};

const ROWS: usize = 1 << 16;

pub(super) fn write(stacks: &Stacks<'_>, out: &mut dyn Write) -> io::Result<()> {
    // The writer of Parquet files wants a file of its own.
    let mut file = tempfile::tempfile()?;
    write_table(stacks, &mut file).map_err(io::Error::other)?;
    file.rewind()?;
    io::copy(&mut file, out).map(|_| ())
}

fn write_table(stacks: &Stacks<'_>, file: &mut std::fs::File) -> parquet::errors::Result<()> {
    let own: Vec<&str> = stacks.metrics.iter().map(|m| m.name.as_str()).collect();
    let inclusive: Vec<String> = own.iter().map(|name| format!("inclusive_{name}")).collect();
    let mut depths: Vec<i32> = Vec::new();
    for context in stacks.contexts() {
        let caller = stacks.caller(context);
        depths.push(caller.map_or(0, |c| depths[c as usize] + 1));
    }
    let number = |context: u32| context as i32 + 1;
    let text = |text: String| ByteArray::from(text.into_bytes());
    let columns = |contexts: &[u32]| {
        let each = || contexts.iter().copied();
        let labels = || each().map(|c| stacks.label(c));
        let places = || labels().map(|label| stacks.declared(label));
        let parents = each().map(|c| stacks.caller(c).map(number));
        let kinds = each().map(|c| ByteArray::from(stacks.kind(c)));
        let names = labels().map(|label| text(stacks.name(label)));
        let modules = labels().map(|label| stacks.module(label).map(text));
        let files = places().map(|at| Some(text(stacks.file(at?.file))));
        let lines = places().map(|at| Some(at?.line as i32));
        let mut columns = vec![
            ("id", Column::Int(each().map(number).collect())),
            ("parent", Column::OptionalInt(parents.collect())),
            ("depth", Column::Int(each().map(|c| depths[c as usize]).collect())),
            ("kind", Column::Text(kinds.collect())),
            ("name", Column::Text(names.collect())),
            ("module", Column::OptionalText(modules.collect())),
            ("file", Column::OptionalText(files.collect())),
            ("line", Column::OptionalInt(lines.collect())),
        ];
        for (metric, name) in own.iter().enumerate() {
            let amounts = each().map(|c| stacks.own(c)[metric]);
            columns.push((name, Column::Long(amounts.collect())));
        }
        for (metric, name) in inclusive.iter().enumerate() {
            let amounts = each().map(|c| stacks.inclusive(c)[metric]);
            columns.push((name, Column::Long(amounts.collect())));
        }
        columns
    };
    let mut table = Table::begin(file, &columns(&[]), WriterProperties::builder())?;
    let all: Vec<u32> = stacks.contexts().collect();
    for contexts in all.chunks(ROWS) {
        table.write(&mut columns(contexts))?;
    }
    table.close().map(|_| ())
}
