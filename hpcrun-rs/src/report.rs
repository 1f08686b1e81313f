//! `--report`: runs the program as a child, then hpcprof-rs over the measurements.

use crate::child;
use crate::failure::Failure;
use crate::output;
use crate::text;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Waits for the program, prints its report, and ends as the program did. A program that fails still has a
/// profile.
pub(crate) fn supervise(
    mut command: Command,
    directory: &Path,
    quiet: bool,
) -> Result<ExitCode, Failure> {
    let status = child::run(&mut command, Some(directory))?;
    report(directory, quiet);
    Ok(child::end_like(status))
}

fn report(directory: &Path, quiet: bool) {
    let tool = beside_us("hpcprof-rs");
    match Command::new(&tool).arg(directory).status() {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!(
            "hpcrun-rs: warning: hpcprof-rs ended with {status}; the measurements are in {}",
            output::display(directory)
        ),
        Err(error) => eprintln!(
            "hpcrun-rs: warning: cannot run {}: {error}; install it (cargo install --path hpcprof-rs) and \
             run: hpcprof-rs {}",
            text::shown(&tool),
            output::display(directory)
        ),
    }
    if !quiet {
        eprintln!(
            "hpcrun-rs: measurements kept in {}",
            output::display(directory)
        );
    }
}

/// Another of the tools: beside this one, else in PATH.
fn beside_us(name: &str) -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|me| Some(me.parent()?.join(name)))
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(name))
}
