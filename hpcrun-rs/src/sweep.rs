//! `hpcrun-rs sweep`: measures a program on several numbers of workers, in turns, and has `hpcprof-rs sweep`
//! say where its speed-up is lost.

use crate::failure::Failure;
use crate::report::beside_us;
use crate::{cli, measure, output, text};
use clap::Parser;
use hpc_formats::message;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The first argument that asks for this. A program of that name runs as `hpcrun-rs -- sweep`.
pub(crate) const COMMAND: &str = "sweep";
/// What stands for the number of workers in an argument.
const PLACE: &str = "{workers}";
/// What tells libraries how many workers to start.
const VARIABLES: [&str; 7] = [
    "RAYON_NUM_THREADS",
    "WORK_STEALING_RT_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
];

/// Measures a program on several numbers of workers, and says where its speed-up is lost
///
/// Each run has RAYON_NUM_THREADS, OMP_NUM_THREADS and the like set. The number also replaces `{workers}` in
/// the arguments; without that, the program may use as many cores only. What the program prints goes to
/// standard error.
#[derive(Debug, Parser)]
#[command(name = "hpcrun-rs sweep")]
pub(crate) struct Options {
    /// Numbers of workers; each is compared with the fewest
    #[arg(long, value_name = "N,N…", value_delimiter = ',', required = true,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Vec<u32>,
    /// Runs on each number, in turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Folder for measurements and databases; must not exist [default: hpcrun-PROGRAM-sweep, -2, -3 …]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// What is sampled, as without `sweep`
    #[arg(short, long, value_name = "NAME[@RATE]")]
    event: Vec<String>,
    /// Track the critical path on the fewest workers, which predicts the times on more
    #[arg(long)]
    critical_path: bool,
    /// Output format: text, json or svg
    #[arg(long, default_value = "text", value_parser = ["text", "json", "svg"])]
    format: String,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM [ARGS with {workers}]", required = true, trailing_var_arg = true)]
    program: Vec<OsString>,
}

/// Carries out `hpcrun-rs sweep ARGUMENTS`.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let mut options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => return Ok(cli::explain(&error)),
    };
    options.workers.sort_unstable();
    options.workers.dedup();
    if options.workers.len() < 2 {
        return Err(Failure::own("one number of workers has nothing to compare: give --workers 1,2,4"));
    }
    let folder = output::create_folder(options.output.as_deref(), Path::new(&options.program[0]), "sweep")?;
    let all = options.workers.iter().map(|workers| folder.join(workers.to_string()));
    let databases: Vec<PathBuf> = all.collect();
    let parts = |workers: u32, turn: u32| folder.join(format!("{workers}-run-{turn}"));
    for turn in 1..=options.repeat {
        for workers in &options.workers {
            message!("hpcrun-rs: {workers} workers, run {turn} of {}", options.repeat);
            measure_on(*workers, &parts(*workers, turn), &options)?;
        }
    }
    let tool = beside_us("hpcprof-rs");
    let show = |command: &mut Command| match command.status() {
        Ok(status) if status.success() => Ok(()),
        ended => {
            let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            let (tool, folder) = (text::shown(&tool), text::shown(&folder));
            Err(Failure::own(format!("{tool}: {ended}; the measurements are in {folder}")))
        }
    };
    for (workers, database) in options.workers.iter().zip(&databases) {
        let runs = (1..=options.repeat).map(|turn| parts(*workers, turn));
        show(Command::new(&tool).args(runs).arg("-o").arg(database).stdout(Stdio::null()))?;
    }
    show(Command::new(&tool).arg("sweep").args(&databases).args(["--format", &options.format]))?;
    message!("hpcrun-rs: databases kept in {}", output::display(&folder));
    Ok(ExitCode::SUCCESS)
}

/// Measures one run.
fn measure_on(workers: u32, directory: &Path, options: &Options) -> Result<(), Failure> {
    let number = workers.to_string();
    let mut arguments: Vec<OsString> =
        ["hpcrun-rs", "-q", "--cores", &number, "-o"].map(OsString::from).into();
    arguments.push(directory.into());
    for event in &options.event {
        arguments.extend(["-e".into(), OsString::from(event)]);
    }
    if options.critical_path && options.workers.first() == Some(&workers) {
        arguments.push("--critical-path".into());
    }
    arguments.push("--".into());
    let mut is_told = false;
    for word in &options.program {
        let (word, found) = replaced(word, &number);
        is_told |= found;
        arguments.push(word);
    }
    let own = sched_getaffinity(Pid::from_raw(0)).ok();
    if let Some(few) = own.as_ref().filter(|_| !is_told).and_then(|own| first_of(own, workers)) {
        // The program inherits it. Where it is refused, the program may use all.
        let _ = sched_setaffinity(Pid::from_raw(0), &few);
    }
    let measured = measure(arguments, |command| {
        command.envs(VARIABLES.map(|name| (name, &number))).stdout(std::io::stderr());
    });
    if let Some(own) = own {
        let _ = sched_setaffinity(Pid::from_raw(0), &own);
    }
    let measured = measured?;
    match (&measured.directory, measured.status.success()) {
        (Some(_), true) => Ok(()),
        (None, _) => Err(Failure::own(measured.warnings.join("; "))),
        (_, false) => {
            let status = measured.status;
            Err(Failure::own(format!(
                "on {workers} workers the program ended with {status}: mend that first"
            )))
        }
    }
}

/// A word with the number of workers in it, and whether it asks for that.
fn replaced(word: &OsStr, number: &str) -> (OsString, bool) {
    match word.to_str().filter(|text| text.contains(PLACE)) {
        Some(text) => (text.replace(PLACE, number).into(), true),
        None => (word.to_owned(), false),
    }
}

/// So many of some cores, if there are more.
fn first_of(own: &CpuSet, workers: u32) -> Option<CpuSet> {
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|core| own.is_set(*core) == Ok(true)).collect();
    let (few, [_, ..]) = cores.split_at_checked(workers as usize)? else { return None };
    let mut set = CpuSet::new();
    few.iter().try_for_each(|core| set.set(*core)).ok()?;
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
        let o = Options::parse_from(["x", "--workers", "1,2", "--", "prog", "-t{workers}", "--repeat"]);
        assert_eq!((o.workers, o.program.len(), o.repeat), (vec![1, 2], 3, 1));
        assert!(Options::try_parse_from(["x", "--workers", "0,2", "prog"]).is_err());
    }

    #[test]
    fn the_number_replaces_its_place() {
        let of = |word: &str| replaced(OsStr::new(word), "12");
        assert_eq!(of("-t{workers}x{workers}"), ("-t12x12".into(), true));
        assert_eq!(of("{worker}"), ("{worker}".into(), false));
    }

    #[test]
    fn cores_are_taken_in_order() {
        let mut own = CpuSet::new();
        for core in [1, 4, 7] {
            own.set(core).expect("a core");
        }
        let few = first_of(&own, 2).expect("fewer");
        let taken: Vec<usize> = (0..9).filter(|core| few.is_set(*core) == Ok(true)).collect();
        assert_eq!(taken, [1, 4]);
        assert_eq!(first_of(&own, 3), None);
    }
}
