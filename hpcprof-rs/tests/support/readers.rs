//! Readers of the exported formats, written from the formats' descriptions and independent of the writers:
//! each gives the own amounts of call paths, by metric, and panics where a file breaks its format's rules.

use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

/// Own amounts by call path, outermost name first. What has none is left out.
pub type Paths = BTreeMap<Vec<String>, i64>;
/// By metric.
pub type Profiles = BTreeMap<String, Paths>;

fn add(paths: &mut Paths, path: Vec<String>, amount: i64) {
    if amount != 0 {
        *paths.entry(path).or_default() += amount;
    }
}

/// The JSON of a top-down view.
pub fn view(json: &Value) -> Profiles {
    let names = |key: &Value| key.as_str().expect("a name").to_owned();
    let metrics = json["metrics"].as_array().expect("metrics").iter();
    let mut profiles: Profiles = metrics.map(|m| (names(m), Paths::new())).collect();
    let mut work: Vec<(Vec<String>, &Value)> = vec![(Vec::new(), &json["roots"])];
    while let Some((above, nodes)) = work.pop() {
        for node in nodes.as_array().expect("an array of nodes") {
            let mut path = above.clone();
            path.push(names(&node["name"]));
            for (metric, paths) in &mut profiles {
                let amount = super::exclusive(node, metric);
                add(paths, path.clone(), amount);
            }
            work.push((path, &node["children"]));
        }
    }
    profiles
}

/// Folded stacks.
pub fn folded(text: &str) -> Paths {
    let mut paths = Paths::new();
    for line in text.lines() {
        let (stack, amount) = line.rsplit_once(' ').expect("an amount");
        let path = stack.split(';').map(str::to_owned).collect();
        add(&mut paths, path, amount.parse().expect("a whole number"));
    }
    paths
}

/// A flame graph: what a box holds that no box above it does.
pub fn flamegraph(svg: &str) -> Paths {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    let document = roxmltree::Document::parse_with_options(svg, options).expect("XML");
    let number = |node: roxmltree::Node<'_, '_>, name: &str| -> i64 {
        let found = node.attributes().find(|a| a.name() == name);
        found.expect(name).value().parse().expect("a number")
    };
    // (y, begin, end, name)
    let mut boxes = Vec::new();
    for group in document.descendants().filter(|n| n.has_tag_name("g")) {
        let child = |name| group.children().find(|n| n.tag_name().name() == name);
        let (title, shape) = (child("title").expect("a title"), child("rect").expect("a box"));
        let name = title.text().unwrap_or("").rsplit_once(" (").expect("an amount").0;
        let in_samples = |name: &str| {
            let found = shape.attributes().find(|a| a.name() == name && a.namespace().is_some());
            found.expect(name).value().parse::<i64>().expect("a number")
        };
        let begin = in_samples("x");
        boxes.push((number(shape, "y"), begin, begin + in_samples("w"), name.to_owned()));
    }
    // The lowest box is "all"; a box lies above one that contains it.
    boxes.sort_by_key(|(y, begin, _, _)| (-y, *begin));
    let height = boxes[0].0 - boxes.iter().map(|b| b.0).find(|y| *y < boxes[0].0).expect("two rows");
    let mut paths = Paths::new();
    let mut known: Vec<(i64, i64, i64, Vec<String>)> = Vec::new();
    for (y, begin, end, name) in boxes {
        let below =
            known.iter().find(|(row, from, to, _)| *row == y + height && *from <= begin && end <= *to);
        let path = match below {
            None => Vec::new(),
            Some((_, _, _, path)) => {
                *paths.entry(path.clone()).or_default() -= end - begin;
                [path.clone(), vec![name]].concat()
            }
        };
        *paths.entry(path.clone()).or_default() += end - begin;
        known.push((y, begin, end, path));
    }
    paths.retain(|_, amount| *amount != 0);
    paths
}

