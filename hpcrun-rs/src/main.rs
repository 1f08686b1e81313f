//! The `hpcrun-rs` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    hpcrun_rs::main(std::env::args_os())
}
