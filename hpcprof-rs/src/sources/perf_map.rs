//! Names of generated code: the map that a just-in-time compiler writes for perf, of one process.
//!
//! A line is `START SIZE NAME`, the numbers hexadecimal. Code may be generated where other code was: the last
//! line for an address counts.

use hpc_formats::structure::{Origin, Procedure, ProcedureId, Span, StringId, Structure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The structure of the procedures that hold `addresses`; `None` if the map cannot be read.
pub fn structure(map: &Path, addresses: &BTreeSet<u64>) -> Option<Structure> {
    Some(of(&String::from_utf8_lossy(&std::fs::read(map).ok()?), addresses))
}

fn of(map: &str, addresses: &BTreeSet<u64>) -> Structure {
    let mut found: BTreeMap<u64, (u64, &str)> = BTreeMap::new();
    for (start, end, name) in map.lines().filter_map(parse) {
        for address in addresses.range(start..end) {
            found.insert(*address, (start, name));
        }
    }
    let mut structure = Structure { complete: true, ..Structure::default() };
    let mut known = BTreeMap::new();
    for (address, function) in found {
        let procedure = *known.entry(function).or_insert_with(|| {
            let id = structure.strings.len() as u32;
            structure.strings.push(function.1.to_owned());
            structure.procedures.push(Procedure {
                name: StringId(id),
                linkage_name: StringId(id),
                declared: None,
                origin: Origin::User,
                tag: None,
            });
            ProcedureId(id)
        });
        structure.spans.push(Span {
            start: address,
            end: address + 1,
            procedure,
            scope: None,
            line: None,
            tag: None,
        });
    }
    structure
}

/// Start, end and name.
fn parse(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let start = number(start)?;
    Some((start, start.checked_add(number(size)?)?, name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_for_an_address_counts() {
        let map = "1000 100 first\n1080 10 LazyCompile:~f a.js:3\nbad\n0x2000 8 last\nffffffffffffffff 2 x\n";
        let structure = of(map, &[0x1000, 0x1084, 0x1090, 0x1100, 0x2007].into());
        let name = |address| {
            let span = structure.span_at(address)?;
            Some(structure.string(structure.procedures[span.procedure.0 as usize].name))
        };
        assert_eq!(name(0x1000), Some("first"));
        assert_eq!(name(0x1084), Some("LazyCompile:~f a.js:3"));
        assert_eq!(name(0x1090), Some("first"));
        assert_eq!(name(0x1100), None);
        assert_eq!(name(0x2007), Some("last"));
        assert_eq!(structure.procedures.len(), 3);
    }
}
