//! Files that are one checksummed payload behind a header: [`structure`](crate::structure) and
//! [`critical_path`](crate::critical_path). A file is written whole, so a truncated one is refused.
//!
//! | header offset | field |
//! |---|---|
//! | 0 | magic |
//! | 8 | u16 major, u16 minor version |
//! | 12 | u32 flags |
//! | 16 | u64 payload bytes |
//! | 24 | u64 CRC-32 (of IEEE 802.3) of the payload |

use crate::bytes::{ByteReader, ByteWriter};
use std::fmt;

/// Bytes before the payload.
pub const HEADER_SIZE: usize = 32;

/// A kind of such files.
#[derive(PartialEq, Eq, Debug)]
pub struct Kind {
    /// What messages call one.
    pub name: &'static str,
    pub magic: [u8; 8],
    /// Readers refuse another major version.
    pub major: u16,
    /// Readers accept any minor version, and ignore what follows the payload that they know.
    pub minor: u16,
    /// What to do about one that is not readable.
    pub remedy: &'static str,
}

/// Why a file is not readable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    kind: &'static Kind,
    cause: Cause,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Cause {
    /// The first bytes are not the magic.
    OtherKind,
    /// Written by an incompatible version.
    Version(u16, u16),
    /// Fewer bytes than stated.
    Truncated { found: u64, expected: u64 },
    /// The payload's checksum differs.
    Checksum,
    /// A field has an impossible value.
    Corrupt(&'static str),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kind { name, remedy, .. } = self.kind;
        match self.cause {
            Cause::OtherKind => write!(f, "not a {name}: wrong first bytes"),
            Cause::Version(major, minor) => write!(
                f,
                "{name} of version {major}.{minor} is not readable by this version ({}.x): {remedy}",
                self.kind.major
            ),
            Cause::Truncated { found, expected } => {
                write!(f, "{name} truncated: {found} of {expected} bytes: {remedy}")
            }
            Cause::Checksum => write!(f, "{name} damaged (wrong checksum): {remedy}"),
            Cause::Corrupt(what) => write!(f, "{name} damaged ({what}): {remedy}"),
        }
    }
}

impl std::error::Error for FileError {}

impl Kind {
    fn error(&'static self, cause: Cause) -> FileError {
        FileError { kind: self, cause }
    }

    pub(crate) fn corrupt(&'static self, what: &'static str) -> FileError {
        self.error(Cause::Corrupt(what))
    }

    pub(crate) fn header(&self, flags: u32, length: u64, sum: u32) -> Vec<u8> {
        let mut w = ByteWriter::new();
        w.data.extend(self.magic);
        w.u16(self.major);
        w.u16(self.minor);
        w.u32(flags);
        w.u64(length);
        w.u64(u64::from(sum));
        w.data
    }

    /// A file's minor version, flags and payload.
    pub(crate) fn open<'a>(&'static self, data: &'a [u8]) -> Result<(u16, u32, &'a [u8]), FileError> {
        let mut header = ByteReader::new(data);
        if header.take(self.magic.len()) != Some(self.magic.as_slice()) {
            return Err(self.error(Cause::OtherKind));
        }
        let truncated = |expected| {
            let found = data.len() as u64;
            self.error(Cause::Truncated { found, expected })
        };
        let mut fields = || {
            let version = (header.u16()?, header.u16()?);
            Some((version, header.u32()?, header.u64()?, header.u64()?))
        };
        let fields = fields().ok_or(truncated(HEADER_SIZE as u64))?;
        let ((major, minor), flags, length, sum) = fields;
        if major != self.major {
            return Err(self.error(Cause::Version(major, minor)));
        }
        let payload = usize::try_from(length).ok().and_then(|n| header.take(n));
        let payload = payload.ok_or(truncated(length.saturating_add(HEADER_SIZE as u64)))?;
        if u64::from(crc32fast::hash(payload)) != sum {
            return Err(self.error(Cause::Checksum));
        }
        Ok((minor, flags, payload))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `bytes` with another payload, and its right checksum.
    pub(crate) fn signed(bytes: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut out = bytes[..16].to_vec();
        out.extend((payload.len() as u64).to_le_bytes());
        out.extend(u64::from(crc32fast::hash(payload)).to_le_bytes());
        out.extend(payload);
        out
    }

    /// Every truncation is an error, every flipped bit is found but those of the flags and the minor version,
    /// and other versions are refused by name.
    pub(crate) fn check_reader<T>(
        kind: &'static Kind,
        bytes: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, FileError>,
    ) {
        for n in 0..bytes.len() {
            let expected = if n < HEADER_SIZE { HEADER_SIZE } else { bytes.len() };
            let (found, expected) = (n as u64, expected as u64);
            let expected = match n {
                0..8 => Cause::OtherKind,
                _ => Cause::Truncated { found, expected },
            };
            assert_eq!(decode(&bytes[..n]).err(), Some(kind.error(expected)), "{n}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let tolerated = (10..16).contains(&(bit / 8));
            assert_eq!(decode(&damaged).is_ok(), tolerated, "bit {bit}");
        }
        let mut other = bytes.to_vec();
        other[8] = 99;
        let error = decode(&other).err().expect("another version").to_string();
        assert!(error.contains(" 99.") && error.contains(kind.remedy), "{error}");
    }
}
