//! The `cargo hpcrun` command.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    cargo_hpcrun::main()
}
