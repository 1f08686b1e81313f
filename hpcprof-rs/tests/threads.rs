//! The table of threads against what synthetic runs recorded: sums, spreads, one procedure's share, the
//! screen, and damaged values.

use crate::support::program::{LEAF, MAIN, MAIN_SERIAL, SERIAL, START, full_run, run};
use crate::support::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn threads(database: &Path, options: &[&str]) -> Value {
    let arguments = [&["threads", text(database), "--format", "json"], options].concat();
    serde_json::from_str(&tool(&arguments).expect("threads")).expect("valid JSON")
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

#[track_caller]
fn close(value: &Value, expected: f64) {
    let value = value.as_f64().expect("a number");
    let is_close = (value - expected).abs() <= 1e-9 * expected.abs().max(1.0);
    assert!(is_close, "{value}, not {expected}");
}

/// The standard deviation, by the mean distance of all pairs, whatever the mean is.
fn sigma(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let squares = |a: &f64| -> f64 { values.iter().map(|b| (a - b).powi(2)).sum() };
    (values.iter().map(squares).sum::<f64>() / (2.0 * n * n)).sqrt()
}

/// Sum, least, mean, largest, standard deviation, largest by mean of so many threads at least.
#[track_caller]
fn check_spread(statistics: &Value, values: &[f64], takers: f64) {
    let n = values.len() as f64;
    let sum: f64 = values.iter().sum();
    close(&statistics["sum"], sum);
    close(&statistics["mean"], sum / n);
    let extreme = |choose: fn(f64, f64) -> f64| values.iter().copied().fold(values[0], choose);
    let most = extreme(f64::max);
    close(&statistics["min"], extreme(f64::min));
    close(&statistics["max"], most);
    close(&statistics["sigma"], sigma(values));
    match sum == 0.0 {
        true => assert!(statistics["imbalance"].is_null()),
        false => close(&statistics["imbalance"], most * n.max(takers) / sum),
    }
}

#[test]
fn threads_have_what_they_recorded() {
    for seed in 1..=6 {
        let mut first = random::run(seed, 5, 90);
        for (index, thread) in (1..).zip(&mut first.threads) {
            thread.cpu_ns = index * 17_000_000_001;
            thread.idle = index * 3;
        }
        let second = random::run(seed + 100, 3, 60).process(101, IMAGE + 7);
        let database = build(&[&[&first, &second]], &[]);
        let table = threads(&database, &["--metric", "idleness"]);
        let rows = table["threads"].as_array().expect("threads");
        assert_eq!(rows.len(), 8);
        let totals = &view(&database, "flat", &[])["totals"];
        let runs = [&first, &second];
        for row in rows {
            let run = runs[usize::from(row["pid"] == 101)];
            let ordinal = row["ordinal"].as_u64().expect("a number");
            let thread = &run.threads[ordinal as usize - 1];
            let values = &row["values"];
            assert_eq!(values["samples"], thread.samples);
            let busy = nanoseconds(&values["work"]) + nanoseconds(&values["overhead"]);
            assert_eq!(busy, (thread.weight * PERIOD_NS) as i64);
            assert_eq!(nanoseconds(&values["idleness"]), thread.idleness_ns);
            assert_eq!(nanoseconds(&values["effort"]), busy + thread.idleness_ns);
            assert_eq!(nanoseconds(&values["cpu"]), thread.cpu_ns as i64);
            let spinning = nanoseconds(&values["spinning"]);
            assert_eq!(spinning, (thread.idle * PERIOD_NS) as i64);
        }
        let idleness = |row: &Value| row["values"]["idleness"].as_f64().expect("a number");
        assert!(rows.is_sorted_by(|a, b| idleness(a) >= idleness(b)));
        for metric in ["work", "idleness", "overhead"] {
            let sum = &table["all"]["statistics"][metric]["sum"];
            assert_eq!(nanoseconds(sum), nanoseconds(&totals[metric]), "{metric}");
        }
        let processes = table["processes"].as_array().expect("processes");
        assert_eq!(processes.len(), 2);
        for (process, run) in processes.iter().zip(runs) {
            assert_eq!(process["pid"], run.start.pid);
            assert_eq!(process["threads"], run.threads.len());
            let of =
                |value: fn(&ThreadBuilder) -> f64| -> Vec<f64> { run.threads.iter().map(value).collect() };
            let statistics = &process["statistics"];
            check_spread(&statistics["idleness"], &of(|t| seconds(t.idleness_ns)), 0.0);
            check_spread(&statistics["samples"], &of(|t| t.samples as f64), 0.0);
            check_spread(&statistics["cpu"], &of(|t| t.cpu_ns as f64 / 1e9), 0.0);
        }
        let both = first.threads.iter().chain(&second.threads);
        let both: Vec<f64> = both.map(|t| seconds(t.idleness_ns)).collect();
        check_spread(&table["all"]["statistics"]["idleness"], &both, 0.0);
        // The same in CSV.
        let csv = show(&database, "threads --format csv");
        let mut csv = csv::Reader::from_reader(csv.as_bytes());
        let column =
            |name: &str, header: &csv::StringRecord| header.iter().position(|h| h == name).expect("a column");
        let header = csv.headers().expect("a header").clone();
        let (kind, effort) = (column("row", &header), column("effort", &header));
        let records: Vec<csv::StringRecord> = csv.records().collect::<Result<_, _>>().expect("CSV");
        assert_eq!(records.len(), 8 + 3 * 6);
        let of = |name: &str| -> Vec<i64> {
            let rows = records.iter().filter(|r| &r[kind] == name);
            let value = |r: &csv::StringRecord| r[effort].parse::<f64>().expect("a number");
            rows.map(|r| (value(r) * 1e9).round() as i64).collect()
        };
        let sums = of("sum");
        assert_eq!(of("thread").iter().sum::<i64>(), sums[2]);
        assert_eq!(sums[0] + sums[1], sums[2]);
    }
}

/// Key, threads, sum, least, most and sigma of work, for each context of the stored tree.
type Stored = (String, u64, i64, i64, i64, f64);

fn stored(database: &Path) -> Vec<Stored> {
    let database = rusqlite::Connection::open(database.join("database.sqlite")).expect("SQLite");
    let sql = "SELECT printf('%016x', c.key), threads, inclusive, least, most, sigma
        FROM context c JOIN value ON context = c.id AND metric = 0";
    let mut query = database.prepare(sql).expect("SQL");
    let rows = query.query_map([], |r| r.try_into()).expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}

#[test]
fn threads_of_a_context_are_those_of_its_stored_spread() {
    let mut checked = 0;
    for seed in 21..=23 {
        let database = database(&random::run(seed, 6, 60));
        let rows = stored(&database);
        for (key, threads_of_it, sum, least, most, stored) in &rows {
            if rows.iter().filter(|row| row.0 == *key).count() > 1 {
                continue;
            }
            let table = threads(&database, &["--context", key]);
            // A thread may have only idleness or overhead there.
            let work = table["threads"].as_array().expect("threads").iter();
            let work = work.map(|row| nanoseconds(&row["values"]["work"]));
            let work: Vec<i64> = work.filter(|ns| *ns != 0).collect();
            assert_eq!(work.len() as u64, *threads_of_it, "{key}");
            assert_eq!(work.iter().sum::<i64>(), *sum, "{key}");
            assert_eq!(work.iter().min(), Some(least), "{key}");
            assert_eq!(work.iter().max(), Some(most), "{key}");
            let work: Vec<f64> = work.iter().map(|ns| *ns as f64).collect();
            let own = sigma(&work);
            assert!((own - stored).abs() < 1.0 + own * 1e-6, "{key}: {own}");
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn a_procedure_has_the_values_of_all_its_contexts() {
    let database = database(&full_run());
    for name in ["app::leaf", "leaf"] {
        let table = threads(&database, &["--context", name]);
        assert_eq!(table["context"], "app::leaf");
        let rows = table["threads"].as_array().expect("threads");
        let samples: Vec<&Value> = rows.iter().map(|r| &r["values"]["samples"]).collect();
        assert_eq!(samples, [80 + 20 + 6 + 2, 60 + 40]);
        // 7 periods of 6 samples.
        for (row, periods) in rows.iter().zip([109, 100]) {
            let work = nanoseconds(&row["values"]["work"]);
            assert_eq!(work, periods * PERIOD_NS as i64);
        }
        let work = &table["all"]["statistics"]["work"];
        close(&work["imbalance"], 109.0 * 2.0 / 209.0);
    }
    let screen = show(&database, "threads --context app::serial");
    let title = "threads of app -n 7 in app::serial: 2 of 2 threads\n";
    has(&screen, title);
    let error = refused(&database, "threads --context app::no");
    has(&error, "no context of `app::no` in the default view");
    let error = refused(&database, "threads --context ");
    has(&error, "no context of ``");
}

/// Threads that work 1, 2, 3 … periods.
fn uneven(count: u32) -> Run {
    let mut run = run();
    run.threads = (1..=count)
        .map(|ordinal| {
            let mut thread = ThreadBuilder::new(ordinal);
            let entry = thread.entry();
            let path = match ordinal % 2 {
                0 => [START, MAIN, LEAF],
                _ => [START, MAIN_SERIAL, SERIAL],
            };
            let node = thread.natives(entry, &path);
            thread.sample(node, u64::from(ordinal), 1.0);
            thread.name = format!("a-name-to-cut-{ordinal}");
            thread
        })
        .collect();
    run
}

#[test]
fn text_fits_the_screen_and_keeps_what_it_does_not_list() {
    let database = database(&uneven(50));
    for columns in [60, 80, 140] {
        for metric in ["effort", "idleness/work", "samples"] {
            let line = format!("threads --rows 10 --metric {metric}");
            let screen = show_on(columns, &database, &line);
            let longest = screen.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(columns), "{columns}: {screen}");
            // Title, columns, ten threads, the rest, six statistics.
            assert_eq!(screen.lines().count(), 2 + 10 + 1 + 6, "{screen}");
        }
    }
    let screen = show(&database, "threads --rows 10");
    let line = |what: &str| {
        let line = screen.lines().find(|line| line.ends_with(what));
        let line = line.unwrap_or_else(|| panic!("no `{what}` in: {screen}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // 1 + 2 + … + 40 periods of work and as many of idleness; of 50 the mean is 25.5.
    let rest = ["820", "8.200", "4.100", "4.100"];
    assert_eq!(line("40 more threads")[..4], rest);
    assert_eq!(line("sum of 50 threads")[..2], ["1275", "12.750"]);
    assert_eq!(line("max/mean")[..2], ["1.961", "1.961"]);
    has(&screen, "  a-name-to-cut-50 (50 tid 150)\n");
    lacks(&screen, "process ");
}

/// Each of two threads has a procedure to itself: that is no balance.
#[test]
fn who_could_have_taken_part_counts() {
    let mut run = run();
    let paths = [[START, MAIN_SERIAL, SERIAL], [START, MAIN, LEAF]];
    let taken = (1..).zip(paths).map(|(ordinal, path)| {
        let mut thread = ThreadBuilder::new(ordinal);
        let entry = thread.entry();
        let leaf = thread.natives(entry, &path);
        thread.sample(leaf, 50, 0.0);
        thread
    });
    run.threads = taken.collect();
    let database = database(&run);
    let table = threads(&database, &["--context", "app::leaf"]);
    close(&table["all"]["statistics"]["work"]["imbalance"], 2.0);
    let json = view(&database, "top-down", &["--statistics"]);
    let of = |path: &[&str]| at_path(&json, path)["statistics"]["work"]["imbalance"].clone();
    close(&of(&["app::main", "app::serial"]), 2.0);
    close(&of(&["app::main"]), 1.0);
    let sql = "SELECT work_imbalance FROM top_down WHERE name = 'app::serial'";
    let connection = rusqlite::Connection::open(database.join("database.sqlite")).expect("opens");
    let imbalance: f64 = connection.query_row(sql, [], |row| row.get(0)).expect("a row");
    assert_eq!(imbalance, 2.0);
}

#[test]
fn statistics_of_the_tree_are_those_of_the_threads() {
    let database = database(&full_run());
    let json = view(&database, "top-down", &["--statistics"]);
    let serial = at_path(&json, &["app::main", "app::serial"]);
    let work = &serial["statistics"]["work"];
    // 120 periods of the first thread, 7 in 6 samples of the second one.
    assert_eq!(work["threads"], 2);
    assert_eq!(nanoseconds(&work["sum"]), inclusive(serial, "work"));
    assert_eq!(nanoseconds(&work["min"]), 7 * PERIOD_NS as i64);
    assert_eq!(nanoseconds(&work["max"]), 120 * PERIOD_NS as i64);
    close(&work["imbalance"], 2.0 * 120.0 / 127.0);
    let all = json["quality"]["samples"].as_f64().expect("a number");
    let variance = 120.0 + 7.0 * 7.0 / 6.0 - 127.0 * 127.0 / (all + 1.0);
    close(&work["standard_error"], 0.005 * variance.sqrt());
    close(&serial["statistics"]["standard_errors"]["work"], 0.005 * variance.sqrt());
    let deviation = (120.0 - 7.0) / 2.0 * 0.005;
    close(&work["sigma"], deviation);
    // The same as text, and nodes that are not cut off keep theirs.
    let screen = show(&database, "top-down --statistics --threshold 20");
    let line = screen.lines().find(|l| l.contains("app::serial"));
    has(line.expect("a line"), "        2    1.890    0.045");
    has(&screen, "  threads max/mean   work ±");
    for view in ["top-down", "bottom-up", "flat"] {
        let screen = show_on(80, &database, &format!("{view} --statistics"));
        has(&screen, " effort %     work  threads max/mean   work ±  ");
        // The first line is the title.
        let lengths = screen.lines().skip(1).map(|line| line.chars().count());
        assert!(lengths.max() <= Some(80), "{screen}");
    }
    // Every context with work has them, and they fit it.
    for seed in 41..=43 {
        let database = crate::support::database(&random::run(seed, 5, 80));
        let json = view(&database, "top-down", &["--statistics", "--flat"]);
        for node in json["nodes"].as_array().expect("nodes") {
            let sum = inclusive(node, "work");
            if sum != 0 {
                let statistics = &node["statistics"]["work"];
                assert_eq!(nanoseconds(&statistics["sum"]), sum, "{node}");
            }
        }
    }
    for (other, why) in [
        ("flat --projection physical", "logical context only"),
        ("top-down --format csv", "text and JSON only"),
    ] {
        has(&refused(&database, &format!("{other} --statistics")), why);
    }
}

/// Inclusive work of nodes that have any, with its statistics, by path of names.
fn work(nodes: &Value, above: &str, sums: &mut BTreeMap<String, (i64, Value)>) {
    for node in nodes.as_array().expect("nodes") {
        let path = format!("{above};{} {}", node["name"], node["line"]);
        work(&node["children"], &path, sums);
        let sum = inclusive(node, "work");
        if sum != 0 {
            let known = sums.insert(path, (sum, node["statistics"]["work"].clone()));
            assert_eq!(known, None, "two nodes of one path");
        }
    }
}

#[test]
fn statistics_of_all_views_are_those_of_the_threads_alone() {
    let mut checked = 0;
    for seed in 81..=83 {
        let run = random::run(seed, 5, 60);
        let whole = database(&run);
        // The values of one thread at a time, in the same contexts.
        let alone = |kept: usize| {
            let mut run = run.clone();
            for (index, thread) in run.threads.iter_mut().enumerate() {
                if index != kept {
                    thread.drop_values();
                }
            }
            database(&run)
        };
        let alone: Vec<_> = (0..run.threads.len()).map(alone).collect();
        for options in [
            &["bottom-up"][..],
            &["bottom-up", "--depth", "2"],
            &["flat"],
            &["flat", "--lines"],
            &["top-down", "--std-inlined"],
        ] {
            let sums = |database: &Path| {
                let options = [options, &["--statistics"]].concat();
                let json = view(database, options[0], &options[1..]);
                let mut sums = BTreeMap::new();
                work(&json["roots"], "", &mut sums);
                sums
            };
            let all = sums(&whole);
            let each: Vec<_> = alone.iter().map(|database| sums(database)).collect();
            for (path, (sum, mut statistics)) in all {
                let values = each.iter().filter_map(|sums| Some(sums.get(&path)?.0));
                let values: Vec<f64> = values.map(|ns| ns as f64 / 1e9).collect();
                assert_eq!(statistics["threads"], values.len(), "{options:?} {path}");
                assert_eq!(nanoseconds(&statistics["sum"]), sum);
                statistics["mean"] = (sum as f64 / 1e9 / values.len() as f64).into();
                check_spread(&statistics, &values, 2.0);
                checked += 1;
            }
        }
    }
    assert!(checked > 1000, "{checked}");
}
