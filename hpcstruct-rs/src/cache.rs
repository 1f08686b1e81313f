//! Structures kept between runs, in the user's cache folder.
//!
//! Input: a module's path and the options; the environment names the folder. An entry's name is a
//! hash of everything that the result depends on: the module's identity (build id and size,
//! or place and time of change), its separate debug file's, the rules, the search folders, and this very program's.
//! Invariants: an entry appears whole (written beside, then renamed); one that is damaged, or
//! lacks wanted addresses, is made anew; a cache that cannot be read or written only costs time.

use crate::bytes::FileBytes;
use crate::image::Image;
use crate::{Analysis, Options, StructError, analyse_fully, separate};
use hpc_formats::structure::Structure;
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Changes with the meaning of what is stored.
const VERSION: u32 = 2;
/// Entries that nobody wrote for so long are removed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Extension of entries.
const EXTENSION: &str = "hpcstruct";

/// A folder of structures.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The user's: `$XDG_CACHE_HOME/hpcrun-rs/structure`, else below `~/.cache`; `None` when the
    /// environment names neither.
    pub fn of_user() -> Option<Cache> {
        let variable = |name| {
            let path = std::env::var_os(name).map(PathBuf::from);
            // The specification of these variables forbids relative paths.
            path.filter(|p| p.is_absolute())
        };
        let base =
            variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|h| h.join(".cache")));
        Some(Cache::at(&base?.join("hpcrun-rs/structure")))
    }

    /// The cache in `folder`, which is made when something is stored.
    pub fn at(folder: &Path) -> Cache {
        Cache {
            folder: folder.to_owned(),
        }
    }

    /// As [`crate::analyse`], taking the answer from the cache where it has it. An answer from
    /// there may have more procedures than were asked for.
    ///
    /// # Errors
    /// As [`crate::analyse`]; trouble with the cache is none.
    pub fn analyse(&self, path: &Path, options: &Options) -> Result<Structure, StructError> {
        let entry = self.entry(path, options);
        if let Some(found) = entry.as_deref().and_then(|e| read(e, options)) {
            return Ok(Structure {
                // Files of one build id may lie in several places.
                module: path.to_string_lossy().into_owned(),
                ..found
            });
        }
        let Analysis {
            structure,
            is_lasting,
            ..
        } = analyse_fully(path, options)?;
        if let Some(entry) = entry.filter(|_| is_lasting) {
            self.store(&entry, &structure, options.threads);
        }
        Ok(structure)
    }

    /// The file that has, or will have, the answer; `None` for what is no regular file.
    fn entry(&self, path: &Path, options: &Options) -> Option<PathBuf> {
        let bytes = FileBytes::open(path).ok()?;
        let image = Image::parse(path, bytes.as_slice()).ok()?;
        let mut key = foldhash::quality::FixedState::with_seed(u64::from(VERSION)).build_hasher();
        stamp(&std::env::current_exe().ok()?)?.hash(&mut key);
        if image.build_id.is_empty() {
            (stamp(path)?, std::fs::canonicalize(path).ok()?).hash(&mut key);
        } else {
            // Stripping keeps the build id, but not the size.
            (&image.build_id, bytes.as_slice().len()).hash(&mut key);
        }
        let debug_file = separate::find(&image, path, &options.debug_directories);
        debug_file
            .map(|(path, _)| (stamp(&path), path))
            .hash(&mut key);
        options.debug_directories.hash(&mut key);
        options.rules.texts().for_each(|text| text.hash(&mut key));
        let mut name = separate::hex(image.build_id.get(..8).unwrap_or(&image.build_id));
        // Writing to a string cannot fail.
        let _ = write!(name, "-{:016x}.{EXTENSION}", key.finish());
        Some(self.folder.join(name))
    }

    fn store(&self, entry: &Path, structure: &Structure, threads: usize) {
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder);
        let temporary = entry.with_extension(format!("{}.new", std::process::id()));
        let stored = made
            .and_then(|()| File::create(&temporary))
            .and_then(|mut file| structure.write(&mut file, threads))
            .and_then(|()| std::fs::rename(&temporary, entry));
        if stored.is_err() {
            // Best effort: it may not even exist.
            let _ = std::fs::remove_file(&temporary);
        }
        self.remove_old();
    }

    fn remove_old(&self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return;
        };
        let now = SystemTime::now();
        for entry in entries.flatten() {
            let changed = entry.metadata().and_then(|m| m.modified()).ok();
            let age = changed.and_then(|t| now.duration_since(t).ok());
            if age.is_some_and(|age| age > MAX_AGE) {
                // Best effort: another process may have been faster.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// An entry that answers the question; one that is damaged does not.
fn read(entry: &Path, options: &Options) -> Option<Structure> {
    let data = FileBytes::open(entry).ok()?;
    let structure = Structure::decode(data.as_slice()).ok()?;
    let covers = |addresses: &Vec<u64>| addresses.iter().all(|a| structure.span_at(*a).is_some());
    let answers = structure.complete || options.addresses.as_ref().is_some_and(covers);
    answers.then_some(structure)
}

/// Size, time of change and inode of a file: another file, or a changed one, has others.
fn stamp(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    let inode = metadata.ino();
    Some((
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        inode,
    ))
}
