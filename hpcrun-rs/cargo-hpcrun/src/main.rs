//! `cargo hpcrun`: builds a Rust program with symbols, a rayon whose tasks keep their logical contexts, and
//! channels through which critical paths go, profiles it, and prints the report.
//!
//! | step | module |
//! |---|---|
//! | ask cargo which program is meant | [`project`], [`configuration`], [`toolchain`] |
//! | build it, with this program as the compiler's wrapper | [`compile`] |
//! | compile replacements for rayon-core and crossbeam-channel | [`wrapper`], [`mod@replacement`] |
//! | check that the program links them | [`marker`] |
//! | measure and report | [`profile`] |
//!
//! The user's files stay as they are. Exit status: the program's own; 125 if this program or the build fails.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

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
use hpcrun_rs::message;
use marker::Linked;
use project::{Locked, Project};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
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
            message!("cargo hpcrun: error: {failure}");
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
    let replaced = replaced(&project, options, toolchain.minor)?;
    let built = compile::build(&project, &options.build, &replaced, is_quiet)?;
    verify(&project, &built.program, &options.profiling)?;
    match options.action {
        Action::Build => {
            let path = built.program.display();
            writeln!(std::io::stdout(), "{path}")
                .map_err(|error| Failure::own(format!("cannot print {path}: {error}")))?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Run => {
            let runner = configuration::runner(&options.build, &toolchain.host);
            if let Some((text, origin)) = runner.filter(|_| !is_quiet) {
                message!(
                    "cargo hpcrun: the runner {text} of {origin} is not used: the program runs by itself"
                );
            }
            profile::run(&project, &built, options)
        }
    }
}

/// The packages that are to be replaced, as `NAME@VERSION`. Without its runtime a program of rayon's has no
/// logical contexts, which is an error; without the channels it lacks edges of critical paths, which is said.
fn replaced(project: &Project, options: &Options, rust_minor: u64) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    if options.profiling.no_patch {
        return Ok(all);
    }
    let name = &project.program;
    let is_old = rust_minor < replacement::OLDEST_RUST_MINOR;
    match &project.rayon {
        Locked::Absent | Locked::Foreign(_) => {}
        Locked::Unserved(version) => {
            return Err(Failure::own(format!(
                "{name} is locked to rayon-core {version}; 1.12 and 1.13 are served: `cargo update -p \
                 rayon-core --precise 1.13.0`, or --no-patch to profile it as it is"
            )));
        }
        Locked::Served(_) if is_old => {
            return Err(Failure::own(format!(
                "Rust 1.{rust_minor} is too old for the runtime that takes rayon-core's place: use 1.{} \
                 or newer (cargo +stable hpcrun), or --no-patch",
                replacement::OLDEST_RUST_MINOR
            )));
        }
        Locked::Served(version) => all.push(format!("{}@{version}", replacement::RAYON.package)),
    }
    let untracked = |why: String| {
        if !options.profiling.quiet {
            message!("cargo hpcrun: {name}: critical paths do not go through its channels: {why}");
        }
    };
    match &project.channel {
        Locked::Absent => {}
        Locked::Served(_) if is_old => untracked(format!(
            "Rust 1.{rust_minor} is too old for that; use 1.{} or newer",
            replacement::OLDEST_RUST_MINOR
        )),
        Locked::Served(version) => all.push(format!("{}@{version}", replacement::CHANNEL.package)),
        Locked::Unserved(version) => untracked(format!(
            "it is locked to crossbeam-channel {version}, and 0.5.15 or a later 0.5 is served: `cargo update \
             -p crossbeam-channel`"
        )),
        Locked::Foreign(version) => {
            untracked(format!("its crossbeam-channel {version} is not the published one"))
        }
    }
    let spawnerless = |why: String| {
        if !options.profiling.quiet {
            message!(
                "cargo hpcrun: {name}: its tokio's tasks are not under who has spawned them: {why}"
            );
        }
    };
    match &project.tokio {
        Locked::Absent => {}
        Locked::Served(_) if is_old => spawnerless(format!(
            "Rust 1.{rust_minor} is too old for that; use 1.{} or newer",
            replacement::OLDEST_RUST_MINOR
        )),
        Locked::Served(version) => all.push(format!("{}@{version}", replacement::TOKIO.package)),
        Locked::Unserved(version) => spawnerless(format!(
            "it is locked to {version}, and 1.43 to 1.54 are served: `cargo update -p tokio`"
        )),
        Locked::Foreign(version) => spawnerless(format!("{version} is not the published one")),
    }
    Ok(all)
}

/// Checks that the program links the replacements if it was built with them, and otherwise says why it
/// does not. For a rayon-core that the project itself chose, the program's symbols tell whether it is this
/// one.
fn verify(project: &Project, program: &Path, options: &Profiling) -> Result<(), Failure> {
    let name = &project.program;
    let say = |text: String| {
        if !options.quiet {
            message!("cargo hpcrun: {text}");
        }
    };
    let others = [&project.channel, &project.tokio];
    let has_others = others.iter().any(|other| matches!(other, Locked::Served(_)));
    if project.rayon == Locked::Absent && !has_others {
        say(format!("{name} does not use rayon: profiled as it is"));
    }
    if options.no_patch {
        return Ok(());
    }
    let [rayon, channel, tokio] = marker::linked(program)?;
    if matches!(project.tokio, Locked::Served(_)) && tokio == Linked::Stock {
        say(format!("{name} has a tokio in it that is not replaced: its tasks lie under workers"));
    }
    if matches!(project.channel, Locked::Served(_)) && channel == Linked::Stock {
        say(format!(
            "{name} has a crossbeam-channel in it that is not replaced: critical paths do not go through it"
        ));
    }
    match (&project.rayon, rayon) {
        (Locked::Absent, _) | (_, Linked::Replacement) => {}
        (_, Linked::Nothing) => say(format!("{name} links no code of rayon: profiled as it is")),
        (Locked::Foreign(version), Linked::Stock) => say(format!(
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
