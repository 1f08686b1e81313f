//! The table of threads against what synthetic runs recorded: sums, spreads, one procedure's share, the
//! screen, and damaged values.

use crate::support::program::{LEAF, MAIN, MAIN_SERIAL, SERIAL, START, full_run, run};
use crate::support::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn threads(database: &Path, options: &[&str]) -> Value {
    let mut arguments = vec!["threads", text(database), "--format", "json"];
    arguments.extend(options);
    serde_json::from_str(&tool(&arguments).expect("threads")).expect("valid JSON")
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

#[track_caller]
fn close(value: &Value, expected: f64) {
    let value = value.as_f64().expect("a number");
    let difference = (value - expected).abs();
    assert!(
        difference <= 1e-9 * expected.abs().max(1.0),
        "{value}, not {expected}"
    );
}

/// Sum, least, mean, largest, standard deviation, largest by mean.
#[track_caller]
fn check_spread(statistics: &Value, values: &[f64]) {
    let n = values.len() as f64;
    let sum: f64 = values.iter().sum();
    close(&statistics["sum"], sum);
    close(&statistics["mean"], sum / n);
    close(
        &statistics["min"],
        values.iter().copied().fold(f64::INFINITY, f64::min),
    );
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    close(&statistics["max"], most);
    // By the mean distance of all pairs, whatever the mean is.
    let pairs = values
        .iter()
        .flat_map(|a| values.iter().map(move |b| (a - b).powi(2)));
    close(
        &statistics["sigma"],
        (pairs.sum::<f64>() / (2.0 * n * n)).sqrt(),
    );
    match sum == 0.0 {
        true => assert!(statistics["imbalance"].is_null()),
        false => close(&statistics["imbalance"], most * n / sum),
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
        let temp = TempDir::new();
        first.write(&temp.join("m"));
        second.write(&temp.join("m"));
        let database = temp.join("db");
        tool(&[text(&temp.join("m")), "-o", text(&database)]).expect("build");
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
            let of = |value: fn(&ThreadBuilder) -> f64| -> Vec<f64> {
                run.threads.iter().map(value).collect()
            };
            let statistics = &process["statistics"];
            check_spread(&statistics["idleness"], &of(|t| seconds(t.idleness_ns)));
            check_spread(&statistics["samples"], &of(|t| t.samples as f64));
            check_spread(&statistics["cpu"], &of(|t| t.cpu_ns as f64 / 1e9));
        }
        let both = first.threads.iter().chain(&second.threads);
        let both: Vec<f64> = both.map(|t| seconds(t.idleness_ns)).collect();
        check_spread(&table["all"]["statistics"]["idleness"], &both);
        // The same in CSV.
        let csv = tool(&["threads", text(&database), "--format", "csv"]).expect("CSV");
        let mut csv = csv::Reader::from_reader(csv.as_bytes());
        let column = |name: &str, header: &csv::StringRecord| {
            header.iter().position(|h| h == name).expect("a column")
        };
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
    let rows = query.query_map([], |r| {
        Ok((
            r.get(0)?,
            r.get(1)?,
            r.get(2)?,
            r.get(3)?,
            r.get(4)?,
            r.get(5)?,
        ))
    });
    let rows = rows.expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}

#[test]
fn threads_of_a_context_are_those_of_its_stored_spread() {
    let mut checked = 0;
    for seed in 21..=23 {
        let database = database(&random::run(seed, 6, 60));
        let rows = stored(&database);
        for (key, threads_of_it, sum, least, most, sigma) in &rows {
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
            let n = work.len() as f64;
            let pairs = work
                .iter()
                .flat_map(|a| work.iter().map(move |b| (a - b) as f64));
            let own = (pairs.map(|d| d * d).sum::<f64>() / (2.0 * n * n)).sqrt();
            assert!(
                (own - sigma).abs() < 1.0 + own * 1e-6,
                "{key}: {own}, not {sigma}"
            );
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
        assert_eq!(
            nanoseconds(&rows[0]["values"]["work"]),
            109 * PERIOD_NS as i64
        );
        assert_eq!(
            nanoseconds(&rows[1]["values"]["work"]),
            100 * PERIOD_NS as i64
        );
        close(
            &table["all"]["statistics"]["work"]["imbalance"],
            109.0 * 2.0 / 209.0,
        );
    }
    let screen = tool(&["threads", text(&database), "--context", "app::serial"]).expect("text");
    has(
        &screen,
        "threads of app -n 7 in app::serial: 2 of 2 threads\n",
    );
    let error = tool(&["threads", text(&database), "--context", "app::no"]).expect_err("none");
    has(&error, "no context of `app::no` in the default view");
    let error = tool(&["threads", text(&database), "--context", ""]).expect_err("none");
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
            let arguments = [
                "threads",
                text(&database),
                "--rows",
                "10",
                "--metric",
                metric,
            ];
            let screen = tool_on_screen(columns, &arguments).expect("text");
            let longest = screen.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(columns), "{columns}: {screen}");
            // Title, columns, ten threads, the rest, six statistics, that there are few samples.
            let few = usize::from(metric != "idleness/work");
            assert_eq!(screen.lines().count(), 2 + 10 + 1 + 6 + few, "{screen}");
        }
    }
    let screen = tool(&["threads", text(&database), "--rows", "10"]).expect("text");
    let line = |what: &str| {
        let line = screen.lines().find(|line| line.ends_with(what));
        let line = line.unwrap_or_else(|| panic!("no `{what}` in: {screen}"));
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // 1 + 2 + … + 40 periods of work and as many of idleness; of 50 the mean is 25.5.
    assert_eq!(
        line("40 more threads")[..4],
        ["820", "8.200", "4.100", "4.100"]
    );
    assert_eq!(line("sum of 50 threads")[..2], ["1275", "12.750"]);
    assert_eq!(line("max/mean")[..2], ["1.961", "1.961"]);
    has(&screen, "  a-name-to-cut-50 (50 tid 150)\n");
    lacks(&screen, "process ");
}

