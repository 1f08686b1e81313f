//! Writes a database, or two to compare, as one HTML file that needs no network and no server.
//!
//! The file is `page.html` with its style, its scripts as they lie here, and two blocks of data (gzip,
//! base64): `text` (JSON: names, places, source, and the reports as the commands print them) and
//! `columns`. Nothing of a database becomes markup or script: the blocks are base64, scripts set text
//! alone, and the policy of the page allows nothing but these scripts and this style, by their hashes.

mod columns;
mod source;

use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use crate::exports::stacks::Stacks;
use crate::exports::target;
use crate::timeline::bins;
use crate::views::fold::FoldOptions;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use columns::Columns;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
pub(crate) use source::{Costs, line_costs};
use std::io::{self, Write};
use std::path::Path;

#[derive(Debug)]
pub struct Page<'a> {
    /// The database, and the one that it is compared with, which is the older one.
    pub databases: &'a [Catalogue],
    /// Reports of the first database by name, as their commands print them: text or JSON.
    pub reports: Vec<(&'static str, Value)>,
    pub no_source: bool,
}

const SCRIPTS: [&str; 6] = [
    include_str!("model.js"),
    include_str!("icicle.js"),
    include_str!("timeline.js"),
    include_str!("tables.js"),
    include_str!("reports.js"),
    include_str!("page.js"),
];

/// Writes the page to a file; `-` is standard output.
pub fn write(page: Page<'_>, path: &Path, stdout: &mut dyn Write) -> Result<()> {
    let stacks: Vec<Stacks<'_>> =
        page.databases.iter().map(|of| Stacks::read(of, FoldOptions::STORED)).collect::<Result<_>>()?;
    let columns = Columns::of(&stacks);
    let lines = FoldOptions { lines: true, start_up: false, recursion: false, ..FoldOptions::STORED };
    let source = source::figures(&Stacks::read(&page.databases[0], lines)?, page.no_source);
    let reports = page.reports.into_iter().map(|(name, report)| (name.to_owned(), report));
    let mut reports: serde_json::Map<String, Value> = reports.collect();
    let timeline = bins::binned(&page.databases[0], FoldOptions::STORED)?;
    reports.extend(timeline.map(|timeline| ("timeline".to_owned(), timeline)));
    let databases: Vec<Value> = page.databases.iter().zip(&stacks).map(about).collect();
    let text = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "databases": databases,
        "metrics": columns.metrics.iter().map(|metric| json!({
            "name": metric.name,
            "unit": metric.unit.name(),
        })).collect::<Vec<_>>(),
        "scopes": columns.scopes,
        "source": source,
        "reports": reports,
    });
    let pack = |bytes: &[u8]| pack(bytes).map_err(Error::output);
    let (text, numbers) = (pack(text.to_string().as_bytes())?, pack(&columns.bytes)?);
    target::write(path, stdout, |out| html(&text, &numbers, out))
}

fn about((catalogue, stacks): (&Catalogue, &Stacks<'_>)) -> Value {
    json!({
        "name": catalogue.path.file_name().unwrap_or(catalogue.path.as_os_str()).to_string_lossy(),
        "program": stacks.program(),
        "wall": catalogue.statistics.wall_ns as f64 * 1e-9,
        "cores": catalogue.statistics.cores,
    })
}

fn pack(bytes: &[u8]) -> io::Result<String> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(bytes)?;
    Ok(BASE64_STANDARD.encode(out.finish()?))
}

/// The page: what stands between braces in `page.html` is put in.
fn html(text: &str, numbers: &str, out: &mut dyn Write) -> io::Result<()> {
    let script = SCRIPTS.join("\n");
    let style = include_str!("page.css");
    let hash = |of: &str| format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(of)));
    let (script_hash, style_hash) = (hash(&script), hash(style));
    let parts = [
        ("{script-hash}", script_hash.as_str()),
        ("{style-hash}", &style_hash),
        ("{style}", style),
        ("{text}", text),
        ("{numbers}", numbers),
        ("{script}", &script),
    ];
    let mut rest = include_str!("page.html");
    for (mark, part) in parts {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(part.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}
