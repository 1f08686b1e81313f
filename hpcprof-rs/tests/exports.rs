//! Exports: each file is read back by an independent reader, and by the format's own tool where that is
//! installed, and must have exactly the amounts of the JSON views, path by path.

use crate::support::program::*;
use crate::support::readers::{self, Paths, Place, Pprof};
use crate::support::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const FORMATS: [&str; 3] = ["folded", "flamegraph", "pprof"];
const PERIOD: i64 = PERIOD_NS as i64;

/// The bytes of an export.
fn export(database: &Path, format: &str, options: &[&str]) -> Result<Vec<u8>, String> {
    let temp = TempDir::new();
    let path = temp.join("exported");
    let arguments = ["export", text(database), "-o", text(&path), "--format", format];
    let printed = tool(&[&arguments, options].concat())?;
    assert_eq!(printed, "", "nothing on standard output");
    let files = std::fs::read_dir(temp.path()).expect("a directory").count();
    assert_eq!(files, 1, "nothing but the file");
    Ok(std::fs::read(&path).expect("a file"))
}

fn export_text(database: &Path, format: &str, options: &[&str]) -> String {
    let bytes = export(database, format, options).expect("an export");
    String::from_utf8(bytes).expect("UTF-8")
}

/// What folded stacks make of a name.
fn as_frame(name: &str) -> String {
    name.replace(';', ":")
}

fn as_frames(paths: &Paths) -> Paths {
    let path = |path: &[String]| path.iter().map(|n| as_frame(n)).collect();
    paths.iter().map(|(p, amount)| (path(p), *amount)).collect()
}

/// Compares all formats with the JSON view; returns how many amounts were compared.
fn compare(run: &Run, database: &Path, options: &[&str]) -> usize {
    let json = view(database, "top-down", options);
    let mut expected = readers::view(&json);
    for (metric, paths) in &expected {
        let total: i64 = paths.values().sum();
        assert_eq!(total, nanoseconds(&json["totals"][metric]), "{metric}");
    }
    // The view does not show these.
    let samples = [options, &["--metric", "samples"]].concat();
    let samples = readers::folded(&export_text(database, "folded", &samples));
    assert_eq!(samples.values().sum::<i64>(), run.samples() as i64);
    expected.insert("samples".to_owned(), samples);
    for (metric, paths) in &expected {
        let of_metric = [options, &["--metric", metric]].concat();
        let folded = readers::folded(&export_text(database, "folded", &of_metric));
        assert_eq!(folded, as_frames(paths), "folded {metric} {options:?}");
        if !paths.is_empty() {
            let all = [&of_metric[..], &["--threshold", "0"]].concat();
            let svg = readers::flamegraph(&export_text(database, "flamegraph", &all));
            assert_eq!(svg, as_frames(paths), "flamegraph {metric} {options:?}");
        }
    }
    let pprof = Pprof::read(&export(database, "pprof", options).expect("pprof"));
    assert_eq!(pprof.profiles(), expected, "pprof {options:?}");
    expected.values().map(BTreeMap::len).sum()
}

#[test]
fn every_format_has_the_amounts_of_every_context() {
    let run = full_run();
    let database = database(&run);
    assert!(compare(&run, &database, &[]) > 12);
    assert!(compare(&run, &database, &["--projection", "physical"]) > 12);
    assert!(compare(&run, &database, &["--std-inlined"]) > 12);
    assert!(compare(&run, &database, &["--runtime-frames"]) > 12);
}

#[test]
fn random_runs_keep_every_amount() {
    for seed in 51..=56 {
        let run = random::run(seed, 3, 120);
        let database = database(&run);
        assert!(compare(&run, &database, &[]) > 50);
        assert!(compare(&run, &database, &["--projection", "physical"]) > 50);
    }
}

#[test]
fn effort_is_work_idleness_and_overhead() {
    let database = database(&full_run());
    let json = view(&database, "top-down", &[]);
    let total = |metric: &str| nanoseconds(&json["totals"][metric]);
    let effort = readers::folded(&export_text(&database, "folded", &["--metric", "effort"]));
    let sum: i64 = effort.values().sum();
    assert_eq!(sum, total("work") + total("idleness") + total("overhead"));
}

fn place(name: &str, file: &str, line: i64) -> Place {
    (name.to_owned(), file.to_owned(), line)
}

/// The path of the task in `full_run`, with the lines of its calls, whether it was stolen or not.
fn task_places() -> Vec<Place> {
    vec![
        place("_start", "", 0),
        place("app::main", APP_FILE, 12),
        place("app::caller", APP_FILE, 22),
        place("app::caller::{closure#0}", APP_FILE, 23),
        place("app::leaf", APP_FILE, 41),
    ]
}

