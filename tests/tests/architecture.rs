//! The allowed directions of dependency, between the crates and inside of them.
//!
//! ARCHITECTURE.md states them for readers; this test holds them. Sources: the manifests, through
//! `cargo metadata`, and the `crate::` paths in the code.

use hpcrun_tests::repository::{files_with, metadata, read};
use hpcrun_tests::tools::workspace;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// For each of our crates, those of ours that it may depend on (tests and build scripts aside).
const CRATES: [(&str, &[&str]); 19] = [
    ("hpcrun-abi", &[]),
    ("critical-path", &["hpcrun-abi", "hpc-formats"]),
    ("hpcrun-api", &["hpcrun-abi"]),
    ("hpcrun-mpi", &["hpcrun-abi", "hpc-formats"]),
    ("hpcrun-crossbeam-channel", &["hpcrun-api"]),
    ("hpc-formats", &[]),
    ("work-stealing-rt", &["hpcrun-abi"]),
    ("work-stealing-actors", &["work-stealing-rt", "critical-path", "hpcrun-api", "hpc-formats"]),
    ("hpcrun-core", &["hpcrun-abi", "hpc-formats", "critical-path"]),
    ("hpcrun-preload", &["hpcrun-core", "hpcrun-abi", "hpc-formats", "critical-path"]),
    ("start-up", &["work-stealing-rt"]),
    ("hpcrun-rs", &["hpc-formats", "hpcstruct-rs", "start-up", "critical-path"]),
    ("cargo-hpcrun", &["hpcrun-rs", "hpcprof-rs"]),
    ("hpcstruct-rs", &["hpc-formats"]),
    ("hpcprof-rs", &["hpcstruct-rs", "hpc-formats", "start-up"]),
    ("hpcrun-fixtures", &["work-stealing-actors", "work-stealing-rt", "hpcrun-api"]),
    ("hpcrun-tests", &["hpc-formats", "hpcstruct-rs"]),
    ("xtask", &[]),
    ("manuals", &["hpcrun-rs", "hpcprof-rs", "hpcstruct-rs", "cargo-hpcrun"]),
];

/// The rooms of `hpcrun-core` on the way of a sample: each uses only those before it.
const CORE: [&str; 14] = [
    "arch", "memory", "unwind", "tasks", "logical", "lcct", "source", "path", "trace", "sinks", "record",
    "threads", "sample", "session",
];

/// Inside `hpcprof-rs`: room, and those of the rooms that it may use.
const PROF: [(&str, &[&str]); 17] = [
    ("terminal", &["page", "exports", "render", "views", "catalogue", "model", "sources"]),
    ("page", &["exports", "timeline", "views", "catalogue", "model", "sources"]),
    ("sweep", &["advice", "render", "views", "catalogue"]),
    ("checks", &["advice", "views", "catalogue", "metrics"]),
    ("advice", &["render", "views", "catalogue", "model", "schema"]),
    ("regions", &["render", "catalogue", "model"]),
    ("exports", &["timeline", "render", "views", "catalogue", "metrics", "model"]),
    ("timeline", &["render", "views", "catalogue", "model"]),
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
const STRUCT: [&str; 13] = [
    "base",
    "known",
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
    let ours: Vec<&serde_json::Value> =
        packages.iter().filter(|p| members.contains(p["id"].as_str().unwrap_or(""))).collect();
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

/// The files of `work-stealing-rt`, from the bottom up: each uses only those before it.
const RUNTIME: [&str; 54] = [
    "system/linux.rs",
    "system/portable.rs",
    "primitives.rs",
    "latch.rs",
    "queue.rs",
    "block_memory.rs",
    "deque.rs",
    "sleep/mod.rs",
    "task.rs",
    "fifo.rs",
    "boundary/portable.rs",
    "boundary/x86_64.rs",
    "boundary/mod.rs",
    "profiler.rs",
    "parallel_overhead/track/path.rs",
    "parallel_overhead/track/forks.rs",
    "pool/handlers.rs",
    "worker.rs",
    "parallel_overhead/sched/mod.rs",
    "parallel_overhead/sched/prefetch.rs",
    "parallel_overhead/sched/kept.rs",
    "parallel_overhead/sched/state.rs",
    "parallel_overhead/sched/pace.rs",
    "parallel_overhead/sched/offer.rs",
    "parallel_overhead/sched/find.rs",
    "parallel_overhead/track/mod.rs",
    "parallel_overhead/track/link.rs",
    "parallel_overhead/sync/mod.rs",
    "parallel_overhead/sync/announce.rs",
    "parallel_overhead/sched/run.rs",
    "parallel_overhead/sync/wait_until.rs",
    "parallel_overhead/sched/in_task.rs",
    "job.rs",
    "spawn_context.rs",
    "parallel_overhead/sched/fork.rs",
    "count_latch.rs",
    "pool/life.rs",
    "main_loop.rs",
    "pool/install.rs",
    "pool/thread_pool.rs",
    "pool/threads.rs",
    "pool/error.rs",
    "pool/builder.rs",
    "pool/global.rs",
    "pool/configuration.rs",
    "join.rs",
    "par_for.rs",
    "par_for_adaptive.rs",
    "spawn.rs",
    "broadcast.rs",
    "scope.rs",
    "yielding.rs",
    "pool/operations.rs",
    "pool/mod.rs",
];

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
        let uses = graph.entry(module.clone()).or_default();
        for path in used_paths(&read(&path)) {
            match &path[..] {
                [root, name, ..] if root == "crate" && *name != module => uses.insert(name.clone()),
                _ => false,
            };
        }
    }
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    for uses in graph.values_mut() {
        uses.retain(|name| modules.contains(name));
    }
    graph
}

