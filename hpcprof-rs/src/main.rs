//! The `hpcprof-rs` command: parses the command line, runs it, turns errors into one line and
//! an exit status (0 done, 1 failed, 2 wrong usage; of `check` see its help).

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

use clap::Parser;
use hpc_formats::message;
use hpcprof_rs::cli::Cli;
use hpcprof_rs::error::Error;
use hpcprof_rs::pager::Output;
use hpcprof_rs::render::style::Style;
use hpcprof_rs::run::run;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Of a check, 1 and 2 are answers.
    let is_check = std::env::args_os().nth(1).is_some_and(|word| word == "check");
    let cli = match Cli::try_parse() {
        Err(error) if is_check && error.use_stderr() => {
            message!("{error}");
            return ExitCode::from(125);
        }
        parsed => parsed.unwrap_or_else(|error| error.exit()),
    };
    // Modules are mapped while they are analysed.
    hpcstruct_rs::sigbus::end_with_message("hpcprof-rs");
    let style = Style::for_stdout();
    let mut out = BufWriter::new(Output::of(&cli));
    let result = run(cli, style, &mut out).and_then(|()| out.flush().map_err(Error::output));
    // What is said of an error comes after what the reader has read.
    drop(out);
    match result {
        Ok(()) | Err(Error::OutputClosed) => ExitCode::SUCCESS,
        Err(Error::NotHeld { status }) => ExitCode::from(status),
        Err(error) => {
            message!("hpcprof-rs: {error}");
            ExitCode::from(if is_check { 125 } else { 1 })
        }
    }
}
