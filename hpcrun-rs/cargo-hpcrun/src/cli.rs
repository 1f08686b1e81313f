//! The command line: cargo's options that say what to build, and the profiler's own.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser};
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cargo hpcrun -- input.dat
      builds the package's program in release, with symbols; profiles it; prints the report
  cargo hpcrun -p render --bin trace -e cpu-time@1000 -- --size 512
      another program of the workspace, 1000 samples per CPU second and thread
  cargo hpcrun --bench sort --no-patch
      a benchmark, with rayon as it is published: work and idleness, but stolen tasks lie under workers

The Cargo.toml, Cargo.lock and target folder of the project stay as they are, but for a folder
hpcrun in the last; a project without a Cargo.lock gets one, as from cargo build.
Where the program uses rayon (rayon-core 1.12 or 1.13), hpcrun-rs's own runtime is compiled in the
place of rayon-core, so that stolen tasks are seen under their spawners.

Exit status: the program's own; 125 when cargo hpcrun itself or the build fails.";

/// Builds a Rust program, profiles it, and prints where its work, idleness and overhead are
#[derive(Debug, Parser)]
#[command(
    name = "cargo-hpcrun",
    bin_name = "cargo hpcrun",
    version,
    after_help = "`--help` has examples. Further views: hpcprof-rs top-down|bottom-up|flat.",
    after_long_help = EXAMPLES
)]
pub(crate) struct Options {
    /// Build and profile, or only build and print the program's path
    #[arg(value_parser = action, default_value = "run", value_name = "run|build")]
    pub(crate) action: Action,

    #[command(flatten)]
    pub(crate) choice: Choice,
    #[command(flatten)]
    pub(crate) build: Build,
    #[command(flatten)]
    pub(crate) profiling: Profiling,

    /// Arguments of the program
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) arguments: Vec<OsString>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Build, profile, report.
    Run,
    /// Build only.
    Build,
}

fn action(text: &str) -> Result<Action, String> {
    match text {
        "run" => Ok(Action::Run),
        "build" => Ok(Action::Build),
        _ => Err(two_dashes(text)),
    }
}

fn two_dashes(argument: &str) -> String {
    format!("arguments of the program follow two dashes: cargo hpcrun -- {argument}")
}

