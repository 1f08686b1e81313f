//! Finds the program, and warns before the run what its profile will lack.

use crate::failure::Failure;
use crate::text;
use hpc_formats::preload::{self, DEFAULT_PATH, Found, Obstacle};
use object::{Object, ObjectSection, ReadCache};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Finds the program as `execvp` would: by path when its name has a slash, else in PATH.
pub(crate) fn find(arguments: &[OsString]) -> Result<PathBuf, Failure> {
    let name = Path::new(&arguments[0]);
    if name.as_os_str().as_encoded_bytes().contains(&b'/') {
        check(name)?;
        return Ok(name.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut refused = None;
    for folder in std::env::split_paths(&path) {
        let candidate = folder.join(name);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(failure @ Failure::NotExecutable(_)) => refused = Some(failure),
            Err(_) => {}
        }
    }
    let here =
        if name.is_file() { format!("; did you mean ./{}?", text::shown(name)) } else { String::new() };
    Err(refused.unwrap_or_else(|| {
        Failure::NotFound(format!("{}: no such program in PATH{here}", text::shown(name)))
    }))
}

fn check(path: &Path) -> Result<(), Failure> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let path_shown = text::shown(path);
    let refused = |why: &str| Err(Failure::NotExecutable(format!("{path_shown}{why}")));
    match fs::metadata(path) {
        Err(e) if matches!(e.kind(), NotFound | NotADirectory) => {
            Err(Failure::NotFound(format!("{path_shown}: no such program; build it first?")))
        }
        Err(e) => refused(&format!(": {e}")),
        Ok(m) if m.is_dir() => refused(" is a directory, not a program"),
        Ok(m) if !m.is_file() => refused(" is not a regular file, so not a program"),
        Ok(m) if m.permissions().mode() & 0o111 == 0 => refused(" is not executable; chmod +x it?"),
        Ok(_) => Ok(()),
    }
}

/// Findings about the program's file before it starts.
#[derive(Debug, Default)]
pub(crate) struct Inspected {
    /// Whether the sampler can be preloaded into it.
    pub(crate) is_profiled: bool,
    /// What its profile will lack, one line each.
    pub(crate) warnings: Vec<String>,
}

/// Inspects the program's file. A statically linked program is an error.
pub(crate) fn inspect(path: &Path) -> Result<Inspected, Failure> {
    let search = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let Some(Found { executable, obstacle }) = preload::obstacle(path, &search) else {
        return Ok(Inspected { is_profiled: true, warnings: missing_symbols(path).into_iter().collect() });
    };
    let (file, reason, remedy) = (text::shown(&executable), obstacle.reason(), obstacle.remedy());
    let is_static = obstacle == Obstacle::Static;
    if is_static && executable == path {
        return Err(Failure::own(format!(
            "{file} is {reason}, so nothing can be preloaded into it; {remedy}"
        )));
    }
    let consequence = if is_static {
        "of this script only the programs that it starts are profiled"
    } else {
        "it runs without the profiler, and nothing is measured"
    };
    Ok(Inspected {
        // The programs that a static interpreter starts can be profiled.
        is_profiled: is_static,
        warnings: vec![format!("{file} is {reason}: {consequence}; {remedy}")],
    })
}

fn missing_symbols(path: &Path) -> Option<String> {
    // Reads the headers only: a program with its debug information can be large.
    let bytes = ReadCache::new(fs::File::open(path).ok()?);
    let file = object::File::parse(&bytes).ok()?;
    let has = |name| file.section_by_name(name).is_some_and(|s| s.size() > 0);
    let remedy = "CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_DEBUG=1 (C: -g)";
    // Separate debug information may be installed.
    if has(".gnu_debuglink") {
        return None;
    }
    if !has(".symtab") {
        return Some(format!(
            "{} is stripped: its procedures will have no names; rebuild with {remedy}",
            text::shown(path)
        ));
    }
    let has_lines = has(".debug_info") || has(".zdebug_info");
    (!has_lines).then(|| {
        format!(
            "{} has no debug information: no source lines, inlined code or overhead tags; rebuild with \
             {remedy}",
            text::shown(path)
        )
    })
}
