//! Whether a built program links a replacement, by its symbols.

use crate::replacement::{CHANNEL, RAYON, TOKIO};
use hpcrun_rs::Failure;
use object::{Object, ObjectSymbol, ReadCache};
use std::fs::File;
use std::path::Path;

/// What a program's symbols say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linked {
    /// The replacement.
    Replacement,
    /// The published crate.
    Stock,
    /// Neither.
    Nothing,
}

/// Reads the symbols of a program: what it has of rayon-core, of crossbeam-channel, and of tokio.
pub(crate) fn linked(program: &Path) -> Result<[Linked; 3], Failure> {
    let failure = |problem: &str| Failure::own(format!("{}: {problem}", program.display()));
    let file = File::open(program).map_err(|e| failure(&e.to_string()))?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).map_err(|e| failure(&e.to_string()))?;
    if object.symbols().next().is_none() {
        return Err(failure(
            "built without symbols; take -C strip and -s out of RUSTFLAGS and of the linker's arguments, \
             and strip out of a package's profile",
        ));
    }
    let names = || {
        let defined = object.symbols().filter(ObjectSymbol::is_definition);
        defined.filter_map(|s| s.name().ok())
    };
    let channel = judge_part(names(), CHANNEL.top.name, CHANNEL.marker);
    Ok([judge(names()), channel, judge_part(names(), "5tokio7runtime", TOKIO.marker)])
}

/// Decides by the names of the defined symbols. Some linkers drop the marker, as nothing reads it. The
/// replacement has no code beside the runtime's, while rayon-core has code of its own.
fn judge<'a>(names: impl Iterator<Item = &'a str>) -> Linked {
    let mut found = Linked::Nothing;
    for name in names {
        if name == RAYON.marker {
            return Linked::Replacement;
        }
        if name.contains("rayon_core") {
            found = Linked::Stock;
        } else if name.contains("work_stealing_rt") && found == Linked::Nothing {
            found = Linked::Replacement;
        }
    }
    found
}

/// Decides by parts of names. The replacement for crossbeam-channel has the published crate's code in it,
/// under another name; the one for tokio calls a function that nobody else calls.
fn judge_part<'a>(names: impl Iterator<Item = &'a str>, package: &str, marker: &str) -> Linked {
    let mut found = Linked::Nothing;
    for name in names {
        if name.contains(marker) {
            return Linked::Replacement;
        }
        if name.contains(package) {
            found = Linked::Stock;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = RAYON.marker;

    #[test]
    fn the_channels_are_known_by_the_name_below_them() {
        let published = "_ZN27published_crossbeam_channel7flavors4list17h0123456789abcdefE";
        let wrapper = "_ZN17crossbeam_channel4back4Room4take17h0123456789abcdefE";
        for (names, expected) in [
            (&["main"][..], Linked::Nothing),
            (&[wrapper], Linked::Stock),
            (&[wrapper, published], Linked::Replacement),
        ] {
            assert_eq!(
                judge_part(names.iter().copied(), CHANNEL.top.name, CHANNEL.marker),
                expected,
                "{names:?}"
            );
        }
    }

    #[test]
    fn the_replacement_is_known_without_its_marker() {
        let main = "_ZN3app4main17h0123456789abcdefE";
        let core = "_ZN10rayon_core4join17h0123456789abcdefE";
        let runtime = "_ZN16work_stealing_rt4join17h0123456789abcdefE";
        for (names, expected) in [
            (&[main][..], Linked::Nothing),
            (&[main, core], Linked::Stock),
            (&[main, runtime], Linked::Replacement),
            (&[main, MARKER], Linked::Replacement),
            (&[core, MARKER], Linked::Replacement),
            // The program's own copy of the runtime.
            (&[runtime, core], Linked::Stock),
            (&[core, runtime], Linked::Stock),
        ] {
            assert_eq!(judge(names.iter().copied()), expected, "{names:?}");
        }
    }
}
