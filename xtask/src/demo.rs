//! `cargo xtask demo`: builds everything, profiles the Cholesky example, builds its database and
//! prints what a reader is meant to look at first.
//!
//! Invariant: writes only under `TARGET/demo`, which it empties first.

use crate::build;
use std::path::Path;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Samples a second and thread
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Rows of the matrix
    #[arg(short, default_value_t = 3000)]
    n: u32,
    /// Non-zeros of the matrix's lower triangle
    #[arg(short, default_value_t = 30000)]
    z: u32,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let programs = build::release()?;
    let folder = build::target()?.join("demo");
    build::remove(&folder)?;
    build::create(&folder)?;
    let (n, z) = (options.n.to_string(), options.z.to_string());
    let event = format!("cpu-time@{}", options.rate);
    let example = programs.join("examples/cholesky");

    step(
        &folder,
        Command::new(programs.join("hpcrun-rs"))
            .args(["-e", &event, "-o", "measurements", "--"])
            .arg(example)
            .args(["-n", &n, "-z", &z]),
    )?;
    let hpcprof = programs.join("hpcprof-rs");
    step(&folder, Command::new(&hpcprof).args(["measurements", "-o", "database"]))?;
    step(&folder, Command::new(&hpcprof).args(["top-down", "database", "--threshold", "1"]))?;
    step(
        &folder,
        Command::new(&hpcprof).args(["bottom-up", "database", "--metric", "idleness", "--threshold", "1"]),
    )?;
    println!("\nAll of it lies in {}, the tools in {}", folder.display(), programs.display());
    Ok(())
}

/// Prints a command as a user would type it, and runs it in `folder`.
fn step(folder: &Path, command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program());
    let mut line = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    println!("\n$ {line}");
    build::run(command.current_dir(folder))
}
