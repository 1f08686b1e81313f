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

use crate::bytes::ByteWriter;
use crate::error::{Cause, FileError, Kind};

/// Bytes before the payload.
pub const HEADER_SIZE: usize = 32;

impl Kind {
    pub(crate) fn header(&self, flags: u32, length: u64, sum: u32) -> Vec<u8> {
        let mut w = ByteWriter::new();
        w.data.extend(self.magic);
        w.u32(self.version());
        w.u32(flags);
        w.u64(length);
        w.u64(u64::from(sum));
        w.data
    }

    /// A file's minor version, flags and payload.
    pub(crate) fn open<'a>(&'static self, data: &'a [u8]) -> Result<(u16, u32, &'a [u8]), FileError> {
        let mut header = self.begin(data, HEADER_SIZE)?;
        let minor = u16::from_le_bytes([data[10], data[11]]);
        let mut fields = || Some((header.u32()?, header.u64()?, header.u64()?));
        let (flags, length, sum) = fields().ok_or(self.truncated(data, HEADER_SIZE as u64))?;
        let payload = usize::try_from(length).ok().and_then(|n| header.take(n));
        let payload = payload.ok_or(self.truncated(data, length.saturating_add(HEADER_SIZE as u64)))?;
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
            let truncated = kind.truncated(&bytes[..n], expected as u64);
            assert_eq!(decode(&bytes[..n]).err(), Some(truncated), "{n}");
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
