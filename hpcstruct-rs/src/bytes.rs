//! The bytes of a file, mapped read-only. Unsafe code is here, in `gather` and in `reclaim`.
//!
//! Input: a path. Invariant: the bytes live as long as the [`FileBytes`].

use crate::error::StructError;
use std::fs::File;
use std::path::Path;

/// A file's contents, borrowed from a mapping.
#[derive(Debug)]
pub(crate) struct FileBytes(Contents);

#[derive(Debug)]
enum Contents {
    Mapped(memmap2::Mmap),
    Empty,
}

impl FileBytes {
    /// Maps the file at `path`; a directory, a device or an unreadable file is an error.
    pub(crate) fn open(path: &Path) -> Result<FileBytes, StructError> {
        let read = |error| StructError::Read {
            path: path.to_owned(),
            error,
        };
        // Before it is opened: to open a named pipe is to wait for its writer.
        if !std::fs::metadata(path).map_err(read)?.is_file() {
            return Err(read(std::io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(read)?;
        let metadata = file.metadata().map_err(read)?;
        if metadata.len() == 0 {
            return Ok(FileBytes(Contents::Empty));
        }
        // SAFETY: the mapping is private and read-only, owned by the returned value, and every
        // borrow of it ends with that value. A writer that changes the file under us changes
        // plain bytes, which every parser here checks; one that shortens it raises SIGBUS, as
        // for any tool that maps its input (linkers replace files by rename, never in place).
        // A panic unmaps it through the owner's drop.
        let mapping = unsafe { memmap2::Mmap::map(&file) }.map_err(read)?;
        Ok(FileBytes(Contents::Mapped(mapping)))
    }

    /// Lets the kernel take back the memory of pages that were read; they are read again from the
    /// file if need be. Best effort.
    pub(crate) fn forget_pages(&self) {
        if let Contents::Mapped(mapping) = &self.0 {
            // SAFETY: the mapping is of a file, private, and never written to, so a page that is
            // taken back comes back from the file with the same bytes: borrows of the slice stay
            // valid. Nothing here can panic.
            let _ = unsafe { mapping.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Contents::Mapped(mapping) => mapping,
            Contents::Empty => &[],
        }
    }
}