/// speedscope's file with profiles of events.
pub fn speedscope(text: &str) -> Profiles {
    let json: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(json["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let frames = json["shared"]["frames"].as_array().expect("frames");
    let mut profiles = Profiles::new();
    for profile in json["profiles"].as_array().expect("profiles") {
        assert_eq!(profile["type"], "evented");
        let name = profile["name"].as_str().expect("a name").to_owned();
        let unit = if name == "samples" { "none" } else { "nanoseconds" };
        assert_eq!(profile["unit"], unit, "{name}");
        assert_eq!(profile["startValue"], 0);
        let mut paths = Paths::new();
        let mut open: Vec<(u64, String)> = Vec::new();
        let mut now = 0;
        for event in profile["events"].as_array().expect("events") {
            let at = event["at"].as_i64().expect("a time");
            assert!(at >= now, "time runs on");
            let path = open.iter().map(|(_, name)| name.clone()).collect();
            add(&mut paths, path, at - now);
            now = at;
            let frame = event["frame"].as_u64().expect("a frame");
            match event["type"].as_str() {
                Some("O") => {
                    let name = frames[frame as usize]["name"].as_str().expect("a name");
                    open.push((frame, name.to_owned()));
                }
                Some("C") => {
                    assert_eq!(open.pop().map(|o| o.0), Some(frame), "the innermost closes")
                }
                other => panic!("event {other:?}"),
            }
        }
        assert!(open.is_empty());
        assert_eq!(profile["endValue"].as_i64(), Some(now));
        assert!(profiles.insert(name, paths).is_none());
    }
    profiles
}

/// The messages of pprof's `profile.proto`, as far as tests look at them.
pub mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_types: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mappings: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub locations: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub functions: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub strings: Vec<String>,
        #[prost(int64, tag = "10")]
        pub duration: i64,
        #[prost(int64, tag = "12")]
        pub period: i64,
        #[prost(int64, tag = "14")]
        pub default_sample_type: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub name: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub locations: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub values: Vec<i64>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "5")]
        pub file: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping: u64,
        #[prost(message, repeated, tag = "4")]
        pub lines: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "4")]
        pub file: i64,
        #[prost(int64, tag = "5")]
        pub start_line: i64,
    }
}

/// A frame with a place: name, file, line.
pub type Place = (String, String, i64);

/// A pprof profile.
pub struct Pprof {
    pub message: proto::Profile,
    /// Each sample's frames, outermost first, and its values.
    pub samples: Vec<(Vec<Place>, Vec<i64>)>,
}

impl Pprof {
    /// Reads the file's bytes.
    pub fn read(bytes: &[u8]) -> Pprof {
        let mut plain = Vec::new();
        let mut gzip = flate2::read::GzDecoder::new(bytes);
        gzip.read_to_end(&mut plain).expect("gzip");
        let message = proto::Profile::decode(plain.as_slice()).expect("a protocol buffer");
        assert_eq!(message.strings[0], "");
        let text = |index: i64| message.strings[index as usize].clone();
        let function = |id: u64| {
            let found: Vec<_> = message.functions.iter().filter(|f| f.id == id).collect();
            assert_eq!(found.len(), 1, "function {id}");
            found[0]
        };
        let place = |id: &u64| {
            let found: Vec<_> = message.locations.iter().filter(|l| l.id == *id).collect();
            assert_eq!(found.len(), 1, "location {id}");
            let location = found[0];
            assert_eq!(location.lines.len(), 1);
            let is_known = |m: u64| m == 0 || message.mappings.iter().any(|x| x.id == m);
            assert!(is_known(location.mapping));
            let line = location.lines[0];
            let function = function(line.function);
            (text(function.name), text(function.file), line.line)
        };
        let sample = |sample: &proto::Sample| {
            assert_eq!(sample.values.len(), message.sample_types.len());
            let frames = sample.locations.iter().rev().map(place).collect();
            (frames, sample.values.clone())
        };
        let samples = message.samples.iter().map(sample).collect();
        Pprof { message, samples }
    }

    /// A text of the profile.
    pub fn text(&self, index: i64) -> &str {
        &self.message.strings[index as usize]
    }

