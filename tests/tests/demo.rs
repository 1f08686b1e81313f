//! The case study: the views of the Cholesky example lead to the paper's conclusions.

use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::{machine, release};
use hpcrun_tests::view::{Node, Values, value};

/// The driver's serial helpers.
const SERIAL: [&str; 6] = [
    "cholesky::generate_matrix",
    "cholesky::copy_matrix",
    "cholesky::num_blocks",
    "cholesky::num_nonzeros",
    "cholesky::magnitude",
    "cholesky::free_matrix",
];

fn effort(values: &Values) -> f64 {
    ["work", "idleness", "overhead"]
        .iter()
        .map(|m| value(values, m))
        .sum()
}

#[test]
fn factorisation_is_effective_and_idleness_sits_in_the_serial_helpers() {
    let _machine = machine();
    let run = Spec::new("cholesky", release("examples/cholesky"))
        .arguments(&["-n", "3000", "-z", "30000", "--threads", "2"])
        .rate(1000)
        .succeed();
    assert!(run.stdout().contains("error"), "{}", run.stdout());
    let database = run.database();
    let top_down = database.top_down();
    let quality = &top_down.quality;
    assert!(
        quality.rooted as f64 >= 0.999 * quality.samples as f64,
        "{quality:?}"
    );

    let metric = |name: &str, metric: &str| top_down.inclusive(name, metric);
    let factorisation: f64 = ["work", "idleness", "overhead"]
        .iter()
        .map(|m| metric("cholesky::cholesky", m))
        .sum();
    let idle = metric("cholesky::cholesky", "idleness") / factorisation;
    assert!(
        idle < 0.08,
        "factorisation: {:.1} % of its effort is idleness",
        100.0 * idle
    );
    assert!(
        factorisation > 0.3 * effort(&top_down.totals),
        "factorisation is a main cost: {factorisation} s"
    );

    let in_helpers: f64 = SERIAL.iter().map(|name| metric(name, "idleness")).sum();
    let all = value(&top_down.totals, "idleness");
    assert!(
        in_helpers > 0.4 * all,
        "{in_helpers} s of {all} s idleness lie in the serial helpers"
    );

    // One look at the bottom-up view: the idlest procedures lead to the helpers.
    let bottom_up = database.bottom_up();
    let mut roots: Vec<&Node> = bottom_up.roots.iter().collect();
    roots.sort_by(|a, b| {
        value(&b.inclusive, "idleness").total_cmp(&value(&a.inclusive, "idleness"))
    });
    let leads_to_helper = roots.iter().take(6).filter(|root| {
        let mut found = false;
        root.walk(&mut Vec::new(), &mut |_, node| {
            found |= SERIAL.contains(&node.name.as_str());
        });
        found
    });
    assert!(
        leads_to_helper.count() >= 3,
        "the top of the bottom-up view names the helpers"
    );
    let text = database.text("bottom-up", &["--metric", "idleness"]);
    let head: String = text.lines().take(40).collect::<Vec<_>>().join("\n");
    assert!(
        SERIAL
            .iter()
            .any(|name| head.contains(name.trim_start_matches("cholesky::"))),
        "a serial helper in the first 40 lines:\n{head}"
    );
}
