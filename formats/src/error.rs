//! Kinds of files, and why one is not readable. Each file begins with a magic of its kind, a u16 major and a
//! u16 minor version.

use crate::bytes::ByteReader;
use std::fmt;

/// A kind of files.
#[derive(PartialEq, Eq, Debug)]
pub struct Kind {
    /// What messages call one.
    pub name: &'static str,
    pub magic: [u8; 8],
    /// Readers refuse another major version.
    pub major: u16,
    /// Readers accept any minor version, and ignore what they do not know.
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
pub(crate) enum Cause {
    /// The first bytes are not the magic.
    OtherKind,
    /// Written by an incompatible version.
    Version(u16, u16),
    /// Fewer bytes than stated, or than all files of the kind have.
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
    /// A kind that hpcrun-rs writes while the program runs.
    pub(crate) const fn measured(name: &'static str, magic: [u8; 8], major: u16) -> Kind {
        let remedy = "use the hpcprof-rs of the same release, or measure again";
        Kind { name, magic, major, minor: 0, remedy }
    }

    /// Both versions, as they follow the magic.
    pub const fn version(&self) -> u32 {
        self.major as u32 | (self.minor as u32) << 16
    }

    pub(crate) fn error(&'static self, cause: Cause) -> FileError {
        FileError { kind: self, cause }
    }

    pub(crate) fn corrupt(&'static self, what: &'static str) -> FileError {
        self.error(Cause::Corrupt(what))
    }

    pub(crate) fn truncated(&'static self, data: &[u8], expected: u64) -> FileError {
        self.error(Cause::Truncated { found: data.len() as u64, expected })
    }

    /// What follows the versions in a file of this kind, which has at least so many bytes.
    pub(crate) fn begin<'a>(
        &'static self,
        data: &'a [u8],
        least: usize,
    ) -> Result<ByteReader<'a>, FileError> {
        let known = data.len().min(self.magic.len());
        if data[..known] != self.magic[..known] {
            return Err(self.error(Cause::OtherKind));
        }
        let mut header = ByteReader::new(data);
        let mut versions = || {
            header.take(known)?;
            Some((header.u16()?, header.u16()?)).filter(|_| data.len() >= least)
        };
        match versions() {
            None => Err(self.truncated(data, least as u64)),
            Some((major, _)) if major == self.major => Ok(header),
            Some((major, minor)) => Err(self.error(Cause::Version(major, minor))),
        }
    }
}
