//! The queries of the documentation, each run by the readers that it names, on databases whose right answers
//! are known; and the views, none of which counts anything twice.

use crate::support::pages::{queries, run};
use crate::support::program::{LEAF, MAIN, MAIN_SERIAL, SERIAL, START, full_run, run_of};
use crate::support::*;
use rusqlite::Connection;
use rusqlite::types::Value as Sql;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// The record of a thread's entry.
const ENTRY: u32 = 1;

/// Two runs: on the host `alpha`, and on `beta`, where `app::serial` has 40 samples more.
fn two_runs() -> Database {
    let mut first = full_run();
    first.start.host = "alpha".to_owned();
    let mut second = full_run().process(100, IMAGE + 1);
    second.start.host = "beta".to_owned();
    second.start.realtime_ns = 60_000_000_000;
    let thread = &mut second.threads[0];
    let serial = thread.natives(ENTRY, &[START, MAIN_SERIAL, SERIAL]);
    thread.sample(serial, 40, 1.0);
    build(&[&[&first], &[&second]], &[])
}

fn open(database: &Path) -> Connection {
    Connection::open(database.join("database.sqlite")).expect("the catalogue")
}

/// The rows of a query as text, numbers with six significant decimals.
fn select(connection: &Connection, sql: &str) -> Vec<String> {
    let mut query = connection.prepare(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let columns = query.column_count();
    let cell = |value: Sql| match value {
        Sql::Real(number) => format!("{}", (number * 1e6).round() / 1e6),
        Sql::Integer(number) => number.to_string(),
        Sql::Text(text) => text,
        Sql::Null | Sql::Blob(_) => "-".to_owned(),
    };
    let row = |row: &rusqlite::Row<'_>| {
        let cells: rusqlite::Result<Vec<Sql>> = (0..columns).map(|i| row.get(i)).collect();
        Ok(cells?.into_iter().map(cell).collect::<Vec<_>>().join(" | "))
    };
    let rows = query.query_map([], row).expect("rows");
    rows.collect::<rusqlite::Result<_>>().unwrap_or_else(|e| panic!("{sql}: {e}"))
}

#[test]
fn the_page_of_queries_tells_sqlite_the_truth() {
    let database = two_runs();
    let connection = open(&database);
    let page = queries("queries.md");
    assert!(page.len() <= 12, "a page that is read to its end");
    let mut answers: HashMap<String, Vec<String>> = HashMap::new();
    for query in page.into_iter().filter(|q| q.reader == "sqlite") {
        let rows = select(&connection, &query.sql);
        assert!(answers.insert(query.title, rows).is_none());
    }
    let mut check = |title: &str, first: &[&str]| {
        let rows = answers.remove(title).unwrap_or_else(|| panic!("a query `{title}`"));
        assert!(rows.len() >= first.len(), "{title}: {rows:#?}");
        assert_eq!(rows[..first.len()], *first, "{title}");
    };
    // 2 x 355 + 40 periods of 5 ms, 2 x 19 of them in the scheduler; idleness of 2 x 120 + 40 periods that
    // leave a core idle, 2 x 5 that leave it idle half of the time, and 2 x 0.25.
    let totals = [
        "work | 3.52 | seconds",
        "idleness | 1.4275 | seconds",
        "overhead | 0.19 | seconds",
        "overhead:sched | 0.19 | seconds",
        "samples | 740 | count",
    ];
    check("Totals", &totals);
    let file = "/src/app/src/main.rs";
    let hottest = format!("2.4 | 1.2 | 1.2 | 0 | loop at main.rs:61 | app::serial | {file} | 61");
    let second = format!("1.6 | 1.6 | 0 | 0 | app::leaf | app::leaf | {file} | 40");
    check("Hottest contexts", &[&hottest, &second]);
    // With memcpy and the threads created there: 280 periods twice, 14 and 0.5.
    let path = [
        "0 | app::main | - | 5.1175",
        "1 | app::serial | 13 | 2.8725",
        "2 | loop at main.rs:61 | - | 2.8725",
    ];
    check("The path to the hottest context", &path);
    let callers = [
        "app::caller::{closure#0} | 400 | 2 | 0",
        "app::serial | 12 | 0.07 | 0.0025",
        "partial:no-unwind-info | 4 | 0.02 | 0",
    ];
    check("Who calls a procedure", &callers);
    check("What a procedure costs with all that it calls", &["2.03 | 0.025"]);
    let idle = [
        "app::serial | 1.2 | 1.2 | 84.063047",
        "memcpy | 0.2 | 0.2 | 14.010508",
        "syscall | 0.025 | 0 | 1.751313",
        "app::leaf | 0.0025 | 2.09 | 0.175131",
    ];
    check("Idleness by procedure", &idle);
    let overheads = ["overhead:sched | app::caller | 0.14", "overhead:sched | syscall | 0.05"];
    check("Overhead by category and procedure", &overheads);
    // The first thread of beta has 160 of the 294 periods of four threads.
    let imbalance = "app::serial | 4 | 1.47 | 2.176871";
    let all = "app::main | 4 | 3.5 | 1.502857";
    check("Imbalance over threads", &[all, imbalance]);
    let by_chance = "app::main | 736 | 3.5 | 0.032041 | 0.915454";
    check("What differs by chance only", &[by_chance]);
    let key = &select(&connection, "SELECT run FROM runs WHERE host = 'alpha'")[0];
    let threads = [
        format!("{key} | 100 | 101 | worker | 238 | 1.115 | 0.6125 | 0.075 | 0"),
        format!("{key} | 100 | 102 | worker | 112 | 0.545 | 0.00125 | 0.02 | 0"),
    ];
    check("Threads of a host", &threads.each_ref().map(String::as_str));
    assert!(answers.is_empty(), "not checked: {answers:?}");
}

