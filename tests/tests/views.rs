//! The views' interface: JSON as FORMATS.md states it, conservation everywhere, text for reading.

use hpcrun_tests::run::{Database, Run, Spec};
use hpcrun_tests::tools::{check, exclusive_cores, folder, release, tool};
use hpcrun_tests::view::{Node, value};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const VIEWS: [&str; 3] = ["top-down", "bottom-up", "flat"];

/// One run and its database, for all tests that only look at it.
fn measured() -> &'static (Run, Database) {
    static MEASURED: OnceLock<(Run, Database)> = OnceLock::new();
    MEASURED.get_or_init(|| {
        let run = Spec::fixture("views", "spawns").rate(1000).succeed();
        let database = run.database();
        (run, database)
    })
}

#[test]
fn every_view_and_projection_conserves_every_metric() {
    let _cores = exclusive_cores();
    let (run, database) = measured();
    let recorded = run.recorded();
    let mut totals = None;
    for view in VIEWS {
        for projection in ["logical", "physical"] {
            for extra in [&[][..], &["--runtime-frames"], &["--lines"]] {
                let options = [&["--projection", projection], extra].concat();
                // `view` itself checks that totals, roots and exclusives agree.
                let view = database.view(view, &options);
                assert_eq!(view.quality.samples, recorded.samples, "{options:?}");
                let all = value(&view.totals, "work") + value(&view.totals, "overhead");
                let seconds = recorded.working;
                assert!(
                    (all - seconds).abs() < 1e-6,
                    "{options:?}: {all} s in the view, {seconds} s recorded"
                );
                let first = totals.get_or_insert_with(|| view.totals.clone());
                for (metric, total) in first.iter() {
                    let same = value(&view.totals, metric);
                    assert!((same - total).abs() < 1e-6, "{options:?}: {metric}");
                }
            }
        }
    }
}

#[test]
fn the_json_is_what_scripts_rely_on() {
    let _cores = exclusive_cores();
    let (_run, database) = measured();
    let kinds = ["procedure", "inlined", "loop", "line", "thread-root", "partial", "module", "file", "entry"];
    for name in VIEWS {
        let view = database.view(name, &[]);
        assert_eq!(view.schema, "hpcprof-rs/view/1");
        assert_eq!((view.view.as_str(), view.unit.as_str()), (name, "seconds"));
        assert_eq!(view.cores, 2);
        for metric in ["work", "idleness", "overhead"] {
            assert!(view.metrics.iter().any(|m| m == metric), "{:?}", view.metrics);
            assert!(view.totals.contains_key(metric), "{:?}", view.totals);
        }
        for metric in &view.metrics {
            let known = ["work", "idleness", "overhead"].contains(&metric.as_str())
                || metric.starts_with("overhead:");
            assert!(known, "{name}: metric {metric}");
        }
        assert!(view.quality.rooted <= view.quality.samples);
        view.walk(&mut |_, node: &Node| {
            assert!(kinds.contains(&node.kind.as_str()), "{name}: kind {}", node.kind);
            assert!(!node.name.is_empty(), "{name}: a node without a name");
            assert!(!has_hash(&node.name), "{name}: {} is not as the user wrote it", node.name);
        });
    }
    let names = database.top_down().names();
    for wanted in ["spawns::main", "spawns::scoped_many", "spawns::task"] {
        assert!(names.iter().any(|n| n == wanted), "{wanted} in {names:#?}");
    }
    let runtime = names.iter().find(|n| n.starts_with("work_stealing_rt::"));
    assert_eq!(runtime, None, "the runtime is folded by default");
}

/// Whether a name still carries a legacy hash (`::h` and 16 hex digits) or is mangled.
fn has_hash(name: &str) -> bool {
    let tail = name.rsplit("::").next().unwrap_or("");
    let hash = tail
        .strip_prefix('h')
        .is_some_and(|hex| hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
    hash || name.starts_with("_ZN") || name.starts_with("_R")
}

#[test]
fn a_function_has_its_file_and_line() {
    let _cores = exclusive_cores();
    let (_run, database) = measured();
    let view = database.top_down();
    let mut seen = 0;
    view.walk(&mut |_, node| {
        if node.name == "spawns::task" && node.kind == "procedure" {
            let file = node.file.as_deref().unwrap_or("");
            assert!(file.ends_with("fixtures/programs/src/bin/spawns.rs"), "{file}");
            let source = include_str!("../../fixtures/programs/src/bin/spawns.rs");
            let line = source.lines().position(|l| l.starts_with("fn task(")).expect("there") + 1;
            let stated = node.line.expect("a line") as usize;
            assert!(stated.abs_diff(line) <= 1, "line {stated}, written at {line}");
            let module = node.module.as_deref().unwrap_or("");
            assert!(module.ends_with("spawns"), "{module}");
            seen += 1;
        }
    });
    assert!(seen > 0, "spawns::task is a procedure of the view");
}

#[test]
fn text_csv_and_folded_name_the_contexts() {
    let _cores = exclusive_cores();
    let (_run, database) = measured();
    for view in VIEWS {
        let text = database.text(view, &[]);
        assert!(text.contains("spawns::task"), "{view}:\n{text}");
        assert!(!text.contains('\u{1b}'), "no colour when not on a terminal");
        for format in ["csv", "folded"] {
            let text = database.text(view, &["--format", format]);
            assert!(text.contains("spawns::task"), "{view} {format}:\n{text}");
        }
    }
    let sorted = database.text("bottom-up", &["--metric", "idleness"]);
    assert!(sorted.contains("idleness"), "{sorted}");
}

#[test]
fn a_stripped_program_is_profiled_and_the_reader_is_told() {
    let _cores = exclusive_cores();
    let place = folder("stripped-program");
    let program: PathBuf = place.join("phases");
    std::fs::copy(release("phases"), &program).expect("the program can be copied");
    check(Command::new("strip").arg(&program));
    let run = Spec::new("stripped", &program).arguments(&["200"]).rate(1000).succeed();
    let database = run.database();
    let view = database.top_down();
    let quality = &view.quality;
    assert!(quality.rooted as f64 >= 0.999 * quality.samples as f64 && quality.samples > 500, "{quality:?}");
    let told = format!(
        "{}{}{}",
        run.stderr(),
        String::from_utf8_lossy(&database.output.stdout),
        String::from_utf8_lossy(&database.output.stderr)
    );
    assert!(told.contains("strip"), "the reader is told:\n{told}");
}

#[test]
fn one_measurement_gives_one_result() {
    let _cores = exclusive_cores();
    let (run, database) = measured();
    let again = run.folder.join("again");
    let output = hpcrun_tests::run::build(&run.measurements, &again);
    assert!(output.status.success());
    let second = check(tool("hpcprof-rs").arg("top-down").arg(&again).args(["--format", "json"]));
    assert_eq!(database.text("top-down", &["--format", "json"]), second);
}
