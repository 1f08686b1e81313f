//! The command: options in, structure files out.
//!
//! Input: a load module, or a measurement directory of hpcrun-rs. Exit status 0 when everything
//! that was asked for was written, 1 otherwise; messages go to standard error.

use crate::cache::Cache;
use crate::measurements::{self, SampledModule};
use crate::{Options, Rules, StructError, Structure, analyse, analyse_fully, text};
use clap::{CommandFactory as _, Parser, ValueEnum};
use hpc_formats::message;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Recover procedures, inlined code, loops, source lines and overhead tags of binaries.
#[derive(Parser)]
#[command(name = "hpcstruct-rs", version, about, long_about = LONG, after_long_help = EXAMPLES)]
struct Arguments {
    /// An executable or shared library, or a measurement directory written by hpcrun-rs.
    #[arg(value_name = "BINARY|MEASUREMENTS")]
    input: PathBuf,
    /// Where to write: a file for a binary, a folder for measurements, `-` for standard output.
    ///
    /// Defaults: NAME.hpcstruct in the current folder; the folder `structure` of MEASUREMENTS,
    /// where hpcprof-rs looks for it, or `structs` for text.
    #[arg(short, long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// Threads to use; default: one per core. The result does not depend on it.
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Of measurements, analyse all procedures of each module, not only the sampled ones.
    #[arg(long)]
    all: bool,
    /// More rules for overhead tags, tried before the built-in ones.
    ///
    /// One rule a line: `procedure|module|file GLOB CATEGORY`. A GLOB has `*` and `?`; a
    /// procedure is matched by its readable name, by the same without generic arguments, and by
    /// its linkage name; a module by its path or file name. The CATEGORY `none` removes a tag.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// A folder with separate debug files, searched before /usr/lib/debug. May be repeated.
    #[arg(long = "debug-dir", value_name = "DIR")]
    debug_directories: Vec<PathBuf>,
    /// Format: `binary` is what hpcprof-rs reads, `text` is for people. Default: text on standard
    /// output, else binary.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Of a binary, print which marks and rules tag how much code as overhead, and write nothing.
    #[arg(long, conflicts_with_all = ["output", "format"])]
    tags: bool,
    /// Neither read nor write the cache (hpcrun-rs/structure in $XDG_CACHE_HOME or ~/.cache).
    #[arg(long)]
    no_cache: bool,
}

const LONG: &str = "\
Recover procedures, inlined code, loops, source lines and overhead tags of binaries.

Reads ELF executables and shared libraries with DWARF 3 to 5, also from separate debug files
(by build id or .gnu_debuglink), split units (.dwo, .dwp), files shared by dwz and compressed
sections; without debug information it falls back to symbols, also those of .gnu_debugdata,
and without symbols to the unwind table. hpcprof-rs does this by itself for what a
run sampled; use this command to do it once on another machine, with rules of your own, or to
look at a binary.";

const EXAMPLES: &str = "\
Examples:
  hpcstruct-rs hpcrun-app-measurements
      analyse what was sampled and store it with the measurements
  hpcstruct-rs target/release/app -o - | less
      show every procedure, its inlined calls, lines and tags
  hpcstruct-rs --rules my.rules --all hpcrun-app-measurements
      tag with own rules, for example the line `procedure my_lock::* sync`";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The format of hpcprof-rs.
    Binary,
    /// Readable.
    Text,
}

impl Format {
    /// The folder in a measurement directory: hpcprof-rs reads all files in `structure`.
    fn folder(self) -> &'static str {
        match self {
            Format::Binary => "structure",
            Format::Text => "structs",
        }
    }
}

/// The options, with their explanations.
pub fn options() -> clap::Command {
    Arguments::command()
}

