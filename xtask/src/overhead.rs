//! `cargo xtask overhead`: run-time ratios of a profiled to an unprofiled program.
//!
//! For every rate: the profiler, the profiler with an empty handler (the floor that the machine's
//! interrupts set), and `perf record` and HPCToolkit's `hpcrun` when they are there. The runs alternate, so that a neighbour's
//! load falls on all of them; a ratio is taken within a round, and the table gives the median over
//! the rounds with the middle half in brackets. *Whole* is the process, start to end; *inner* is
//! what the program itself times. Noise of the machine hides what is less than some hundredths; so a further run for each rate
//! has the handler time itself: what it takes beyond an empty one, but for what it leaves cold in the caches. Beside programs of this repository there are kernels on rayon with
//! our rayon-core, on two workers (`fixtures/runtimes`). Every run is a session of its own that the kernel is asked to
//! prefer to others, where that is allowed.

use crate::build;
use crate::compare_runtimes;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds, each with one run of every kind
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Sampling rates, Hz
    #[arg(long, value_delimiter = ',', default_values_t = [200, 1000, 5000])]
    rates: Vec<u32>,
    /// Which programs
    #[arg(long, value_delimiter = ',', default_values_t = [
        "cholesky".to_string(), "recursion".to_string(), "fork-join".to_string(),
        "nqueens".to_string(), "quicksort".to_string(), "sum".to_string(), "par_sort".to_string(),
        "scope".to_string(),
    ])]
    programs: Vec<String>,
}

/// A program to measure.
struct Program {
    name: &'static str,
    path: PathBuf,
    arguments: &'static [&'static str],
}

/// Arguments of a kernel of `fixtures/runtimes`, for about a second.
const KERNELS: [(&str, &[&str]); 5] = [
    ("nqueens", &["nqueens", "rayon", "2", "120"]),
    ("quicksort", &["quicksort", "rayon", "2", "30"]),
    ("sum", &["sum", "rayon", "2", "12"]),
    ("par_sort", &["par_sort", "rayon", "2", "5"]),
    ("scope", &["scope", "rayon", "2", "20"]),
];

/// One way of running a program.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plain,
    Profiled(u32),
    EmptyHandler(u32),
    Perf(u32),
    Hpctoolkit(u32),
}

/// Seconds of one run.
#[derive(Clone, Copy)]
struct Timing {
    whole: f64,
    inner: f64,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let programs = build::release()?;
    let folder = build::target()?.join("overhead");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut others: Vec<fn(u32) -> Way> = Vec::new();
    if works(
        &folder,
        "perf",
        &["record", "-o", "perf-check.data", "--", "true"],
    ) {
        others.push(Way::Perf);
    } else {
        eprintln!("perf record is not to be had here: its rows are left out");
    }
    if works(&folder, "hpcrun", &["--version"]) {
        others.push(Way::Hpctoolkit);
    } else {
        eprintln!("HPCToolkit's hpcrun is not on PATH: its rows are left out");
    }
    println!("| program | rate | way | whole | inner |\n|---|---|---|---|---|");
    for program in selected(options, &programs)? {
        measure(&program, options, &programs, &folder, &others)?;
    }
    Ok(())
}

fn selected(options: &Options, programs: &Path) -> Result<Vec<Program>, String> {
    let known = |name: &str| {
        let (name, file, arguments): (_, _, &[&str]) = match name {
            "cholesky" => (
                "cholesky",
                "examples/cholesky",
                &["-n", "3000", "-z", "30000"],
            ),
            "recursion" => ("recursion", "timed", &["recursion"]),
            "fork-join" => ("fork-join", "timed", &["fork-join"]),
            _ => {
                let kernel = KERNELS.into_iter().find(|(kernel, _)| *kernel == name);
                let (name, arguments) = kernel.ok_or(format!("unknown program: {name}"))?;
                let path = compare_runtimes::build_ours()?;
                return Ok(Program {
                    name,
                    path,
                    arguments,
                });
            }
        };
        Ok(Program {
            name,
            path: programs.join(file),
            arguments,
        })
    };
    options.programs.iter().map(|name| known(name)).collect()
}

