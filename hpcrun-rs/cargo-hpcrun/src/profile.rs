//! The profiled run and its report.

use crate::cli::Options;
use crate::compile::{self, Built};
use crate::configuration;
use crate::project::{Kind, Project};
use clap::Parser;
use hpcprof_rs::cli::Cli;
use hpcprof_rs::error::Error;
use hpcprof_rs::render::style::Style;
use hpcprof_rs::sinks::staged_directory::StagedDirectory;
use hpcrun_rs::message;
use hpcrun_rs::{Failure, Measured};
use std::ffi::OsString;
use std::fs;
use std::io::{BufWriter, Write};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs the program under the sampler, writes the database, prints the report, and ends as the
/// program did.
pub(crate) fn run(project: &Project, built: &Built, options: &Options) -> Result<ExitCode, Failure> {
    let temporary = temporary(project);
    let measured = measure(project, built, options, &temporary).inspect_err(|_| {
        // Empty, or not there at all.
        let _ = fs::remove_dir(&temporary);
    })?;
    for warning in &measured.warnings {
        message!("cargo hpcrun: warning: {warning}");
    }
    let Some(directory) = &measured.directory else {
        return Ok(hpcrun_rs::end_like(measured.status));
    };
    let is_whole = match report(directory, options) {
        Ok(()) => true,
        Err(Error::NoSample { .. }) => {
            message!(
                "cargo hpcrun: warning: no report: {} ended before its first sample; give it more to do, \
                 or sample more often (-e cpu-time@1000)",
                project.program
            );
            true
        }
        Err(error) => {
            message!(
                "cargo hpcrun: warning: no report: {error}; the measurements are in {}",
                hpcrun_rs::display(directory)
            );
            false
        }
    };
    if is_whole && !options.profiling.keep {
        // The database has all that is in it.
        let _ = fs::remove_dir_all(&temporary);
    } else if is_whole && !options.profiling.quiet {
        message!("cargo hpcrun: measurements kept in {}", hpcrun_rs::display(directory));
    }
    Ok(hpcrun_rs::end_like(measured.status))
}

/// Says what is wrong with the profiler's own options, before the build.
pub(crate) fn check(options: &Options) -> Result<(), Failure> {
    let mut line = sampling(options);
    line.extend(["--".into(), "program".into()]);
    hpcrun_rs::check(line)?;
    if let Some(output) = &options.profiling.output {
        // Taken back at once.
        let staged = StagedDirectory::prepare(output, false);
        drop(staged.map_err(|e| Failure::own(e.to_string()))?);
    }
    Ok(())
}

/// `hpcrun-rs` and its options that say how to sample.
fn sampling(options: &Options) -> Vec<OsString> {
    let profiling = &options.profiling;
    let mut line: Vec<OsString> = vec!["hpcrun-rs".into()];
    line.extend(["--event".into(), profiling.event.clone().into()]);
    line.extend(["--cores".into(), profiling.cores.clone().into()]);
    if profiling.critical_path {
        line.push("--critical-path".into());
    }
    line
}

/// A folder of this run's own.
fn temporary(project: &Project) -> PathBuf {
    let name = format!("run-{}", std::process::id());
    compile::own_folder(project).join(name)
}

fn measure(
    project: &Project,
    built: &Built,
    options: &Options,
    temporary: &Path,
) -> Result<Measured, Failure> {
    let mut line = sampling(options);
    if !options.profiling.keep {
        // hpcprof-rs names the database by this name.
        let name = format!("hpcrun-{}-measurements", project.program);
        line.extend(["--output".into(), temporary.join(name).into()]);
    }
    line.extend(["--".into(), built.program.clone().into()]);
    if project.kind == Kind::Bench {
        line.push("--bench".into());
    }
    line.extend(options.arguments.iter().cloned());
    let configured = configuration::environment(&options.build);
    hpcrun_rs::measure(line, |command| {
        for (name, value) in configured {
            // What the measurement needs goes above it.
            if !command.get_envs().any(|(taken, _)| taken == name) {
                command.env(name, value);
            }
        }
        environment(command, project, built);
    })
}

/// What `cargo run` and `cargo bench` give the program, beside what is configured.
fn environment(command: &mut Command, project: &Project, built: &Built) {
    let package = &project.package;
    let folder = package.manifest_path.parent();
    command
        .env("CARGO", crate::toolchain::cargo())
        .env("CARGO_PKG_NAME", &package.name)
        .env("CARGO_PKG_VERSION", package.version.to_string());
    if let Some(folder) = folder {
        command.env("CARGO_MANIFEST_DIR", folder);
        if matches!(project.kind, Kind::Bench | Kind::Test) {
            command.current_dir(folder);
        }
    }
    let old = std::env::var_os("LD_LIBRARY_PATH").filter(|v| !v.is_empty());
    let old = old.iter().flat_map(std::env::split_paths);
    // A folder with a colon in its name cannot be listed; then the list stays as it is.
    let ours = built.libraries.iter().cloned();
    let ours = ours.chain(crate::toolchain::shared_libraries());
    if let Ok(list) = std::env::join_paths(ours.chain(old)) {
        command.env("LD_LIBRARY_PATH", list);
    }
}

fn report(directory: &Path, options: &Options) -> Result<(), Error> {
    let output = options.profiling.output.as_ref();
    let mut line: Vec<OsString> = Vec::new();
    if let Some(output) = output {
        line.extend(["--output".into(), output.into()]);
    }
    line.push(directory.into());
    print(line)?;
    if options.profiling.critical_path {
        let _ = writeln!(std::io::stdout());
        // The database that was just written is the newest.
        let database = output.map(OsString::from);
        print(iter::once("critical-path".into()).chain(database))?;
    }
    Ok(())
}

/// What `hpcprof-rs` prints with these arguments.
fn print(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Error> {
    let line = iter::once("hpcprof-rs".into()).chain(arguments);
    let cli = Cli::try_parse_from(line).map_err(|e| Error::Usage(e.to_string()))?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    match hpcprof_rs::run::run(cli, Style::for_stdout(), &mut out) {
        Ok(()) | Err(Error::OutputClosed) => {}
        Err(error) => return Err(error),
    }
    // A reader that is gone has seen what it wanted.
    let _ = out.flush();
    Ok(())
}
