//! For random measurements, every view with every flag keeps every metric: totals, sums of
//! exclusives, sums over roots and what was recorded are equal to the nanosecond.

use crate::support::random;
use crate::support::*;
use fastrand::Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

type Sums = BTreeMap<String, i64>;

fn sums(values: &Value) -> Sums {
    let values = values.as_object().expect("metrics");
    values.iter().map(|(name, value)| (name.clone(), nanoseconds(value))).collect()
}

fn add(to: &mut Sums, values: &Sums) {
    for (name, value) in values {
        *to.entry(name.clone()).or_insert(0) += value;
    }
}

/// Adds all exclusives to `exclusives`; checks each node against its children.
fn check_node(node: &Value, view: &str, exclusives: &mut Sums) -> Sums {
    let (inclusive, exclusive) = (sums(&node["inclusive"]), sums(&node["exclusive"]));
    add(exclusives, &exclusive);
    let mut below = Sums::new();
    for child in node["children"].as_array().expect("children") {
        add(&mut below, &check_node(child, view, exclusives));
    }
    for (name, value) in &inclusive {
        let below = below.get(name).copied().unwrap_or(0);
        let name_of_node = &node["name"];
        if view == "bottom-up" {
            assert!(below <= *value, "{name} of {name_of_node}");
        } else {
            assert_eq!(below + exclusive[name], *value, "{name} of {name_of_node}");
        }
    }
    inclusive
}

fn check_view(json: &Value, run: &Run, what: &str) {
    let totals = sums(&json["totals"]);
    assert_eq!(
        totals["work"] + totals["overhead"],
        run.recorded_work(),
        "{what}: work and overhead are the samples"
    );
    assert_eq!(totals["idleness"], run.recorded_idleness(), "{what}");
    let categories = totals.iter().filter(|t| t.0.starts_with("overhead:"));
    let categories: i64 = categories.map(|(_, value)| value).sum();
    assert_eq!(categories, totals["overhead"], "{what}: categories");
    let (mut roots, mut exclusives) = (Sums::new(), Sums::new());
    let view = json["view"].as_str().expect("view");
    for root in json["roots"].as_array().expect("roots") {
        add(&mut roots, &check_node(root, view, &mut exclusives));
    }
    assert_eq!(roots, totals, "{what}: roots");
    assert_eq!(exclusives, totals, "{what}: exclusives");
    let lost: i64 = json["quality"]["lost"]
        .as_object()
        .expect("lost")
        .iter()
        .filter(|(cause, _)| cause.starts_with("partial:"))
        .map(|(_, n)| n.as_i64().expect("count"))
        .sum();
    let rooted = json["quality"]["rooted"].as_i64().expect("rooted");
    assert_eq!(rooted + lost, run.samples() as i64, "{what}: rooted");
}

#[test]
fn every_view_and_flag_keeps_every_metric() {
    let flags: [&[&str]; 9] = [
        &[],
        &["--lines"],
        &["--std-inlined"],
        &["--runtime-frames"],
        &["--no-fold-recursion"],
        &["--depth", "3"],
        &["--threshold", "5", "--metric", "idleness"],
        &["--lines", "--std-inlined", "--runtime-frames"],
        &["--depth", "2", "--threshold", "10", "--lines"],
    ];
    for seed in 1..=6 {
        let run = random::run(seed, 4, 120);
        let database = database(&run);
        for name in ["top-down", "bottom-up", "flat"] {
            for projection in ["logical", "physical"] {
                for flags in flags {
                    let mut options = vec!["--projection", projection];
                    options.extend(flags);
                    let json = view(&database, name, &options);
                    let what = format!("seed {seed}, {name} {options:?}");
                    check_view(&json, &run, &what);
                }
            }
        }
    }
}

