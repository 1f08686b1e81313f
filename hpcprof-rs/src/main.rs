//! The `hpcprof-rs` command: parses the command line, runs it, turns errors into one line and
//! an exit status (0 done, 1 failed, 2 wrong usage).

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

use clap::Parser;
use hpc_formats::message;
use hpcprof_rs::cli::Cli;
use hpcprof_rs::error::Error;
use hpcprof_rs::render::style::Style;
use hpcprof_rs::run::run;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Modules are mapped while they are analysed.
    hpcstruct_rs::sigbus::end_with_message("hpcprof-rs");
    let mut out = BufWriter::new(std::io::stdout().lock());
    let result =
        run(cli, Style::for_stdout(), &mut out).and_then(|()| out.flush().map_err(Error::output));
    match result {
        Ok(()) | Err(Error::OutputClosed) => ExitCode::SUCCESS,
        Err(error) => {
            message!("hpcprof-rs: {error}");
            ExitCode::FAILURE
        }
    }
}
