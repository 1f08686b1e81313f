//! The bytes of a file, mapped read-only. The only unsafe code of the library.
//!
//! A file that becomes shorter while it is mapped makes the kernel send `SIGBUS`, which this library
//! leaves to the program. Any other change is an error afterwards: [`FileBytes::check_unchanged`].

use crate::base::error::StructError;
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
    mapped: Option<memmap2::Mmap>,
}

impl FileBytes {
    /// Maps the file at `path`; a directory, a device or an unreadable file is an error.
    pub(crate) fn open(path: &Path) -> Result<FileBytes, StructError> {
        let read = StructError::reading(path);
        // Before it is opened: to open a named pipe is to wait for its writer.
        if !std::fs::metadata(path).map_err(&read)?.is_file() {
            return Err(read(std::io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(&read)?;
        let metadata = file.metadata().map_err(&read)?;
        let mapped = match metadata.len() {
            0 => None,
            // SAFETY: the mapping is private and read-only, owned by the returned value, and every
            // borrow of it ends with that value. A writer that changes the file changes plain bytes,
            // which every parser here checks; one that shortens it ends the process by SIGBUS. A
            // panic unmaps it through the owner's drop.
            _ => Some(unsafe { memmap2::Mmap::map(&file) }.map_err(read)?),
        };
        Ok(FileBytes { path: path.to_owned(), metadata, mapped })
    }

    /// Fails where the file was written to since it was opened: what was read may be parts of two
    /// files. One that took its place is another file.
    pub(crate) fn check_unchanged(&self) -> Result<(), StructError> {
        let state = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec());
        let identity = |m: &Metadata| (m.dev(), m.ino());
        let was_written_to = std::fs::metadata(&self.path).is_ok_and(|now| {
            identity(&now) == identity(&self.metadata) && state(&now) != state(&self.metadata)
        });
        if was_written_to {
            return Err(StructError::WrittenTo(self.path.clone()));
        }
        Ok(())
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.mapped.as_deref().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_to_is_told() {
        let path = std::env::temp_dir().join(format!("hpcstruct-bytes-{}", std::process::id()));
        std::fs::write(&path, [7; 100]).expect("written");
        let bytes = FileBytes::open(&path).expect("readable");
        assert!(bytes.check_unchanged().is_ok());
        assert_eq!(bytes.as_slice(), [7; 100]);
        let file = File::options().write(true).open(&path).expect("opened");
        file.set_len(200).expect("longer");
        let error = bytes.check_unchanged().expect_err("written to").to_string();
        assert!(error.contains("while it was read"), "{error}");
        // A file that took its place is another file.
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, b"other").expect("written");
        assert!(bytes.check_unchanged().is_ok());
        std::fs::remove_file(&path).expect("removed");
    }
}
