//! The launcher: prepares a measurement directory, adds the sampler to the program's environment, and
//! executes the program. With `--report` or `--critical-path` it waits for the program and prints the result.
//! `calibrate` measures the machine instead, `sweep` the program on several numbers of workers.
//!
//! Exit status: the program's own; 125 if the launcher fails, 126 if the program cannot be executed, 127 if
//! it is not found.
//!
//! Also a library: `cargo hpcrun` measures with the same code, [`measure`].

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod cache;
mod calibrate;
mod child;
mod cli;
mod critical_path;
mod environment;
mod failure;
mod inlined;
mod job;
mod library;
mod output;
mod program;
mod report;
mod sweep;
mod text;

pub use child::end_like;
pub use cli::explain;
pub use failure::Failure;
pub use hpc_formats::message;
pub use output::display;

use job::Job;

use clap::{CommandFactory as _, Parser};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

/// The options of `hpcrun-rs` and of the commands behind it, with their explanations.
pub fn options() -> [clap::Command; 3] {
    [cli::Options::command(), calibrate::Options::command(), sweep::Options::command()]
}

/// The `hpcrun-rs` command. The first argument is its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(arguments) {
        Ok(code) => code,
        Err(failure) => {
            message!("hpcrun-rs: error: {failure}");
            ExitCode::from(failure.status())
        }
    }
}

fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_some_and(|first| first == calibrate::COMMAND) {
        return calibrate::run(arguments.drain(1..));
    }
    if arguments.get(1).is_some_and(|first| first == sweep::COMMAND) {
        return sweep::run(arguments.drain(1..));
    }
    let options = match cli::Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => return Ok(cli::explain(&error)),
    };
    let mut prepared = prepare(&options)?;
    // One process speaks for all.
    let is_first = prepared.job.as_ref().is_none_or(|job| job.rank == 0);
    for warning in prepared.warnings.iter().filter(|_| is_first) {
        message!("hpcrun-rs: warning: {warning}");
    }
    match &prepared.directory {
        Some(directory) if options.report || options.critical_path.is_some() => {
            return report::supervise(prepared.command, directory, &options, prepared.job.as_ref());
        }
        Some(directory) if !options.quiet && is_first => {
            message!("hpcrun-rs: measuring into {0}; afterwards: hpcprof-rs {0}", output::display(directory))
        }
        None if options.report => message!("hpcrun-rs: warning: there will be nothing to report"),
        _ => {}
    }
    let error = prepared.command.exec();
    if let Some(directory) = &prepared.directory {
        output::remove_if_empty(directory);
    }
    Err(Failure::exec(&prepared.program, &error))
}

/// A program that was measured.
#[derive(Debug)]
pub struct Measured {
    /// The measurement directory, absolute. `None`: the program cannot be profiled, and ran unprofiled.
    pub directory: Option<PathBuf>,
    /// How the program ended.
    pub status: ExitStatus,
    /// What its profile will lack, one line each.
    pub warnings: Vec<String>,
}

/// Runs a program as a child under the sampler and waits for it. The arguments are those of `hpcrun-rs`, with
/// its name first. `adjust` may change the command before the start. Prints nothing. The first interrupt ends
/// the program and keeps the measurement, the second kills the program.
pub fn measure(
    arguments: impl IntoIterator<Item = OsString>,
    adjust: impl FnOnce(&mut Command),
) -> Result<Measured, Failure> {
    let options = parse(arguments)?;
    let mut prepared = prepare(&options)?;
    adjust(&mut prepared.command);
    let status = child::run(&mut prepared.command, prepared.directory.as_deref())?;
    Ok(Measured { directory: prepared.directory, status, warnings: prepared.warnings })
}

/// Checks arguments for [`measure`], except for the program, without running anything.
pub fn check(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    parse(arguments)?.events().map(drop)
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<cli::Options, Failure> {
    cli::Options::try_parse_from(arguments).map_err(|error| {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        Failure::own(first.trim_start_matches("error: ").to_owned())
    })
}

/// A run that is ready to start. Without a directory, it is not measured.
struct Prepared {
    program: PathBuf,
    directory: Option<PathBuf>,
    command: Command,
    warnings: Vec<String>,
    job: Option<Job>,
}

fn prepare(options: &cli::Options) -> Result<Prepared, Failure> {
    let events = options.events()?;
    let program = program::find(&options.program)?;
    let mut inspected = program::inspect(&program)?;
    let mut command = environment::command(&program, &options.program);
    let mut directory = None;
    let job = Job::current();
    if inspected.is_profiled {
        let library = library::install()?;
        let mpi = job.as_ref().map(|_| library::install_mpi()).transpose()?;
        let made = output::create(options.output.as_deref(), &program, job.as_ref())?;
        let mut inlined = None;
        if options.critical_path.is_some() {
            let (table, lacks) = inlined::table(&program, &made);
            inlined = table;
            inspected.warnings.extend(lacks);
        }
        let files = environment::Files {
            library: &library,
            mpi: mpi.as_deref(),
            inlined: inlined.as_deref(),
            directory: &made,
        };
        environment::add_sampler(&mut command, options, &events, &files)?;
        output::keep_command(&made, &options.program);
        directory = Some(made);
    }
    Ok(Prepared { program, directory, command, warnings: inspected.warnings, job })
}
