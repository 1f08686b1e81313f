//! The allowed directions of dependency, between the crates and inside two of them.
//!
//! ARCHITECTURE.md states them for readers; this test holds them. Sources: the manifests, through
//! `cargo metadata`, and the `crate::` paths in the code.

use hpcrun_tests::repository::{files_with, metadata, read};
use std::collections::{BTreeMap, BTreeSet};

/// For each of our crates, those of ours that it may depend on (tests and build scripts aside).
const CRATES: [(&str, &[&str]); 15] = [
    ("hpcrun-abi", &[]),
    ("critical-path", &["hpcrun-abi"]),
    ("hpcrun-api", &["hpcrun-abi"]),
    ("hpcrun-crossbeam-channel", &["hpcrun-api"]),
    ("hpc-formats", &[]),
    ("work-stealing-rt", &["hpcrun-abi"]),
    ("hpcrun-core", &["hpcrun-abi", "hpc-formats"]),
    (
        "hpcrun-preload",
        &["hpcrun-core", "hpcrun-abi", "hpc-formats"],
    ),
    ("hpcrun-rs", &["hpc-formats"]),
    ("cargo-hpcrun", &["hpcrun-rs", "hpcprof-rs"]),
    ("hpcstruct-rs", &["hpc-formats"]),
    ("hpcprof-rs", &["hpcstruct-rs", "hpc-formats"]),
    ("hpcrun-fixtures", &["work-stealing-rt"]),
    ("hpcrun-tests", &["hpc-formats", "hpcstruct-rs"]),
    ("xtask", &["hpc-formats"]),
];

/// The rooms of `hpcrun-core` on the way of a sample: each uses only those before it.
const CORE: [&str; 9] = [
    "arch", "memory", "unwind", "logical", "lcct", "record", "threads", "sample", "session",
];

/// Inside `hpcprof-rs`: room, and those of the rooms that it may use.
const PROF: [(&str, &[&str]); 11] = [
    (
        "advice",
        &["render", "views", "catalogue", "model", "schema"],
    ),
    (
        "exports",
        &["render", "views", "catalogue", "metrics", "model"],
    ),
    ("render", &["views", "catalogue", "metrics", "model"]),
    ("views", &["catalogue", "metrics", "model"]),
    ("catalogue", &["metrics", "model", "schema"]),
    ("sinks", &["passes", "model", "schema"]),
    ("passes", &["sources", "model"]),
    ("sources", &["model", "schema"]),
    ("metrics", &[]),
    ("model", &[]),
    ("schema", &["model"]),
];

/// The rooms of `hpcstruct-rs` in the order of its passes: each uses only those before it.
const STRUCT: [&str; 12] = [
    "base",
    "input",
    "symbols",
    "dwarf",
    "names",
    "overhead",
    "unit_analysis",
    "code_map",
    "code",
    "loops",
    "structure",
    "output",
];

#[test]
fn crates_depend_downwards_only() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let members: BTreeSet<&str> = metadata["workspace_members"]
        .as_array()
        .expect("members")
        .iter()
        .filter_map(|id| id.as_str())
        .collect();
    let ours: Vec<&serde_json::Value> = packages
        .iter()
        .filter(|p| members.contains(p["id"].as_str().unwrap_or("")))
        .collect();
    let names: BTreeSet<&str> = ours.iter().filter_map(|p| p["name"].as_str()).collect();
    let table: BTreeMap<&str, &[&str]> = CRATES.into_iter().collect();
    assert_eq!(
        names,
        table.keys().copied().collect(),
        "every crate has a row in this test and in ARCHITECTURE.md"
    );
    for package in ours {
        let name = package["name"].as_str().expect("a name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = dependency["name"].as_str().expect("a name");
            let at_run_time = dependency["kind"].is_null();
            assert!(
                !(at_run_time && names.contains(on)) || table[name].contains(&on),
                "{name} must not depend on {on}"
            );
        }
    }
}

