//! The line table of a unit as sorted, half-open address ranges.
//!
//! Invariants: rows are sorted by start and do not overlap; of several rows at one address the last
//! one counts; of several sequences over the same code the first one does; a damaged program yields
//! the rows before the damage.

use super::{Debug, Reader};
use gimli::{Dwarf, LineRow, Unit};
use std::ops::Range;

/// Code of one source line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// File index in the unit's line table.
    pub(crate) file: u32,
    /// Line; 0 when the compiler names none.
    pub(crate) line: u32,
}

/// Runs the line program of unit `index` and writes its rows into `out`. Sequences that begin where
/// `begins` is false are left out: the linker dropped their functions. `keep` filters rows by range.
/// Returns what is damaged.
pub(crate) fn rows(
    debug: &Debug<'_>,
    index: u32,
    begins: impl Fn(u64) -> bool,
    keep: impl Fn(u64, u64) -> bool,
    out: &mut Vec<Row>,
) -> Option<String> {
    out.clear();
    let unit = debug.units.get(debug.lines_of(index) as usize)?;
    let program = unit.line_program.as_ref()?;
    let mut collector = Collector { begins, keep, out, open: None, in_code: None };
    let mut damage = None;
    let mut rows = program.clone().rows();
    loop {
        match rows.next_row() {
            Ok(Some((_, row))) => collector.add(row),
            Ok(None) => break,
            Err(error) => {
                damage = Some(format!("damaged line table: {error}"));
                break;
            }
        }
    }
    out.sort_by_key(|r| r.start);
    remove_overlaps(out);
    damage
}

/// Makes ranges of rows.
struct Collector<'o, B, K> {
    begins: B,
    keep: K,
    out: &'o mut Vec<Row>,
    /// The row before, whose end is not known yet.
    open: Option<Row>,
    /// Whether the sequence begins in code; `None` before its first row.
    in_code: Option<bool>,
}

impl<B: Fn(u64) -> bool, K: Fn(u64, u64) -> bool> Collector<'_, B, K> {
    #[inline]
    fn add(&mut self, row: &LineRow) {
        if let Some(mut before) = self.open.take() {
            before.end = row.address();
            if before.end > before.start && (self.keep)(before.start, before.end) {
                self.out.push(before);
            }
        }
        let in_code = *self.in_code.get_or_insert_with(|| (self.begins)(row.address()));
        if row.end_sequence() {
            self.in_code = None;
        } else if in_code {
            self.open = Some(Row {
                start: row.address(),
                end: 0,
                file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
                line: row.line().and_then(|l| u32::try_from(l.get()).ok()).unwrap_or(0),
            });
        }
    }
}

/// Sequences of one unit may overlap (folded functions): the first one keeps the code.
fn remove_overlaps(rows: &mut Vec<Row>) {
    let mut free_from = 0;
    rows.retain_mut(|row| {
        row.start = row.start.max(free_from);
        let keep = row.start < row.end;
        if keep {
            free_from = row.end;
        }
        keep
    });
}

pub(crate) fn row_at(rows: &[Row], address: u64) -> Option<&Row> {
    let after = rows.partition_point(|r| r.start <= address);
    rows.get(after.checked_sub(1)?).filter(|r| address < r.end)
}

/// The rows that have code of some ranges, range by range.
pub(crate) fn rows_in<'r>(rows: &'r [Row], ranges: &'r [Range<u64>]) -> impl Iterator<Item = &'r Row> {
    ranges.iter().flat_map(|range| {
        let first = rows.partition_point(|row| row.end <= range.start);
        rows[first..].iter().take_while(|row| row.start < range.end)
    })
}

/// Cuts ranges at the boundaries of rows; ranges mostly follow each other.
#[derive(Debug)]
pub(crate) struct Cutter<'r> {
    rows: &'r [Row],
    /// The row to look at next.
    next: usize,
}

impl<'r> Cutter<'r> {
    pub(crate) fn new(rows: &'r [Row]) -> Self {
        Cutter { rows, next: 0 }
    }

