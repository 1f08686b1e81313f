//! The program's command: its own arguments, and the environment that loads the sampler.

use crate::cli::{Events, Tracking};
use hpc_formats::environment as names;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The run's settings.
pub(crate) struct Settings<'a> {
    pub(crate) events: Events,
    pub(crate) cores: u32,
    pub(crate) critical_path: Option<Tracking>,
    /// What is saved of a procedure that is faster.
    pub(crate) saved: u32,
    /// Most bytes of a process's trace.
    pub(crate) trace: Option<u64>,
    /// The table of inlined procedures.
    pub(crate) inlined: Option<&'a Path>,
    pub(crate) source: &'a str,
    pub(crate) library: &'a Path,
    /// The library that observes MPI, in a job.
    pub(crate) mpi: Option<&'a Path>,
    pub(crate) directory: &'a Path,
}

/// The program with its arguments, as the user would start it.
pub(crate) fn command(program: &Path, arguments: &[OsString]) -> Command {
    let mut command = Command::new(program);
    command.arg0(&arguments[0]).args(&arguments[1..]);
    command
}

/// Makes the command start under the sampler.
pub(crate) fn add_sampler(command: &mut Command, settings: &Settings<'_>) {
    command
        .env("LD_PRELOAD", preload_list(settings))
        .env(names::ENV_OUTPUT, settings.directory)
        .env(names::ENV_EVENT, settings.events.sampled.name)
        .env(names::ENV_RATE, settings.events.sampled.rate.to_string())
        .env(names::ENV_CORES, settings.cores.to_string())
        .env(names::ENV_SOURCE, settings.source);
    // By this name TBB asks for a library that it tells of its tasks.
    if std::env::var_os("INTEL_LIBITTNOTIFY64").is_none_or(|value| value.is_empty()) {
        command.env("INTEL_LIBITTNOTIFY64", settings.library);
    }
    if settings.mpi.is_some() {
        command.env(names::ENV_JOB, "1");
    }
    if settings.events.lock_wait {
        command.env(names::ENV_LOCK_WAIT, "1");
    }
    if let Some(size) = settings.trace {
        command.env(names::ENV_TRACE, size.to_string());
    }
    if let Some(table) = settings.inlined {
        command.env(names::ENV_INLINED, table);
    }
    if let Some(Tracking { every, signal, edges }) = settings.critical_path {
        command.env(names::ENV_CRITICAL_PATH, format!("{every} {signal} {} {edges}", settings.saved));
    }
}

/// The sampler first, then the libraries that the user preloads.
fn preload_list(settings: &Settings<'_>) -> OsString {
    let ours = [Some(settings.library), settings.mpi];
    let mut list: Vec<OsString> = ours.into_iter().flatten().map(Into::into).collect();
    list.extend(std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()));
    list.join(OsStr::new(":"))
}
