//! The launcher: prepares a measurement directory, puts the sampler into a program's environment,
//! and becomes the program (or, with `--report`, waits for it and prints the report).
//!
//! Exit status: the program's own; 125 for a failure of ours, 126 for a program that cannot be
//! executed, 127 for one that is not found.
//!
//! A library too, so that `cargo hpcrun` measures by the same code: [`measure`].

#![forbid(unsafe_code)]

pub mod cache;
mod child;
mod cli;
mod cores;
mod environment;
mod failure;
mod library;
mod output;
mod program;
mod report;
mod text;

pub use child::end_like;
pub use cli::explain;
pub use failure::Failure;
pub use output::display;

use clap::Parser;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};

/// The `hpcrun-rs` command with these arguments, its name the first of them.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(arguments) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("hpcrun-rs: error: {failure}");
            ExitCode::from(failure.status())
        }
    }
}

fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let options = match cli::Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => return Ok(cli::explain(&error)),
    };
    let mut prepared = prepare(&options)?;
    for warning in &prepared.warnings {
        eprintln!("hpcrun-rs: warning: {warning}");
    }
    match &prepared.directory {
        Some(directory) if options.report => {
            return report::supervise(prepared.command, directory, options.quiet);
        }
        Some(directory) if !options.quiet => eprintln!(
            "hpcrun-rs: measuring into {0}; afterwards: hpcprof-rs {0}",
            output::display(directory)
        ),
        None if options.report => eprintln!("hpcrun-rs: warning: there will be nothing to report"),
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
    /// The measurement directory, absolute; `None` for a program that cannot be profiled, which ran as it is.
    pub directory: Option<PathBuf>,
    /// How the program ended.
    pub status: ExitStatus,
    /// What its profile will lack, one line each.
    pub warnings: Vec<String>,
}

/// Runs a program as a child under the sampler and waits for it, as `hpcrun-rs` with these
/// arguments (its name the first of them) would; `adjust` sees its command before the start.
/// Prints nothing. A first interrupt ends the program and keeps the measurement, a second kills.
pub fn measure(
    arguments: impl IntoIterator<Item = OsString>,
    adjust: impl FnOnce(&mut Command),
) -> Result<Measured, Failure> {
    let options = parse(arguments)?;
    let mut prepared = prepare(&options)?;
    adjust(&mut prepared.command);
    let status = child::run(&mut prepared.command, prepared.directory.as_deref())?;
    Ok(Measured {
        directory: prepared.directory,
        status,
        warnings: prepared.warnings,
    })
}

/// Says what is wrong with arguments for [`measure`], the program aside, before anything is done.
pub fn check(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    parse(arguments)?.event().map(drop)
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<cli::Options, Failure> {
    cli::Options::try_parse_from(arguments).map_err(|error| {
        let text = error.render().to_string();
        let first = text.lines().next().unwrap_or_default();
        Failure::own(first.trim_start_matches("error: ").to_owned())
    })
}

/// A run that only needs to be started; without a directory, one that is not measured.
struct Prepared {
    program: PathBuf,
    directory: Option<PathBuf>,
    command: Command,
    warnings: Vec<String>,
}

fn prepare(options: &cli::Options) -> Result<Prepared, Failure> {
    let event = options.event()?;
    let program = program::find(&options.program)?;
    let inspected = program::inspect(&program)?;
    let mut command = environment::command(&program, &options.program);
    let mut directory = None;
    if inspected.is_profiled {
        let cores = cores::resolve(options.cores)?;
        let library = library::install()?;
        let made = output::create(options.output.as_deref(), &program)?;
        let settings = environment::Settings {
            event,
            cores,
            source: &options.source,
            library: &library,
            directory: &made,
        };
        environment::add_sampler(&mut command, &settings);
        directory = Some(made);
    }
    Ok(Prepared {
        program,
        directory,
        command,
        warnings: inspected.warnings,
    })
}
