//! The bytes of a file, mapped read-only. Unsafe code is here, in `bus`, in `gather` and in `reclaim`.
//!
//! Input: a path. Invariants: the bytes live as long as the [`FileBytes`]; where the file ends before them they are zero.

use crate::bus::Guard;
use crate::error::StructError;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file's contents, borrowed from a mapping.
#[derive(Debug)]
pub(crate) struct FileBytes {
    path: PathBuf,
    /// Of the file, when it was opened.
    metadata: Metadata,
    /// An empty file has none.
    mapped: Option<Mapped>,
}

/// A mapping. The guard comes first: it is dropped before what it guards.
#[derive(Debug)]
struct Mapped {
    guard: Guard,
    bytes: memmap2::Mmap,
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
        let mapped = match metadata.len() {
            0 => None,
            _ => Some(Mapped::new(&file).map_err(read)?),
        };
        Ok(FileBytes {
            path: path.to_owned(),
            metadata,
            mapped,
        })
    }

    /// Fails where the file was written to, or became shorter, since it was opened: what was read may be
    /// parts of two files. One that took its place is another file.
    pub(crate) fn check_unchanged(&self) -> Result<(), StructError> {
        let was_cut = self.mapped.as_ref().is_some_and(|m| m.guard.was_cut());
        let state = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec());
        let identity = |m: &Metadata| (m.dev(), m.ino());
        let was_written_to = std::fs::metadata(&self.path).is_ok_and(|now| {
            identity(&now) == identity(&self.metadata) && state(&now) != state(&self.metadata)
        });
        if was_cut || was_written_to {
            return Err(StructError::WrittenTo(self.path.clone()));
        }
        Ok(())
    }

    /// Lets the kernel take back the memory of pages that were read; they are read again from the
    /// file if need be. Best effort.
    pub(crate) fn forget_pages(&self) {
        if let Some(mapped) = &self.mapped {
            mapped.forget_pages();
        }
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.mapped.as_ref().map_or(&[], |mapped| &mapped.bytes)
    }
}

impl Mapped {
    fn new(file: &File) -> std::io::Result<Mapped> {
        // SAFETY: the mapping is private and read-only, owned by the returned value, and every
        // borrow of it ends with that value. A writer that changes the file under us changes
        // plain bytes, which every parser here checks; where one shortens it the guard puts
        // zeros. A panic unmaps it through the owner's drop.
        let bytes = unsafe { memmap2::Mmap::map(file) }?;
        Ok(Mapped {
            guard: Guard::new(&bytes),
            bytes,
        })
    }

    fn forget_pages(&self) {
        if self.guard.was_cut() {
            return;
        }
        // SAFETY: the mapping is of a file, private, and never written to, so a page that is
        // taken back comes back from the file with the same bytes, or as the guard's zeros: borrows of the
        // slice stay valid. Nothing here can panic.
        let _ = unsafe {
            self.bytes
                .unchecked_advise(memmap2::UncheckedAdvice::DontNeed)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_becomes_shorter_ends_in_zeros_and_is_told() {
        let path = std::env::temp_dir().join(format!("hpcstruct-bytes-{}", std::process::id()));
        std::fs::write(&path, vec![7; 1 << 20]).expect("written");
        let other = FileBytes::open(Path::new("/proc/self/exe")).expect("readable");
        let bytes = FileBytes::open(&path).expect("readable");
        assert!(bytes.check_unchanged().is_ok());
        assert_eq!(bytes.as_slice()[(1 << 20) - 1], 7);
        let file = File::options().write(true).open(&path).expect("opened");
        file.set_len(100).expect("cut");
        let read = bytes.as_slice();
        assert_eq!((read[99], read[5000], read[(1 << 20) - 1]), (7, 0, 0));
        assert!(bytes.mapped.as_ref().is_some_and(|m| m.guard.was_cut()));
        let error = bytes.check_unchanged().expect_err("cut").to_string();
        assert!(error.contains("while it was read"), "{error}");
        assert!(other.check_unchanged().is_ok());
        // The place in the list is used again, without what it knew.
        drop(bytes);
        let bytes = FileBytes::open(&path).expect("readable");
        assert!(bytes.check_unchanged().is_ok());
        assert_eq!(bytes.as_slice(), [7; 100]);
        // Another file in its place is none of ours.
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, b"other").expect("written");
        assert!(bytes.check_unchanged().is_ok());
        std::fs::remove_file(&path).expect("removed");
    }
}
