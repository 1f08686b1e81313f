//! `hpcrun-rs`: prepares a measurement directory, puts the sampler into the program's
//! environment, and becomes the program (or, with `--report`, waits for it and prints the report).
//!
//! Exit status: the program's own; 125 for a failure of ours, 126 for a program that cannot be
//! executed, 127 for one that is not found.

#![forbid(unsafe_code)]

mod cli;
mod cores;
mod environment;
mod failure;
mod library;
mod output;
mod program;
mod report;

use clap::Parser;
use failure::Failure;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("hpcrun-rs: error: {failure}");
            ExitCode::from(failure.status())
        }
    }
}

fn run() -> Result<ExitCode, Failure> {
    let options = match cli::Options::try_parse() {
        Ok(options) => options,
        Err(error) => return Ok(cli::explain(&error)),
    };
    let event = options.event()?;
    let program = program::find(&options.program)?;
    for warning in program::inspect(&program)? {
        eprintln!("hpcrun-rs: warning: {warning}");
    }
    let cores = cores::resolve(options.cores)?;
    let library = library::install()?;
    let directory = output::create(options.output.as_deref(), &program)?;
    let mut command = environment::command(
        &program,
        &options,
        &environment::Settings {
            event,
            cores,
            library: &library,
            directory: &directory,
        },
    );
    if options.report {
        return report::supervise(command, &directory, options.quiet);
    }
    if !options.quiet {
        eprintln!(
            "hpcrun-rs: measuring into {0}; afterwards: hpcprof-rs {0}",
            output::display(&directory)
        );
    }
    let error = command.exec();
    output::remove_if_empty(&directory);
    Err(Failure::exec(&program, &error))
}