    /// Its amounts.
    pub fn profiles(&self) -> Profiles {
        let mut profiles = Profiles::new();
        for (index, kind) in self.message.sample_types.iter().enumerate() {
            let name = self.text(kind.name);
            let unit = if name == "samples" { "count" } else { "nanoseconds" };
            assert_eq!(self.text(kind.unit), unit, "{name}");
            let mut paths = Paths::new();
            for (frames, values) in &self.samples {
                let path = frames.iter().map(|f| f.0.clone()).collect();
                add(&mut paths, path, values[index]);
            }
            profiles.insert(name.to_owned(), paths);
        }
        profiles
    }
}

/// The Firefox Profiler's processed format: each thread's samples, with places.
pub fn firefox(text: &str) -> BTreeMap<String, Vec<(Vec<Place>, i64)>> {
    let json: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(json["meta"]["preprocessedProfileVersion"], 60);
    let shared = &json["shared"];
    for table in ["stackTable", "frameTable", "funcTable", "resourceTable", "nativeSymbols", "sources"] {
        check_columns(&shared[table], table);
    }
    let categories = json["meta"]["categories"].as_array().expect("categories");
    let at = |table: &str, column: &str, index: u64| &shared[table][column][index as usize];
    let string = |index: &Value| match index.as_u64() {
        Some(index) => shared["stringArray"][index as usize].as_str().expect("a text").to_owned(),
        None => String::new(),
    };
    let place = |stack: u64| {
        let frame = at("stackTable", "frame", stack).as_u64().expect("a frame");
        let category = at("frameTable", "category", frame).as_u64().expect("a category");
        assert!((category as usize) < categories.len());
        let function = at("frameTable", "func", frame).as_u64().expect("a function");
        let source = at("funcTable", "source", function).as_u64();
        let file = source.map_or(String::new(), |s| string(at("sources", "filename", s)));
        if let Some(resource) = at("funcTable", "resource", function).as_u64() {
            let lib = at("resourceTable", "lib", resource).as_u64().expect("a library");
            assert!(json["libs"][lib as usize]["path"].is_string());
        }
        let line = at("frameTable", "line", frame).as_i64().unwrap_or(0);
        (string(at("funcTable", "name", function)), file, line)
    };
    let mut threads = BTreeMap::new();
    for thread in json["threads"].as_array().expect("threads") {
        let samples = &thread["samples"];
        check_columns(samples, "samples");
        check_columns(&thread["markers"], "markers");
        let name = thread["name"].as_str().expect("a name").to_owned();
        let (weights, unit) = match name.as_str() {
            "samples" => ("samples", 1.0),
            _ => ("tracing-ms", 1e6),
        };
        assert_eq!(samples["weightType"], weights, "{name}");
        let mut found = Vec::new();
        let mut now = 0.0;
        for index in 0..samples["length"].as_u64().expect("a length") as usize {
            let time = samples["time"][index].as_f64().expect("a time");
            assert!(time >= now, "time runs on");
            now = time;
            let mut frames = Vec::new();
            let mut at_stack = samples["stack"][index].as_u64();
            while let Some(stack) = at_stack {
                frames.push(place(stack));
                at_stack = at("stackTable", "prefix", stack).as_u64();
                assert!(at_stack.is_none_or(|below| below < stack), "a prefix comes before");
            }
            frames.reverse();
            let weight = samples["weight"][index].as_f64().expect("a weight");
            found.push((frames, (weight * unit).round() as i64));
        }
        assert!(threads.insert(name, found).is_none());
    }
    threads
}

/// All columns are as long as the table says.
fn check_columns(table: &Value, name: &str) {
    let length = table["length"].as_u64().expect("a length") as usize;
    for (column, values) in table.as_object().expect("a table") {
        if let Some(values) = values.as_array() {
            assert_eq!(values.len(), length, "{name}.{column}");
        }
    }
}

/// The amounts of Firefox's threads.
pub fn firefox_profiles(threads: &BTreeMap<String, Vec<(Vec<Place>, i64)>>) -> Profiles {
    let mut profiles = Profiles::new();
    for (name, samples) in threads {
        let mut paths = Paths::new();
        for (frames, weight) in samples {
            let path = frames.iter().map(|f| f.0.clone()).collect();
            add(&mut paths, path, *weight);
        }
        profiles.insert(name.clone(), paths);
    }
    profiles
}
