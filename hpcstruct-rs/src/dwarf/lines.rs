//! The line table of a unit as sorted, half-open address ranges.
//!
//! Invariants: rows are sorted by start and do not overlap; of several rows at one address the
//! last stated one counts; a damaged program yields the rows before the damage.

use super::program::{self, State};
use super::{Debug, Reader};
use gimli::{Dwarf, Unit};

/// Code of one source line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// First address.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
    /// File index in the unit's line table.
    pub(crate) file: u32,
    /// Line; 0 when the compiler names none.
    pub(crate) line: u32,
}

/// Runs the line program of unit `index` and puts its rows into `out`. Sequences are left out that
/// begin where `begins` is false: of functions that the linker dropped. `keep` decides about a
/// row's range. Returns what is damaged.
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
    let mut collector = Collector {
        begins,
        keep,
        out,
        open: None,
        in_code: None,
    };
    let mut damage = None;
    let emit = |state: &State| collector.add(state);
    if program::run(program, debug.little_endian, emit).is_none() {
        collector.clear();
        let mut rows = program.clone().rows();
        loop {
            match rows.next_row() {
                Ok(Some((_, row))) => collector.add(&State {
                    address: row.address(),
                    file: row.file_index(),
                    line: row.line().map_or(0, |l| l.get()),
                    is_end: row.end_sequence(),
                }),
                Ok(None) => break,
                Err(error) => {
                    damage = Some(format!("damaged line table: {error}"));
                    break;
                }
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
    fn clear(&mut self) {
        self.out.clear();
        self.open = None;
        self.in_code = None;
    }

    #[inline]
    fn add(&mut self, state: &State) {
        if let Some(mut before) = self.open.take() {
            before.end = state.address;
            if before.end > before.start && (self.keep)(before.start, before.end) {
                self.out.push(before);
            }
        }
        let in_code = match self.in_code {
            Some(known) => known,
            None => *self.in_code.insert((self.begins)(state.address)),
        };
        if state.is_end {
            self.in_code = None;
        } else if in_code {
            self.open = Some(Row {
                start: state.address,
                end: 0,
                file: u32::try_from(state.file).unwrap_or(u32::MAX),
                line: u32::try_from(state.line).unwrap_or(0),
            });
        }
    }
}

/// Sequences of one unit may claim the same code (folded functions): the first one keeps it.
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

/// The full path of file `file` of unit `unit`.
pub(crate) fn path(debug: &Debug<'_>, unit: u32, file: u64) -> Option<String> {
    let number = debug.lines_of(unit);
    let unit = debug.units.get(number as usize)?;
    resolve(debug.dwarf(number)?, unit, file)
}

fn resolve<'d>(dwarf: &Dwarf<Reader<'d>>, unit: &Unit<Reader<'d>>, file: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let entry = header.file(file)?;
    let name = lossy(dwarf, unit, entry.path_name())?;
    if name.starts_with('/') {
        return Some(clean(&name));
    }
    let mut path = match unit.comp_dir {
        Some(directory) => String::from_utf8_lossy(directory.slice()).into_owned(),
        None => String::new(),
    };
    // Directory 0 is the compilation directory itself, before DWARF 5 without an entry.
    if entry.directory_index() != 0 || header.version() >= 5 {
        let directory = entry
            .directory(header)
            .and_then(|value| lossy(dwarf, unit, value));
        if let Some(directory) = directory {
            join(&mut path, &directory);
        }
    }
    join(&mut path, &name);
    Some(clean(&path))
}

fn lossy<'d>(
    dwarf: &Dwarf<Reader<'d>>,
    unit: &Unit<Reader<'d>>,
    value: gimli::AttributeValue<Reader<'d>>,
) -> Option<String> {
    let reader = dwarf.attr_string(unit, value).ok()?;
    Some(String::from_utf8_lossy(reader.slice()).into_owned())
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
fn clean(path: &str) -> String {
    if !path.contains("/.") && !path.contains("//") {
        return path.to_owned();
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
        assert_eq!(clean("/a/./b/../c.rs"), "/a/c.rs");
        assert_eq!(clean("/../x"), "/x");
        assert_eq!(clean("../x/./y"), "../x/y");
        assert_eq!(clean("/a//b"), "/a/b");
        assert_eq!(clean("/a/.hidden/b"), "/a/.hidden/b");
    }

    #[test]
    fn the_first_row_keeps_contested_code() {
        let row = |start, end, line| Row {
            start,
            end,
            file: 1,
            line,
        };
        let mut rows = vec![row(0, 10, 1), row(5, 8, 2), row(6, 14, 3), row(20, 21, 4)];
        remove_overlaps(&mut rows);
        assert_eq!(rows, [row(0, 10, 1), row(10, 14, 3), row(20, 21, 4)]);
    }
}
