//! Structures kept between runs, in the user's cache folder.
//!
//! An entry's name is a hash of everything that the result depends on: the module's identity (build
//! id and size, or path and time of change), its separate debug file, the rules, the search folders
//! and this program. Invariants: an entry appears whole (written beside, then renamed); a damaged
//! entry is replaced; an entry that lacks wanted addresses is replaced by one with both; a cache that
//! cannot be read or written only costs time.

use crate::input::debug_file;
use crate::input::file_bytes::FileBytes;
use crate::input::image::Image;
use crate::{Analysis, Options, StructError, analyse_fully};
use hpc_formats::structure::Structure;
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// Changes with the meaning of what is stored.
const VERSION: u32 = 14;
/// Older entries are removed.
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
        let base = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|h| h.join(".cache")));
        Some(Cache::at(&base?.join("hpcrun-rs/structure")))
    }

    /// The cache in `folder`, which is made when something is stored.
    pub fn at(folder: &Path) -> Cache {
        Cache { folder: folder.to_owned() }
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// As [`crate::analyse`], taking the answer from the cache where it has it. An answer from
    /// there may have more procedures than were asked for.
    ///
    /// # Errors
    /// As [`crate::analyse`]; problems of the cache are no errors.
    pub fn analyse(&self, path: &Path, options: &Options) -> Result<Structure, StructError> {
        self.answer(path, options).map(|answer| answer.structure)
    }

    /// As [`Cache::analyse`], and where the answer is from.
    ///
    /// # Errors
    /// As [`crate::analyse`]; problems of the cache are no errors.
    pub fn answer(&self, path: &Path, options: &Options) -> Result<Answer, StructError> {
        let entry = self.entry(path, options);
        let kept = entry.as_deref().and_then(Kept::read);
        let kept = match kept {
            Some(kept) if kept.answers(options) => {
                return Ok(Answer {
                    structure: Structure {
                        // Files of one build id may lie in several places.
                        module: path.to_string_lossy().into_owned(),
                        ..kept.structure
                    },
                    from_cache: true,
                });
            }
            other => other,
        };
        // Addresses of earlier requests are included: otherwise two users would replace each other's entry.
        let wider = Options {
            addresses: options.addresses.as_ref().map(|wanted| {
                let before = kept.iter().flat_map(Kept::addresses);
                wanted.iter().copied().chain(before).collect()
            }),
            ..options.clone()
        };
        drop(kept);
        let Analysis { structure, cacheable, .. } = analyse_fully(path, &wider)?;
        if let Some(entry) = entry.filter(|_| cacheable) {
            self.store(&entry, &structure, &wider);
        }
        Ok(Answer { structure, from_cache: false })
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
        let debug_file = debug_file::find(&image, path, &options.debug_directories);
        debug_file.map(|(path, _)| (stamp(&path), path)).hash(&mut key);
        (options.loops, &options.debug_directories).hash(&mut key);
        options.rules.texts().for_each(|text| text.hash(&mut key));
        let mut name = debug_file::hex(image.build_id.get(..8).unwrap_or(&image.build_id));
        // Writing to a string cannot fail.
        let _ = write!(name, "-{:016x}.{EXTENSION}", key.finish());
        Some(self.folder.join(name))
    }

    fn store(&self, entry: &Path, structure: &Structure, options: &Options) {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        // Several threads may store at once, and several processes.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = entry.with_extension(format!("{}-{number}.new", std::process::id()));
        let head = head(structure, options.addresses.as_deref().unwrap_or(&[]));
        let stored = made
            .and_then(|()| File::create(&temporary))
            .and_then(|mut file| {
                file.write_all(&head)?;
                file.write_all(&structure.encode())
            })
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

/// An answer of a [`Cache`].
#[derive(Clone, Debug)]
pub struct Answer {
    /// The structure; it may have more procedures than were asked for.
    pub structure: Structure,
    /// Whether nothing had to be analysed.
    pub from_cache: bool,
}

/// An entry: addresses that were asked for and that no procedure holds, then a structure file.
#[derive(Debug)]
struct Kept {
    /// Ascending.
    nowhere: Vec<u64>,
    structure: Structure,
}

/// Begins an entry; then come the number of addresses, their hash, and they themselves, eight bytes each.
const MAGIC: &[u8; 8] = b"hpckept1";

/// What precedes the structure in its entry; `asked` are the addresses that were wanted.
fn head(structure: &Structure, asked: &[u64]) -> Vec<u8> {
    let mut nowhere: Vec<u64> = asked.to_vec();
    nowhere.retain(|a| structure.span_at(*a).is_none());
    nowhere.sort_unstable();
    nowhere.dedup();
    let addresses: Vec<u8> = nowhere.iter().flat_map(|a| a.to_le_bytes()).collect();
    let mut out = MAGIC.to_vec();
    out.extend((nowhere.len() as u64).to_le_bytes());
    out.extend(sum(&addresses).to_le_bytes());
    out.extend(addresses);
    out
}

fn sum(bytes: &[u8]) -> u64 {
    foldhash::quality::FixedState::with_seed(u64::from(VERSION)).hash_one(bytes)
}

impl Kept {
    /// An entry that is whole.
    fn read(entry: &Path) -> Option<Kept> {
        let data = FileBytes::open(entry).ok()?;
        let (magic, data) = data.as_slice().split_first_chunk()?;
        let (count, data) = data.split_first_chunk()?;
        let (stated, data) = data.split_first_chunk()?;
        let bytes = u64::from_le_bytes(*count).checked_mul(8)?;
        let (addresses, data) = data.split_at_checked(usize::try_from(bytes).ok()?)?;
        if magic != MAGIC || u64::from_le_bytes(*stated) != sum(addresses) {
            return None;
        }
        let word = |b: &[u8]| b.try_into().map(u64::from_le_bytes).unwrap_or(0);
        Some(Kept {
            nowhere: addresses.chunks_exact(8).map(word).collect(),
            structure: Structure::decode(data).ok()?,
        })
    }

    /// Whether everything that is wanted was analysed.
    fn answers(&self, options: &Options) -> bool {
        let structure = &self.structure;
        let known = |a: &u64| structure.span_at(*a).is_some() || self.nowhere.binary_search(a).is_ok();
        let wanted = options.addresses.as_ref();
        structure.complete || wanted.is_some_and(|wanted| wanted.iter().all(known))
    }

    /// Addresses that ask for all that is here: one of each piece of code.
    fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        let spans = &self.structure.spans;
        let pieces = spans.chunk_by(|a, b| a.end == b.start && a.procedure == b.procedure);
        let starts = pieces.filter_map(|p| p.first().map(|s| s.start));
        starts.chain(self.nowhere.iter().copied())
    }
}

/// Size, time of change and inode of a file: another file, or a changed one, has others.
fn stamp(path: &Path) -> Option<(u64, i64, i64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    let inode = metadata.ino();
    Some((metadata.len(), metadata.mtime(), metadata.mtime_nsec(), inode))
}
