//! `cargo hpcrun`: builds a Rust program with symbols and with a rayon whose tasks keep their
//! logical contexts, profiles it, and prints the report.
//!
//! [`project`] asks cargo what is meant; [`compile`] builds it, with this very program as the
//! compiler's [`wrapper`], which has the [`mod@stand_in`] compiled in rayon-core's place; [`marker`]
//! checks the result; [`profile`] measures and reports. The user's files stay as they are.
//!
//! Exit status: the program's own; 125 for a failure of ours or of the build.

#![forbid(unsafe_code)]

mod cli;
mod compile;
mod configuration;
mod marker;
mod profile;
mod project;
mod stand_in;
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
    if let Some(folder) = std::env::var_os(wrapper::ENV_STAND_IN) {
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
    let stand_in = stand_in(&project, options, toolchain.minor)?;
    let built = compile::build(&project, &options.build, stand_in.as_deref(), is_quiet)?;
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

/// The folder of the stand-in for rayon-core, where the program is to have it.
fn stand_in(
    project: &Project,
    options: &Options,
    rust_minor: u64,
) -> Result<Option<PathBuf>, Failure> {
    let name = &project.program;
    match &project.rayon {
        Rayon::Absent | Rayon::Foreign(_) => Ok(None),
        _ if options.profiling.no_patch => Ok(None),
        Rayon::Unserved(version) => Err(Failure::own(format!(
            "{name} is locked to rayon-core {version}; 1.12 and 1.13 are served: `cargo update -p rayon-core --precise 1.13.0`, or --no-patch to profile it as it is"
        ))),
        Rayon::Served(_) if rust_minor < stand_in::OLDEST_RUST_MINOR => Err(Failure::own(format!(
            "Rust 1.{rust_minor} is too old for the runtime that takes rayon-core's place: use 1.{} or newer (cargo +stable hpcrun), or --no-patch",
            stand_in::OLDEST_RUST_MINOR
        ))),
        Rayon::Served(_) => stand_in::install().map(Some),
    }
}

/// The program must have what it was built for; of a rayon-core that is the project's own choice,
/// the program tells whether it is ours. Says why a program does not have the stand-in.
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
        (Rayon::Absent, _) | (_, Linked::StandIn) => {}
        (_, Linked::Nothing) => say(format!("{name} links no code of rayon: profiled as it is")),
        (Rayon::Foreign(version), Linked::Stock) => say(format!(
            "{name} has a rayon-core {version} that is not the published one: profiled as it is, stolen tasks lie under workers"
        )),
        (_, Linked::Stock) => {
            return Err(Failure::own(format!(
                "{name} still has the published rayon-core in it, perhaps through a wrapper of its own build; --no-patch profiles it as it is"
            )));
        }
    }
    Ok(())
}