fn files_below(folder: &Path, name: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files.extend(files_below(&path, name)),
            false if text(&path).ends_with(name) => files.push(path),
            false => {}
        }
    }
    files
}

#[test]
fn damaged_values_of_threads_are_one_line() {
    let database = database(&random::run(5, 4, 200));
    let arguments = [
        "threads",
        text(&database),
        "--context",
        "app::leaf",
        "--format",
        "json",
    ];
    let right = tool(&arguments).expect("threads");
    let mut random = fastrand::Rng::with_seed(5);
    let mut refused = 0;
    for name in ["part-0000.parquet", "logical.parquet"] {
        let files = files_below(&database, name);
        let [file] = files.as_slice() else {
            panic!("one run: {files:?}");
        };
        let whole = std::fs::read(file).expect("a file");
        for _ in 0..40 {
            let mut bytes = whole.clone();
            match random.u8(..3) {
                0 => bytes.truncate(random.usize(..whole.len())),
                1 => bytes[random.usize(..whole.len())] ^= 1 << random.u8(..8),
                _ => {
                    let at = random.usize(..whole.len());
                    let end = (at + 16).min(whole.len());
                    bytes[at..end].fill(random.u8(..));
                }
            }
            std::fs::write(file, &bytes).expect("a file");
            if bytes == whole {
                continue;
            }
            let line = tool(&arguments).expect_err("any damage is seen");
            assert_eq!(line.lines().count(), 1, "{line}");
            has(&line, "cannot be read");
            has(&line, &format!("{name}: it is not as it was written"));
            refused += 1;
        }
        std::fs::remove_file(file).expect("a file");
        let line = tool(&arguments).expect_err("no values");
        has(&line, "build it again");
        std::fs::write(file, &whole).expect("a file");
    }
    assert!(refused > 70, "{refused}");
    assert_eq!(tool(&arguments).expect("threads"), right);
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
    close(&work["standard_error"], 127.0 * 0.005 / 126.0_f64.sqrt());
    let deviation = (120.0 - 7.0) / 2.0 * 0.005;
    close(&work["sigma"], deviation);
    // The same as text, and nodes that are not cut off keep theirs.
    let arguments = [
        "top-down",
        text(&database),
        "--statistics",
        "--threshold",
        "20",
    ];
    let screen = tool(&arguments).expect("text");
    let line = screen.lines().find(|l| l.contains("app::serial"));
    has(line.expect("a line"), "        2    1.890    0.057");
    has(&screen, "  threads max/mean   work ±");
    for view in ["top-down", "bottom-up", "flat"] {
        let arguments = [view, text(&database), "--statistics"];
        let screen = tool_on_screen(80, &arguments).expect("text");
        has(&screen, " effort %     work  threads max/mean   work ±  ");
        // The first line is the title.
        let longest = screen
            .lines()
            .skip(1)
            .map(|line| line.chars().count())
            .max();
        assert!(longest <= Some(80), "{screen}");
    }
    // Every context with work has them, and they fit it.
    for seed in 41..=43 {
        let database = crate::support::database(&random::run(seed, 5, 80));
        let json = view(&database, "top-down", &["--statistics", "--flat"]);
        for node in json["nodes"].as_array().expect("nodes") {
            let sum = match inclusive(node, "work") {
                0 => continue,
                work => work,
            };
            assert_eq!(
                nanoseconds(&node["statistics"]["work"]["sum"]),
                sum,
                "{node}"
            );
        }
    }
    for (other, why) in [
        (
            &["flat", "--projection", "physical"][..],
            "logical context only",
        ),
        (&["top-down", "--format", "csv"], "text and JSON only"),
    ] {
        let arguments = [other, &["--statistics", text(&database)]].concat();
        has(&tool(&arguments).expect_err("no statistics"), why);
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
                check_spread(&statistics, &values);
                checked += 1;
            }
        }
    }
    assert!(checked > 1000, "{checked}");
}
