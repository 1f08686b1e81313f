//! A report as JSON: the schema `hpcprof-rs/critical-path/1`.

use core::fmt::{self, Display, Write};

use crate::path::{Edge, Site};
use crate::report::Report;

/// A site's name, for a report. Empty texts and line 0 stand for the unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// The procedure.
    pub name: String,
    /// The program or library.
    pub module: String,
    /// The source file.
    pub file: String,
    /// The line.
    pub line: u32,
}

/// The numbers of workers for which times are predicted.
const WORKERS: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

const NANOSECONDS: f64 = 1e9;

impl Report {
    /// The report in JSON, in seconds; `resolve` names the sites.
    pub fn to_json(&self, resolve: impl Fn(Site) -> Place) -> String {
        let place = |site: Site| {
            let place = resolve(site);
            object(&[
                ("name", &Text(&place.name)),
                ("module", &Text(&place.module)),
                ("file", &Text(&place.file)),
                ("line", &place.line),
            ])
        };
        let predictions = WORKERS.map(|workers| {
            let prediction = self.prediction(workers);
            object(&[
                ("workers", &workers),
                ("seconds", &Float(prediction.upper / NANOSECONDS)),
                ("lower", &Float(prediction.lower / NANOSECONDS)),
                ("upper", &Float(prediction.upper / NANOSECONDS)),
            ])
        });
        let segments = self.segments.iter().map(|segment| {
            let thread = segment.thread.map(|thread| thread.to_string());
            let place = |site| match segment.edge {
                Edge::Folded => "null".to_owned(),
                _ => place(site),
            };
            object(&[
                ("thread", &thread.as_deref().unwrap_or("null")),
                ("seconds", &seconds(segment.time)),
                ("share", &Float(self.share(segment.time))),
                ("count", &segment.count),
                ("edge", &Text(segment.edge.name())),
                ("begin", &place(segment.begin)),
                ("end", &place(segment.end)),
            ])
        });
        let procedures = self.procedures.iter().map(|procedure| {
            object(&[
                ("name", &Text(&procedure.name)),
                ("work", &seconds(procedure.work)),
                ("on_path", &seconds(procedure.on_path)),
                ("share", &Float(self.share(procedure.on_path))),
                ("zeroed_span", &seconds(procedure.zeroed_span)),
                ("gain", &seconds(self.span - procedure.zeroed_span)),
            ])
        });
        let near = self.near.iter().map(|near| {
            object(&[
                ("thread", &near.thread),
                ("seconds", &seconds(near.time)),
                ("slack", &seconds(near.slack)),
                ("begin", &place(near.begin)),
                ("end", &place(near.end)),
            ])
        });
        let lost = self.quality.lost_edges.iter();
        let lost: Vec<(&str, &dyn Display)> = lost
            .map(|(cause, count)| (cause.name(), count as &dyn Display))
            .collect();
        let quality = object(&[
            ("resyncs", &self.quality.resyncs),
            ("lost_edges", &object(&lost)),
            ("exact_edges", &self.quality.exact_edges),
            ("woken_edges", &self.quality.woken_edges),
        ]);
        object(&[
            ("schema", &Text("hpcprof-rs/critical-path/1")),
            ("unit", &Text("seconds")),
            ("clock", &Text("cpu")),
            ("work", &seconds(self.work)),
            ("span", &seconds(self.span)),
            ("burdened_span", &seconds(self.burdened_span)),
            ("wall", &seconds(self.wall)),
            ("parallelism", &Float(self.parallelism())),
            ("prediction", &list(predictions)),
            ("segments", &list(segments)),
            ("procedures", &list(procedures)),
            ("near", &list(near)),
            ("quality", &quality),
        ])
    }
}

fn object(members: &[(&str, &dyn Display)]) -> String {
    let members = members
        .iter()
        .map(|(name, value)| format!("{}:{value}", Text(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn list(elements: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", elements.into_iter().collect::<Vec<_>>().join(","))
}

fn seconds(time: u64) -> Float {
    Float(time as f64 / NANOSECONDS)
}

/// A JSON number that readers take for a float, whatever its value.
struct Float(f64);

impl Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A JSON string.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                control if control < ' ' => write!(f, "\\u{:04x}", control as u32)?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}
