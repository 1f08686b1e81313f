//! `cargo hpcrun`: builds a Rust program with symbols and with a rayon whose tasks keep their
//! logical contexts, profiles it, and prints the report.
//!
//! | step | module |
//! |---|---|
//! | ask cargo which program is meant | [`project`], [`configuration`], [`toolchain`] |
//! | build it, with this program as the compiler's wrapper | [`compile`] |
//! | compile the replacement crate in rayon-core's place | [`wrapper`], [`mod@replacement`] |
//! | check that the program links it | [`marker`] |
//! | measure and report | [`profile`] |
//!
//! The user's files stay as they are. Exit status: the program's own; 125 if this program or the build fails.

#![forbid(unsafe_code)]

mod cli;
mod compile;
mod configuration;
mod marker;
mod profile;
mod project;
mod replacement;
mod toolchain;
mod wrapper;

use clap::Parser;
use cli::{Action, Options, Profiling};
use hpcrun_rs::Failure;
use marker::Linked;
use project::{Project, Rayon};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(folder) = std::env::var_os(wrapper::ENV_REPLACEMENT) {
        let folder = Some(Path::new(&folder)).filter(|f| !f.as_os_str().is_empty());
        return wrapper::main(folder, &arguments[1..]);
    }
    // Cargo puts the subcommand's name first.
    if arguments.get(1).is_some_and(|a| a == "hpcrun") {
        arguments.remove(1);
    }
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => return hpcrun_rs::explain(&cli::with_advice(error)),
    };
    match run(&options) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("cargo hpcrun: error: {failure}");
            ExitCode::from(failure.status())
        }
    }
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    if options.action == Action::Run {
        profile::check(options)?;
    }
    let toolchain = toolchain::toolchain()?;
    configuration::check_target(&options.build, &toolchain.host)?;
    let project = project::inspect(&options.choice, &options.build, &toolchain.host)?;
    let is_quiet = options.profiling.quiet;
    let replacement = replacement(&project, options, toolchain.minor)?;
    let built = compile::build(&project, &options.build, replacement.as_deref(), is_quiet)?;
    verify(&project, &built.program, &options.profiling)?;
    match options.action {
        Action::Build => {
            println!("{}", built.program.display());
            Ok(ExitCode::SUCCESS)
        }
        Action::Run => {
            let runner = configuration::runner(&options.build, &toolchain.host);
            if let Some((text, origin)) = runner.filter(|_| !is_quiet) {
                eprintln!(
                    "cargo hpcrun: the runner {text} of {origin} is not used: the program runs by itself"
                );
            }
            profile::run(&project, &built, options)
        }
    }
}

/// The folder of the replacement's sources, if the program is to link it.
fn replacement(
    project: &Project,
    options: &Options,
    rust_minor: u64,
) -> Result<Option<PathBuf>, Failure> {
    let name = &project.program;
    match &project.rayon {
        Rayon::Absent | Rayon::Foreign(_) => Ok(None),
        _ if options.profiling.no_patch => Ok(None),
        Rayon::Unserved(version) => Err(Failure::own(format!(
            "{name} is locked to rayon-core {version}; 1.12 and 1.13 are served: `cargo update -p \
             rayon-core --precise 1.13.0`, or --no-patch to profile it as it is"
        ))),
        Rayon::Served(_) if rust_minor < replacement::OLDEST_RUST_MINOR => {
            Err(Failure::own(format!(
                "Rust 1.{rust_minor} is too old for the runtime that takes rayon-core's place: use 1.{} \
                 or newer (cargo +stable hpcrun), or --no-patch",
                replacement::OLDEST_RUST_MINOR
            )))
        }
        Rayon::Served(_) => replacement::install().map(Some),
    }
}

/// Checks that the program links the replacement crate if it was built with it, and otherwise says why it
/// does not. For a rayon-core that the project itself chose, the program's symbols tell whether it is this
/// one.
fn verify(project: &Project, program: &Path, options: &Profiling) -> Result<(), Failure> {
    let name = &project.program;
    let say = |text: String| {
        if !options.quiet {
            eprintln!("cargo hpcrun: {text}");
        }
    };
    if project.rayon == Rayon::Absent {
        say(format!("{name} does not use rayon: profiled as it is"));
    }
    if options.no_patch {
        return Ok(());
    }
    match (&project.rayon, marker::linked(program)?) {
        (Rayon::Absent, _) | (_, Linked::Replacement) => {}
        (_, Linked::Nothing) => say(format!("{name} links no code of rayon: profiled as it is")),
        (Rayon::Foreign(version), Linked::Stock) => say(format!(
            "{name} has a rayon-core {version} that is not the published one: profiled as it is, stolen \
             tasks lie under workers"
        )),
        (_, Linked::Stock) => {
            return Err(Failure::own(format!(
                "{name} still has the published rayon-core in it, perhaps through a wrapper of its own \
                 build; --no-patch profiles it as it is"
            )));
        }
    }
    Ok(())
}