/// The paths in code that begin with `crate`, `super` or `self`, and those of `use`.
fn used_paths(text: &str) -> Vec<Vec<String>> {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code: Vec<&str> = text.lines().filter(is_code).collect();
    let code = code.join("\n");
    let mut paths = Vec::new();
    for (start, _) in code.match_indices(|c: char| c.is_alphabetic()) {
        let is_inside = code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        let rest = &code[start..];
        if is_inside {
            continue;
        }
        if let Some(tree) = rest.strip_prefix("use ") {
            use_tree(tree, &[], &mut paths);
        } else if ["crate::", "super::", "self::"].iter().any(|root| rest.starts_with(root)) {
            use_tree(rest, &[], &mut paths);
        }
    }
    paths
}

/// Adds the paths of a tree such as `a::{b, c::d}` at the beginning of `text`, and returns what follows it.
fn use_tree<'a>(text: &'a str, before: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = before.to_vec();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if let Some(list) = rest.strip_prefix('{') {
            rest = list;
            loop {
                rest = use_tree(rest, &path, paths);
                // Past `as …`.
                rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
                match rest.strip_prefix(',') {
                    Some(next) => rest = next,
                    None => return rest.strip_prefix('}').unwrap_or(rest),
                }
            }
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let (name, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        if !name.is_empty() {
            path.push(name.to_owned());
        }
        match after.strip_prefix("::") {
            Some(next) => rest = next,
            None => {
                paths.push(path);
                return after;
            }
        }
    }
}

/// The modules of a crate, as paths, and their files below `folder`, from its root file on. A module for
/// several systems has several files.
fn module_files(folder: &Path, file: &Path, module: &[String], found: &mut Modules) {
    let text = read(&folder.join(file));
    let mut attribute = None;
    for line in text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"") {
            attribute = path.split('"').next();
        }
        let declared = line.strip_suffix(';').and_then(|line| line.split_once("mod "));
        let Some((_, name)) = declared.filter(|(left, _)| left.is_empty() || left.starts_with("pub")) else {
            continue;
        };
        let here = file.parent().expect("a file lies in a folder");
        let stem = file.file_stem().expect("a name");
        let below = match stem == "mod" || stem == "lib" {
            true => here.to_owned(),
            false => here.join(stem),
        };
        let child = match attribute.take() {
            Some(path) => here.join(path),
            None if workspace().join(folder).join(&below).join(name).is_dir() => {
                below.join(name).join("mod.rs")
            }
            None => below.join(name).with_extension("rs"),
        };
        let path = [module, &[name.to_owned()]].concat();
        module_files(folder, &child, &path, found);
        found.entry(path).or_default().insert(child);
    }
}

type Modules = BTreeMap<Vec<String>, BTreeSet<PathBuf>>;

