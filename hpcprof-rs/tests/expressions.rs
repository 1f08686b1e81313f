//! Expressions over metrics: random ones against an evaluator of their own, units, errors, and the views.

use crate::support::program::full_run;
use crate::support::*;
use fastrand::Rng;
use hpcprof_rs::metrics::expression::{Expression, Problem, Variable};
use hpcprof_rs::metrics::unit::Unit;
use serde_json::Value;

/// Names with the powers of second, count and byte, and whether values add up.
const METRICS: [(&str, [i32; 3], bool); 9] = [
    ("effort", [1, 0, 0], true),
    ("work", [1, 0, 0], true),
    ("overhead:sync", [1, 0, 0], true),
    ("cache", [0, 1, 0], true),
    ("misses", [0, 1, 0], true),
    ("cache-misses", [0, 1, 0], true),
    ("heap", [0, 0, 1], true),
    ("the share", [0, 0, 0], false),
    ("min", [1, 0, 0], false),
];

fn unit(powers: [i32; 3]) -> Unit {
    let mut unit = Unit::RATIO;
    for (base, power) in [Unit::SECONDS, Unit::COUNT, Unit::BYTES].into_iter().zip(powers) {
        for _ in 0..power.abs() {
            unit = if power > 0 { unit * base } else { unit / base };
        }
    }
    unit
}

fn parse(text: &str) -> Result<Expression, Problem> {
    let variables = METRICS.map(|(name, powers, adds_up)| Variable { name, unit: unit(powers), adds_up });
    Expression::parse(text, &variables)
}

/// An expression as a tree.
enum Tree {
    Number(f64),
    Metric(usize),
    Negated(Box<Tree>),
    /// One of `+-*/`.
    Binary(char, Box<Tree>, Box<Tree>),
    /// `min` or `max`.
    Call(&'static str, Vec<Tree>),
}

/// What a tree is: powers of units, whether it is a constant, and its value in stored amounts.
struct Meant {
    powers: [i32; 3],
    is_constant: bool,
    value: Option<f64>,
}

impl Tree {
    fn random(random: &mut Rng, depth: u32) -> Tree {
        let below = |random: &mut Rng| Box::new(Tree::random(random, depth - 1));
        match if depth == 0 { random.u8(..2) } else { random.u8(..12) } {
            0 => Tree::Number(f64::from(random.u32(..20)) / 4.0),
            1 | 2 => Tree::Metric(random.usize(..METRICS.len())),
            3 => Tree::Negated(below(random)),
            4 | 5 => {
                let name = if random.bool() { "min" } else { "max" };
                let count = random.usize(1..4);
                let arguments = (0..count).map(|_| Tree::random(random, depth - 1));
                Tree::Call(name, arguments.collect())
            }
            n => {
                let operator = ['+', '-', '*', '/'][usize::from(n) % 4];
                Tree::Binary(operator, below(random), below(random))
            }
        }
    }

    /// Its text, with as few parentheses as its meaning permits and some more by chance.
    fn text(&self, random: &mut Rng) -> String {
        let space = |random: &mut Rng| " ".repeat(random.usize(..2));
        let text = match self {
            Tree::Number(number) => match random.bool() {
                true => format!("{number}"),
                false => format!("{number:e}"),
            },
            Tree::Metric(metric) => {
                let name = METRICS[*metric].0;
                match random.u8(..3) {
                    0 => format!("\"{name}\""),
                    1 => format!("'{name}'"),
                    _ if name.contains(' ') => format!("'{name}'"),
                    _ => name.to_owned(),
                }
            }
            Tree::Negated(tree) => format!("-{}{}", space(random), tree.within(3, random)),
            Tree::Binary(operator, left, right) => {
                let strength = self.strength();
                // Between two names a hyphen without spaces may be a part of a name.
                let pad = match operator {
                    '-' => " ".to_owned(),
                    _ => space(random),
                };
                let left = left.within(strength, random);
                format!("{left}{pad}{operator}{pad}{}", right.within(strength + 1, random))
            }
            Tree::Call(name, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(|a| a.text(random)).collect();
                let separator = format!("{},{}", space(random), space(random));
                format!("{name}{}({})", space(random), arguments.join(&separator))
            }
        };
        match random.u8(..8) {
            0 => format!("({}{text}{})", space(random), space(random)),
            _ => text,
        }
    }

