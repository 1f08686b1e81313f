//! `cargo xtask real-programs`: published rayon programs on this repository's rayon-core.
//!
//! One duty: install each program from crates.io twice, with the rayon-core that its Cargo.lock
//! names and with ours in its place, run both on the same input in turn, compare what they
//! produce, and profile both: how much of the work has a path that begins at the program's `main`?
//! Everything lies under the target folder, nothing is kept in the repository. A program that cannot
//! be built is named, and the rest goes on.

use crate::build;
use crate::images;
use crate::rayon_core::{self, registries};
use crate::statistics::median;
use fastrand::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A published program and what to do with it.
pub(crate) struct Program {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    pub(crate) binary: &'static str,
    /// `{data}`, `{image}`, `{other}`, `{sources}` are inputs, `{out}` a file to write.
    pub(crate) arguments: &'static [&'static str],
}

pub(crate) const PROGRAMS: [Program; 6] = [
    Program { package: "b3sum", version: "1.8.7", binary: "b3sum", arguments: &["{data}"] },
    Program {
        package: "du-dust",
        version: "1.2.7",
        binary: "dust",
        arguments: &["-T", "2", "-P", "-n", "40", "{sources}"],
    },
    Program {
        package: "oxipng",
        version: "10.2.1",
        binary: "oxipng",
        arguments: &["-o", "2", "-t", "2", "--force", "--out", "{out}", "{image}"],
    },
    Program {
        package: "dssim",
        version: "3.5.1",
        binary: "dssim",
        arguments: &["{image}", "{other}"],
    },
    Program {
        package: "cavif",
        version: "1.8.0",
        binary: "cavif",
        arguments: &["--speed=9", "--threads=2", "--overwrite", "-o", "{out}", "{image}"],
    },
    Program { package: "tokei", version: "15.0.0", binary: "tokei", arguments: &["{sources}"] },
];

/// Bytes of the file that is hashed.
const DATA: usize = 256 << 20;
/// Pixels of an image's side.
const SIDE: u32 = 1500;
/// Sampling rate, Hz.
const RATE: u32 = 1000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which programs, by package
    #[arg(long, value_delimiter = ',', value_parser = PROGRAMS.map(|p| p.package),
          default_values_t = PROGRAMS.map(|p| p.package.to_owned()))]
    programs: Vec<String>,
    /// Timed runs of each build
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Jobs of a build
    #[arg(short, long, default_value_t = 2)]
    jobs: usize,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let tools = build::release()?;
    let place = build::target()?.join("real-programs");
    let inputs = Inputs::make(&place.join("inputs"))?;
    println!(
        "| program | stock, s | ours, s | ours / stock | same output | work under `main`, stock | ours |\n\
         |---|---|---|---|---|---|---|"
    );
    let mut failed = Vec::new();
    for program in PROGRAMS {
        if options.programs.iter().any(|name| *name == program.package) {
            if let Err(error) = judge(&program, &place, &inputs, &tools, options) {
                eprintln!("{} is left out: {error}", program.package);
                failed.push(program.package);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("left out: {}", failed.join(", "))) }
}

/// What the programs read.
pub(crate) struct Inputs {
    folder: PathBuf,
    sources: PathBuf,
}

impl Inputs {
    pub(crate) fn make(folder: &Path) -> Result<Inputs, String> {
        let mut data = vec![0; DATA];
        Rng::with_seed(1).fill(&mut data);
        for (name, bytes) in [
            ("data", data),
            ("image.png", images::png(SIDE, 1)),
            ("other.png", images::png(SIDE, 2)),
        ] {
            build::write(&folder.join(name), bytes)?;
        }
        Ok(Inputs { folder: folder.to_path_buf(), sources: registries()? })
    }

    pub(crate) fn arguments(&self, arguments: &[&str], out: &Path) -> Vec<PathBuf> {
        let place = |argument: &&str| match *argument {
            "{data}" => self.folder.join("data"),
            "{image}" => self.folder.join("image.png"),
            "{other}" => self.folder.join("other.png"),
            "{sources}" => self.sources.clone(),
            "{out}" => out.to_path_buf(),
            other => PathBuf::from(other),
        };
        arguments.iter().map(place).collect()
    }
}

