//! Bounds-checked little-endian reading and writing of byte buffers.

/// A reader over a byte slice; every method returns `None` past the end.
#[derive(Clone, Debug)]
pub(crate) struct ByteReader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        ByteReader { data, at: 0 }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.data.len() - self.at
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.data.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(n)?;
        let out = self.data.get(self.at..end)?;
        self.at = end;
        Some(out)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        let byte = *self.data.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn f64(&mut self) -> Option<f64> {
        Some(f64::from_bits(self.u64()?))
    }

    /// A number of up to ten bytes: seven bits each, the lowest first; all but the last have the highest bit.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A byte string with a 32-bit length before it.
    pub(crate) fn blob(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()?;
        self.take(n as usize)
    }

    /// A string with a 32-bit length before it; invalid UTF-8 is replaced.
    pub(crate) fn string(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.blob()?).into_owned())
    }
}

/// `to - from`, such that small numbers of either sign take few bytes.
#[inline]
pub(crate) fn difference(to: u32, from: u32) -> u64 {
    let step = i64::from(to) - i64::from(from);
    (step << 1 ^ step >> 63) as u64
}

/// Where such a difference leads to.
pub(crate) fn apart(difference: u64, from: u32) -> Option<u32> {
    let step = (difference >> 1) as i64 ^ -((difference & 1) as i64);
    u32::try_from(i64::from(from).checked_add(step)?).ok()
}

/// A growing little-endian buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteWriter {
    pub(crate) data: Vec<u8>,
}

impl ByteWriter {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn u8(&mut self, v: u8) {
        self.data.push(v);
    }

    pub(crate) fn u16(&mut self, v: u16) {
        self.data.extend_from_slice(&v.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, v: u32) {
        self.data.extend_from_slice(&v.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, v: u64) {
        self.data.extend_from_slice(&v.to_le_bytes());
    }

    pub(crate) fn f64(&mut self, v: f64) {
        self.u64(v.to_bits());
    }

    /// Appends bytes with a 32-bit length before them. Longer than 4 GiB is cut.
    pub(crate) fn blob(&mut self, v: &[u8]) {
        let n = u32::try_from(v.len()).unwrap_or(u32::MAX);
        self.u32(n);
        self.data.extend_from_slice(&v[..n as usize]);
    }

    /// Appends a string with a 32-bit length before it.
    pub(crate) fn string(&mut self, v: &str) {
        self.blob(v.as_bytes());
    }
}