#[test]
fn frames_have_the_lines_of_their_calls() {
    let database = database(&full_run());
    let pprof = Pprof::read(&export(&database, "pprof", &[]).expect("pprof"));
    let work = |places: &[Place]| -> i64 {
        let matching = pprof.samples.iter().filter(|(frames, _)| frames == places);
        matching.map(|(_, values)| values[0]).sum()
    };
    assert_eq!(work(&task_places()), 160 * PERIOD);
    // In a loop: the line of the loop in the procedure, the line of the sample in the loop.
    let in_loop = [
        place("_start", "", 0),
        place("app::main", APP_FILE, 13),
        place("app::serial", APP_FILE, 61),
        place("loop at main.rs:61", APP_FILE, 61),
    ];
    assert_eq!(work(&in_loop), 100 * PERIOD);
    let declared = |name: &str| {
        let functions = pprof.message.functions.iter();
        let named = functions.filter(|f| pprof.text(f.name) == name);
        named.map(|f| f.start_line).collect::<Vec<_>>()
    };
    assert_eq!(declared("app::caller"), [20]);
    assert_eq!(declared("loop at main.rs:61"), [61]);
    let mapping = pprof.message.mappings[0];
    assert_eq!(pprof.text(mapping.file), "/opt/app");
    assert_eq!(pprof.text(pprof.message.default_sample_type), "work");
    let times = (pprof.message.period, pprof.message.duration);
    assert_eq!(times, (PERIOD, 2_500_000_000));
}

#[test]
fn calls_from_several_lines_stay_apart() {
    let run = run_of(|thread, entry| {
        for (at, samples) in [(MAIN, 3), (MAIN_SERIAL, 4)] {
            let leaf = thread.natives(entry, &[START, at, LEAF]);
            thread.sample(leaf, samples, 0.0);
        }
    });
    let database = database(&run);
    let pprof = Pprof::read(&export(&database, "pprof", &[]).expect("pprof"));
    let mut lines: Vec<(i64, i64)> = pprof.samples.iter().map(|(f, v)| (f[1].2, v[0])).collect();
    lines.sort_unstable();
    assert_eq!(lines, [(12, 3 * PERIOD), (13, 4 * PERIOD)]);
}

#[test]
fn lines_are_frames_on_request() {
    let database = database(&full_run());
    let mut path: Vec<String> = task_places().into_iter().map(|place| place.0).collect();
    path.push("main.rs:41".to_owned());
    let folded = readers::folded(&export_text(&database, "folded", &["--lines"]));
    assert_eq!(folded[&path[..]], 160 * PERIOD);
}

/// Names that some reader could take for something else, and what they are to be in every format.
const HOSTILE: [(&str, &str); 11] = [
    ("a \"quoted\" <b> & 'c'", "a \"quoted\" <b> & 'c'"),
    ("semi;colon", "semi;colon"),
    ("new\nline\ttab", "new line tab"),
    ("\u{1b}[31mred\u{1b}[0m\u{202e}", "[31mred [0m"),
    ("größe::λ<日本語>", "größe::λ<日本語>"),
    ("]]></svg><script>alert(1)</script>", "]]></svg><script>alert(1)</script>"),
    ("back\\slash", "back\\slash"),
    ("not\u{fffe}a\u{ffff}character", "not\u{fffd}a\u{fffd}character"),
    ("(7) number=3 calls=1 fn=x", "(7) number=3 calls=1 fn=x"),
    ("", "[no name]"),
    ("thread 42", "thread 42"),
];

/// A chain of procedures with these names, each of which has one sample.
fn hostile_run() -> Run {
    let mut app = StructureBuilder::new("/opt/app", &[1, 2, 3]);
    let mut run = Run::new();
    run.module(APP, "/opt/app", &[1, 2, 3]);
    run.start.arguments = vec!["app".to_owned(), "<a>\n&\u{1b}[0m".to_owned()];
    let mut thread = ThreadBuilder::new(1);
    let mut note = thread.entry();
    for (index, (name, _)) in (0_u32..).zip(HOSTILE) {
        let start = 0x1000 + 0x100 * u64::from(index);
        let file = "/src/\"<&\n>.rs";
        let procedure = app.procedure(name, Some((file, index + 1)), hpc_formats::structure::Origin::User);
        app.span(start, procedure, None, (file, index + 1), None);
        note = thread.native(note, at(APP, start));
        thread.sample(note, 1, 0.0);
    }
    run.structures = vec![app.structure];
    run.threads = vec![thread];
    run
}

