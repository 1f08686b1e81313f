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