#[test]
fn the_runtimes_files_are_in_order() {
    let folder = Path::new("work-stealing-rt/src");
    let mut modules = Modules::new();
    module_files(folder, Path::new("lib.rs"), &[], &mut modules);
    // Above all others: the models for loom.
    modules.remove(&["loom_tests".to_owned()][..]);
    let order = |file: &PathBuf| RUNTIME.iter().position(|known| Path::new(known) == file);
    let mut arrows = 0;
    for (module, files) in &modules {
        for file in files {
            let place = order(file).unwrap_or_else(|| panic!("{} has a place", file.display()));
            for path in used_paths(&read(&folder.join(file))) {
                for used in resolve(module, &path, &modules) {
                    arrows += 1;
                    assert!(
                        order(used) < Some(place) || files.contains(used),
                        "{} must not use {}",
                        file.display(),
                        used.display()
                    );
                }
            }
        }
    }
    let files: usize = modules.values().map(BTreeSet::len).sum();
    assert_eq!(files, RUNTIME.len(), "every file has a place, and is there");
    assert!(arrows > 200, "{arrows}");
}

/// The files of the module that a path in `module` leads into; none outside of the crate.
fn resolve<'a>(module: &[String], path: &[String], modules: &'a Modules) -> Vec<&'a PathBuf> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let whole = match path.first().map(String::as_str) {
        Some("crate") => path[1..].to_vec(),
        Some("super") => [&module[..module.len().saturating_sub(supers)], &path[supers..]].concat(),
        Some("self") => [module, &path[1..]].concat(),
        _ => [module, path].concat(),
    };
    let least = match path.first().map(String::as_str) {
        // Else the name of another crate, or of an item in scope.
        Some(name) if !["crate", "super", "self"].contains(&name) => module.len() + 1,
        _ => 1,
    };
    let prefixes = (least..=whole.len()).rev();
    let found = prefixes.filter_map(|length| modules.get(&whole[..length])).next();
    found.into_iter().flatten().collect()
}

#[test]
fn the_sampler_is_layered() {
    assert_ordered("hpcrun-rs/core/src", &CORE);
}

/// Nobody but `mod.rs` knows the others of these folders, so one more is a file and its line there. All use
/// the jitter.
#[test]
fn a_sink_or_a_source_is_one_file() {
    let folder = |name: &str| workspace().join("hpcrun-rs/core/src").join(name);
    let core = files_with(&["rs"]).into_iter().filter(|p| p.starts_with("hpcrun-rs"));
    let core: Vec<PathBuf> = core.map(|p| workspace().join(p)).collect();
    for (room, least) in [("sinks", 3), ("source", 2)] {
        let is_in = |p: &&PathBuf| p.parent() == Some(&folder(room));
        let names = core.iter().filter(is_in).filter_map(|p| p.file_stem()?.to_str());
        let names: Vec<&str> = names.filter(|n| !["mod", "jitter"].contains(n)).collect();
        assert!(names.len() >= least, "{room}: {names:?}");
        for file in core.iter().filter(|p| **p != folder(room).join("mod.rs")) {
            let text = read(file);
            for name in &names {
                let inside = is_in(&file) && text.contains(&format!("super::{name}"));
                let named = inside || text.contains(&format!("{room}::{name}"));
                assert!(!named, "{}: names {room}/{name}.rs", file.display());
            }
        }
    }
    let knows = |p: &&PathBuf| p.parent() == Some(&folder("source")) || p.ends_with("config.rs");
    for file in core.iter().filter(|p| !knows(p)) {
        let names = read(file).contains("SourceKind::");
        assert!(!names, "{}: names a kind of source", file.display());
    }
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
            assert!(!uses.contains(*later), "{source}: {room} must not use {later}");
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
        ("actors", "actors/src"),
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
        assert!(!free.is_empty(), "{name}: modules use each other in a circle: {left:?}");
        for module in free {
            left.remove(&module);
        }
    }
}

#[test]
fn used_modules_are_found_in_code() {
    let text = "pub use a::{b as c, d::{e}, };\n// use f;\nlet x = crate::g::h(super::i);";
    let found: Vec<String> = used_paths(text).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["a::b", "a::d::e", "a", "crate::g::h", "super::i"]);
}