/// The command: reads the arguments of the process.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    crate::sigbus::end_with_message("hpcstruct-rs");
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            message!("hpcstruct-rs: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything could be analysed.
fn run(arguments: &Arguments) -> Result<bool, StructError> {
    let mut options = Options { progress: Some(Arc::default()), ..Options::default() };
    if let Some(jobs) = arguments.jobs {
        options.threads = usize::from(jobs);
    }
    if let Some(path) = &arguments.rules {
        options.rules = Rules::with_file(path)?;
    }
    let extra = arguments.debug_directories.iter().cloned();
    options.debug_directories.splice(0..0, extra);
    if arguments.input.is_dir() {
        if arguments.tags {
            return Err(StructError::NotElf(arguments.input.clone()));
        }
        of_measurements(arguments, &options)
    } else {
        of_binary(arguments, &options)?;
        Ok(true)
    }
}

/// The structure of the module at `path`, from the cache where it has it.
fn structure_of(arguments: &Arguments, path: &Path, options: &Options) -> Result<Structure, StructError> {
    let cache = Cache::of_user().filter(|_| !arguments.no_cache);
    watched(options, || match cache {
        Some(cache) => cache.analyse(path, options),
        None => analyse(path, options),
    })
}

/// Analyses and says on a terminal how far that is.
fn watched<T>(options: &Options, analyse: impl FnOnce() -> T) -> T {
    match &options.progress {
        Some(progress) => progress.watch("analysing", analyse),
        None => analyse(),
    }
}

fn of_binary(arguments: &Arguments, options: &Options) -> Result<(), StructError> {
    let started = Instant::now();
    if arguments.tags {
        let analysis = watched(options, || analyse_fully(&arguments.input, options))?;
        let text = text::render_tags(&analysis.structure, &analysis.tags);
        return print(text.as_bytes()).map_err(StructError::writing(Path::new("-")));
    }
    let output = arguments.output.clone().unwrap_or_else(|| {
        let name = arguments.input.file_name().unwrap_or_default();
        let mut name = name.to_os_string();
        name.push(".hpcstruct");
        PathBuf::from(name)
    });
    if is_same_file(&output, &arguments.input) {
        let error = std::io::Error::other("it is the binary");
        return Err(StructError::writing(&output)(error));
    }
    let structure = structure_of(arguments, &arguments.input, options)?;
    report_notes(&structure);
    write(&output, &structure, arguments.format)?;
    message!(
        "hpcstruct-rs: {} procedures, {} inlined scopes and loops, {} spans in {:.2} s -> {}",
        structure.procedures.len(),
        structure.scopes.len(),
        structure.spans.len(),
        started.elapsed().as_secs_f64(),
        output.display()
    );
    // The process is about to end: the kernel takes everything back at once.
    std::mem::forget(structure);
    Ok(())
}

fn of_measurements(arguments: &Arguments, options: &Options) -> Result<bool, StructError> {
    let started = Instant::now();
    let sampled = measurements::sampled(&arguments.input)?;
    for warning in &sampled.warnings {
        message!("hpcstruct-rs: warning: {warning}");
    }
    let format = arguments.format.unwrap_or(Format::Binary);
    let folder = arguments.output.clone().unwrap_or_else(|| arguments.input.join(format.folder()));
    let to_stdout = folder.as_os_str() == "-";
    if !to_stdout {
        std::fs::create_dir_all(&folder).map_err(StructError::writing(&folder))?;
    }
    let (mut done, mut procedures) = (0, 0);
    for module in &sampled.modules {
        match of_module(arguments, options, module) {
            Ok(structure) => {
                let name = measurements::structure_file_name(&module.path, &module.build_id);
                let path = if to_stdout { folder.clone() } else { folder.join(name) };
                write(&path, &structure, arguments.format)?;
                report_notes(&structure);
                done += 1;
                procedures += structure.procedures.len();
            }
            Err(error) => message!("hpcstruct-rs: warning: {error}"),
        }
    }
    let next = match format {
        Format::Binary => format!("; next: hpcprof-rs {}", arguments.input.display()),
        Format::Text => String::new(),
    };
    message!(
        "hpcstruct-rs: {done} of {} sampled modules, {procedures} procedures in {:.2} s -> {}{next}",
        sampled.modules.len(),
        started.elapsed().as_secs_f64(),
        folder.display(),
    );
    Ok(done == sampled.modules.len())
}

fn of_module(
    arguments: &Arguments,
    options: &Options,
    module: &SampledModule,
) -> Result<Structure, StructError> {
    let mut options = options.clone();
    if !arguments.all {
        options.addresses = Some(module.addresses.clone());
    }
    let path = module.copy.as_deref().unwrap_or(Path::new(&module.path));
    let mut structure = structure_of(arguments, path, &options)?;
    let is_same = match module.build_id.is_empty() && module.copy.is_none() {
        true => structure.build_id.is_empty() && module.stamp.may_be(path),
        false => structure.build_id == module.build_id,
    };
    if !is_same {
        return Err(StructError::Changed(path.to_owned()));
    }
    structure.module.clone_from(&module.path);
    Ok(structure)
}

fn report_notes(structure: &Structure) {
    for note in &structure.notes {
        message!("hpcstruct-rs: {}: {note}", structure.module);
    }
}

/// Writes to standard output; a pager that was left is no failure.
fn print(bytes: &[u8]) -> std::io::Result<()> {
    match std::io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes to `path`; `-` is standard output.
fn write(path: &Path, structure: &Structure, format: Option<Format>) -> Result<(), StructError> {
    let to_stdout = path.as_os_str() == "-";
    let default = if to_stdout { Format::Text } else { Format::Binary };
    let format = format.unwrap_or(default);
    let bytes = bytes_of(structure, format);
    match to_stdout {
        true => print(&bytes).map_err(StructError::writing(path)),
        false => write_file(path, &bytes),
    }
}

/// Writes the file at `path`, whole or not at all; a device or a pipe is written to as it is.
fn write_file(path: &Path, bytes: &[u8]) -> Result<(), StructError> {
    if is_stream(path) {
        let written = File::create(path).and_then(|mut file| file.write_all(bytes));
        return written.map_err(StructError::writing(path));
    }
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = File::create(&temporary).and_then(|mut file| file.write_all(bytes));
    let written = written.and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|error| {
        // Best effort: the temporary file may not even exist.
        let _ = std::fs::remove_file(&temporary);
        StructError::writing(path)(error)
    })
}

/// Whether a path is neither free, nor a file, nor a folder.
fn is_stream(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir())
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path| std::fs::metadata(path).map(|m| (m.dev(), m.ino()));
    matches!((identity(a), identity(b)), (Ok(a), Ok(b)) if a == b)
}

fn bytes_of(structure: &Structure, format: Format) -> Vec<u8> {
    match format {
        Format::Binary => structure.encode(),
        Format::Text => text::render(structure).into_bytes(),
    }
}
