//! Paths that are deep and names that are long: what is printed of them can be read by others and fits the
//! screen.

use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::{check, exclusive_cores, python, python_script};
use std::process::Command;

/// Samples a second.
const RATE: u32 = 1000;
/// Columns of a line of a view's headline.
const WIDEST: usize = 200;

/// The flat form against the nested one, by a parser that limits the depth as most do.
#[test]
fn json_of_a_deep_recursion_has_a_flat_form() {
    let _cores = exclusive_cores();
    let run = Spec::fixture("deep-recursion", "recursion").arguments(&["900"]).rate(RATE).succeed();
    let database = run.database();
    for view in ["top-down", "bottom-up", "flat"] {
        let text = database.text(view, &["--format", "json", "--flat"]);
        let flat: serde_json::Value = serde_json::from_str(&text).expect("any parser reads it");
        let nodes = flat["nodes"].as_array().expect("nodes");
        let mut nested = 0;
        database.view(view, &[]).walk(&mut |_, _| nested += 1);
        assert_eq!(nodes.len(), nested, "{view}: every node, once");
    }
}

#[test]
fn a_script_in_python_is_read_by_python() {
    let _cores = exclusive_cores();
    let Some(python) = python() else { return };
    let run = Spec::new("deep-python", &python).arguments(&[&python_script("deep.py")]).rate(RATE).succeed();
    let database = run.database();
    for view in ["top-down", "bottom-up"] {
        let file = run.folder.join(format!("{view}.json"));
        let text = database.text(view, &["--format", "json", "--flat"]);
        std::fs::write(&file, text).expect("the test's folder is writable");
        check(
            Command::new(&python).args(["-c", "import json, sys; json.load(open(sys.argv[1]))"]).arg(&file),
        );
        let text = database.text(view, &[]);
        let headline: Vec<&str> =
            text.lines().take_while(|line| !line.trim_start().starts_with("effort %")).collect();
        let widest = headline.iter().map(|line| line.chars().count()).max();
        assert!(widest <= Some(WIDEST), "{view}: {widest:?} columns:\n{}", headline.join("\n"));
    }
}
