//! `--report`, `--critical-path`: runs the program as a child, then prints what was asked for.

use crate::child;
use crate::cli::Options;
use crate::critical_path;
use crate::failure::Failure;
use crate::job::Job;
use crate::output;
use crate::text;
use hpc_formats::message;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Waits for the program, prints the result, and ends as the program did. A program that fails still has
/// a profile.
pub(crate) fn supervise(
    mut command: Command,
    directory: &Path,
    options: &Options,
    job: Option<&Job>,
) -> Result<ExitCode, Failure> {
    let status = child::run(&mut command, Some(directory))?;
    // Of a job, the last process speaks for all: then the others have written what they know.
    if job.is_some_and(|job| !job.is_last(directory)) {
        return Ok(child::end_like(status));
    }
    if options.critical_path.is_some() && !options.report && !options.quiet {
        critical_path::summarise(directory, options);
    }
    if options.report {
        report(directory, options);
    }
    if !options.quiet {
        message!("hpcrun-rs: measurements kept in {}", output::display(directory));
    }
    Ok(child::end_like(status))
}

fn report(directory: &Path, options: &Options) {
    let tool = beside_us("hpcprof-rs");
    match Command::new(&tool).arg(directory).status() {
        // Without a name, the view is that of the newest database, which this one is.
        Ok(status) if status.success() => {
            let with_path = options.critical_path.is_some();
            let view = || Command::new(&tool).arg("critical-path").args(options.faster()).status();
            let view = with_path.then(view);
            if view.is_some_and(|ended| !ended.is_ok_and(|status| status.success())) {
                critical_path::summarise(directory, options);
            }
        }
        Ok(status) => message!(
            "hpcrun-rs: warning: hpcprof-rs ended with {status}; the measurements are in {}",
            output::display(directory)
        ),
        Err(error) => message!(
            "hpcrun-rs: warning: cannot run {}: {error}; install it (cargo install --path hpcprof-rs) and \
             run: hpcprof-rs {}",
            text::shown(&tool),
            output::display(directory)
        ),
    }
}

/// Another of the tools: beside this one, else in PATH.
pub(crate) fn beside_us(name: &str) -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|me| Some(me.parent()?.join(name)))
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(name))
}
