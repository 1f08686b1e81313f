//! A report as JSON: the schema `hpcprof-rs/critical-path/1`.

use core::fmt::{self, Write};

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
    pub fn to_json(&self, mut resolve: impl FnMut(Site) -> Place) -> String {
        let mut out = String::new();
        // Writing to a `String` does not fail.
        let _ = self.write_json(&mut out, &mut resolve);
        out
    }

    fn write_json(&self, out: &mut String, resolve: &mut dyn FnMut(Site) -> Place) -> fmt::Result {
        write!(
            out,
            "{{\"schema\":\"hpcprof-rs/critical-path/1\",\"unit\":\"seconds\",\"clock\":\"cpu\",\
             \"work\":{},\"span\":{},\"burdened_span\":{},\"wall\":{},\"parallelism\":{}",
            seconds(self.work),
            seconds(self.span),
            seconds(self.burdened_span),
            seconds(self.wall),
            Float(self.parallelism()),
        )?;
        list(out, "prediction", WORKERS, |out, workers| {
            let prediction = self.prediction(workers);
            write!(
                out,
                "{{\"workers\":{workers},\"seconds\":{},\"lower\":{},\"upper\":{}}}",
                Float(prediction.time / NANOSECONDS),
                Float(prediction.lower / NANOSECONDS),
                Float(prediction.upper / NANOSECONDS),
            )
        })?;
        list(out, "segments", &self.segments, |out, segment| {
            out.write_str("{\"thread\":")?;
            match segment.thread {
                Some(thread) => write!(out, "{thread}")?,
                None => out.write_str("null")?,
            }
            write!(
                out,
                ",\"seconds\":{},\"share\":{},\"count\":{},\"edge\":{},",
                seconds(segment.time),
                Float(self.share(segment.time)),
                segment.count,
                Text(segment.edge.name()),
            )?;
            if segment.edge == Edge::Folded {
                return out.write_str("\"begin\":null,\"end\":null}");
            }
            places(out, resolve, segment.begin, segment.end)?;
            out.write_char('}')
        })?;
        list(out, "procedures", &self.procedures, |out, procedure| {
            write!(
                out,
                "{{\"name\":{},\"work\":{},\"on_path\":{},\"share\":{},\"zeroed_span\":{},\"gain\":{}}}",
                Text(&procedure.name),
                seconds(procedure.work),
                seconds(procedure.on_path),
                Float(self.share(procedure.on_path)),
                seconds(procedure.zeroed_span),
                seconds(self.span - procedure.zeroed_span),
            )
        })?;
        list(out, "near", &self.near, |out, near| {
            write!(
                out,
                "{{\"thread\":{},\"seconds\":{},\"slack\":{},",
                near.thread,
                seconds(near.time),
                seconds(near.slack),
            )?;
            places(out, resolve, near.begin, near.end)?;
            out.write_char('}')
        })?;
        write!(
            out,
            ",\"quality\":{{\"resyncs\":{},\"lost_edges\":{{",
            self.quality.resyncs
        )?;
        for (at, (cause, count)) in self.quality.lost_edges.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(out, "{comma}{}:{count}", Text(cause.name()))?;
        }
        write!(
            out,
            "}},\"exact_edges\":{},\"woken_edges\":{}}}}}",
            self.quality.exact_edges, self.quality.woken_edges,
        )
    }
}

/// `,"name":[…]`, with an element for each item.
fn list<T>(
    out: &mut String,
    name: &str,
    items: impl IntoIterator<Item = T>,
    mut element: impl FnMut(&mut String, T) -> fmt::Result,
) -> fmt::Result {
    write!(out, ",{}:[", Text(name))?;
    for (at, item) in items.into_iter().enumerate() {
        if at != 0 {
            out.write_char(',')?;
        }
        element(out, item)?;
    }
    out.write_char(']')
}

fn places(
    out: &mut String,
    resolve: &mut dyn FnMut(Site) -> Place,
    begin: Site,
    end: Site,
) -> fmt::Result {
    for (key, site, comma) in [("begin", begin, ","), ("end", end, "")] {
        let place = resolve(site);
        write!(
            out,
            "\"{key}\":{{\"name\":{},\"module\":{},\"file\":{},\"line\":{}}}{comma}",
            Text(&place.name),
            Text(&place.module),
            Text(&place.file),
            place.line,
        )?;
    }
    Ok(())
}

fn seconds(time: u64) -> Float {
    Float(time as f64 / NANOSECONDS)
}

/// A JSON number that readers take for a float, whatever its value.
struct Float(f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A JSON string.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                control if control < ' ' => write!(f, "\\u{:04x}", control as u32)?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}
