//! The mappings of this process, as the kernel lists them. Not async-signal-safe.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A mapping, and the file it is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// The file's device and inode; inode 0: none.
    pub device: u64,
    /// See [`Self::device`].
    pub inode: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// Whether it may be executed.
    pub is_code: bool,
    /// The file's path, without the mark of a deleted file; empty if there is none.
    pub path: PathBuf,
}

/// All mappings, in order of address; none if the kernel does not say.
pub fn mappings() -> Vec<Mapping> {
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    text.split(|b| *b == b'\n').filter_map(parse).collect()
}

pub fn at(address: u64) -> Option<Mapping> {
    mappings().into_iter().find(|m| m.start <= address && address < m.end)
}

fn parse(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |b| *b == b' ').map(<[u8]>::trim_ascii_start);
    let mut field = || fields.next();
    let hex = |text: &[u8]| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
    let pair = |text: &[u8], by: u8| {
        let at = text.iter().position(|b| *b == by)?;
        Some((hex(&text[..at])?, hex(&text[at + 1..])?))
    };
    let (start, end) = pair(field()?, b'-')?;
    let (permissions, offset) = (field()?, hex(field()?)?);
    let (major, minor) = pair(field()?, b':')?;
    let inode = std::str::from_utf8(field()?).ok()?.parse().ok()?;
    let path = field().unwrap_or_default();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    Some(Mapping {
        start,
        end,
        device: libc::makedev(major as u32, minor as u32),
        inode,
        offset,
        is_code: permissions.get(2) == Some(&b'x'),
        path: Path::new(OsStr::from_bytes(path)).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = b"7f00-7fff r-xp 00001000 fd:02 12345                      /lib/a b.so (deleted)";
        let expected = Mapping {
            start: 0x7f00,
            end: 0x7fff,
            device: libc::makedev(0xfd, 2),
            inode: 12345,
            offset: 0x1000,
            is_code: true,
            path: "/lib/a b.so".into(),
        };
        assert_eq!(parse(line), Some(expected));
        let anonymous = parse(b"10-20 rw-p 00000000 00:00 0 ").expect("it is a line");
        assert_eq!((anonymous.end, anonymous.inode, anonymous.path), (0x20, 0, PathBuf::new()));
        assert!(!anonymous.is_code);
        assert_eq!(parse(b""), None);
        assert!(at(parse as *const () as u64).expect("code is mapped").inode != 0);
    }
}
