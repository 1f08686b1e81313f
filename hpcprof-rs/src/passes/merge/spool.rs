//! The values of threads on disk, until every context has its final number.
//!
//! A value is known with its context in the tree of one worker. Final numbers exist only when all workers are
//! done, so values wait in a temporary file: memory does not grow with the number of threads.

use crate::error::{Error, Result};
use integer_encoding::VarInt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Values of one context, as one record of a profile has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Innermost context of the logical projection, by the worker's index.
    pub logical: u32,
    /// The same of the physical projection.
    pub physical: u32,
    /// Id of the text of the overhead category in force plus one; 0 for none.
    pub tag: u32,
    /// Amounts: samples, work with overhead, idleness, squares of these, then the other metrics.
    pub amounts: Vec<u64>,
}

/// Where the entries of a thread are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Range {
    offset: u64,
    bytes: usize,
    pub entries: usize,
}

#[derive(Debug)]
pub struct Spool {
    file: File,
    buffer: Vec<u8>,
    written: u64,
    /// The context of the last entry, which the next one is stored relative to.
    last: (u32, u32),
}

const BUFFER: usize = 1 << 20;

impl Spool {
    /// A new file in `directory`, which has no name.
    pub fn new(directory: &Path) -> io::Result<Spool> {
        Ok(Spool { file: tempfile::tempfile_in(directory)?, buffer: Vec::new(), written: 0, last: (0, 0) })
    }

    /// Begins the entries of a thread.
    pub fn begin(&mut self) -> Range {
        self.last = (0, 0);
        Range { offset: self.written + self.buffer.len() as u64, bytes: 0, entries: 0 }
    }

    /// Adds an entry to `range`, which was begun last.
    pub fn push(&mut self, range: &mut Range, entry: &Entry) -> io::Result<()> {
        let before = self.buffer.len();
        put(i64::from(entry.logical) - i64::from(self.last.0), &mut self.buffer);
        put(i64::from(entry.physical) - i64::from(self.last.1), &mut self.buffer);
        put(entry.tag, &mut self.buffer);
        for amount in &entry.amounts {
            put(*amount, &mut self.buffer);
        }
        self.last = (entry.logical, entry.physical);
        range.bytes += self.buffer.len() - before;
        range.entries += 1;
        if self.buffer.len() > BUFFER { self.flush() } else { Ok(()) }
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Calls `each` for the entries of a thread, each with `amounts` amounts. The spool is flushed.
    pub fn read(
        &self,
        range: Range,
        amounts: usize,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&Entry),
    ) -> Result<()> {
        buffer.resize(range.bytes, 0);
        let failed = Error::io("read values from", Path::new("the temporary file"));
        self.file.read_exact_at(buffer, range.offset).map_err(failed)?;
        let mut rest = buffer.as_slice();
        let mut entry = Entry { amounts: vec![0; amounts], ..Entry::default() };
        for _ in 0..range.entries {
            entry.logical = entry.logical.wrapping_add(take::<i64>(&mut rest) as u32);
            entry.physical = entry.physical.wrapping_add(take::<i64>(&mut rest) as u32);
            entry.tag = take(&mut rest);
            for amount in &mut entry.amounts {
                *amount = take(&mut rest);
            }
            each(&entry);
        }
        Ok(())
    }
}

/// Writes a number in a few bytes.
fn put(value: impl VarInt, out: &mut Vec<u8>) {
    let mut bytes = [0; 10];
    let length = value.encode_var(&mut bytes);
    out.extend_from_slice(&bytes[..length]);
}

/// Reads one; 0 at the end.
fn take<T: VarInt + Default>(bytes: &mut &[u8]) -> T {
    let (value, length) = T::decode_var(bytes).unwrap_or_default();
    *bytes = &bytes[length..];
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn what_was_written_is_read_by_thread() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut spool = Spool::new(directory.path()).expect("a spool");
        let mut random = Rng::with_seed(5);
        let threads: Vec<Vec<Entry>> = (0..20)
            .map(|_| {
                let entry = |random: &mut Rng| Entry {
                    logical: random.u32(..),
                    physical: random.u32(..) >> random.u32(..31),
                    tag: random.u32(..3),
                    amounts: (0..4).map(|_| random.u64(..) >> random.u32(..63)).collect(),
                };
                (0..random.usize(..9000)).map(|_| entry(&mut random)).collect()
            })
            .collect();
        let write = |entries: &Vec<Entry>| {
            let mut range = spool.begin();
            for entry in entries {
                spool.push(&mut range, entry).expect("room");
            }
            range
        };
        let ranges: Vec<Range> = threads.iter().map(write).collect();
        spool.flush().expect("room");
        for (range, entries) in ranges.iter().zip(&threads).rev() {
            let mut read = Vec::new();
            spool.read(*range, 4, &mut Vec::new(), |entry| read.push(entry.clone())).expect("entries");
            assert_eq!(&read, entries);
        }
    }
}