/// Whether a program of the system does this.
fn works(folder: &Path, program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .current_dir(folder)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|s| s.success())
}

/// Runs all rounds of one program and prints its rows.
fn measure(
    program: &Program,
    options: &Options,
    programs: &Path,
    folder: &Path,
    others: &[fn(u32) -> Way],
) -> Result<(), String> {
    let mut ways = vec![Way::Plain];
    for rate in &options.rates {
        ways.extend([Way::Profiled(*rate), Way::EmptyHandler(*rate)]);
        ways.extend(others.iter().map(|way| way(*rate)));
    }
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        let mut timings = Vec::new();
        // Every other round runs backwards, so that no way always follows the same other one.
        let order: Vec<Way> = if round % 2 == 0 {
            ways.clone()
        } else {
            ways.iter().rev().copied().collect()
        };
        for way in order {
            timings.push((way, once(program, way, programs, folder)?));
        }
        rounds.push(timings);
        eprintln!(
            "{}: round {} of {}",
            program.name,
            round + 1,
            options.rounds
        );
    }
    print_rows(program, &ways, &rounds);
    for rate in &options.rates {
        let (mean, median) = in_the_handler(program, *rate, programs, folder)?;
        println!(
            "| {} | {rate} | in the handler | {mean:.2} us a sample, median {median:.2} | {:.2} % |",
            program.name,
            mean * f64::from(*rate) / 1e4
        );
    }
    Ok(())
}

/// Mean and median microseconds in the handler, in a run of their own.
fn in_the_handler(
    program: &Program,
    rate: u32,
    programs: &Path,
    folder: &Path,
) -> Result<(f64, f64), String> {
    let mut command = command_of(program, Way::Profiled(rate), programs, folder)?;
    command.env("HPCRUN_LATENCY", "1");
    let output = shielded(&command).stderr(Stdio::piped()).output();
    let output = output.map_err(|e| format!("{}: {e}", program.name))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let number = |name| number_after(&text, name);
    number("mean").zip(number("p50")).ok_or_else(|| {
        format!(
            "{}: the handler's times were not printed: {text}",
            program.name
        )
    })
}

/// The number after a word.
fn number_after(text: &str, name: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

/// The command of one run; old measurements are removed.
fn command_of(
    program: &Program,
    way: Way,
    programs: &Path,
    folder: &Path,
) -> Result<Command, String> {
    let measurements = folder.join("measurements");
    if measurements.exists() {
        std::fs::remove_dir_all(&measurements).map_err(|e| format!("old measurements: {e}"))?;
    }
    let theirs = folder.join("hpctoolkit-measurements");
    if theirs.exists() {
        std::fs::remove_dir_all(&theirs).map_err(|e| format!("old measurements: {e}"))?;
    }
    let mut command = match way {
        Way::Plain => Command::new(&program.path),
        Way::Profiled(rate) | Way::EmptyHandler(rate) => {
            let mut command = Command::new(programs.join("hpcrun-rs"));
            command
                .args(["-e", &format!("cpu-time@{rate}"), "-o"])
                .arg(&measurements)
                .arg("--")
                .arg(&program.path);
            if matches!(way, Way::EmptyHandler(_)) {
                command.env("HPCRUN_EMPTY_HANDLER", "1");
            }
            command
        }
        Way::Hpctoolkit(rate) => {
            let mut command = Command::new("hpcrun");
            // Its CPUTIME comes with the kernel's tick at most; this comes at the rate.
            command
                .args(["-e", &format!("cpu-clock@f{rate}"), "-o"])
                .arg(&theirs)
                .arg(&program.path);
            command
        }
        Way::Perf(rate) => {
            let mut command = Command::new("perf");
            command
                .args(["record", "-g", "-e", "cpu-clock", "-F", &rate.to_string()])
                .args(["-o", "perf.data", "--"])
                .arg(&program.path);
            command
        }
    };
    command.args(program.arguments).current_dir(folder);
    Ok(command)
}

/// One run.
fn once(program: &Program, way: Way, programs: &Path, folder: &Path) -> Result<Timing, String> {
    let mut command = shielded(&command_of(program, way, programs, folder)?);
    let start = Instant::now();
    let output = command.output().map_err(|e| {
        format!(
            "{} cannot be run: {e}",
            command.get_program().to_string_lossy()
        )
    })?;
    let whole = start.elapsed().as_secs_f64();
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status));
    }
    let inner = inner_seconds(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| format!("{} printed no time", program.name))?;
    Ok(Timing { whole, inner })
}

