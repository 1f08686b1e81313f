//! Whether a built program links a replacement, by its symbols.

use crate::replacement::{self, Replacement};
use hpcrun_rs::Failure;
use object::{Object, ObjectSymbol, ReadCache};
use std::fs::File;
use std::path::Path;

/// What a program's symbols say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linked {
    Replacement,
    /// The published crate.
    Stock,
    /// Neither.
    Nothing,
}

/// Reads the symbols of a program: what it has of each of [`replacement::ALL`].
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
    Ok(replacement::ALL.each_ref().map(|replacement| {
        let defined = object.symbols().filter(ObjectSymbol::is_definition);
        judge(replacement, defined.filter_map(|s| s.name().ok()))
    }))
}

/// Decides by the names of the defined symbols. The replacement for crossbeam-channel has the published
/// crate's code in it, under another name; the one for tokio calls a function that nobody else calls. Some
/// linkers drop the marker of rayon-core's, as nothing reads it, but it has no code beside the runtime's.
fn judge<'a>(replacement: &Replacement, names: impl Iterator<Item = &'a str>) -> Linked {
    let mut found = Linked::Nothing;
    for name in names {
        if name.contains(replacement.marker) {
            return Linked::Replacement;
        }
        if name.contains(replacement.published) {
            found = Linked::Stock;
        } else if replacement.is_required && name.contains("work_stealing_rt") && found == Linked::Nothing {
            found = Linked::Replacement;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::{CHANNEL, RAYON};

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
            assert_eq!(judge(&CHANNEL, names.iter().copied()), expected, "{names:?}");
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
            assert_eq!(judge(&RAYON, names.iter().copied()), expected, "{names:?}");
        }
    }
}
