//! Where an export goes: to standard output, or to a file, which appears when it is complete.

use crate::error::{Error, Result};
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Lets `print` write to `path`, where `-` is standard output.
pub(crate) fn write(
    path: &Path,
    stdout: &mut dyn Write,
    print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    if path == Path::new("-") {
        return print(stdout).map_err(Error::output);
    }
    // A temporary file's own name says nothing.
    let failed = |error: io::Error| Error::io("write", path)(error.kind().into());
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(Error::input(folder, "is no folder", "make it, or give -o another path"));
    }
    match std::fs::metadata(path) {
        Ok(known) if known.is_dir() => {
            let remedy = "give -o the name of a file, or - for standard output";
            Err(Error::input(path, "is a directory", remedy))
        }
        // A device or a pipe cannot be replaced.
        Ok(known) if !known.is_file() => {
            let file = File::options().write(true).open(path).map_err(failed)?;
            let mut out = BufWriter::new(file);
            print(&mut out).and_then(|()| out.flush()).map_err(failed)
        }
        Ok(_) => replace(&path.canonicalize().map_err(failed)?, print).map_err(failed),
        Err(_) => replace(path, print).map_err(failed),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a file, in the place of the one that is there.
fn replace(path: &Path, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let file = tempfile::Builder::new()
        .prefix(".hpcprof-")
        // What the user's mask allows, as for any new file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder_of(path))?;
    let mut out = BufWriter::new(file);
    print(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.persist(path)?;
    Ok(())
}
