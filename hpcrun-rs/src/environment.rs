//! The program's command: its own arguments, and an environment that carries the sampler.

use crate::cli::{Event, Options};
use hpc_formats::environment as names;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// What was decided about the run.
pub(crate) struct Settings<'a> {
    pub(crate) event: Event,
    pub(crate) cores: u32,
    pub(crate) library: &'a Path,
    pub(crate) directory: &'a Path,
}

/// The command, ready to be executed.
pub(crate) fn command(program: &Path, options: &Options, settings: &Settings<'_>) -> Command {
    let mut command = Command::new(program);
    std::os::unix::process::CommandExt::arg0(&mut command, &options.program[0]);
    command
        .args(&options.program[1..])
        .env("LD_PRELOAD", preload_list(settings.library))
        .env(names::ENV_OUTPUT, settings.directory)
        .env(names::ENV_EVENT, settings.event.name)
        .env(names::ENV_RATE, settings.event.rate.to_string())
        .env(names::ENV_CORES, settings.cores.to_string())
        .env(names::ENV_SOURCE, &options.source);
    command
}

/// Ours first, then what the user preloads already.
fn preload_list(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}