#[test]
fn names_are_text_whatever_they_contain() {
    let database = database(&hostile_run());
    let names: Vec<String> = HOSTILE.iter().map(|(_, shown)| (*shown).to_owned()).collect();
    let path = |n: usize| names[..n].to_vec();
    let expected: Paths = (1..=names.len()).map(|n| (path(n), PERIOD)).collect();
    let pprof = Pprof::read(&export(&database, "pprof", &[]).expect("pprof"));
    assert_eq!(pprof.profiles()["work"], expected);

    // In folded stacks a frame's end and a number at the end are the format's own.
    let frame = |name: &String| as_frame(name).replace("thread 42", "thread\u{a0}42");
    let expected: Paths =
        expected.iter().map(|(path, amount)| (path.iter().map(frame).collect(), *amount)).collect();
    let folded = export_text(&database, "folded", &[]);
    assert_eq!(readers::folded(&folded), expected);
    let svg = export_text(&database, "flamegraph", &[]);
    assert_eq!(readers::flamegraph(&svg), expected);
    for output in [&folded, &svg] {
        assert!(!output.contains(['\u{1b}', '\u{202e}', '\u{fffe}']));
    }
}

#[test]
fn a_comment_is_no_root() {
    let mut run = hostile_run();
    let strings = &mut run.structures[0].strings;
    let first = strings.iter_mut().find(|s| s.starts_with("a \"")).expect("the first name");
    *first = "# a comment".to_owned();
    let svg = readers::flamegraph(&export_text(&database(&run), "flamegraph", &[]));
    assert_eq!(svg.values().sum::<i64>(), HOSTILE.len() as i64 * PERIOD);
}

#[test]
fn deep_paths_need_no_deep_stack() {
    let depth = 20_000;
    let run = run_of(|thread, entry| {
        let addresses: Vec<_> = (0..depth).map(|n| [CALLER, CLOSURE][n % 2]).collect();
        let leaf = thread.natives(entry, &addresses);
        thread.sample(leaf, 5, 1.0);
    });
    let database = database(&run);
    for format in FORMATS {
        let bytes = export(&database, format, &[]).expect(format);
        assert!(!bytes.is_empty(), "{format}");
    }
    let pprof = Pprof::read(&export(&database, "pprof", &[]).expect("pprof"));
    assert_eq!((pprof.samples.len(), pprof.samples[0].0.len()), (1, depth));
}

#[test]
fn a_threshold_gives_what_is_little_to_the_caller() {
    let database = database(&full_run());
    let all = readers::folded(&export_text(&database, "folded", &[]));
    let total: i64 = all.values().sum();
    let options = ["--threshold", "25"];
    let cut = readers::folded(&export_text(&database, "folded", &options));
    assert!(cut.len() < all.len());
    assert_eq!(cut.values().sum::<i64>(), total);
    let inclusive = |path: &[String]| -> i64 {
        let below = all.iter().filter(|(p, _)| p.starts_with(path));
        below.map(|(_, amount)| amount).sum()
    };
    for path in cut.keys().filter(|p| p[0] != "[below the threshold]") {
        assert!(inclusive(path) * 4 >= total, "{path:?}");
    }
    // The paths that could not be unwound are little.
    let little = inclusive(&["partial:no-unwind-info".to_owned()]);
    assert_eq!(cut[&vec!["[below the threshold]".to_owned()]], little);
    let svg = readers::flamegraph(&export_text(&database, "flamegraph", &options));
    assert_eq!(svg, cut);
}

#[test]
fn the_same_database_is_the_same_file() {
    let database = database(&random::run(7, 3, 100));
    for format in FORMATS {
        let bytes = || export(&database, format, &[]).expect(format);
        assert!(bytes() == bytes(), "{format}");
    }
}

#[test]
fn what_does_not_fit_together_is_one_line_with_the_remedy() {
    let database = database(&full_run());
    let error = |format: &str, options: &[&str]| {
        let line = export(&database, format, options).expect_err("refused");
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    };
    for options in [["--metric", "work"], ["--threshold", "1"]] {
        let line = error("pprof", &options);
        has(&line, options[0]);
        has(&line, "leave");
    }
    has(&error("folded", &["--metric", "speed"]), "it has: effort, work, idleness");
    let quiet = crate::support::database(&run_of(|thread, entry| thread.sample(entry, 1, 0.0)));
    let line = export(&quiet, "flamegraph", &["--metric", "idleness"]).expect_err("empty");
    has(&line, "nothing was recorded for the metric `idleness`");
    has(&line, "choose another --metric");
    let nothing = export(&quiet, "folded", &["--metric", "idleness"]);
    assert_eq!(nothing, Ok(Vec::new()));
    let line = on(&database, "export -o x").expect_err("no format");
    has(&line, "--format");
}