    fn strength(&self) -> u8 {
        match self {
            Tree::Binary('+' | '-', ..) => 1,
            Tree::Binary(..) => 2,
            Tree::Negated(_) => 3,
            _ => 4,
        }
    }

    fn within(&self, strength: u8, random: &mut Rng) -> String {
        match self.strength() < strength {
            true => format!("({})", self.text(random)),
            false => self.text(random),
        }
    }

    /// `None` where units do not go together.
    fn meant(&self, amounts: &[i64]) -> Option<Meant> {
        let number = |value| Meant { powers: [0; 3], is_constant: true, value: Some(value) };
        match self {
            Tree::Number(value) => Some(number(*value)),
            Tree::Metric(metric) => Some(Meant {
                powers: METRICS[*metric].1,
                is_constant: false,
                value: Some(amounts[*metric] as f64),
            }),
            Tree::Negated(tree) => {
                let meant = tree.meant(amounts)?;
                Some(Meant { value: meant.value.map(|v| -v), ..meant })
            }
            Tree::Binary(operator, left, right) => {
                let (left, right) = (left.meant(amounts)?, right.meant(amounts)?);
                let both = left.value.zip(right.value);
                let powers = |sign: i32| {
                    let mut powers = left.powers;
                    for (power, other) in powers.iter_mut().zip(right.powers) {
                        *power += sign * other;
                    }
                    powers
                };
                let (powers, value) = match operator {
                    '*' => (powers(1), both.map(|(a, b)| a * b)),
                    '/' => (powers(-1), both.filter(|(_, b)| *b != 0.0).map(|(a, b)| a / b)),
                    _ if left.powers != right.powers => return None,
                    '+' => (left.powers, both.map(|(a, b)| a + b)),
                    _ => (left.powers, both.map(|(a, b)| a - b)),
                };
                Some(Meant { powers, is_constant: left.is_constant && right.is_constant, value })
            }
            Tree::Call(name, arguments) => {
                let all: Option<Vec<Meant>> = arguments.iter().map(|a| a.meant(amounts)).collect();
                let all = all?;
                let values: Option<Vec<f64>> = all.iter().map(|m| m.value).collect();
                let values = values.map(|mut values| {
                    values.sort_by(f64::total_cmp);
                    values[if *name == "min" { 0 } else { values.len() - 1 }]
                });
                let powers = all[0].powers;
                all.iter().all(|m| m.powers == powers).then(|| Meant {
                    powers,
                    is_constant: all.iter().all(|m| m.is_constant),
                    value: values,
                })
            }
        }
    }
}

#[test]
fn random_expressions_have_the_values_and_units_of_their_trees() {
    let mut random = Rng::with_seed(7);
    let (mut right, mut long, mut refused, mut undefined, mut sums) = (0, 0, 0, 0, 0);
    for _ in 0..30_000 {
        let tree = Tree::random(&mut random, 4);
        let text = tree.text(&mut random);
        let mut amounts = || -> Vec<i64> {
            let scale = [1, 1000, 1_000_000_000][random.usize(..3)];
            METRICS.iter().map(|_| random.i64(0..8) * scale).collect()
        };
        let (one, other) = (amounts(), amounts());
        let (parsed, meant) = (parse(&text), tree.meant(&one));
        let Some(meant) = meant.filter(|m| !m.is_constant) else {
            assert!(parsed.is_err(), "{text}");
            refused += 1;
            continue;
        };
        let parsed = parsed.unwrap_or_else(|problem| panic!("{text}: {problem:?}"));
        assert_eq!(parsed.unit(), unit(meant.powers), "{text}");
        let seconds = meant.powers[0];
        let expected = meant.value.map(|v| v / 1e9_f64.powi(seconds));
        let value = parsed.value(|metric| one[metric]);
        assert_eq!(value, expected, "{text} of {one:?}");
        right += 1;
        long += u32::from(text.len() > 40);
        undefined += u32::from(value.is_none());
        if parsed.adds_up() {
            let value = |amounts: &[i64]| parsed.value(|metric| amounts[metric]);
            let both: Vec<i64> = one.iter().zip(&other).map(|(a, b)| a + b).collect();
            let parts = value(&one).zip(value(&other)).map(|(a, b)| a + b);
            let (Some(parts), Some(whole)) = (parts, value(&both)) else {
                // Only a division by a constant of zero is undefined whatever the amounts are.
                assert_eq!(value(&both), None, "{text}");
                continue;
            };
            let error = (parts - whole).abs() / parts.abs().max(whole.abs()).max(1.0);
            assert!(error <= 1e-6, "{text}: {parts}, {whole}");
            sums += 1;
        }
    }
    let counts = [right, long, refused, undefined, sums];
    let least = [5000, 1000, 5000, 300, 1000];
    assert!(counts.iter().zip(least).all(|(n, least)| *n > least), "{counts:?}");
}

#[test]
fn units_follow_from_those_of_the_metrics() {
    let table = [
        ("work", Some("seconds")),
        ("work/effort", Some("ratio")),
        ("cache/work", Some("count/second")),
        ("work/cache", Some("seconds/count")),
        ("heap/cache", Some("bytes/count")),
        ("1/work", Some("1/second")),
        ("work*work", Some("seconds^2")),
        ("work*heap/cache/cache", Some("seconds*bytes/count^2")),
        ("work/effort*work", Some("seconds")),
        ("2*work", Some("seconds")),
        ("'the share'*work", Some("seconds")),
        ("1 - 'the share'", Some("ratio")),
        ("cache-misses", Some("count")),
        ("max(work, effort, min)", Some("seconds")),
        ("min (work)", Some("seconds")),
        ("work+cache", None),
        ("work-1", None),
        ("max(work, cache)", None),
        ("work/effort + work", None),
        ("2", None),
        ("1/(2-2)", None),
    ];
    for (text, unit) in table {
        let found = parse(text).ok().map(|e| e.unit().to_string());
        assert_eq!(found.as_deref(), unit, "{text}");
    }
}

#[test]
fn values_are_in_their_unit() {
    // work is three seconds, cache-misses six.
    let amounts = [0, 3_000_000_000, 0, 10, 4, 6, 0, 0, 0];
    for (text, value) in [
        ("work", Some(3.0)),
        ("cache-misses/work", Some(2.0)),
        ("work/cache-misses", Some(0.5)),
        ("work*work", Some(9.0)),
        // The longest known name is taken; spaces make a minus.
        ("cache-misses", Some(6.0)),
        ("cache - misses", Some(6.0)),
        ("misses-cache", Some(-6.0)),
        ("misses-2*cache-misses", Some(-8.0)),
        ("cache/heap", None),
        ("max(1, work/effort)", None),
        ("0*(cache/heap)", None),
        ("-work*0", Some(0.0)),
        (" work ", Some(3.0)),
    ] {
        let parsed = parse(text).unwrap_or_else(|problem| panic!("{text}: {problem:?}"));
        let found = parsed.value(|metric| amounts[metric]);
        assert_eq!(found, value, "{text}");
        assert_ne!(found.map(f64::to_bits), Some((-0.0_f64).to_bits()), "{text}");
    }
}

#[test]
fn an_error_points_at_the_place() {
    for (text, message) in [
        ("work+1", "cannot add seconds and ratio at character 5 of `work+1`: `+1`"),
        ("work - cache", "cannot subtract count from seconds at character 6"),
        ("2*max(cache, work)", "cannot compare count and seconds at character 3"),
        ("work/(wörk+1)", "no metric `wörk` at character 7 of `work/(wörk+1)`: `wörk+1)`"),
        ("wörk", "no metric `wörk`"),
        ("(wörk)*é+work", "no metric `wörk` at character 2"),
        ("work/", "expected a metric, a number or `(` at the end of `work/`"),
        ("", "expected a metric, a number or `(` at the end"),
        ("(work", "expected an operator or `)` at the end"),
        ("(work,work)", "expected an operator or `)` at character 6"),
        ("work)", "expected an operator at character 5"),
        ("work work", "expected an operator at character 6"),
        ("work*'cache", "the quote does not end at character 6"),
        ("work*1e999", "the number is too large at character 6"),
        ("work*2e", "expected an operator at character 7"),
        ("work*.", "expected a number at character 6"),
        ("max()", "expected a metric, a number or `(` at character 5"),
        ("7", "a number is no metric at character 1"),
    ] {
        let problem = parse(text).expect_err(text);
        has(&problem.describe(text), message);
    }
}

#[test]
fn no_text_makes_the_parser_panic() {
    let mut random = Rng::with_seed(11);
    let pieces = "work|cache-misses|min|max|'|\"|(|)|,|+|-|*|/|.|1|e9| |\t|\n|é|∞|\u{202e}|:|@|_|\
                  the share|\0";
    let pieces: Vec<&str> = pieces.split('|').collect();
    let mut accepted = 0;
    for _ in 0..100_000 {
        let count = random.usize(..12);
        let piece = |_| pieces[random.usize(..pieces.len())];
        let text: String = (0..count).map(piece).collect();
        match parse(&text) {
            Ok(expression) => {
                accepted += 1;
                let amounts = [(); METRICS.len()].map(|()| random.i64(..));
                expression.value(|metric| amounts[metric]);
            }
            Err(problem) => {
                assert!(text.is_char_boundary(problem.at), "{text:?}: {problem:?}");
                has(&problem.describe(&text), &problem.fault.to_string());
            }
        }
    }
    assert!(accepted > 500, "{accepted}");
    // Long texts need no stack.
    let many = 200_000;
    for (text, is_right) in [
        (format!("work{}", "+work".repeat(many)), true),
        (format!("{}work", "-".repeat(many)), true),
        (format!("max(work{})", ",work".repeat(many)), true),
        ("(".repeat(many), false),
        ("max(".repeat(many), false),
        (format!("{}work{}", "(".repeat(64), ")".repeat(64)), true),
        (format!("{}work{}", "(".repeat(65), ")".repeat(65)), false),
    ] {
        assert_eq!(parse(&text).is_ok(), is_right, "{}", &text[..20]);
    }
    let value = parse(&format!("work{}", "+work".repeat(many))).expect("a sum");
    assert_eq!(value.value(|_| 1_000_000_000), Some(200_001.0));
}

/// All nodes of a nested view.
fn nodes(view: &Value) -> Vec<&Value> {
    let mut nodes: Vec<&Value> = view["roots"].as_array().expect("roots").iter().collect();
    let mut next = 0;
    while let Some(node) = nodes.get(next) {
        nodes.extend(node["children"].as_array().expect("children"));
        next += 1;
    }
    nodes
}

#[test]
fn a_quotient_is_computed_from_each_contexts_own_sums() {
    let database = database(&full_run());
    let text = "idleness/(work+idleness)";
    for (kind, options) in [
        ("top-down", &["--lines"][..]),
        ("top-down", &["--depth", "3"]),
        ("bottom-up", &[]),
        ("flat", &["--threshold", "20"]),
    ] {
        let view = view(&database, kind, &[&["--metric", text], options].concat());
        let check = |values: &Value| {
            let number = |name: &str| values[name].as_f64().expect("a number");
            let below = number("work") + number("idleness");
            match below {
                0.0 => assert!(values[text].is_null(), "{values}"),
                _ => assert!((number(text) - number("idleness") / below).abs() < 1e-12),
            }
            values[text].as_f64()
        };
        check(&view["totals"]).expect("there is work");
        let nodes = nodes(&view);
        let mut defined = 0;
        for node in &nodes {
            check(&node["exclusive"]);
            defined += u32::from(check(&node["inclusive"]).is_some());
            let children = node["children"].as_array().expect("children").iter();
            let children = children.filter(|child| child["kind"] != "pruned");
            let order: Vec<Option<f64>> = children.map(|c| c["inclusive"][text].as_f64()).collect();
            // Undefined values come last.
            assert!(order.is_sorted_by(|a, b| a >= b), "{order:?}");
        }
        assert!(defined > 3, "{kind}: {defined}");
        let pruned = nodes.iter().any(|n| n["kind"] == "pruned");
        assert_eq!(pruned, !matches!(options, [] | ["--lines"]), "{kind}");
        let table = view["metric_table"].as_array().expect("a table");
        let names: Value = table.iter().map(|row| row["name"].clone()).collect();
        assert_eq!(names, view["metrics"]);
        let (last, others) = table.split_last().expect("a row");
        assert_eq!((&last["unit"], &last["aggregation"]), (&"ratio".into(), &"none".into()));
        assert!(others.iter().all(|row| row["unit"] == "seconds"));
    }
}

#[test]
fn a_threshold_is_of_effort_or_of_the_largest_value() {
    let database = database(&full_run());
    let view = |metric| view(&database, "top-down", &["--metric", metric, "--threshold", "20"]);
    let number = |node: &Value, name: &str| node["inclusive"][name].as_f64().expect("a number");
    let effort = |node: &Value| -> f64 {
        let parts = ["work", "idleness", "overhead"];
        parts.map(|part| number(node, part)).iter().sum()
    };
    let difference = "work - 4*idleness";
    let value = |node: &Value| number(node, difference).abs();
    let quotients = view("idleness/work");
    let differences = view(difference);
    for (view, size) in [(&quotients, &effort as &dyn Fn(&Value) -> f64), (&differences, &value)] {
        let nodes = nodes(view);
        let (pruned, kept): (Vec<&Value>, Vec<&Value>) =
            nodes.iter().partition(|node| node["kind"] == "pruned");
        let largest = kept.iter().map(|node| size(node)).fold(0.0, f64::max);
        assert!(kept.len() > 3 && !pruned.is_empty());
        assert!(kept.iter().all(|node| size(node) >= 0.2 * largest - 1e-9));
    }
    // The serial part has more idleness than work: its value is negative, and is kept.
    let nodes = nodes(&differences);
    let serial = nodes.iter().find(|node| node["name"] == "app::serial");
    assert!(number(serial.expect("it is kept"), difference) < 0.0);
}

#[test]
fn each_format_shows_an_expression_or_refuses_it() {
    let database = database(&full_run());
    let screen = show(&database, "top-down --metric overhead/idleness");
    let title = screen.lines().nth(1).expect("titles");
    has(title, "overhead/idleness (ratio)");
    // Tasks have no idleness: a division by zero.
    let csv = show(&database, "top-down --metric overhead/idleness --format csv");
    let mut rows = csv::Reader::from_reader(csv.as_bytes());
    let titles = rows.headers().expect("titles").clone();
    let column = |title: &str| titles.iter().position(|t| t == title).expect(title);
    let columns = ["overhead/idleness", "overhead", "idleness"];
    let [derived, above, below] = columns.map(|name| column(&format!("{name} (inclusive)")));
    let mut undefined = 0;
    for row in rows.records() {
        let row = row.expect("a row");
        let number = |at: usize| row[at].parse::<f64>();
        let [above, below] = [above, below].map(|at| number(at).expect("seconds"));
        match number(derived) {
            Ok(value) => assert!((value - above / below).abs() < 1e-12),
            Err(_) => {
                assert_eq!((below, &row[derived]), (0.0, ""));
                undefined += 1;
            }
        }
    }
    assert!(undefined > 0, "no division by zero is shown");

    // A sum is stacked; what does not add up or is negative is not.
    let of = |command: &[&str], metric: &str| {
        let options = ["--format", "folded", "--metric", metric];
        tool(&[command, &[text(&database)], &options].concat())
    };
    let folded = |metric: &str| of(&["top-down"], metric);
    let export = |metric: &str| of(&["export", "-o", "-"], metric);
    let stacked = |metric: &str| {
        let stacks = readers::folded(&folded(metric).expect("stacks"));
        stacks.values().sum::<i64>()
    };
    assert_eq!(stacked("2*work"), 2 * stacked("work"));
    assert_eq!(stacked("work+idleness+overhead"), stacked("effort"));
    for (metric, problem) in [
        ("work/idleness", "`work/idleness` does not add up"),
        ("max(work,idleness)", "does not add up"),
        ("work/2 - idleness", "is negative in some contexts"),
    ] {
        has(&folded(metric).expect_err(metric), problem);
        has(&export(metric).expect_err(metric), problem);
    }
    let (sum, effort) = (export("work+idleness+overhead"), export("effort"));
    assert_eq!(sum.expect("stacks"), effort.expect("stacks"));
    assert_eq!(stacked("2*samples") as u64, 2 * full_run().samples());
}

#[test]
fn a_name_alone_is_the_metric_however_it_is_written() {
    let database = database(&full_run());
    let show = |format: &str, metric: &str| {
        let metric = format!("--metric={metric}");
        let arguments = ["bottom-up", text(&database), "--format", format, &metric];
        tool(&arguments).expect("a view")
    };
    for format in ["text", "json", "csv", "folded"] {
        for (name, others) in [
            ("idleness", ["'idleness'", " (idleness) "]),
            ("overhead:sched", ["\"overhead:sched\"", "--overhead:sched"]),
            ("effort", ["(effort)", "min(effort)"]),
        ] {
            let plain = show(format, name);
            assert!(!plain.contains("metric_table"));
            for other in others {
                assert_eq!(show(format, other), plain, "{other}");
            }
        }
    }
}

#[test]
fn samples_are_a_column_of_counts() {
    let run = full_run();
    let database = database(&run);
    let totals = |metric: &str| {
        let view = view(&database, "flat", &["--metric", metric]);
        let table = view["metric_table"].as_array().expect("a table");
        let row = table.last().expect("a row").clone();
        (view["totals"][metric].as_f64().expect("a number"), row)
    };
    let (samples, row) = totals("samples");
    assert_eq!(samples, run.samples() as f64);
    let described = |row: &Value| ["unit", "aggregation"].map(|key| row[key].clone());
    assert_eq!(row["name"], "samples");
    assert_eq!(described(&row), ["count", "sum"]);
    let (rate, row) = totals("samples/(work+overhead)");
    assert_eq!(described(&row), ["count/second", "none"]);
    // A sample stands for a period of 5 ms; one of them for two.
    let periods = (run.recorded_work() / 5_000_000) as f64;
    assert!((rate - 200.0 * samples / periods).abs() < 1e-9, "{rate}");
    let error = refused(&database, "flat --metric work+samples");
    has(&error, "cannot add seconds and count at character 5");
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let database = database(&full_run());
    let error = refused(&database, "flat --metric idleness/wrok");
    let place = "no metric `wrok` at character 10 of `idleness/wrok`: `wrok`";
    has(&error, place);
    let known = "has: effort, work, idleness, overhead, overhead:sched, samples";
    has(&error, known);
    let error = refused(&database, "flat --metric wrok");
    let path = database.display();
    has(&error, &format!("no metric `wrok` in {path}; it {known}"));
}
