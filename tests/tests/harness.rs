//! The tests' own instruments: a view that breaks the contract does not pass.

use hpcrun_tests::view::{View, value};

/// A small view; `%` stands for the exclusive work of `leaf`.
const VIEW: &str = r#"{"schema":"hpcprof-rs/view/1","view":"top-down","unit":"seconds","cores":2,
"metrics":["work","idleness"],"totals":{"work":3.0,"idleness":1.0},
"quality":{"samples":3,"rooted":3,"spawnerless":0,"lost":{},"unknown_lock_wait_seconds":0.0},
"roots":[{"kind":"procedure","name":"main","module":"m","file":null,"line":null,
 "inclusive":{"work":3.0,"idleness":1.0},"exclusive":{"work":1.0,"idleness":0.0},
 "children":[
  {"kind":"procedure","name":"leaf","module":"m","file":"f.rs","line":7,
   "inclusive":{"work":2.0,"idleness":1.0},"exclusive":{"work":%,"idleness":1.0},"children":[
    {"kind":"procedure","name":"leaf","module":"m","file":"f.rs","line":7,
     "inclusive":{"work":0.5},"exclusive":{"work":0.5},"children":[]}]}]}]}"#;

#[test]
fn a_right_view_passes_and_recursion_counts_once() {
    let view = View::parse(&VIEW.replace('%', "1.5"));
    view.assert_conserved();
    assert_eq!(view.inclusive("leaf", "work"), 2.0);
    assert_eq!(view.inclusive_under(&["main", "leaf"], "idleness"), 1.0);
    assert_eq!(view.inclusive_under(&["leaf", "main"], "work"), 0.0);
    assert_eq!(view.exclusive_sum("work"), 3.0);
    assert_eq!(value(&view.totals, "overhead"), 0.0);
}

#[test]
#[should_panic(expected = "the exclusive values")]
fn a_view_that_loses_cost_fails() {
    View::parse(&VIEW.replace('%', "1.4")).assert_conserved();
}

#[test]
#[should_panic(expected = "missing field `file`")]
fn a_node_without_its_file_fails() {
    View::parse(&VIEW.replace('%', "1.5").replace(r#""file":null,"#, ""));
}

#[test]
#[should_panic(expected = "missing field `quality`")]
fn a_view_without_its_quality_fails() {
    View::parse(&VIEW.replace('%', "1.5").replace("quality", "other"));
}
