//! `hpcrun-rs calibrate`: measures what it costs to start parallel execution on this machine, and keeps it.

use crate::failure::Failure;
use crate::{cli, output, text};
use clap::Parser;
use hpc_formats::message;
use start_up::calibration::{self, Calibration, Construct, Row, State};
use start_up::measure;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The first argument that asks for this. A program of that name runs as `hpcrun-rs -- calibrate`.
pub(crate) const COMMAND: &str = "calibrate";

/// Measures what it costs to start parallel execution on this machine
///
/// Executes a balanced loop serially and by each construct on 2 to n workers, with its workers awake and
/// asleep: start-up = parallel time - serial time / workers. The result is kept for `hpcprof-rs regions`.
/// Other load makes it too high.
#[derive(Debug, Parser)]
#[command(name = "hpcrun-rs calibrate")]
pub(crate) struct Options {
    /// File to write [default: hpcrun-rs/start-up/HOST.tsv in $XDG_CACHE_HOME or ~/.cache]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Workers to go up to [default: the cores that the process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    workers: Option<u32>,
    /// Measure again until results are steady, for so many seconds at most
    #[arg(long, value_name = "N", default_value_t = 18)]
    seconds: u64,
    /// Say nothing unless something is wrong
    #[arg(short, long)]
    quiet: bool,
}

/// Carries out `hpcrun-rs calibrate ARGUMENTS`.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => return Ok(cli::explain(&error)),
    };
    let path = match options.output {
        Some(path) => path,
        None => calibration::file(&calibration::host()).ok_or_else(|| {
            Failure::own("no place for the calibration: set HOME or XDG_CACHE_HOME, or give -o FILE")
        })?,
    };
    let cores = std::thread::available_parallelism()
        .map_err(|e| Failure::own(format!("cannot count the cores: {e}; give --workers N")))?;
    let cores = u32::try_from(cores.get()).unwrap_or(u32::MAX);
    let workers = options.workers.unwrap_or(cores);
    if workers < 2 {
        return Err(Failure::own(
            "there is one core, on which nothing runs in parallel: give --workers N, or more cores",
        ));
    }
    if let Some(others) = runnable().filter(|n| *n > 1) {
        message!(
            "hpcrun-rs: warning: {} other threads want a core: start-ups will be too high; calibrate again \
             without other load",
            others - 1
        );
    }
    let limit = Duration::from_secs(options.seconds);
    let (found, unsteady) = measure::calibrate(workers, Construct::ALL, limit, |what| {
        if !options.quiet {
            message!("hpcrun-rs: calibrating: {what}");
        }
    });
    write(&path, &Calibration { cores, ..found.clone() }).map_err(|error| {
        let path = text::shown(&path);
        Failure::own(format!("cannot write {path}: {error}; give another file with -o"))
    })?;
    if let [first, others @ ..] = &unsteady[..] {
        let (least, most) =
            [-1.0, 1.0].map(|sign| (first.start_up_ns + sign * first.deviation_ns) / 1e3).into();
        message!(
            "hpcrun-rs: warning: {} ({}, {} workers, {}) and {} others are not steady: {least:.1} to \
             {most:.1} microseconds; calibrate again without other load",
            first.construct.name(),
            first.place.name(),
            first.workers,
            first.state.name(),
            others.len()
        );
    }
    if !options.quiet {
        // Nothing to do if nobody reads it.
        let _ = print(&found, &mut io::stdout().lock());
        message!("hpcrun-rs: kept in {}", output::display(&path));
    }
    Ok(ExitCode::SUCCESS)
}

/// Threads of the machine that run or could, this one included.
fn runnable() -> Option<u32> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

fn write(path: &Path, calibration: &Calibration) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // Readers see the old file or the whole new one.
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, calibration.to_string())?;
    fs::rename(part, path)
}

fn print(calibration: &Calibration, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<22}{:>4}{:>18}{:>18}{:>18}{:>10}",
        "microseconds", "p", "start-up: awake", "asleep", "pays from: awake", "asleep"
    )?;
    // Rows of both states lie side by side.
    for pair in calibration.rows.chunks(2) {
        let [awake, asleep] = pair else { continue };
        debug_assert_eq!((awake.state, asleep.state), (State::Awake, State::Asleep));
        let pays = |row: &Row| match row.construct {
            Construct::Install => "-".to_owned(),
            _ => format!("{:.2}", start_up::model::break_even(row.start_up_ns, row.workers) / 1e3),
        };
        let cost = |row: &Row| format!("{:.2} ±{:.2}", row.start_up_ns / 1e3, row.deviation_ns / 1e3);
        let name = format!("{} ({})", awake.construct.name(), awake.place.name());
        let p = awake.workers;
        let (costs, pays) = ([cost(awake), cost(asleep)], [pays(awake), pays(asleep)]);
        writeln!(out, "{name:<22}{p:>4}{:>18}{:>18}{:>18}{:>10}", costs[0], costs[1], pays[0], pays[1])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
        assert!(Options::try_parse_from(["x", "--workers", "1"]).is_err());
        assert!(Options::try_parse_from(["x", "program"]).is_err());
    }
}
