//! `cargo xtask compare-runtimes`: our runtime beside rayon, chili, Intel TBB and OpenMP tasks.
//!
//! One duty: build `fixtures/runtimes` with the rayon-core of crates.io and with ours, and
//! its C++ program, run all candidates of a kernel in rounds, and print a Markdown table. A run is a
//! process of its own with the scheduler's preference where that is allowed; its time is the median of
//! its repetitions. The table gives medians over the rounds, of ratios over those within one round, and
//! their 95 % intervals; *work-stealing-rt* is rayon on our rayon-core.

use crate::build;
use crate::rayon_core::{self, our_patch_table};
use crate::statistics::{Estimate, estimate, in_rounds, median, paired};
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNELS: [&str; 14] = [
    "fib",
    "nqueens",
    "quicksort",
    "matmul",
    "sum",
    "par_sort",
    "par_sort_unstable",
    "scope",
    "flat",
    "steal",
    "wake",
    "pool",
    "broadcast",
    "idle",
];
/// Those that chili and the C++ program have, too.
const JOINS: [&str; 4] = ["fib", "nqueens", "quicksort", "matmul"];
const IN_CPP: [&str; 3] = ["fib", "nqueens", "quicksort"];
/// Calls of fib(38) for one of fib(32), which is what the C++ program runs.
const FIB_SCALE: f64 = 126_491_971.0 / 7_049_155.0;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds, each with one run of every candidate
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Timed repetitions in one run
    #[arg(long, default_value_t = 2)]
    repetitions: usize,
    /// Which kernels
    #[arg(long, value_delimiter = ',', value_parser = KERNELS,
          default_values_t = KERNELS.map(str::to_owned))]
    kernels: Vec<String>,
}

/// The built programs.
struct Programs {
    /// With the rayon-core of crates.io.
    stock: PathBuf,
    ours: PathBuf,
    /// The C++ program, and whether it has TBB.
    cpp: Option<(PathBuf, bool)>,
}

/// One row of the table.
#[derive(Clone)]
struct Candidate<'a> {
    name: &'static str,
    program: &'a Path,
    /// As the program calls it.
    runtime: &'static str,
    workers: usize,
    /// What its times are multiplied by.
    scale: f64,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    if options.rounds == 0 || options.repetitions == 0 {
        return Err("at least one round and one repetition are needed".to_owned());
    }
    let programs = build_all()?;
    println!(
        "| kernel | runtime | workers | median [95 % interval] | to sequential | to rayon |\n\
         |---|---|---|---|---|---|"
    );
    for kernel in &options.kernels {
        compare(kernel, options, &programs)?;
    }
    if programs.cpp.is_some() {
        println!(
            "\nfib(38) on TBB and OpenMP, and sequential in C++, is fib(32) times the ratio of calls, \
             {FIB_SCALE:.2}."
        );
    }
    Ok(())
}

fn place() -> Result<PathBuf, String> {
    Ok(build::target()?.join("compare-runtimes"))
}

fn build_all() -> Result<Programs, String> {
    let place = place()?;
    Ok(Programs {
        stock: build_rust(&place.join("stock"), "")?,
        ours: build_ours()?,
        cpp: build_cpp(&place)?,
    })
}

/// Builds the kernels with our rayon-core; returns the program.
pub(crate) fn build_ours() -> Result<PathBuf, String> {
    build_rust(&place()?.join("ours"), &our_patch_table())
}

/// Builds a copy of the package with `addition` in its manifest.
fn build_rust(place: &Path, addition: &str) -> Result<PathBuf, String> {
    let source = build::workspace().join("fixtures/runtimes");
    for file in ["src/main.rs", "src/kernels.rs"] {
        build::copy(&source.join(file), &place.join(file))?;
    }
    let text = build::read(&source.join("Cargo.toml"))?;
    build::write(&place.join("Cargo.toml"), text + addition)?;
    let target = place.join("target");
    let mut command = build::cargo();
    command.current_dir(place).env("CARGO_TARGET_DIR", target);
    build::run(command.args(["build", "--release", "--quiet"]))?;
    let program = place.join("target/release/runtimes");
    rayon_core::check(&program, !addition.is_empty())?;
    Ok(program)
}

/// Builds the C++ program, with TBB if it is there.
fn build_cpp(place: &Path) -> Result<Option<(PathBuf, bool)>, String> {
    let source = build::workspace().join("fixtures/runtimes/tasks.cpp");
    let program = place.join("tasks");
    let compile = |extra: &[&str]| {
        Command::new("g++")
            .args(["-std=c++17", "-O3", "-fopenmp", "-o"])
            .arg(&program)
            .arg(&source)
            .args(extra)
            .output()
    };
    match compile(&["-ltbb"]) {
        Err(error) => {
            eprintln!("NOTE: g++ cannot be run ({error}): TBB and OpenMP are left out");
            return Ok(None);
        }
        Ok(output) if output.status.success() => return Ok(Some((program, true))),
        Ok(_) => eprintln!("NOTE: there is no TBB here (Debian: libtbb-dev): it is left out"),
    }
    match compile(&["-DNO_TBB"]) {
        Ok(output) if output.status.success() => Ok(Some((program, false))),
        Ok(output) => {
            Err(format!("g++ failed on {}:\n{}", source.display(), String::from_utf8_lossy(&output.stderr)))
        }
        Err(error) => Err(format!("g++: {error}")),
    }
}

