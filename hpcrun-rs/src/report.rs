//! `--report`: runs the program as a child, then hpcprof-rs over the measurements.

use crate::failure::Failure;
use crate::output;
use nix::sys::signal::{SigSet, Signal, raise};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

/// Waits for the program, prints its report, and ends as the program did. A program that fails
/// still has a profile.
pub(crate) fn supervise(
    mut command: Command,
    directory: &Path,
    quiet: bool,
) -> Result<ExitCode, Failure> {
    let program = PathBuf::from(command.get_program());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            output::remove_if_empty(directory);
            return Err(Failure::exec(&program, &error));
        }
    };
    // The terminal's interrupt is meant for the program; we stay for the report.
    let interrupts: SigSet = [Signal::SIGINT, Signal::SIGQUIT].into_iter().collect();
    // Without the block an interrupt ends us before the report, which loses only the report.
    let _ = interrupts.thread_block();
    let status = child
        .wait()
        .map_err(|e| Failure::own(format!("lost track of the program: {e}")))?;
    report(directory, quiet);
    let _ = interrupts.thread_unblock();
    Ok(end_like(status))
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
            "hpcrun-rs: warning: cannot run {}: {error}; install it (cargo install --path hpcprof-rs) and run: hpcprof-rs {}",
            tool.display(),
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

/// A tool of ours: beside this one, else in PATH.
fn beside_us(name: &str) -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|me| Some(me.parent()?.join(name)))
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(name))
}

/// The child's exit code, or the signal that ended it, raised again.
fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(code as u8);
    }
    let number = status.signal().unwrap_or(0);
    if let Ok(number) = Signal::try_from(number) {
        // Returns when the signal does not end us; then the shell's convention has to do.
        let _ = raise(number);
    }
    ExitCode::from(128u8.wrapping_add(number as u8))
}
