//! pprof's format: a gzip stream of the protocol buffer `perftools.profiles.Profile`. Encoded messages that
//! follow each other are one message with the fields of all, so samples are encoded and dropped one by one,
//! and the tables of locations, functions and texts, which are as small as the program, come last.
//!
//! Source of the field numbers: `proto/profile.proto` of github.com/google/pprof.

use crate::exports::CREATOR;
use crate::exports::stacks::{Frame, Function, Stacks, clean};
use crate::model::hash::NumberedSet;
use flate2::Compression;
use flate2::write::GzEncoder;
use hpc_formats::profile::Unit;
use prost::Message;
use std::io::{self, Write};

#[derive(Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<FunctionRow>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Message)]
struct FunctionRow {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
    #[prost(int64, tag = "5")]
    start_line: i64,
}

/// The field of a profile that has its samples.
const SAMPLE: u32 = 2;

pub(super) fn write(stacks: &Stacks<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut out = GzEncoder::new(out, Compression::default());
    let mut frames: NumberedSet<Frame> = NumberedSet::default();
    let mut bytes = Vec::new();
    for context in stacks.contexts().filter(|c| stacks.has_own(*c)) {
        let location = |frame| frames.insert_full(frame).0 as u64 + 1;
        let location_id = stacks.frames(context).map(location).collect();
        let sample = Sample { location_id, value: stacks.own(context).to_vec() };
        prost::encoding::message::encode(SAMPLE, &sample, &mut bytes);
        out.write_all(&bytes)?;
        bytes.clear();
    }
    out.write_all(&tables(stacks, &frames).encode_to_vec())?;
    out.finish()?;
    Ok(())
}

/// All but the samples. Ids count from 1, as 0 stands for nothing.
fn tables(stacks: &Stacks<'_>, frames: &NumberedSet<Frame>) -> Profile {
    let mut texts = NumberedSet::default();
    let mut text = |text: String| texts.insert_full(text).0 as i64;
    text(String::new());
    let mut modules: NumberedSet<String> = NumberedSet::default();
    // pprof takes the first module for the program.
    modules.extend(stacks.statistics().executables.first().map(|path| clean(path)));
    let mut functions: NumberedSet<Function> = NumberedSet::default();
    let location = (1..).zip(frames).map(|(id, frame)| {
        let module = stacks.module(frame.function.label);
        Location {
            id,
            mapping_id: module.map_or(0, |m| modules.insert_full(m).0 as u64 + 1),
            line: vec![Line {
                function_id: functions.insert_full(frame.function).0 as u64 + 1,
                line: i64::from(frame.line),
            }],
        }
    });
    let location = location.collect();
    let function = (1..).zip(&functions).map(|(id, function)| {
        let name = text(stacks.name(function.label));
        FunctionRow {
            id,
            name,
            system_name: name,
            filename: function.file.map_or(0, |file| text(stacks.file(file))),
            start_line: i64::from(stacks.declared_line(*function)),
        }
    });
    let function = function.collect();
    let mapping = (1..).zip(modules).map(|(id, path)| Mapping {
        id,
        filename: text(path),
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    });
    let mapping = mapping.collect();
    let sample_type: Vec<ValueType> = stacks
        .metrics
        .iter()
        .map(|metric| ValueType {
            r#type: text(metric.name.clone()),
            unit: text(
                match metric.unit {
                    Unit::Seconds => "nanoseconds",
                    Unit::Count | Unit::Ratio | Unit::SquareSeconds => "count",
                    Unit::Bytes => "bytes",
                }
                .to_owned(),
            ),
        })
        .collect();
    Profile {
        default_sample_type: sample_type.first().map_or(0, |work| work.r#type),
        sample_type,
        mapping,
        location,
        function,
        duration_nanos: stacks.statistics().wall_ns,
        period_type: Some(ValueType { r#type: text("cpu".to_owned()), unit: text("nanoseconds".to_owned()) }),
        period: stacks.statistics().period_ns,
        comment: vec![text(CREATOR.to_owned()), text(stacks.program())],
        string_table: texts.into_iter().collect(),
    }
}
