//! Finds the separate debug file of a module, by build id, then by `.gnu_debuglink`; and the
//! file that dwz shares among several.
//!
//! Input: the module's image, path and the folders to search. Invariant: a file is taken only if
//! it proves to belong to the module: the same build id, or the checksum that the link states.

use crate::base::error::StructError;
use crate::input::file_bytes::FileBytes;
use crate::input::image::Image;
use crate::input::mini_debug_info;
use object::Object as _;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The files around a module that tell more of it.
#[derive(Debug, Default)]
pub(crate) struct Files {
    separate: Option<(PathBuf, FileBytes)>,
    /// The file that dwz shares among modules.
    shared: Option<FileBytes>,
    /// The module's own compressed symbols, unpacked.
    symbols: Option<Vec<u8>>,
}

/// The same, parsed.
#[derive(Debug)]
pub(crate) struct Parsed<'f> {
    separate: Option<(&'f Path, Image<'f>)>,
    shared: Option<object::File<'f>>,
    symbols: Option<Image<'f>>,
}

/// Looks for the files of the module at `path`; without `folders`, only inside the module.
pub(crate) fn open(
    image: &Image<'_>,
    path: &Path,
    folders: Option<&[PathBuf]>,
    notes: &mut Vec<String>,
) -> Files {
    let mut files = Files { symbols: mini_debug_info::symbols(&image.file, notes), ..Files::default() };
    if let Some(folders) = folders {
        files.separate = find(image, path, folders);
        let found = match &files.separate {
            Some((path, bytes)) => {
                Image::parse(path, bytes.as_slice()).ok().and_then(|image| find_shared(&image, path, folders))
            }
            None => find_shared(image, path, folders),
        };
        match found {
            Some(Ok(bytes)) => files.shared = Some(bytes),
            Some(Err(note)) => notes.push(note),
            None => {}
        }
    }
    files
}

/// The separate debug file, if there is one that belongs to `image`.
pub(crate) fn find(image: &Image<'_>, module: &Path, folders: &[PathBuf]) -> Option<(PathBuf, FileBytes)> {
    by_build_id(image, folders).or_else(|| by_link(image, module, folders))
}

impl Files {
    /// As [`FileBytes::check_unchanged`], of all of them.
    pub(crate) fn check_unchanged(&self) -> Result<(), StructError> {
        let separate = self.separate.as_ref().map(|(_, bytes)| bytes);
        let mut files = separate.into_iter().chain(&self.shared);
        files.try_for_each(FileBytes::check_unchanged)
    }

    /// Parses the files; one that is damaged counts as absent.
    pub(crate) fn parse(&self) -> Parsed<'_> {
        let separate = self.separate.as_ref().and_then(|(path, bytes)| {
            let image = Image::parse(path, bytes.as_slice()).ok()?;
            Some((path.as_path(), image))
        });
        let shared = self.shared.as_ref();
        let symbols = self.symbols.as_ref();
        Parsed {
            separate,
            shared: shared.and_then(|bytes| object::File::parse(bytes.as_slice()).ok()),
            symbols: symbols
                .and_then(|bytes| Image::parse(Path::new(mini_debug_info::SECTION), bytes.as_slice()).ok()),
        }
    }
}

impl<'f> Parsed<'f> {
    /// Where the debug information is: the separate file, else the module; then the file that dwz
    /// shares among modules, if there is one.
    pub(crate) fn with_entries<'i>(&'i self, image: &'i Image<'f>) -> Vec<&'i object::File<'f>> {
        let own = self.separate.as_ref().map_or(&image.file, |(_, i)| &i.file);
        std::iter::once(own).chain(&self.shared).collect()
    }

    /// The path of the separate debug file.
    pub(crate) fn path(&self) -> Option<&'f Path> {
        self.separate.as_ref().map(|(path, _)| *path)
    }

    /// All that have symbol tables: the module first.
    pub(crate) fn with_symbols<'i>(&'i self, image: &'i Image<'f>) -> Vec<&'i Image<'f>> {
        let separate = self.separate.as_ref().map(|(_, image)| image);
        std::iter::once(image).chain(separate).chain(&self.symbols).collect()
    }
}

fn by_build_id(image: &Image<'_>, folders: &[PathBuf]) -> Option<(PathBuf, FileBytes)> {
    let (first, rest) = image.build_id.split_first()?;
    if rest.is_empty() {
        return None;
    }
    let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
    folders.iter().find_map(|folder| {
        let path = folder.join(&name);
        let bytes = FileBytes::open(&path).ok()?;
        let same = Image::parse(&path, bytes.as_slice()).is_ok_and(|debug| debug.build_id == image.build_id);
        same.then_some((path, bytes))
    })
}

fn by_link(image: &Image<'_>, module: &Path, folders: &[PathBuf]) -> Option<(PathBuf, FileBytes)> {
    let (name, checksum) = image.file.gnu_debuglink().ok()??;
    let name = std::str::from_utf8(name).ok()?;
    // A link is a file name; one with a path in it could lead anywhere.
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let module = std::fs::canonicalize(module).ok()?;
    let folder = module.parent()?;
    let mut candidates = vec![folder.join(name), folder.join(".debug").join(name)];
    for root in folders {
        if let Ok(below) = folder.strip_prefix("/") {
            candidates.push(root.join(below).join(name));
        }
    }
    candidates.into_iter().find_map(|path| {
        if path == module {
            return None;
        }
        let bytes = FileBytes::open(&path).ok()?;
        (crc32fast::hash(bytes.as_slice()) == checksum).then_some((path, bytes))
    })
}

/// The file that dwz shares among modules, which `.gnu_debugaltlink` of `image` (the file at
/// `path`) names: with the build id that the link states.
fn find_shared(image: &Image<'_>, path: &Path, folders: &[PathBuf]) -> Option<Result<FileBytes, String>> {
    let (name, id) = image.file.gnu_debugaltlink().ok()??;
    let name = Path::new(OsStr::from_bytes(name));
    let mut candidates = Vec::new();
    if let Some(folder) = path.parent() {
        // An absolute name replaces the folder.
        candidates.push(folder.join(name));
    }
    for folder in folders {
        if let Some((first, rest)) = id.split_first().filter(|(_, rest)| !rest.is_empty()) {
            candidates.push(folder.join(format!(".build-id/{first:02x}/{}.debug", hex(rest))));
        }
        if let Some(base) = name.file_name() {
            candidates.push(folder.join(".dwz").join(base));
        }
    }
    let belongs = |bytes: &FileBytes| {
        let file = object::File::parse(bytes.as_slice()).ok();
        file.is_some_and(|file| file.build_id().ok().flatten() == Some(id))
    };
    let found = candidates.into_iter().filter_map(|path| FileBytes::open(&path).ok()).find(belongs);
    Some(found.ok_or_else(|| {
        format!(
            "some names are in a debug file shared with other modules, which is not found ({}): \
             install it, or name its folder with --debug-dir",
            name.display()
        )
    }))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_two_a_byte() {
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
