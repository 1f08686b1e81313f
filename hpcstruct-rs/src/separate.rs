//! Finds the separate debug file of a module: by build id, then by `.gnu_debuglink`.
//!
//! Input: the module's image, path and the folders to search. Invariant: a file is taken only if
//! it proves to belong to the module: the same build id, or the checksum that the link states.

use crate::bytes::FileBytes;
use crate::image::Image;
use object::Object as _;
use std::path::{Path, PathBuf};

/// The path of the separate debug file, if there is one that belongs to `image`.
pub(crate) fn find(
    image: &Image<'_>,
    module: &Path,
    folders: &[PathBuf],
) -> Option<(PathBuf, FileBytes)> {
    by_build_id(image, folders).or_else(|| by_link(image, module, folders))
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
        let same = Image::parse(&path, bytes.as_slice())
            .is_ok_and(|debug| debug.build_id == image.build_id);
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
        (crc32(bytes.as_slice()) == checksum).then_some((path, bytes))
    })
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The CRC-32 of `.gnu_debuglink` (IEEE, reflected).
fn crc32(data: &[u8]) -> u32 {
    let mut table = [0u32; 256];
    for (i, entry) in table.iter_mut().enumerate() {
        let mut value = i as u32;
        for _ in 0..8 {
            value = (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg());
        }
        *entry = value;
    }
    !data.iter().fold(!0u32, |crc, byte| {
        (crc >> 8) ^ table[((crc ^ u32::from(*byte)) & 0xff) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_the_usual_ones() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