/// The same command in a session of its own, preferred by the scheduler where that is allowed.
fn shielded(command: &Command) -> Command {
    const PREFER: &str = "(echo -20 >/proc/self/autogroup) 2>/dev/null; exec \"$@\"";
    let mut shield = Command::new("setsid");
    shield
        .args(["sh", "-c", PREFER, "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .stderr(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        shield.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shield.env(name, value);
        }
    }
    shield
}

/// The number after the word `total` in a program's output, or, without that word, the sum of its
/// lines, which are a kernel's repetitions.
fn inner_seconds(output: &str) -> Option<f64> {
    if output.split_whitespace().any(|word| word == "total") {
        return number_after(output, "total");
    }
    let times: Result<Vec<f64>, _> = output.lines().map(str::parse).collect();
    let times = times.ok().filter(|times| !times.is_empty())?;
    Some(times.iter().sum())
}

fn print_rows(program: &Program, ways: &[Way], rounds: &[Vec<(Way, Timing)>]) {
    let find = |round: &[(Way, Timing)], way: Way| {
        round
            .iter()
            .find(|(w, _)| *w == way)
            .map(|(_, timing)| *timing)
    };
    for way in ways {
        let (rate, name) = match way {
            Way::Plain => ("-".to_string(), "unprofiled, seconds"),
            Way::Profiled(rate) => (rate.to_string(), "hpcrun-rs"),
            Way::EmptyHandler(rate) => (rate.to_string(), "empty handler"),
            Way::Perf(rate) => (rate.to_string(), "perf record -g"),
            Way::Hpctoolkit(rate) => (rate.to_string(), "HPCToolkit's hpcrun"),
        };
        let column = |pick: fn(Timing) -> f64| {
            let values: Vec<f64> = rounds
                .iter()
                .filter_map(|round| {
                    let mine = pick(find(round, *way)?);
                    let plain = pick(find(round, Way::Plain)?);
                    Some(if *way == Way::Plain {
                        mine
                    } else {
                        mine / plain
                    })
                })
                .collect();
            spread(values)
        };
        println!(
            "| {} | {rate} | {name} | {} | {} |",
            program.name,
            column(|t| t.whole),
            column(|t| t.inner)
        );
    }
}

/// `median [lower quartile, upper quartile]`.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (values.len().saturating_sub(1)) as f64 * share;
        values
            .get(index.round() as usize)
            .copied()
            .unwrap_or(f64::NAN)
    };
    format!("{:.4} [{:.4}, {:.4}]", at(0.5), at(0.25), at(0.75))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_in_a_programs_output() {
        assert_eq!(
            inner_seconds("factor 0.5 s\nn=3 total 1.250 s, error 0"),
            Some(1.25)
        );
        assert_eq!(inner_seconds("1.5e-1\n2.5e-1\n"), Some(0.4));
        assert_eq!(inner_seconds("no figure"), None);
        assert_eq!(inner_seconds(""), None);
        assert_eq!(inner_seconds("total x"), None);
    }

    #[test]
    fn the_spread_is_the_middle_half() {
        let values = vec![5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!(spread(values), "3.0000 [2.0000, 4.0000]");
    }
}