#[test]
fn a_file_appears_whole_or_not_at_all() {
    let database = database(&full_run());
    let temp = TempDir::new();
    let target = temp.join("out.folded");
    std::fs::write(&target, "old").expect("writable");
    let link = temp.join("link");
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    let to = |path: &Path| format!("export --format folded -o {}", text(path));
    show(&database, &to(&link));
    let written = std::fs::read_to_string(&target).expect("a file");
    assert_eq!(written, export_text(&database, "folded", &[]));
    assert!(link.is_symlink(), "the link stays");
    assert_eq!(show(&database, &to(Path::new("-"))), written);
    let line = refused(&database, &to(temp.path()));
    has(&line, "is a directory; give -o the name of a file");
    let line = refused(&database, &to(&temp.join("no/such")));
    has(&line, "/no: is no folder; make it");
    let line = refused(&database, &to(Path::new("/dev/full")));
    has(&line, "cannot write /dev/full");
    has(&line, "free some space");
    let files = std::fs::read_dir(temp.path()).expect("a directory");
    assert_eq!(files.count(), 2);
}

/// The output of a command, or `None` with a word about it where it is not installed.
fn installed(program: &str, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        println!("SKIPPED: {program} is not installed; only our own reader looked");
        return None;
    };
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}

/// The files of a database, for the tools of others.
fn export_all(database: &Path, folder: &Path, formats: &[&str]) -> Vec<PathBuf> {
    let write = |format: &&str| {
        let path = folder.join(format);
        std::fs::write(&path, export(database, format, &[]).expect("an export")).expect("writable");
        path
    };
    formats.iter().map(write).collect()
}

#[test]
fn go_tool_pprof_reads_the_totals() {
    if installed("go", &["version"]).is_none() {
        return;
    }
    for run in [full_run(), hostile_run()] {
        let (database, temp) = (database(&run), TempDir::new());
        let file = &export_all(&database, temp.path(), &["pprof"])[0];
        let json = view(&database, "top-down", &[]);
        for metric in ["work", "idleness", "overhead"] {
            let index = format!("-sample_index={metric}");
            let options = ["tool", "pprof", "-top", "-unit=ns", &index, text(file)];
            let output = installed("go", &options).expect("go is installed");
            // `Showing nodes accounting for 1ns, 100% of 1ns total`
            let shown = output.lines().find_map(|l| l.split_once("% of ")?.1.strip_suffix("ns total"));
            let total = nanoseconds(&json["totals"][metric]);
            match shown {
                Some(shown) => assert_eq!(shown.parse(), Ok(total), "{output}"),
                None => assert_eq!(total, 0, "{output}"),
            }
        }
    }
}

/// A context's name, file, and own amounts by metric.
type Row = (String, Option<String>, Vec<(String, i64)>);

/// All contexts of the flat JSON view, in its order.
fn contexts_of_json(database: &Path) -> Vec<Row> {
    let json = view(database, "top-down", &["--flat"]);
    let nodes = json["nodes"].as_array().expect("nodes");
    let metrics = json["metrics"].as_array().expect("metrics");
    let of = |node: &Value| {
        let own = |m: &Value| {
            let name = m.as_str().expect("a name").to_owned();
            let amount = exclusive(node, &name);
            (name, amount)
        };
        let file = node["file"].as_str().map(str::to_owned);
        let name = node["name"].as_str().expect("a name").to_owned();
        (name, file, metrics.iter().map(own).collect())
    };
    nodes.iter().map(of).collect()
}

#[test]
fn a_parquet_table_has_every_context() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    for run in [full_run(), random::run(62, 3, 100)] {
        let (database, temp) = (database(&run), TempDir::new());
        let file = &export_all(&database, temp.path(), &["parquet"])[0];
        let opened = std::fs::File::open(file).expect("a file");
        let reader = SerializedFileReader::new(opened).expect("a table");
        let mut expected = contexts_of_json(&database);
        let mut found = Vec::new();
        for row in reader.get_row_iter(None).expect("rows") {
            let row = row.expect("a row");
            let cell = |name: &str| {
                let mut columns = row.get_column_iter();
                let found = columns.find(|(column, _)| *column == name);
                found.expect("a column").1.clone()
            };
            let string = |field: Field| match field {
                Field::Str(text) => Some(text),
                _ => None,
            };
            let number = |field: Field| match field {
                Field::Long(amount) => amount,
                other => panic!("{other} is no amount"),
            };
            let metrics = expected[0].2.iter().map(|(name, _)| name.clone());
            let own = metrics.map(|name| (name.clone(), number(cell(&name))));
            let name = string(cell("name")).expect("a name");
            found.push((name, string(cell("file")), own.collect()));
            // What lies below is part of a context.
            assert!(number(cell("inclusive_samples")) >= number(cell("samples")));
        }
        // The order of siblings is another one in views.
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        let query = format!(
            "import duckdb; print(duckdb.execute(\"select sum(samples) from read_parquet('{}')\").fetchall()[0][0])",
            file.display()
        );
        if !pages::is_installed("duckdb") {
            continue;
        }
        let sum = installed("python3", &["-c", &query]).expect("it is there");
        assert_eq!(sum.trim().parse(), Ok(run.samples() as i64));
    }
}