#[test]
fn the_page_of_queries_tells_duckdb_the_truth() {
    let database = two_runs();
    let Some(mut answers) = run("duckdb", &database, &queries("queries.md")) else {
        return;
    };
    let mut of = |title: &str| answers.remove(title).expect("a query");
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for row in of("Values of one thread") {
        let metric = row[3].as_str().expect("a metric").to_owned();
        *sums.entry(metric).or_default() += row[4].as_i64().expect("an amount");
    }
    let thread = "SELECT m.name, v.value FROM thread_value v JOIN metric m ON m.id = v.metric
        WHERE v.thread = 2 ORDER BY m.name";
    let values = sums.iter().map(|(metric, sum)| format!("{metric} | {sum}"));
    let values: Vec<String> = values.collect();
    assert_eq!(values, select(&open(&database), thread));
    let compared = of("Runs compared");
    let first = &compared[0];
    assert_eq!(first[0], "beta");
    assert_eq!(first[1], 60_000_000_000_u64);
    assert_eq!(first[3], "loop at main.rs:61");
    assert_eq!(nanoseconds(&first[4]), 700_000_000);
    assert_eq!(nanoseconds(&first[5]), 100_000_000);
    let others = compared[1..].iter().map(|row| nanoseconds(&row[5]));
    assert!(others.sum::<i64>() == 0, "else the runs are equal: {compared:?}");
    assert!(answers.is_empty(), "not checked: {answers:?}");
}

#[test]
fn no_view_counts_anything_twice() {
    let random = (71..=74).map(|seed| database(&random::run(seed, 4, 200)));
    for database in std::iter::once(two_runs()).chain(random) {
        let connection = open(&database);
        let json = view(&database, "top-down", &[]);
        for view in ["top_down", "hot_contexts", "bottom_up", "threads", "runs"] {
            for metric in ["samples", "work", "idleness", "overhead"] {
                let number = |sql: String| -> f64 {
                    let found = connection.query_row(&sql, [], |row| row.get(0));
                    found.expect("a number")
                };
                let sum = number(format!("SELECT SUM({metric}) FROM {view}"));
                let of_metric = format!("SELECT value FROM totals WHERE metric = '{metric}'");
                let total = number(of_metric);
                let known = match metric {
                    "samples" => json["quality"]["samples"].as_f64(),
                    _ => json["totals"][metric].as_f64(),
                };
                let nanoseconds = |seconds: f64| (seconds * 1e9).round() as i64;
                assert_eq!(Some(total), known, "{metric}");
                assert_eq!(nanoseconds(sum), nanoseconds(total), "{metric} of {view}");
            }
        }
        let tree = "SELECT COUNT(*) FROM top_down t WHERE t.parent IS NOT NULL AND NOT EXISTS (SELECT 1
            FROM context p WHERE p.id = t.parent AND p.id < t.context AND p.last >= t.last)";
        assert_eq!(select(&connection, tree), ["0"]);
    }
}