fn candidates<'a>(kernel: &str, programs: &'a Programs) -> Vec<Candidate<'a>> {
    let mut all = Vec::new();
    let mut add = |name, program: &'a PathBuf, runtime, workers, scale| {
        all.push(Candidate { name, program, runtime, workers, scale });
    };
    let only_pools = ["steal", "wake", "pool", "broadcast", "idle"].contains(&kernel);
    if !only_pools {
        add("sequential", &programs.stock, "serial", 1, 1.0);
    }
    let cpp = programs.cpp.as_ref().filter(|_| IN_CPP.contains(&kernel));
    let scale = if kernel == "fib" { FIB_SCALE } else { 1.0 };
    if let Some((program, _)) = cpp {
        add("sequential, C++", program, "serial", 1, scale);
    }
    let pools: &[usize] = match kernel {
        // A steal needs two workers.
        "steal" => &[2],
        // More than there are cores.
        "broadcast" => &[16, 64, 500],
        _ => &[1, 2],
    };
    for &workers in pools {
        add("work-stealing-rt", &programs.ours, "rayon", workers, 1.0);
        add("rayon", &programs.stock, "rayon", workers, 1.0);
        if JOINS.contains(&kernel) {
            add("chili", &programs.stock, "chili", workers, 1.0);
        }
        if let Some((program, has_tbb)) = cpp {
            if *has_tbb {
                add("TBB", program, "tbb", workers, scale);
            }
            add("OpenMP tasks", program, "openmp", workers, scale);
        }
    }
    all
}

fn compare(kernel: &str, options: &Options, programs: &Programs) -> Result<(), String> {
    let candidates = candidates(kernel, programs);
    let once = |index: usize| once(kernel, &candidates[index], options.repetitions);
    let times = in_rounds(kernel, options.rounds, candidates.len(), once)?;
    let find = |name: &str, workers: usize| {
        let index = candidates.iter().position(|c| c.name == name && c.workers == workers)?;
        Some(&times[index])
    };
    for (candidate, times) in candidates.iter().zip(&times) {
        let Some(time) = estimate(times) else {
            continue;
        };
        let in_cpp = ["tbb", "openmp"].contains(&candidate.runtime);
        let base = if in_cpp { "sequential, C++" } else { "sequential" };
        let ratio = |base: Option<&Vec<f64>>| {
            let base = base.filter(|_| kernel != "idle" && candidate.runtime != "serial");
            let ratio = base.and_then(|base| paired(times, base));
            ratio.map_or("–".to_owned(), |ratio| {
                format!("{:.2} [{:.2}, {:.2}]", ratio.median, ratio.low, ratio.high)
            })
        };
        println!(
            "| {kernel} | {} | {} | {} | {} | {} |",
            candidate.name,
            candidate.workers,
            show(time, kernel),
            ratio(find(base, 1)),
            ratio(find("rayon", candidate.workers))
        );
    }
    Ok(())
}

/// One run: the median of its repetitions, in seconds.
fn once(kernel: &str, candidate: &Candidate<'_>, repetitions: usize) -> Result<f64, String> {
    let what = format!("{kernel} on {}, {}", candidate.name, candidate.workers);
    let mut command = Command::new(candidate.program);
    command.args([kernel, candidate.runtime]);
    command.args([candidate.workers.to_string(), repetitions.to_string()]);
    let text = build::output_of(&mut build::preferred(&command), &what)?;
    let times: Result<Vec<f64>, _> = text.lines().map(str::parse).collect();
    let times = times.map_err(|e| format!("{what}: {e} in {text:?}"))?;
    let time = median(times).ok_or_else(|| format!("{what} printed no time"))?;
    Ok(time * candidate.scale)
}

/// In the kernel's unit.
fn show(time: Estimate, kernel: &str) -> String {
    let (factor, unit) = match kernel {
        "scope" | "flat" | "steal" => (1e9, "ns each"),
        "wake" | "pool" | "broadcast" => (1e6, "µs"),
        "idle" => (1e3, "ms CPU a second"),
        _ => (1e3, "ms"),
    };
    let digits = if time.median * factor >= 100.0 { 0 } else { 2 };
    let number = |value: f64| format!("{:.digits$}", value * factor);
    format!("{} {unit} [{}, {}]", number(time.median), number(time.low), number(time.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_fib_are_in_the_stated_ratio() {
        let mut calls = vec![1_u64, 1];
        for n in 2..=38 {
            calls.push(1 + calls[n - 1] + calls[n - 2]);
        }
        assert_eq!(FIB_SCALE, calls[38] as f64 / calls[32] as f64);
    }

    #[test]
    fn a_time_is_shown_in_its_kernels_unit() {
        let time = Estimate { median: 1.5e-6, low: 1e-6, high: 2e-6 };
        assert_eq!(show(time, "wake"), "1.50 µs [1.00, 2.00]");
        assert_eq!(show(time, "steal"), "1500 ns each [1000, 2000]");
    }
}