fn judge(
    program: &Program,
    place: &Path,
    inputs: &Inputs,
    tools: &Path,
    options: &Options,
) -> Result<(), String> {
    let stock = install(program, &place.join("stock"), None, options.jobs)?;
    let ours = install_with_ours(program, place, options.jobs)?;
    let both = [&stock, &ours];
    let (mut times, mut outputs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..=options.rounds {
        for (index, binary) in both.into_iter().enumerate() {
            // The same name for both, for some print it.
            let out = place.join("out");
            let start = Instant::now();
            let arguments = inputs.arguments(program.arguments, &out);
            let printed = execute(Command::new(binary).args(arguments))?;
            let time = start.elapsed().as_secs_f64();
            let written = fs::read(&out).unwrap_or_default();
            let _ = fs::remove_file(&out);
            outputs[index] = [printed, written].concat();
            // The first round warms up.
            if round > 0 {
                times[index].push(time);
            }
        }
        if outputs[0] != outputs[1] {
            let end = format!("round {round}: the two builds' outputs differ");
            return Err(end);
        }
    }
    let [stock_time, ours_time] = times.map(|times| median(times).unwrap_or(f64::NAN));
    let share = |binary: &Path, name: &str| {
        let out = place.join("out-profiled");
        let arguments = inputs.arguments(program.arguments, &out);
        under_main(binary, &arguments, &place.join(name), tools)
    };
    let (under_stock, under_ours) = (share(&stock, "stock")?, share(&ours, "ours")?);
    println!(
        "| {} {} | {stock_time:.3} | {ours_time:.3} | {:.2} | yes | {under_stock} | {under_ours} |",
        program.package,
        program.version,
        ours_time / stock_time
    );
    Ok(())
}

/// As [`install`], with our rayon-core; the published program is installed already.
pub(crate) fn install_with_ours(
    program: &Program,
    place: &Path,
    jobs: usize,
) -> Result<PathBuf, String> {
    let version = locked_rayon_core(program)?;
    let patch = place.join(format!("rayon-core-{version}"));
    rayon_core::copy_as(&version, &patch)?;
    install(program, &place.join("ours"), Some(&patch), jobs)
}

/// Installs the program, with symbols, unless that is done already.
pub(crate) fn install(
    program: &Program,
    root: &Path,
    patch: Option<&Path>,
    jobs: usize,
) -> Result<PathBuf, String> {
    let mut command = build::cargo();
    command
        .args(["install", "--locked", "--quiet", "--root"])
        .arg(root)
        .args(["-j", &jobs.to_string(), "--version", program.version])
        .arg(program.package)
        .env("CARGO_TARGET_DIR", root.join("target"))
        .env("CARGO_PROFILE_RELEASE_STRIP", "none")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
    if let Some(patch) = patch {
        // What is in the patch may have changed since it was installed.
        command.arg("--force").arg("--config");
        command.arg(format!("patch.crates-io.rayon-core.path={patch:?}"));
    }
    build::run(&mut command)?;
    let binary = root.join("bin").join(program.binary);
    rayon_core::check(&binary, patch.is_some())?;
    Ok(binary)
}

/// The version of rayon-core in the package's own Cargo.lock.
fn locked_rayon_core(program: &Program) -> Result<String, String> {
    let package = format!("{}-{}", program.package, program.version);
    let lock = build::entries(&registries()?)?
        .iter()
        .map(|registry| registry.join(&package).join("Cargo.lock"))
        .find_map(|path| fs::read_to_string(path).ok())
        .ok_or("it has no Cargo.lock")?;
    version_of("rayon-core", &lock).ok_or_else(|| "its Cargo.lock names no rayon-core".to_owned())
}

/// The version of a package in the text of a Cargo.lock.
fn version_of(package: &str, lock: &str) -> Option<String> {
    let (_, entry) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    entry.split('"').next().map(str::to_owned)
}

/// Runs a command to its end; what it printed.
fn execute(command: &mut Command) -> Result<Vec<u8>, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .env("RAYON_NUM_THREADS", "2")
        .output()
        .map_err(|e| format!("{program} cannot be run: {e}"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{program}: {}\n{message}", output.status));
    }
    Ok(output.stdout)
}

/// The share of the profiled work whose logical path has the program's `main` in it.
fn under_main(
    binary: &Path,
    arguments: &[PathBuf],
    profiles: &Path,
    tools: &Path,
) -> Result<String, String> {
    let (measurements, database) = (profiles.join("measurements"), profiles.join("database"));
    for old in [&measurements, &database] {
        build::remove(old)?;
    }
    execute(
        Command::new(tools.join("hpcrun-rs"))
            .args(["-e", &format!("cpu-time@{RATE}"), "-o"])
            .arg(&measurements)
            .arg("--")
            .arg(binary)
            .args(arguments),
    )?;
    let hpcprof = tools.join("hpcprof-rs");
    execute(Command::new(&hpcprof).arg(&measurements).arg("-o").arg(&database))?;
    let folded = execute(
        Command::new(&hpcprof)
            .arg("top-down")
            .arg(&database)
            .args(["--format", "folded", "--metric", "work"]),
    )?;
    let (under, all) = share_of_main(&String::from_utf8_lossy(&folded));
    if all == 0 {
        return Err("its profile is empty".to_owned());
    }
    Ok(format!("{:.2} %", 100.0 * under as f64 / all as f64))
}

/// Of folded stacks: the values of those with a frame `main`, and of all.
fn share_of_main(folded: &str) -> (u64, u64) {
    let (mut under, mut all) = (0, 0);
    for line in folded.lines() {
        let Some((stack, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let value: u64 = value.parse().unwrap_or(0);
        all += value;
        if stack.split(';').any(|frame| frame == "main") {
            under += value;
        }
    }
    (under, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_frames_count_as_main() {
        let folded = "_start;main;a 30\npartial;b 5\nthread;not_main;c 15\n";
        assert_eq!(share_of_main(folded), (30, 50));
        assert_eq!(share_of_main(""), (0, 0));
    }

    #[test]
    fn the_locked_version_is_found() {
        let lock = "[[package]]\nname = \"rayon\"\nversion = \"1.9.0\"\n\n\
                    [[package]]\nname = \"rayon-core\"\nversion = \"1.12.1\"\nsource = \"x\"\n";
        assert_eq!(version_of("rayon-core", lock).as_deref(), Some("1.12.1"));
        assert_eq!(version_of("tokio", lock), None);
    }
}
