//! From linkage names to the names that users wrote.
//!
//! Input: a symbol's name, and where debug information has them the namespaces and the plain
//! name of the procedure. Rust names lose their hashes and crate disambiguators and stay fully
//! qualified; C++ names lose parameters and return types; other names stay as they are.

mod cpp;
pub(crate) mod crate_origin;
pub(crate) mod qualified;
pub mod rust_source;

use std::borrow::Cow;
use std::fmt::Write as _;

/// How a linkage name is mangled, which tells the language.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Scheme {
    /// Rust, either scheme.
    Rust,
    /// The Itanium C++ scheme.
    Cpp,
    /// Not mangled.
    Plain,
}

/// What compilers append to the name of a part or a copy of a procedure.
const SUFFIX_WORDS: [&str; 12] = [
    "cold",
    "part",
    "isra",
    "constprop",
    "llvm",
    "lto_priv",
    "clone",
    "localalias",
    "warm",
    "hot",
    "unlikely",
    "exit",
];

/// A symbol's name without the compiler's suffixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stem<'a> {
    /// The name before the suffixes.
    pub(crate) name: &'a str,
    /// Whether the symbol is the split-off cold part of the procedure of that name: code of the
    /// same frame, reached by jumps.
    pub(crate) is_cold_part: bool,
}

/// Strips suffixes such as `.cold`, `.part.0`, `.llvm.123`, `.constprop.0`, and a version
/// (`@@GLIBC_2.34`).
pub(crate) fn stem(symbol: &str) -> Stem<'_> {
    let symbol = match symbol.split_once('@') {
        // Languages with readable symbols (Crystal) use the sign for something else.
        Some((name, _)) if !name.is_empty() && is_identifier(name) => name,
        _ => symbol,
    };
    let whole = Stem { name: symbol, is_cold_part: false };
    // As names of Rust's older scheme end, which are full of dots: no suffix does.
    if symbol.ends_with('E') {
        return whole;
    }
    // With a suffix too, only the dots behind such a name count.
    let mut ends = symbol.match_indices("E.").map(|(at, _)| at + 1);
    let name = ends.find(|end| symbol.starts_with("_ZN") && has_legacy_hash(&symbol[..*end]));
    let Some(at) = name.or_else(|| symbol.find('.')) else {
        return whole;
    };
    let (base, suffixes) = (&symbol[..at], &symbol[at + 1..]);
    let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let known = |s: &str| SUFFIX_WORDS.contains(&s) || number(s);
    if base.is_empty() || !suffixes.split('.').all(known) {
        return whole;
    }
    Stem { name: base, is_cold_part: suffixes.split('.').any(|s| s == "cold") }
}

/// Whether a symbol is an identifier, as those of most languages are; others put readable text into
/// the symbol table.
pub(crate) fn is_identifier(symbol: &str) -> bool {
    symbol.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$'))
}

/// A stem without the hash of Rust's legacy scheme, which readable names do not show.
pub(crate) fn without_hash(stem: &str) -> &str {
    if stem.starts_with("_ZN") && has_legacy_hash(stem) { &stem[..stem.len() - LEGACY_HASH] } else { stem }
}

/// Bytes of `17h`, the hash, and the final `E`.
const LEGACY_HASH: usize = 20;

