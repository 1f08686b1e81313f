//! `cargo hpcrun`: builds a Rust program with symbols, a rayon whose tasks keep their logical contexts, and
//! channels through which critical paths go, profiles it, and prints the report.
//!
//! | step | module |
//! |---|---|
//! | ask cargo which program is meant | `project`, `configuration`, `toolchain` |
//! | build it, with this program as the compiler's wrapper | `compile` |
//! | compile replacements for rayon-core and crossbeam-channel | `wrapper`, `replacement` |
//! | check that the program links them | `marker` |
//! | measure and report | `profile` |
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

use clap::{CommandFactory as _, Parser};
use cli::{Action, Options, Profiling};
use hpcrun_rs::Failure;
use hpcrun_rs::message;
use marker::Linked;
use project::{Locked, Project};
use replacement::Replacement;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The options, with their explanations.
pub fn options() -> clap::Command {
    Options::command()
}

/// The command: reads the arguments of the process.
pub fn main() -> ExitCode {
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
/// logical contexts, which is an error; what it lacks without another replacement is said.
fn replaced(project: &Project, options: &Options, rust_minor: u64) -> Result<Vec<String>, Failure> {
    let (name, oldest) = (&project.program, replacement::OLDEST_RUST_MINOR);
    let mut all = Vec::new();
    let wanted = replacement::ALL.iter().zip(&project.locked);
    for (replacement, locked) in wanted.filter(|_| !options.profiling.no_patch) {
        let Replacement { package, advice, lack, .. } = replacement;
        let why = match locked {
            Locked::Absent => continue,
            // What such a program links, it is asked itself.
            Locked::Foreign(_) if replacement.is_required => continue,
            Locked::Foreign(version) => format!("its {package} {version} is not the published one"),
            Locked::Unserved(version) => format!("it is locked to {package} {version}; {advice}"),
            Locked::Served(_) if rust_minor < oldest => format!(
                "Rust 1.{rust_minor} is too old for what takes the place of {package}: use 1.{oldest} or \
                 newer (cargo +stable hpcrun)"
            ),
            Locked::Served(version) => {
                all.push(format!("{package}@{version}"));
                continue;
            }
        };
        if replacement.is_required {
            let text = format!("{name}: {lack}: {why}, or --no-patch to profile it as it is");
            return Err(Failure::own(text));
        }
        say(&options.profiling, &format!("{name}: {lack}: {why}"));
    }
    Ok(all)
}

fn say(options: &Profiling, text: &str) {
    if !options.quiet {
        message!("cargo hpcrun: {text}");
    }
}

/// Checks that the program links the replacements if it was built with them, and otherwise says why it
/// does not. For a rayon-core that the project itself chose, the program's symbols tell whether it is this
/// one.
fn verify(project: &Project, program: &Path, options: &Profiling) -> Result<(), Failure> {
    let name = &project.program;
    let [rayon, others @ ..] = &project.locked;
    let is_replaced = |locked: &Locked| matches!(locked, Locked::Served(_));
    if *rayon == Locked::Absent && !others.iter().any(is_replaced) {
        say(options, &format!("{name} does not use rayon: profiled as it is"));
    }
    if options.no_patch {
        return Ok(());
    }
    let linked = marker::linked(program)?;
    for ((replacement, locked), linked) in replacement::ALL.iter().zip(&project.locked).zip(linked) {
        let Replacement { package, lack, is_required, .. } = replacement;
        let has = match (locked, linked) {
            (Locked::Absent, _) | (_, Linked::Replacement) => continue,
            (_, Linked::Nothing) if *is_required => "links no code of rayon: profiled as it is".to_owned(),
            (Locked::Foreign(version), Linked::Stock) if *is_required => {
                format!("has a {package} {version} that is not the published one: profiled as it is, {lack}")
            }
            (Locked::Served(_), Linked::Stock) if *is_required => {
                return Err(Failure::own(format!(
                    "{name} still has the published {package} in it, perhaps through a wrapper of its own \
                     build; --no-patch profiles it as it is"
                )));
            }
            (Locked::Served(_), Linked::Stock) => {
                format!("has a {package} in it that is not replaced: {lack}")
            }
            _ => continue,
        };
        say(options, &format!("{name} {has}"));
    }
    Ok(())
}
