//! `cargo xtask predictions`: what critical paths predict, beside measured times.
//!
//! One duty: run each program on one core and on two, and on two while its critical path is tracked, in turn;
//! print work and span, the times that follow from them for two cores, and by how much they are wrong. A
//! program that cannot be had is named, and the rest goes on.

use crate::build;
use crate::compare_runtimes;
use crate::statistics::estimate;
use hpc_formats::critical_path::{CriticalPath, EXTENSION};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Where a program comes from.
#[derive(Clone, Copy)]
enum From {
    /// This repository's release build.
    Built(&'static str),
    /// A kernel of `fixtures/runtimes`, on our runtime.
    Kernel,
    /// A program on PATH.
    System,
}

/// Name, origin, and arguments; `{workers}` is as many as cores, `{text}` an input, `{out}` a file to write.
const PROGRAMS: [(&str, From, &str); 8] = [
    ("cholesky", From::Built("examples/cholesky"), "-n 3000 -z 30000"),
    ("nqueens", From::Kernel, "nqueens rayon {workers} 60"),
    ("quicksort", From::Kernel, "quicksort rayon {workers} 20"),
    ("matmul", From::Kernel, "matmul rayon {workers} 40"),
    ("par_sort", From::Kernel, "par_sort rayon {workers} 5"),
    ("sum", From::Kernel, "sum rayon {workers} 8"),
    ("sort", From::System, "--parallel=2 -S1G -o {out} {text}"),
    ("xz", From::System, "-T2 -3 --block-size=2MiB -kc {text}"),
];

/// Lines of the text that is sorted and compressed.
const LINES: u64 = 400_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which programs
    #[arg(long, value_delimiter = ',', value_parser = PROGRAMS.map(|p| p.0),
          default_values_t = PROGRAMS.map(|p| p.0.to_owned()))]
    programs: Vec<String>,
    /// Rounds, each with a run of every kind
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// Seconds of one round.
struct Round {
    one: f64,
    two: f64,
    tracked: f64,
    work: f64,
    span: f64,
    burdened: f64,
    /// As `hpcprof-rs critical-path` predicts it for two workers.
    predicted: f64,
    /// At most, by Brent's bound.
    most: f64,
}

/// A program and how it is run.
struct Case<'a> {
    program: PathBuf,
    arguments: &'static str,
    folder: &'a Path,
    hpcrun: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let tools = build::release()?;
    let folder = &build::target()?.join("predictions");
    let line = |i: u64| format!("{:016x} {i}\n", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let text: String = (0..LINES).map(line).collect();
    build::write(&folder.join("text"), text)?;
    println!(
        "| program | work | span | 1 core: measured | work is off by | 2 cores: at least | predicted \
         | at most | burdened | measured | prediction is off by | tracked / untracked |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut failed = Vec::new();
    for (name, from, arguments) in PROGRAMS {
        if !options.programs.iter().any(|wanted| wanted == name) {
            continue;
        }
        let program = match from {
            From::Built(path) => Ok(tools.join(path)),
            From::Kernel => compare_runtimes::build_ours(),
            From::System => Ok(PathBuf::from(name)),
        };
        let rounds = program.and_then(|program| {
            let case = Case { program, arguments, folder, hpcrun: tools.join("hpcrun-rs") };
            // The first round warms up.
            let rounds = (0..=options.rounds).map(|_| case.round());
            rounds.collect::<Result<Vec<Round>, String>>()
        });
        match rounds {
            Ok(rounds) => print(name, &rounds[1..]),
            Err(error) => {
                eprintln!("{name} is left out: {error}");
                failed.push(name);
            }
        }
    }
    let left_out = || format!("left out: {}", failed.join(", "));
    failed.is_empty().then_some(()).ok_or_else(left_out)
}

impl Case<'_> {
    fn round(&self) -> Result<Round, String> {
        let one = self.time(1, None)?;
        let two = self.time(2, None)?;
        let measurements = self.folder.join("measurements");
        let _ = fs::remove_dir_all(&measurements); // There may be none.
        let tracked = self.time(2, Some(&measurements))?;
        let path = longest(&measurements)?;
        let (work, span) = (path.work as f64 * 1e-9, path.span as f64 * 1e-9);
        Ok(Round {
            one,
            two,
            tracked,
            work,
            span,
            burdened: path.burdened_span as f64 * 1e-9,
            predicted: path.prediction(2).time * 1e-9,
            most: path.prediction(2).upper * 1e-9,
        })
    }

    /// Seconds of a run on so many cores, tracked into a folder if there is one.
    fn time(&self, cores: usize, tracked: Option<&Path>) -> Result<f64, String> {
        let out = self.folder.join("out");
        let mut command = Command::new("taskset");
        command.args(["-c", ["0", "0,1"][cores - 1]]);
        if let Some(measurements) = tracked {
            command.arg(&self.hpcrun);
            command.args(["-q", "--critical-path", "-o"]);
            command.arg(measurements).arg("--");
        }
        command.arg(&self.program);
        for argument in self.arguments.split(' ') {
            match argument {
                "{text}" => command.arg(self.folder.join("text")),
                "{out}" => command.arg(&out),
                "{workers}" => command.arg(cores.to_string()),
                _ => command.arg(argument),
            };
        }
        command.env("RAYON_NUM_THREADS", cores.to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        build::run(&mut command)?;
        let time = start.elapsed().as_secs_f64();
        let _ = fs::remove_file(&out);
        Ok(time)
    }
}

/// The longest path of a run's processes.
fn longest(measurements: &Path) -> Result<CriticalPath, String> {
    let entries = fs::read_dir(measurements).map_err(|e| e.to_string())?;
    let files = entries.flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == EXTENSION));
    let paths = files.filter_map(|file| CriticalPath::decode(&fs::read(file).ok()?).ok());
    let longest = paths.max_by_key(|path| path.span);
    longest.ok_or_else(|| "it left no critical path".to_owned())
}

fn print(name: &str, rounds: &[Round]) {
    let all = |pick: fn(&Round) -> f64| estimate(&rounds.iter().map(pick).collect::<Vec<f64>>());
    let middle = |pick| all(pick).map_or(f64::NAN, |e| e.median);
    let percent = |ratio: f64| format!("{:+.1} %", 100.0 * (ratio - 1.0));
    let error = |pick| {
        let figures = all(pick).map(|e| [e.median, e.low, e.high].map(percent));
        figures.map_or(String::new(), |[middle, low, high]| format!("{middle} [{low}, {high}]"))
    };
    println!(
        "| {name} | {:.3} | {:.3} | {:.3} | {} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {} | {:.3} |",
        middle(|r| r.work),
        middle(|r| r.span),
        middle(|r| r.one),
        error(|r| r.work / r.one),
        middle(|r| r.span.max(r.work / 2.0)),
        middle(|r| r.predicted),
        middle(|r| r.most),
        middle(|r| (r.work - r.span) / 2.0 + r.burdened),
        middle(|r| r.two),
        error(|r| r.predicted / r.two),
        middle(|r| r.tracked / r.two),
    );
}
