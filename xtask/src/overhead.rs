//! `cargo xtask overhead`: run-time ratios of a profiled to an unprofiled program.
//!
//! For every rate: the profiler, the profiler with an empty handler (the floor that the machine's interrupts
//! set), and `perf record` and HPCToolkit's `hpcrun` when they are there. The runs alternate, so that a
//! neighbour's load falls on all of them; a ratio is taken within a round, and the table gives the median
//! over the rounds with the middle half in brackets. *Whole* is the process, start to end; *inner* is what
//! the program itself times. Noise of the machine hides what is less than some hundredths; so a further run
//! for each rate has the handler time itself: what it takes beyond an empty one, but for what it leaves cold
//! in the caches. Beside programs of this repository there are kernels on rayon with our rayon-core, on two
//! workers (`fixtures/runtimes`), and short ones with many threads (`brief`), of which *whole* counts: it
//! holds the launcher and the profiler's start and end. `--profiler NAME=PATH` compares `hpcrun-rs` of
//! several builds. Every run is a session of its own that the kernel is asked to prefer to others, where that
//! is allowed.

use crate::build;
use crate::compare_runtimes;
use crate::statistics::in_rounds;
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
    /// Instead of this tree's profiler and of other tools: `hpcrun-rs` of these builds, each `NAME=PATH`
    #[arg(long, value_name = "NAME=PATH", value_parser = profiler)]
    profiler: Vec<(String, PathBuf)>,
}

fn profiler(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("NAME=PATH is wanted")?;
    let path = std::path::absolute(path).map_err(|e| e.to_string())?;
    Ok((name.to_owned(), path))
}

/// A program to measure.
struct Program {
    name: &'static str,
    path: PathBuf,
    arguments: &'static [&'static str],
    /// Operations that `inner` consists of, where nanoseconds of one say more than a ratio.
    operations: Option<f64>,
}

/// Arguments of `brief`, with 1,100 iterations for about a microsecond: 2,000 threads of 1 ms and 4,000 of 50
/// us, two at a time; 15 threads that share 0.3 s of two cores; nothing at all; locks that nobody else wants.
const BRIEF: [(&str, &[&str]); 5] = [
    ("threads-1ms", &["threads", "2000", "1100000", "2"]),
    ("threads-50us", &["threads", "4000", "55000", "2"]),
    ("crowd", &["threads", "15", "44000000", "15"]),
    ("nothing", &["threads", "0", "0", "1"]),
    ("locks", &["locks", "20000000"]),
];

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
    /// By which profiler, at which rate.
    Profiled(usize, u32),
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
    build::create(&folder)?;
    let profilers = match options.profiler.is_empty() {
        true => vec![("hpcrun-rs".to_owned(), programs.join("hpcrun-rs"))],
        false => options.profiler.clone(),
    };
    let setting = Setting { programs, folder, profilers, is_alone: options.profiler.is_empty() };
    let others = if setting.is_alone { other_tools(&setting.folder) } else { Vec::new() };
    println!("| program | rate | way | whole | inner |\n|---|---|---|---|---|");
    for program in selected(options, &setting.programs)? {
        measure(&program, options, &setting, &others)?;
    }
    Ok(())
}

/// Where things lie.
struct Setting {
    programs: PathBuf,
    folder: PathBuf,
    profilers: Vec<(String, PathBuf)>,
    /// Whether this tree's profiler is measured, beside other tools and the floor.
    is_alone: bool,
}

fn other_tools(folder: &Path) -> Vec<fn(u32) -> Way> {
    let mut others: Vec<fn(u32) -> Way> = Vec::new();
    if works(folder, "perf", &["record", "-o", "perf-check.data", "--", "true"]) {
        others.push(Way::Perf);
    } else {
        eprintln!("perf record is not to be had here: its rows are left out");
    }
    if works(folder, "hpcrun", &["--version"]) {
        others.push(Way::Hpctoolkit);
    } else {
        eprintln!("HPCToolkit's hpcrun is not on PATH: its rows are left out");
    }
    others
}

