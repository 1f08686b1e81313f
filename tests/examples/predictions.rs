//! The tables of the papers' programs in docs/benchmarks.md: predicted times beside measured and simulated
//! ones. `cargo run -p hpcrun-tests --example predictions -- oyama|sakellariou [ROUNDS]`, on a machine that
//! does nothing else.

use hpcrun_tests::graph::Recorded;
use hpcrun_tests::run::{Run, Spec};
use hpcrun_tests::tools::{behind, check, exclusive_cores, release, scratch, tool};
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

/// Of all rounds: other work makes times longer, never shorter.
fn least(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// What a program says, before other work if that is allowed, and the seconds of its whole process.
fn alone(program: &str, arguments: &[&str]) -> (Value, f64) {
    let start = Instant::now();
    let text = check(Command::new("nice").arg("-n-20").arg(release(program)).args(arguments));
    let seconds = start.elapsed().as_secs_f64();
    (serde_json::from_str(&text).expect("the fixture's line"), seconds)
}

fn profiled(name: &str, program: &str, arguments: &[&str]) -> Run {
    Spec::fixture(&format!("predictions-{name}"), program).arguments(arguments).critical_path("").succeed()
}

fn error(found: f64, truth: f64) -> String {
    format!("{:+.1} %", 100.0 * (found / truth - 1.0))
}

const WORKERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Predictions from a run on one worker, as in the paper, and by the paper's T1 / P + Tinf; simulated by the
/// graph that another run on one worker has recorded, and measured on one and two workers.
fn oyama(rounds: usize) {
    println!("| program | workers | predicted | T1 / P + Tinf | simulated | errors | measured |");
    println!("|---|---|---|---|---|---|---|");
    for program in ["prime", "cky", "raytrace"] {
        let mut times = WORKERS.map(|_| [const { Vec::new() }; 4]);
        for round in 0..rounds {
            let path = profiled(&format!("{program}-{round}"), "oyama", &[program, "1"]).critical_path();
            let (recorded, _) = alone("oyama", &[program, "1", "0", "recorded"]);
            let graph = Recorded::of_output(&recorded.to_string(), true);
            for (workers, times) in WORKERS.into_iter().zip(&mut times) {
                times[0].push(path.prediction(workers).time * 1e-9);
                times[1].push((path.work as f64 / f64::from(workers) + path.span as f64) * 1e-9);
                times[2].push(graph.simulate(workers as usize));
                if workers <= 2 {
                    let (said, _) = alone("oyama", &[program, &workers.to_string()]);
                    times[3].push(said["seconds"].as_f64().expect("a number"));
                }
            }
        }
        for (workers, times) in WORKERS.into_iter().zip(times) {
            let [predicted, paper, simulated, measured] = times.map(least);
            let errors = [predicted, paper].map(|found| error(found, simulated)).join(", ");
            let measured = if workers <= 2 { format!("{measured:.4}") } else { String::new() };
            let times = format!("{predicted:.4} | {paper:.4} | {simulated:.4}");
            println!("| {program} | {workers} | {times} | {errors} | {measured} |");
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments.get(1).map_or(5, |text| text.parse().expect("a number"));
    let _cores = exclusive_cores();
    match arguments.first().map(String::as_str) {
        Some("oyama") => oyama(rounds),
        Some("sakellariou") => sakellariou(rounds),
        _ => panic!("usage: predictions oyama|sakellariou [ROUNDS]"),
    }
}

/// The whole program's time on one and two workers, from a profile on two and a calibration, and measured.
/// Then with the paper's `IF`, from the sizes that the profiles of two sizes say.
fn sakellariou(rounds: usize) {
    let calibration = scratch().join("predictions.tsv");
    let mut calibrate = tool("hpcrun-rs");
    calibrate.args(["calibrate", "--quiet", "--workers", "2", "-o"]).arg(&calibration);
    check(&mut behind(&["nice", "-n-20"], &calibrate));
    println!("| program | workers | predicted | measured | error |");
    println!("|---|---|---|---|---|");
    let calibration = calibration.to_str().expect("a path of ours");
    for (program, size, repetitions, nests) in [
        ("tred2", "128", "40", &["form_product", "reduce", "accumulate"][..]),
        ("tred2", "400", "4", &["form_product", "reduce", "accumulate"]),
        ("barotropic", "2", "1", &["relax"]),
        ("barotropic", "6", "1", &["relax"]),
    ] {
        let on = |workers: &'static str| [program, workers, size, repetitions];
        let (counts, _) = alone("sakellariou", &on("2"));
        let counts = counts["executions"].as_array().expect("a list").iter();
        let mut counts: Vec<u64> = counts.map(|count| count.as_u64().expect("a number")).collect();
        if program == "barotropic" {
            counts = vec![counts.iter().sum()];
        }
        let mut options =
            vec!["--format".to_owned(), "json".into(), "--calibration".into(), calibration.into()];
        for (nest, count) in nests.iter().zip(counts) {
            options.extend(["--executions".into(), format!("{nest}={count}")]);
        }
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut times: [[Vec<f64>; 2]; 2] = Default::default();
        for round in 0..rounds {
            let spec = Spec::fixture(&format!("predictions-{program}-{round}"), "sakellariou");
            let run = spec.arguments(&on("2")).rate(1000).succeed();
            let regions = run.database().text("regions", &options);
            let regions: Value = serde_json::from_str(&regions).expect("JSON");
            for (n, workers) in ["1", "2"].into_iter().enumerate() {
                let at = &regions["whole"]["predicted"][n];
                assert_eq!(at["workers"], n + 1, "{regions}");
                times[0][n].push(at["seconds"].as_f64().expect("a number"));
                times[1][n].push(alone("sakellariou", &on(workers)).1);
            }
        }
        let [predicted, measured] = times.map(|times| times.map(least));
        for n in 0..2 {
            let [predicted, measured] = [predicted[n], measured[n]];
            let error = error(predicted, measured);
            println!("| {program} {size} | {} | {predicted:.4} | {measured:.4} | {error} |", n + 1);
        }
    }
}
