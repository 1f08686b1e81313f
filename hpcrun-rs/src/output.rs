//! The measurement directory: created before the run, never overwritten. The processes of a job share one.

use crate::failure::Failure;
use crate::job::Job;
use crate::text;
use hpc_formats::process::{COMMAND_FILE, program_name, text_of};
use nix::unistd::{AccessFlags, access};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Makes the directory and checks that it can be written.
pub(crate) fn create(asked: Option<&Path>, program: &Path, job: Option<&Job>) -> Result<PathBuf, Failure> {
    let directory = match (asked, job) {
        (Some(directory), _) => directory.to_owned(),
        (None, Some(job)) => PathBuf::from(format!("{}-{}", base(program, "measurements"), job.id)),
        (None, None) => make_numbered(&base(program, "measurements"))?,
    };
    match job {
        Some(job) => make_or_join(&directory, job)?,
        None if asked.is_some() => make_or_reuse_empty(&directory)?,
        None => {}
    }
    let cannot = |e: io::Error| {
        Failure::own(format!(
            "cannot write in {}: {e}; choose another directory with -o",
            text::shown(&directory)
        ))
    };
    access(&directory, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|e| cannot(e.into()))?;
    fs::canonicalize(&directory).map_err(cannot)
}

fn cannot_create(directory: &Path, error: &io::Error) -> Failure {
    Failure::own(format!(
        "cannot create {}: {error}; choose another directory with -o",
        text::shown(directory)
    ))
}

fn make_or_reuse_empty(directory: &Path) -> Result<(), Failure> {
    let Err(error) = fs::create_dir(directory) else { return Ok(()) };
    if error.kind() == io::ErrorKind::NotFound {
        return fs::create_dir_all(directory).map_err(|e| cannot_create(directory, &e));
    }
    if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() {
        let is_empty = fs::read_dir(directory).map_err(|e| cannot_create(directory, &e))?.next().is_none();
        if is_empty {
            return Ok(());
        }
        return Err(Failure::own(format!(
            "{} is not empty; measurements are never overwritten: remove it or choose another directory \
             with -o",
            text::shown(directory)
        )));
    }
    Err(cannot_create(directory, &error))
}

/// As [`make_or_reuse_empty`], or another process of the job has made it.
fn make_or_join(directory: &Path, job: &Job) -> Result<(), Failure> {
    // Whoever makes it writes the job's file first. It may do so between two looks.
    let is_ours = || job.file(directory).exists();
    if !is_ours() {
        match make_or_reuse_empty(directory) {
            Err(_) if is_ours() => {}
            made => made?,
        }
    }
    let file = fs::OpenOptions::new().append(true).create(true).open(job.file(directory));
    file.map(drop).map_err(|error| cannot_create(directory, &error))
}

/// Makes a folder for measurements and databases of a program.
pub(crate) fn create_folder(asked: Option<&Path>, program: &Path, of: &str) -> Result<PathBuf, Failure> {
    match asked {
        Some(directory) => {
            make_or_reuse_empty(directory)?;
            Ok(directory.to_owned())
        }
        None => make_numbered(&base(program, of)),
    }
}

fn base(program: &Path, of: &str) -> String {
    let path = text_of(program.as_os_str().as_bytes());
    format!("hpcrun-{}-{of}", program_name(&path))
}

fn make_numbered(base: &str) -> Result<PathBuf, Failure> {
    for n in 1..10_000 {
        let directory = PathBuf::from(if n == 1 { base.to_owned() } else { format!("{base}-{n}") });
        match fs::create_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(cannot_create(&directory, &e)),
        }
    }
    Err(Failure::own(format!("{base} to {base}-9999 exist; remove some or use -o")))
}

/// Keeps what the user typed, unless another process of the job has. The program may be a link or a script,
/// so that its own arguments are other ones. A report does without it, so a failure is none of the run.
pub(crate) fn keep_command(directory: &Path, words: &[OsString]) {
    let path = directory.join(COMMAND_FILE);
    if let Ok(mut file) = fs::OpenOptions::new().write(true).create_new(true).open(path) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let _ = file.write_all(&words.join(&0));
    }
}

/// Removes a directory if nothing was measured into it.
pub(crate) fn remove_if_empty(directory: &Path) {
    let mut names = fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.file_name());
    if names.all(|name| name == COMMAND_FILE) {
        let _ = fs::remove_file(directory.join(COMMAND_FILE));
        let _ = fs::remove_dir(directory);
    }
}

/// The directory as the user would type it in a shell: relative when it is below the current one.
pub fn display(directory: &Path) -> String {
    let here = std::env::current_dir().and_then(fs::canonicalize).ok();
    here.and_then(|h| directory.strip_prefix(h).ok().map(Path::to_owned))
        .filter(|p| !p.as_os_str().is_empty())
        .map_or_else(|| text::word(directory), |below| text::word(&below))
}