/// An error of the command line; of an argument that can only be the program's it says so.
pub(crate) fn with_advice(mut error: clap::Error) -> clap::Error {
    let argument = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(text))) => text.clone(),
        _ => return error,
    };
    if !argument.starts_with('-') {
        let advice = ContextValue::StyledStrs(vec![two_dashes(&argument).into()]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}

/// Which program.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "What to profile")]
pub(crate) struct Choice {
    /// Package of the workspace
    #[arg(short, long, value_name = "SPEC")]
    pub(crate) package: Option<String>,
    /// Program
    #[arg(long, value_name = "NAME", group = "target_kind")]
    pub(crate) bin: Option<String>,
    /// Example
    #[arg(long, value_name = "NAME", group = "target_kind")]
    pub(crate) example: Option<String>,
    /// Benchmark, in profile bench and run with --bench, as by cargo bench
    #[arg(long, value_name = "NAME", group = "target_kind")]
    pub(crate) bench: Option<String>,
    /// Integration test
    #[arg(long, value_name = "NAME", group = "target_kind")]
    pub(crate) test: Option<String>,
}

/// Options that cargo gets as they are.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Passed to cargo")]
pub(crate) struct Build {
    /// Features to activate
    #[arg(short = 'F', long, value_name = "FEATURES")]
    pub(crate) features: Vec<String>,
    /// Activate all features
    #[arg(long)]
    pub(crate) all_features: bool,
    /// Do not activate the feature `default`
    #[arg(long)]
    pub(crate) no_default_features: bool,
    /// Path of Cargo.toml
    #[arg(long, value_name = "PATH")]
    pub(crate) manifest_path: Option<String>,
    /// Folder for what is built; a folder hpcrun in it is used
    #[arg(long, value_name = "DIR")]
    pub(crate) target_dir: Option<PathBuf>,
    /// Profile to build in [default: release; bench for a benchmark]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Build in profile release, as is the default
    #[arg(short, long, conflicts_with = "profile")]
    pub(crate) release: bool,
    /// Target triple; only the host's can be profiled
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
    /// Override a configuration value
    #[arg(long, value_name = "KEY=VALUE|PATH")]
    pub(crate) config: Vec<String>,
    /// Unstable flags of a nightly cargo
    #[arg(short = 'Z', value_name = "FLAG")]
    pub(crate) unstable: Vec<String>,
    /// Parallel jobs
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<String>,
    /// Fail if Cargo.lock would change
    #[arg(long)]
    pub(crate) locked: bool,
    /// Do not use the network
    #[arg(long)]
    pub(crate) offline: bool,
    /// Both --locked and --offline
    #[arg(long)]
    pub(crate) frozen: bool,
    /// Ignore packages' rust-version
    #[arg(long)]
    pub(crate) ignore_rust_version: bool,
    /// More of cargo's output
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The profiler's options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profiling")]
pub(crate) struct Profiling {
    /// What is sampled: `cpu-time` or `wall-time`, with `@RATE` in samples per second and thread
    /// (default rate 200)
    #[arg(short, long, value_name = "NAME[@RATE]", default_value = "cpu-time")]
    pub(crate) event: String,
    /// Cores n that idleness counts: a number, `all` that the process may use, or `workers`
    #[arg(long, value_name = "N|all|workers", default_value = "all")]
    pub(crate) cores: String,
    /// Track the critical path, too, and print it after the report
    #[arg(long)]
    pub(crate) critical_path: bool,
    /// Database directory [default: hpcrun-PROGRAM-database, -2, -3 …]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Keep the measurement directory, too (hpcrun-PROGRAM-measurements, -2, -3 …)
    #[arg(long)]
    pub(crate) keep: bool,
    /// Link rayon as it is published
    #[arg(long)]
    pub(crate) no_patch: bool,
    /// Say nothing unless something is wrong
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl Build {
    /// Options that `cargo metadata` and `cargo build` share.
    pub(crate) fn common(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (name, values) in [("--features", &self.features), ("--config", &self.config)] {
            for value in values {
                all.extend([name.to_owned(), value.clone()]);
            }
        }
        for value in &self.unstable {
            all.extend(["-Z".to_owned(), value.clone()]);
        }
        for (name, is_given) in [
            ("--all-features", self.all_features),
            ("--no-default-features", self.no_default_features),
            ("--locked", self.locked),
            ("--offline", self.offline),
            ("--frozen", self.frozen),
        ] {
            if is_given {
                all.push(name.to_owned());
            }
        }
        all
    }

    /// Options of `cargo build` alone.
    pub(crate) fn of_build(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (name, value) in [("--target", &self.target), ("--jobs", &self.jobs)] {
            if let Some(value) = value {
                all.extend([name.to_owned(), value.clone()]);
            }
        }
        if self.ignore_rust_version {
            all.push("--ignore-rust-version".to_owned());
        }
        for _ in 0..self.verbose {
            all.push("-v".to_owned());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Options {
        Options::try_parse_from(line.split_whitespace().skip(1)).expect("a valid command line")
    }

    #[test]
    fn the_command_line_is_consistent_and_its_examples_parse() {
        Options::command().debug_assert();
        let examples: Vec<&str> =
            EXAMPLES.lines().filter_map(|line| line.strip_prefix("  cargo hpcrun")).collect();
        assert_eq!(examples.len(), 3);
        for line in examples {
            parse(&format!("cargo hpcrun{line}"));
        }
    }

    #[test]
    fn the_programs_own_options_follow_two_dashes() {
        let o = parse("cargo hpcrun run --bin a -F x,y -F z -q -- -q --bin b");
        assert_eq!(o.action, Action::Run);
        assert_eq!(o.choice.bin.as_deref(), Some("a"));
        assert_eq!(o.arguments, ["-q", "--bin", "b"]);
        assert_eq!(o.build.common(), ["--features", "x,y", "--features", "z"].map(str::to_owned));
        assert_eq!(parse("cargo hpcrun build").action, Action::Build);
        assert!(Options::try_parse_from(["hpcrun", "--bin", "a", "--bench", "b"]).is_err());
    }
}