fn selected(options: &Options, programs: &Path) -> Result<Vec<Program>, String> {
    let known = |name: &str| {
        let (name, file, arguments): (_, _, &[&str]) = match name {
            "cholesky" => ("cholesky", "examples/cholesky", &["-n", "3000", "-z", "30000"]),
            "recursion" => ("recursion", "timed", &["recursion"]),
            "fork-join" => ("fork-join", "timed", &["fork-join"]),
            _ if BRIEF.iter().any(|(brief, _)| *brief == name) => {
                let brief = BRIEF.into_iter().find(|(brief, _)| *brief == name);
                let (name, arguments) = brief.unwrap_or(BRIEF[0]);
                (name, "brief", arguments)
            }
            _ => {
                let kernel = KERNELS.into_iter().find(|(kernel, _)| *kernel == name);
                let (name, arguments) = kernel.ok_or(format!("unknown program: {name}"))?;
                let path = compare_runtimes::build_ours()?;
                return Ok(Program { name, path, arguments, operations: None });
            }
        };
        Ok(Program {
            name,
            path: programs.join(file),
            arguments,
            operations: (name == "locks").then_some(20e6),
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
    setting: &Setting,
    others: &[fn(u32) -> Way],
) -> Result<(), String> {
    let mut ways = vec![Way::Plain];
    for rate in &options.rates {
        ways.extend((0..setting.profilers.len()).map(|i| Way::Profiled(i, *rate)));
        ways.extend(setting.is_alone.then_some(Way::EmptyHandler(*rate)));
        ways.extend(others.iter().map(|way| way(*rate)));
    }
    let once = |index: usize| once(program, ways[index], setting);
    let timings = in_rounds(program.name, options.rounds, ways.len(), once)?;
    print_rows(program, &ways, &timings, setting);
    let rates = options.rates.iter().filter(|_| setting.is_alone);
    for rate in rates {
        let (mean, median) = in_the_handler(program, *rate, setting)?;
        println!(
            "| {} | {rate} | in the handler | {mean:.2} us a sample, median {median:.2} | {:.2} % |",
            program.name,
            mean * f64::from(*rate) / 1e4
        );
    }
    Ok(())
}

/// Mean and median microseconds in the handler, in a run of their own.
fn in_the_handler(program: &Program, rate: u32, setting: &Setting) -> Result<(f64, f64), String> {
    let mut command = command_of(program, Way::Profiled(0, rate), setting)?;
    command.env("HPCRUN_LATENCY", "1");
    let output = build::preferred(&command).output();
    let output = output.map_err(|e| format!("{}: {e}", program.name))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let number = |name| number_after(&text, name);
    number("mean")
        .zip(number("p50"))
        .ok_or_else(|| format!("{}: the handler's times were not printed: {text}", program.name))
}

/// The number after a word.
fn number_after(text: &str, name: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

/// The command of one run; old measurements are removed.
fn command_of(program: &Program, way: Way, setting: &Setting) -> Result<Command, String> {
    let folder = &setting.folder;
    let measurements = folder.join("measurements");
    let theirs = folder.join("hpctoolkit-measurements");
    build::remove(&measurements)?;
    build::remove(&theirs)?;
    let mut command = match way {
        Way::Plain => Command::new(&program.path),
        Way::Profiled(_, rate) | Way::EmptyHandler(rate) => {
            let which = if let Way::Profiled(which, _) = way { which } else { 0 };
            let mut command = Command::new(&setting.profilers[which].1);
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
            command.args(["-e", &format!("cpu-clock@f{rate}"), "-o"]).arg(&theirs).arg(&program.path);
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
fn once(program: &Program, way: Way, setting: &Setting) -> Result<Timing, String> {
    let mut command = build::preferred(&command_of(program, way, setting)?);
    command.stderr(Stdio::null());
    let start = Instant::now();
    let output = command
        .output()
        .map_err(|e| format!("{} cannot be run: {e}", command.get_program().to_string_lossy()))?;
    let whole = start.elapsed().as_secs_f64();
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", output.status));
    }
    let inner = inner_seconds(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| format!("{} printed no time", program.name))?;
    Ok(Timing { whole, inner })
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

/// A row for each way, with its timings by round; the first way is the plain one.
fn print_rows(program: &Program, ways: &[Way], timings: &[Vec<Timing>], setting: &Setting) {
    for (way, timings_of_way) in ways.iter().zip(timings) {
        let (rate, name) = match way {
            Way::Plain => ("-".to_string(), "unprofiled, seconds"),
            Way::Profiled(which, rate) => (rate.to_string(), setting.profilers[*which].0.as_str()),
            Way::EmptyHandler(rate) => (rate.to_string(), "empty handler"),
            Way::Perf(rate) => (rate.to_string(), "perf record -g"),
            Way::Hpctoolkit(rate) => (rate.to_string(), "HPCToolkit's hpcrun"),
        };
        let column = |pick: fn(Timing) -> f64, operations: Option<f64>| {
            let rounds = timings_of_way.iter().zip(&timings[0]);
            let value = |(mine, plain): (&Timing, &Timing)| match operations {
                Some(count) => pick(*mine) / count * 1e9,
                None if *way == Way::Plain => pick(*mine),
                None => pick(*mine) / pick(*plain),
            };
            spread(rounds.map(value).collect())
        };
        println!(
            "| {} | {rate} | {name} | {} | {}{} |",
            program.name,
            column(|t| t.whole, None),
            column(|t| t.inner, program.operations),
            program.operations.map_or("", |_| " ns")
        );
    }
}

/// `median [lower quartile, upper quartile]`.
fn spread(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (values.len().saturating_sub(1)) as f64 * share;
        values.get(index.round() as usize).copied().unwrap_or(f64::NAN)
    };
    format!("{:.4} [{:.4}, {:.4}]", at(0.5), at(0.25), at(0.75))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_in_a_programs_output() {
        assert_eq!(inner_seconds("factor 0.5 s\nn=3 total 1.250 s, error 0"), Some(1.25));
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