#[test]
fn csv_and_folded_agree_with_json() {
    for seed in 11..=14 {
        let run = random::run(seed, 3, 150);
        let database = database(&run);
        for name in ["top-down", "bottom-up", "flat"] {
            let totals = sums(&view(&database, name, &[])["totals"]);
            let csv = show(&database, &format!("{name} --format csv"));
            let mut csv = csv::Reader::from_reader(csv.as_bytes());
            let header = csv.headers().expect("a header").clone();
            let metrics = (header.len() - 15) / 2;
            let mut exclusive = vec![0_i64; metrics];
            for row in csv.records() {
                let row = row.expect("as many fields as the header");
                for (slot, field) in exclusive.iter_mut().zip(row.iter().skip(10 + metrics)) {
                    let seconds: f64 = field.parse().expect("a number");
                    *slot += (seconds * 1e9).round() as i64;
                }
            }
            for (index, value) in exclusive.iter().enumerate() {
                let metric = header[10 + metrics + index].trim_end_matches(" (exclusive)");
                assert_eq!(*value, totals[metric], "{name} {metric}");
            }
            for metric in ["work", "idleness"] {
                let line = format!("{name} --format folded --metric {metric}");
                let folded = readers::folded(&show(&database, &line));
                let sum: i64 = folded.values().sum();
                let error = (sum * 1000 - totals[metric]).abs();
                assert!(error <= 1000, "{name} {metric}: off by {error} ns");
            }
        }
    }
}

#[test]
fn text_keeps_totals_whatever_it_folds() {
    let run = random::run(21, 4, 200);
    let database = database(&run);
    // With nothing cut off, the column of own work adds up, to rounding of three decimals.
    for flags in ["", " --no-fold-recursion"] {
        let output = show(&database, &format!("top-down --threshold 0{flags}"));
        let mut sum = 0.0;
        let mut rows = 0;
        for line in output.lines().skip(2) {
            let cell: String = line.chars().skip(18).take(9).collect();
            sum += cell.trim().parse::<f64>().unwrap_or(0.0);
            rows += 1;
        }
        let totals = sums(&view(&database, "top-down", &[])["totals"]);
        let total = totals["work"] as f64 / 1e9;
        assert!(rows > 3);
        assert!((sum - total).abs() < 0.0006 * f64::from(rows), "{sum} against {total}");
    }
}

#[test]
fn the_order_of_threads_and_files_does_not_matter() {
    for seed in 31..=34 {
        // Without anchors, thread ordinals are names only.
        let run = random::run_without_anchors(seed, 5, 80);
        let mut shuffled = run.clone();
        let mut random = Rng::with_seed(seed);
        random.shuffle(&mut shuffled.threads);
        for (index, thread) in shuffled.threads.iter_mut().enumerate() {
            thread.ordinal = index as u32 + 1;
        }
        shuffled.structures.reverse();
        let (a, b) = (database(&run), database(&shuffled));
        for name in ["top-down", "bottom-up", "flat"] {
            for format in ["json", "csv", "folded", "text"] {
                let line = format!("{name} --format {format}");
                assert_eq!(show(&a, &line), show(&b, &line), "{line}");
            }
        }
    }
}

/// All files of a database, by their names within it.
fn files(folder: &Path, prefix: &str, out: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        let name = format!("{prefix}/{name}");
        match path.is_dir() {
            true => files(&path, &name, out),
            false => {
                out.insert(name, std::fs::read(&path).expect("a file"));
            }
        }
    }
}

#[test]
fn the_number_of_workers_does_not_matter() {
    for seed in 41..=43 {
        // Anchors lead in all directions, also into cycles.
        let run = random::run(seed, 9, 90);
        let temp = TempDir::new();
        let measurements = temp.join("m");
        run.write(&measurements);
        let build = |workers: &str| {
            let database = temp.join(workers);
            let arguments = [text(&measurements), "-o", text(&database), "-j", workers];
            tool(&arguments).expect("build");
            let mut found = BTreeMap::new();
            files(&database, "", &mut found);
            found
        };
        let one = build("1");
        assert!(one.len() > 2, "{:?}", one.keys());
        for workers in ["2", "5"] {
            let other = build(workers);
            assert!(one.keys().eq(other.keys()));
            for (name, bytes) in &one {
                assert!(other[name] == *bytes, "seed {seed}, {workers} workers: {name}");
            }
        }
    }
}