/// Rust's legacy scheme ends with the path segment `17h` and sixteen hexadecimal digits.
fn has_legacy_hash(stem: &str) -> bool {
    stem.strip_suffix('E')
        .and_then(|body| body.get(body.len().checked_sub(19)?..)?.strip_prefix("17h"))
        .is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The scheme and the readable name of a stem; a name that does not demangle stays as it is.
pub(crate) fn readable(stem: &str) -> (Scheme, Cow<'_, str>) {
    if stem.starts_with("_R") || (stem.starts_with("_ZN") && has_legacy_hash(stem)) {
        if let Some(name) = readable_rust(stem) {
            return (Scheme::Rust, Cow::Owned(name));
        }
    }
    if stem.starts_with("_Z") {
        let name = cpp::readable(stem).map_or(Cow::Borrowed(stem), Cow::Owned);
        return (Scheme::Cpp, name);
    }
    (Scheme::Plain, Cow::Borrowed(stem))
}

fn readable_rust(stem: &str) -> Option<String> {
    let mangled = rustc_demangle::try_demangle(stem).ok()?;
    let mut name = String::with_capacity(2 * stem.len());
    // A symbol that expands beyond rustc-demangle's limit is cut there and says so.
    write!(name, "{mangled:#}").ok()?;
    if name.contains("{{") || name.contains("}}") {
        name = name.replace("{{", "{").replace("}}", "}");
    }
    Some(name)
}

/// A plain name without its generic arguments: `run<a::F>` is `run`. Operators keep theirs.
pub(crate) fn without_generics(name: &str) -> &str {
    match name.find('<') {
        Some(at) if at > 0 && !name.starts_with("operator") => &name[..at],
        _ => name,
    }
}

/// Numbers the closures of a legacy Rust name (`a::main::{closure}`) as debug information does
/// (namespaces `a`, `main`, name `{closure#2}`), so that two closures stay apart.
pub(crate) fn number_closures(readable: &str, namespaces: &[&str], name: &str) -> String {
    let mut head = readable;
    let mut tail: Vec<&str> = Vec::new();
    let debug_segments = std::iter::once(&name).chain(namespaces.iter().rev());
    for segment in debug_segments {
        let segment = without_generics(segment);
        let Some((rest, last)) = head.rsplit_once("::") else {
            break;
        };
        if last == "{closure}" && segment.starts_with("{closure#") {
            tail.push(segment);
        } else if last == segment {
            tail.push(last);
        } else {
            break;
        }
        head = rest;
    }
    let mut out = head.to_owned();
    for segment in tail.iter().rev() {
        out.push_str("::");
        out.push_str(segment);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(symbol: &str) -> String {
        readable(stem(symbol).name).1.into_owned()
    }

    #[test]
    fn names_that_explode_stay_as_they_are() {
        // Each level repeats the one below by substitution: the text doubles.
        let small = "_Z1fI1PI1PI1PI1PIiiES4_ES5_ES6_EEvv";
        assert_eq!(of(small).matches("P<int, int>").count(), 8);
        let huge = "_Z1fI1PI1PI1PI1PI1PI1PI1PI1PI1PI1PI1PI1PI1PIiiESD_\
            ESE_ESF_ESG_ESH_ESI_ESJ_ESK_ESL_ESM_ESN_ESO_EEvv";
        assert_eq!(of(huge), huge);
    }

    #[test]
    fn suffixes_are_stripped_only_when_all_are_known() {
        let cold = |name| stem(name).is_cold_part;
        assert_eq!(stem("f.cold").name, "f");
        assert!(cold("f.cold") && cold("f.part.0.cold") && cold("f.cold.3"));
        assert_eq!(stem("f.part.0"), Stem { name: "f", is_cold_part: false });
        assert_eq!(stem("f.constprop.0.isra.1").name, "f");
        assert_eq!(stem("f.something").name, "f.something");
        assert_eq!(stem(".hidden").name, ".hidden");
        assert_eq!(stem("f").name, "f");
        assert_eq!(stem("f@@GLIBC_2.34").name, "f");
        assert_eq!(stem("Array(T)@List(T)#each").name, "Array(T)@List(T)#each");
    }

    #[test]
    fn closures_take_their_numbers_from_debug_information() {
        assert_eq!(
            number_closures("a::main::{closure}", &["a", "main"], "{closure#2}"),
            "a::main::{closure#2}"
        );
        assert_eq!(
            number_closures(
                "a::main::{closure}::{closure}",
                &["a", "main", "{closure#2}"],
                "{closure#0}<u8>"
            ),
            "a::main::{closure#2}::{closure#0}"
        );
        assert_eq!(
            number_closures("a::main::{closure}::nested", &["a", "main", "{closure#1}"], "nested"),
            "a::main::{closure#1}::nested"
        );
        assert_eq!(number_closures("a::f", &["b"], "g"), "a::f");
        assert_eq!(number_closures("main", &[], "main"), "main");
    }
}
