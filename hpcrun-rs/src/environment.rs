//! The program's command: its own arguments, and the environment that loads the sampler.

use crate::cli::{Events, Options, Tracking};
use crate::failure::Failure;
use hpc_formats::environment as names;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// What the sampler needs in files.
pub(crate) struct Files<'a> {
    pub(crate) library: &'a Path,
    /// The library that observes MPI, in a job.
    pub(crate) mpi: Option<&'a Path>,
    /// The table of inlined procedures.
    pub(crate) inlined: Option<&'a Path>,
    pub(crate) directory: &'a Path,
}

/// The program with its arguments, as the user would start it.
pub(crate) fn command(program: &Path, arguments: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.arg0(&arguments[0]).args(&arguments[1..]);
    command
}

/// Makes the command start under the sampler.
pub(crate) fn add_sampler(
    command: &mut Command,
    options: &Options,
    events: &Events,
    files: &Files<'_>,
) -> Result<(), Failure> {
    command
        .env("LD_PRELOAD", preload_list(files))
        .env(names::ENV_OUTPUT, files.directory)
        .env(names::ENV_EVENT, events.sampled.name)
        .env(names::ENV_RATE, events.sampled.rate.to_string())
        .env(names::ENV_CORES, options.cores.number().to_string())
        .env(names::ENV_SOURCE, &options.source);
    // By this name TBB asks for a library that it tells of its tasks.
    if std::env::var_os("INTEL_LIBITTNOTIFY64").is_none_or(|value| value.is_empty()) {
        command.env("INTEL_LIBITTNOTIFY64", files.library);
    }
    if files.mpi.is_some() {
        command.env(names::ENV_JOB, "1");
    }
    if events.lock_wait {
        command.env(names::ENV_LOCK_WAIT, "1");
    }
    if let Some(size) = options.trace {
        command.env(names::ENV_TRACE, size.to_string());
    }
    if let Some(table) = files.inlined {
        command.env(names::ENV_INLINED, table);
    }
    if let Some(Tracking { every, signal, edges }) = options.critical_path {
        command.env(names::ENV_CRITICAL_PATH, format!("{every} {signal} {} {edges}", options.saved()?));
    }
    Ok(())
}

/// The sampler first, then the libraries that the user preloads.
fn preload_list(files: &Files<'_>) -> OsString {
    let ours = [Some(files.library), files.mpi];
    let mut list: Vec<OsString> = ours.into_iter().flatten().map(Into::into).collect();
    list.extend(std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()));
    list.join(OsStr::new(":"))
}