/// Module to the modules of the same crate that it uses, top level only.
fn module_graph(source: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in files_with(&["rs"]) {
        let Ok(inside) = path.strip_prefix(source) else {
            continue;
        };
        let first = inside.components().next().expect("a file has a name");
        let module = first.as_os_str().to_string_lossy().replace(".rs", "");
        if module == "lib" || module == "main" {
            continue;
        }
        let text = read(&path);
        let uses = graph.entry(module.clone()).or_default();
        for code in text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            for piece in code.split("crate::").skip(1) {
                for name in first_names(piece) {
                    if name != module {
                        uses.insert(name);
                    }
                }
            }
        }
    }
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    for uses in graph.values_mut() {
        uses.retain(|name| modules.contains(name));
    }
    graph
}

/// The first path segments after `crate::`, be it `a::b` or `{a::b, c::d}`.
fn first_names(piece: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    match piece.strip_prefix('{') {
        Some(list) => list
            .split(['}', ';'])
            .next()
            .unwrap_or("")
            .split(',')
            .map(word)
            .collect(),
        None => vec![word(piece)],
    }
}

#[test]
fn the_sampler_is_layered() {
    assert_ordered("hpcrun-rs/core/src", &CORE);
}

#[test]
fn the_analyser_is_layered() {
    assert_ordered("hpcstruct-rs/src", &STRUCT);
}

fn assert_ordered(source: &str, rooms: &[&str]) {
    let graph = module_graph(source);
    for (i, room) in rooms.iter().enumerate() {
        let uses = graph.get(*room);
        let uses = uses.unwrap_or_else(|| panic!("{source} has the room {room}: {graph:?}"));
        for later in &rooms[i + 1..] {
            assert!(
                !uses.contains(*later),
                "{source}: {room} must not use {later}"
            );
        }
    }
}

#[test]
fn the_profile_reader_is_layered() {
    assert_layered("hpcprof-rs", "hpcprof-rs/src", &PROF);
}

fn assert_layered(name: &str, source: &str, layers: &[(&str, &[&str])]) {
    let graph = module_graph(source);
    for (module, allowed) in layers {
        let uses = graph.get(*module);
        let uses = uses.unwrap_or_else(|| panic!("{name} has the module {module}: {graph:?}"));
        for (other, _) in layers {
            assert!(
                module == other || !uses.contains(*other) || allowed.contains(other),
                "{name}: {module} must not use {other}"
            );
        }
    }
}

#[test]
fn no_crate_has_a_cycle_of_modules() {
    for (name, source) in [
        ("hpc-formats", "formats/src"),
        ("hpcrun-core", "hpcrun-rs/core/src"),
        ("hpcprof-rs", "hpcprof-rs/src"),
        ("hpcrun-rs", "hpcrun-rs/src"),
        ("cargo-hpcrun", "hpcrun-rs/cargo-hpcrun/src"),
        ("hpcstruct-rs", "hpcstruct-rs/src"),
    ] {
        let graph = module_graph(source);
        assert!(graph.len() > 2, "{name} has modules: {graph:?}");
        assert_acyclic(name, &graph);
    }
}

fn assert_acyclic(name: &str, graph: &BTreeMap<String, BTreeSet<String>>) {
    let mut left = graph.clone();
    while !left.is_empty() {
        let free: Vec<String> = left
            .iter()
            .filter(|(_, uses)| uses.iter().all(|u| !left.contains_key(u)))
            .map(|(module, _)| module.clone())
            .collect();
        assert!(
            !free.is_empty(),
            "{name}: modules use each other in a circle: {left:?}"
        );
        for module in free {
            left.remove(&module);
        }
    }
}

#[test]
fn used_modules_are_found_in_code() {
    assert_eq!(first_names("a::b::C;"), ["a"]);
    assert_eq!(first_names("{a::B, c::D};"), ["a", "c"]);
}