    /// Hands the parts of a range to `emit`, each with its row; parts without a row are kept.
    pub(crate) fn cut(&mut self, range: &Range<u64>, mut emit: impl FnMut(Range<u64>, Option<&'r Row>)) {
        let (mut at, end) = (range.start, range.end);
        let is_before = |row: &Row| row.end <= at;
        // The last row of the range before may go on into this one.
        let mut next = self.next.saturating_sub(1);
        if next > 0 && !is_before(&self.rows[next - 1]) {
            next = 0;
        }
        next += self.rows[next..].partition_point(is_before);
        while at < end {
            let start = at;
            let found = self.rows.get(next).filter(|r| r.start < end);
            let row = match found {
                Some(row) if row.start <= at => {
                    at = row.end.min(end);
                    next += 1;
                    Some(row)
                }
                Some(row) => {
                    at = row.start;
                    None
                }
                None => {
                    at = end;
                    None
                }
            };
            emit(start..at, row);
        }
        self.next = next;
    }
}

/// What a line table writes of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written<'d> {
    /// The compilation directory and that of the file.
    directories: [Option<&'d [u8]>; 2],
    name: &'d [u8],
}

/// What is written of file `file` in the line table of unit `unit`.
pub(crate) fn written<'d>(debug: &Debug<'d>, unit: u32, file: u64) -> Option<Written<'d>> {
    let number = debug.lines_of(unit);
    let unit = debug.units.get(number as usize)?;
    let dwarf = debug.dwarf(number)?;
    let header = unit.line_program.as_ref()?.header();
    let entry = header.file(file)?;
    let directory = entry.directory(header).and_then(|value| bytes(dwarf, unit, value));
    let compilation = unit.comp_dir.map(|d| d.slice());
    // Directory 0 is the compilation directory itself, before DWARF 5 without an entry. It may be a
    // relative one (a mapped prefix), which must not be joined to itself as older LLVM does.
    let is_compilation = entry.directory_index() == 0;
    Some(Written {
        directories: match is_compilation {
            true => [directory.filter(|_| header.version() >= 5).or(compilation), None],
            false => [compilation, directory],
        },
        name: bytes(dwarf, unit, entry.path_name())?,
    })
}

fn bytes<'d>(
    dwarf: &Dwarf<Reader<'d>>,
    unit: &Unit<Reader<'d>>,
    value: gimli::AttributeValue<Reader<'d>>,
) -> Option<&'d [u8]> {
    Some(dwarf.attr_string(unit, value).ok()?.slice())
}

impl Written<'_> {
    /// Writes a key that identifies the file into `out`; texts contain no zeros.
    pub(crate) fn key(&self, out: &mut Vec<u8>) {
        out.clear();
        for directory in self.directories {
            out.push(u8::from(directory.is_some()));
            out.extend_from_slice(directory.unwrap_or_default());
            out.push(0);
        }
        out.extend_from_slice(self.name);
    }

    /// The full path.
    pub(crate) fn path(&self) -> String {
        let name = String::from_utf8_lossy(self.name);
        if name.starts_with('/') {
            return clean(name.into_owned());
        }
        let mut path = String::with_capacity(128);
        let [compilation, directory] = self.directories.map(|d| d.map(String::from_utf8_lossy));
        path.push_str(compilation.as_deref().unwrap_or_default());
        if let Some(directory) = directory {
            join(&mut path, &directory);
        }
        join(&mut path, &name);
        clean(path)
    }
}

/// Appends `next` to a path, or replaces it by an absolute one.
fn join(path: &mut String, next: &str) {
    if next.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(next);
}

/// Removes `.` segments and resolves `..` by name.
fn clean(path: String) -> String {
    let doubtful = |pair: &[u8]| matches!(pair, b"/." | b"//");
    if !path.as_bytes().windows(2).any(doubtful) {
        return path;
    }
    let absolute = path.starts_with('/');
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." if segments.last().is_some_and(|s| *s != "..") => {
                segments.pop();
            }
            ".." if absolute => {}
            _ => segments.push(segment),
        }
    }
    let body = segments.join("/");
    if absolute { format!("/{body}") } else { body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_by_name() {
        assert_eq!(clean("/a/./b/../c.rs".to_owned()), "/a/c.rs");
        assert_eq!(clean("/../x".to_owned()), "/x");
        assert_eq!(clean("../x/./y".to_owned()), "../x/y");
        assert_eq!(clean("/a//b".to_owned()), "/a/b");
        assert_eq!(clean("/a/.hidden/b".to_owned()), "/a/.hidden/b");
    }

    #[test]
    fn ranges_are_cut_at_rows_whatever_their_order() {
        let row = |start, end| Row { start, end, file: 1, line: start as u32 };
        let rows: Vec<Row> = (0..40).map(|i| row(10 * i, 10 * i + 7 + 3 * (i % 2))).collect();
        let mut cutter = Cutter::new(&rows);
        let mut source = fastrand::Rng::with_seed(1);
        let mut at = 0;
        for _ in 0..2000 {
            let state = source.u64(..);
            // Mostly the range that follows, sometimes one somewhere else.
            let start = if state % 8 == 0 { state % 420 } else { at };
            at = (start + (state >> 20) % 30).min(430);
            let mut expected = start;
            cutter.cut(&(start..at), |part, found| {
                assert_eq!(part.start, expected);
                assert!(part.start < part.end && part.end <= at);
                expected = part.end;
                for address in part {
                    assert_eq!(found, row_at(&rows, address));
                }
            });
            assert_eq!(expected, at);
            if at == 430 {
                at = 0;
            }
        }
    }

    #[test]
    fn the_first_row_keeps_contested_code() {
        let row = |start, end, line| Row { start, end, file: 1, line };
        let mut rows = vec![row(0, 10, 1), row(5, 8, 2), row(6, 14, 3), row(20, 21, 4)];
        remove_overlaps(&mut rows);
        assert_eq!(rows, [row(0, 10, 1), row(10, 14, 3), row(20, 21, 4)]);
    }
}
