//! Keys of contexts: the same whatever was sampled, wherever the code is, however the compiler inlined.

use crate::support::*;
use fastrand::Rng;
use hpc_formats::address::CodeAddress;
use hpc_formats::structure::Origin::{System, User};
use hpc_formats::structure::{ProcedureId, ScopeId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const APP: u16 = 1;
const FILE: &str = "/src/one/app/src/main.rs";
const OTHER_FILE: &str = "/src/two/app/src/other.rs";

/// A build of one program: where its lines are, and which frame of the standard library calls the closure.
struct Build {
    file: &'static str,
    lines: u32,
    iterator: &'static str,
    /// Whether `app::leaf` is inlined.
    inlines: bool,
}

const OLD: Build = Build { file: FILE, lines: 0, iterator: "core::iter::Map::fold", inlines: false };
const NEW: Build = Build {
    file: OTHER_FILE,
    lines: 137,
    iterator: "alloc::vec::SpecFromIterNested::from_iter",
    inlines: true,
};

/// Addresses of `app::main`: in each of two loops, one within the other; in a third one; in the closure that
/// an inlined iterator calls; and where it calls `app::leaf`.
const PLACES: [CodeAddress; 5] =
    [at(APP, 0x1000), at(APP, 0x1010), at(APP, 0x1020), at(APP, 0x1030), at(APP, 0x1040)];
const LEAF: CodeAddress = at(APP, 0x1100);

fn run(build: &Build, samples: &[(usize, u64)]) -> Run {
    let file = build.file;
    let line = |line: u32| (file, line + build.lines);
    let mut app = StructureBuilder::new("/opt/app", &[1]);
    let main = app.procedure("app::main", Some(line(10)), User);
    let loops = |app: &mut StructureBuilder, of: ProcedureId| -> [ScopeId; 3] {
        let outer = app.looping(of, None, line(12), User);
        let inner = app.looping(of, Some(outer), line(13), User);
        [outer, inner, app.looping(of, None, line(20), User)]
    };
    for (place, id) in (0..).zip(loops(&mut app, main)) {
        app.span(0x1000 + 0x10 * place, main, Some(id), line(13), None);
    }
    let std = ("/rustc/library/iter.rs", 100);
    let step = app.inlined(main, None, build.iterator, Some(std), line(30), System);
    let over = app.looping(main, Some(step), std, System);
    let closure = app.inlined(main, Some(over), "app::main::{closure#0}", Some(line(31)), std, User);
    app.span(0x1030, main, Some(closure), line(32), None);
    let leaf = match build.inlines {
        true => Some(app.inlined(main, None, "app::leaf", Some(line(50)), line(41), User)),
        false => None,
    };
    app.span(0x1040, main, leaf, line(41), None);
    let of = app.procedure("app::leaf", Some(line(50)), User);
    app.span(0x1100, of, None, line(51), None);
    let mut run = Run::new();
    run.module(APP, "/opt/app", &[1]);
    run.structures = vec![app.structure];
    let mut thread = ThreadBuilder::new(1);
    let entry = thread.entry();
    for (place, count) in samples {
        let mut node = thread.native(entry, PLACES[*place]);
        if *place == 4 && !build.inlines {
            node = thread.native(node, LEAF);
        }
        thread.sample(node, *count, 0.0);
    }
    run.threads = vec![thread];
    run
}

/// The keys of all contexts that are no lines or frames of the system, by their path of names without lines.
fn keys(database: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let database = rusqlite::Connection::open(database.join("database.sqlite")).expect("SQLite");
    let sql = "SELECT context, COALESCE(parent, 0), name, key, line FROM top_down ORDER BY context";
    let mut query = database.prepare(sql).expect("SQL");
    let rows = query.query_map([], |r| r.try_into()).expect("rows");
    let rows: Vec<(i64, i64, String, String, u32)> = rows.collect::<Result<_, _>>().expect("rows");
    let mut paths: BTreeMap<i64, String> = BTreeMap::from([(0, String::new())]);
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (id, parent, name, key, line) in rows {
        // A loop by its line in the old build.
        let name = match name.starts_with("loop") {
            true => format!("loop {}", if line > 100 { line - NEW.lines } else { line }),
            false => name,
        };
        let path = format!("{}/{name}", paths[&parent]);
        keys.entry(path.clone()).or_default().insert(key);
        paths.insert(id, path);
    }
    keys
}

#[test]
fn keys_are_those_of_the_place() {
    let all: Vec<(usize, u64)> = (0..PLACES.len()).map(|place| (place, 5)).collect();
    let whole = keys(&database(&run(&OLD, &all)));
    assert_eq!(whole.len(), 6, "{whole:?}");
    let distinct: BTreeSet<&String> = whole.values().flatten().collect();
    assert_eq!(distinct.len(), 6, "{whole:?}");
    let mut random = Rng::with_seed(36);
    for _ in 0..20 {
        let mut some = all.clone();
        some.retain(|_| random.bool());
        let Some((_, count)) = some.first_mut() else { continue };
        *count += random.u64(..9);
        for build in [&OLD, &NEW] {
            for (path, own) in keys(&database(&run(build, &some))) {
                assert_eq!(own, whole[&path], "{path} of {some:?}");
            }
        }
    }
}
