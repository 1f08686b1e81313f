//! Why a file that is written while the program runs is not readable.

use std::fmt;

/// See the module. The first field is what the file should be.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// It begins with other bytes.
    OtherKind(&'static str),
    /// Written by an incompatible version: its major and minor one, and the major one that is readable.
    Version(&'static str, [u16; 2], u16),
    /// Its bytes, and how many it has at least.
    TooShort(&'static str, usize, usize),
    /// A header field has an impossible value.
    BadHeader(&'static str),
    /// A process file ends before it says whose it is.
    NoStart,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::OtherKind(kind) => write!(f, "not a {kind}: wrong first bytes"),
            ReadError::Version(kind, [major, minor], readable) => write!(
                f,
                "{kind} version {major}.{minor} is not readable by this version ({readable}.x): use the \
                 hpcprof-rs of the same release"
            ),
            ReadError::TooShort(kind, bytes, least) => {
                write!(f, "truncated: {bytes} bytes, a {kind} has at least {least}")
            }
            ReadError::BadHeader(what) => write!(f, "corrupt header: {what}"),
            ReadError::NoStart => write!(f, "truncated before the end of its first entry"),
        }
    }
}

impl std::error::Error for ReadError {}
