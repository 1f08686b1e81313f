//! Finds the program and says beforehand what its profile will lack.

use crate::failure::Failure;
use object::elf::PT_INTERP;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ReadCache, ReadRef};
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
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut refused = None;
    for folder in std::env::split_paths(&path) {
        let candidate = folder.join(name);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(failure @ Failure::NotExecutable(_)) => refused = Some(failure),
            Err(_) => {}
        }
    }
    let here = if name.is_file() {
        format!("; did you mean ./{}?", name.display())
    } else {
        String::new()
    };
    Err(refused.unwrap_or_else(|| {
        Failure::NotFound(format!("{}: no such program in PATH{here}", name.display()))
    }))
}

fn check(path: &Path) -> Result<(), Failure> {
    match fs::metadata(path) {
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(Failure::NotFound(format!(
                "{}: no such program; build it first?",
                path.display()
            )))
        }
        Err(e) => Err(Failure::NotExecutable(format!("{}: {e}", path.display()))),
        Ok(m) if m.is_dir() => Err(Failure::NotExecutable(format!(
            "{} is a directory, not a program",
            path.display()
        ))),
        Ok(m) if !m.is_file() => Err(Failure::NotExecutable(format!(
            "{} is not a regular file, so not a program",
            path.display()
        ))),
        Ok(m) if m.permissions().mode() & 0o111 == 0 => Err(Failure::NotExecutable(format!(
            "{} is not executable; chmod +x it?",
            path.display()
        ))),
        Ok(_) => Ok(()),
    }
}

/// Warnings about the program's file; an error when it cannot be profiled at all.
pub(crate) fn inspect(path: &Path) -> Result<Vec<String>, Failure> {
    let metadata = fs::metadata(path)
        .map_err(|e| Failure::NotExecutable(format!("{}: {e}", path.display())))?;
    let mut warnings = Vec::new();
    if metadata.permissions().mode() & 0o6000 != 0 {
        warnings.push(format!(
            "{} is set-user-id or set-group-id: the system will not preload the sampler; profile a copy without that bit",
            path.display()
        ));
    }
    let Ok(file) = fs::File::open(path) else {
        return Ok(warnings);
    };
    // Reads the headers only: a program with its debug information can be large.
    let bytes = ReadCache::new(file);
    if (&bytes).read_bytes_at(0, 4) != Ok(b"\x7fELF") {
        return Ok(warnings);
    }
    if is_static(&bytes) {
        return Err(Failure::own(format!(
            "{} is statically linked, so nothing can be preloaded into it; link it dynamically (for Rust: not a -musl target, no -C target-feature=+crt-static)",
            path.display()
        )));
    }
    warnings.extend(missing_symbols(path, &bytes));
    Ok(warnings)
}

fn is_static<'a>(bytes: impl ReadRef<'a>) -> bool {
    let Ok(header) = object::elf::FileHeader64::<object::Endianness>::parse(bytes) else {
        return false;
    };
    let Ok(endian) = header.endian() else {
        return false;
    };
    let is_loadable = header.e_type(endian) == object::elf::ET_EXEC
        || header.e_type(endian) == object::elf::ET_DYN;
    let Ok(segments) = header.program_headers(endian, bytes) else {
        return false;
    };
    is_loadable && !segments.iter().any(|s| s.p_type(endian) == PT_INTERP)
}

fn missing_symbols<'a>(path: &Path, bytes: impl ReadRef<'a>) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    let has = |name| file.section_by_name(name).is_some_and(|s| s.size() > 0);
    let remedy = "CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_DEBUG=1 (C: -g)";
    // Separate debug information may be installed.
    if has(".gnu_debuglink") {
        return None;
    }
    if !has(".symtab") {
        return Some(format!(
            "{} is stripped: its procedures will have no names; rebuild with {remedy}",
            path.display()
        ));
    }
    let has_lines = has(".debug_info") || has(".zdebug_info");
    (!has_lines).then(|| {
        format!(
            "{} has no debug information: no source lines, inlined code or overhead tags; rebuild with {remedy}",
            path.display()
        )
    })
}
