//! The `hpcrun-rs` command.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::process::ExitCode;

fn main() -> ExitCode {
    hpcrun_rs::main(std::env::args_os())
}