/// Twenty databases, of a run each. The work of `app::leaf` grows by 10 ms a day from 1 s; the last run, on
/// the slowest of two hosts, has 50 ms more elsewhere than the others have at all.
fn catalogue(temp: &TempDir) -> PathBuf {
    let folder = temp.join("catalogue");
    std::fs::create_dir(&folder).expect("a folder");
    for day in 0..20 {
        let mut run = run_of(|thread, entry| {
            let leaf = thread.natives(entry, &[START, MAIN, LEAF]);
            thread.sample(leaf, 200 + 2 * day, 1.0);
            let serial = thread.natives(entry, &[START, MAIN_SERIAL, SERIAL]);
            thread.sample(serial, if day == 19 { 20 } else { 10 }, 0.0);
        });
        run.start.host = ["fast", "slow"][day as usize % 2].to_owned();
        run.start.realtime_ns = FIRST_NS + day * DAY_NS;
        let wall_ns = [2_000_000_000, 3_000_000_000][day as usize % 2];
        run.end.as_mut().expect("an end").monotonic_ns = IMAGE + wall_ns;
        let measurements = temp.join(&format!("m{day}"));
        run.write(&measurements);
        let database = folder.join(format!("day-{day}"));
        tool(&[text(&measurements), "-o", text(&database)]).expect("build");
    }
    folder
}

const DAY_NS: u64 = 86_400_000_000_000;
const FIRST_NS: u64 = 1_767_225_600_000_000_000;

#[test]
fn the_page_of_many_runs_tells_the_truth() {
    let temp = TempDir::new();
    let folder = catalogue(&temp);
    let page = queries("scale.md");
    let readers: BTreeSet<&str> = page.iter().map(|q| q.reader.as_str()).collect();
    for reader in readers {
        let Some(mut answers) = run(reader, &folder, &page) else {
            continue;
        };
        let mut of = |title: &str| answers.remove(title).expect("a query");
        // ClickHouse writes integers of 64 bits as texts.
        let integer = |value: &Value| match value.as_str() {
            Some(text) => text.parse().expect("a number"),
            None => value.as_u64().expect("a number"),
        };
        let runs = of("Totals of each run");
        assert_eq!(runs.len(), 20, "{reader}");
        for (day, row) in (0..).zip(&runs) {
            assert_eq!(row[0].as_str().map(str::len), Some(16), "{reader}: {row:?}");
            assert_eq!(row[1], ["fast", "slow"][day % 2], "{reader}");
            assert_eq!(integer(&row[2]), FIRST_NS + day as u64 * DAY_NS, "{reader}");
            assert_eq!(row[3], [2.0, 3.0][day % 2], "{reader}");
            let work = 1.05 + 0.01 * day as f64 + if day == 19 { 0.05 } else { 0.0 };
            assert_eq!(nanoseconds(&row[4]), (work * 1e9).round() as i64, "{reader}");
        }
        let hosts = of("Slowest hosts");
        assert_eq!(hosts.len(), 2, "{reader}");
        for (row, (host, wall, ratio)) in hosts.iter().zip([("slow", 3.0, 1.2), ("fast", 2.0, 0.8)]) {
            assert_eq!((&row[0], integer(&row[1])), (&Value::from(host), 10), "{reader}");
            let (mean, sigma) = (nanoseconds(&row[2]), nanoseconds(&row[3]));
            assert_eq!((mean, sigma), ((wall * 1e9) as i64, 0), "{reader}");
            assert_eq!(nanoseconds(&row[4]), (ratio * 1e9) as i64, "{reader}");
        }
        let trend = of("Trend of a procedure");
        assert_eq!(trend.len(), 20, "{reader}");
        for (day, row) in (0..).zip(&trend) {
            assert_eq!(nanoseconds(&row[1]), 1_000_000_000 + 10_000_000 * day, "{reader}");
            let slope = row[2].as_f64().expect("seconds a day");
            assert!((slope - 0.01).abs() < 1e-6, "{reader}: {slope}");
        }
        let outliers = of("Outliers");
        assert_eq!(outliers.len(), 1, "{reader}: {outliers:?}");
        assert_eq!(outliers[0][0], "slow", "{reader}");
        assert_eq!(integer(&outliers[0][1]), FIRST_NS + 19 * DAY_NS, "{reader}");
        assert_eq!(nanoseconds(&outliers[0][3]), 100_000_000, "{reader}");
        assert!(answers.is_empty(), "not checked: {answers:?}");
    }
}
