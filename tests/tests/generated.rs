//! Code that a published compiler generates while the program runs: V8's is walked, through its own code that
//! it maps a second time, and has the names of the map that it writes for perf.

use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::{can_run, one_core, workspace};
use hpcrun_tests::view::{View, assert_close};
use std::collections::BTreeMap;

/// Seconds in `leaf` below a way to it.
fn leaf_below(view: &View, way: &str) -> f64 {
    let (mut seconds, way) = (0.0, format!("{way} "));
    view.walk(&mut |above, node| {
        if node.name.contains("leaf ") && above.iter().any(|n| n.name.contains(&way)) {
            seconds += node.busy();
        }
    });
    seconds
}

#[test]
fn the_code_of_v8_is_walked_and_named() {
    if !can_run("node") {
        return println!("SKIPPED: node is not installed; its generated code was not measured");
    }
    let _cores = one_core();
    let script = workspace().join("fixtures/node/nested.js");
    let script = script.to_str().expect("a path in UTF-8");
    let options = ["--perf-basic-prof", "--interpreted-frames-native-stack", "--no-turbo-inlining"];
    let arguments = [&options[..], &[script, "1600"]].concat();
    let run = Spec::new("generated-v8", "node").arguments(&arguments).rate(1000).succeed();
    let truth: BTreeMap<String, f64> = serde_json::from_str(&run.stdout()).expect("JSON");
    let view = run.database().top_down();
    let quality = &view.quality;
    assert!(quality.rooted as f64 >= 0.97 * quality.samples as f64, "{quality:?}");
    for (way, truth) in &truth {
        assert_close(way, leaf_below(&view, way), *truth, 0.03 + 0.2 * truth);
    }
    assert_eq!(truth.len(), 2);
    let unnamed = view.inclusive("[generated code]", "work");
    assert!(unnamed < 0.02 * view.totals["work"], "{unnamed} s in code without a name: {:?}", view.names());
    let sort = view.inclusive("Builtins_ArrayTimSort", "work");
    assert!(sort > 0.0, "{:?}", view.names());
}
