//! Whether a built program has the stand-in in it, by its symbols.

use crate::stand_in::MARKER;
use hpcrun_rs::Failure;
use object::{Object, ObjectSymbol, ReadCache};
use std::fs::File;
use std::path::Path;

/// What a program's symbols say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linked {
    /// The stand-in.
    StandIn,
    /// crates.io's rayon-core.
    Stock,
    /// No rayon at all.
    Nothing,
}

/// Reads the symbols of a program.
pub(crate) fn linked(program: &Path) -> Result<Linked, Failure> {
    let failure = |problem: &str| Failure::own(format!("{}: {problem}", program.display()));
    let file = File::open(program).map_err(|e| failure(&e.to_string()))?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).map_err(|e| failure(&e.to_string()))?;
    let mut found = Linked::Nothing;
    let mut has_symbols = false;
    for symbol in object.symbols() {
        has_symbols = true;
        let Ok(name) = symbol.name() else { continue };
        if name == MARKER {
            return Ok(Linked::StandIn);
        }
        if symbol.is_definition() && name.contains("rayon_core") {
            found = Linked::Stock;
        }
    }
    if !has_symbols {
        return Err(failure(
            "built without symbols; take -C strip and -s out of RUSTFLAGS and of the linker's arguments, and strip out of a package's profile",
        ));
    }
    Ok(found)
}
