//! Names of the languages whose compilers leave them readable, or nearly so: neither Rust's nor C++'s.
//!
//! Input: what debug information and the symbol table call a procedure. Invariants: the answer is what a
//! user of the language would write, with the modules around it; a name that follows no
//! convention known here stays as it is.

use gimli::DwLang;
use std::borrow::Cow;

/// How a language writes the path to a procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Language {
    /// Any that has `::`, and all that are not known.
    Colons,
    /// Fortran: the same; debug information calls a submodule `module.submodule`.
    Fortran,
    /// D: modules, types and procedures are parted by dots.
    D,
    /// Ada: GNAT writes the dots of a path as `__`.
    Ada,
    /// Haskell: debug information numbers procedures, only the symbol table names them.
    Haskell,
}

/// What is known of the name of a procedure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'n> {
    /// Its own name.
    pub(crate) plain: &'n str,
    /// The names around it, outermost first.
    pub(crate) path: &'n [&'n str],
    /// Its name in the symbol table, as debug information states it.
    pub(crate) linkage: Option<&'n str>,
    /// The symbol at its first address.
    pub(crate) symbol: Option<&'n str>,
}

impl Language {
    /// The language that a unit states.
    pub(crate) fn of(stated: DwLang) -> Language {
        match stated {
            gimli::DW_LANG_D => Language::D,
            gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Fortran90
            | gimli::DW_LANG_Fortran95
            | gimli::DW_LANG_Fortran03
            | gimli::DW_LANG_Fortran08 => Language::Fortran,
            gimli::DW_LANG_Ada83
            | gimli::DW_LANG_Ada95
            | gimli::DW_LANG_Ada2005
            | gimli::DW_LANG_Ada2012 => Language::Ada,
            gimli::DW_LANG_Haskell => Language::Haskell,
            _ => Language::Colons,
        }
    }

    /// The name of a procedure with what is around it; `None` where nothing is known of that.
    pub(crate) fn qualified(self, known: &Known<'_>) -> Option<String> {
        let Known { plain, linkage, .. } = *known;
        if let Some(symbol) = known.symbol.and_then(|s| s.strip_prefix('*')) {
            // Crystal's symbols are the whole of what users write, but linkers cut them at an `@`.
            return Some(match symbol.contains(plain) {
                true => symbol.to_owned(),
                false => format!("{symbol}#{plain}"),
            });
        }
        match self {
            Language::Haskell => return linkage.map(of_haskell),
            Language::Ada => {
                let name = linkage.unwrap_or(plain);
                let name = name.strip_prefix("_ada_").unwrap_or(name);
                return name.contains("__").then(|| name.replace("__", "."));
            }
            Language::D | Language::Fortran | Language::Colons => {}
        }
        let linkage = linkage.filter(|l| *l != plain);
        if let Some(linkage) = linkage.filter(|l| is_dotted(l, plain)) {
            return Some(linkage.to_owned());
        }
        if let Some((last, rest)) = known.path.split_last() {
            return Some(match part(plain) {
                Some(suffix) if rest.is_empty() => format!("{last}{suffix}"),
                Some(suffix) => self.join(rest, &format!("{last}{suffix}")),
                None => self.join(known.path, plain),
            });
        }
        match of_symbol(linkage?) {
            Cow::Owned(name) => Some(name),
            Cow::Borrowed(_) => None,
        }
    }

    fn join(self, path: &[&str], plain: &str) -> String {
        match self {
            Language::D => format!("{}.{plain}", path.join(".")),
            Language::Fortran => format!("{}::{plain}", path.join("::").replace('.', "::")),
            _ => format!("{}::{plain}", path.join("::")),
        }
    }
}

/// What gcc appends to the name of a procedure for a part of it that it runs in other threads.
const PARTS: [&str; 3] = ["._omp_fn.", "._loopfn.", "._omp_cpyfn"];

/// The suffix of the name of such a part; debug information nests it in the procedure.
fn part(plain: &str) -> Option<&str> {
    PARTS
        .iter()
        .find_map(|p| plain.find(p))
        .map(|at| &plain[at..])
}

/// Whether a name in the symbol table is the plain one after a path with dots, as Zig's are.
fn is_dotted(linkage: &str, plain: &str) -> bool {
    linkage
        .strip_suffix(plain)
        .is_some_and(|path| path.len() > 1 && path.ends_with('.') && !path.starts_with('.'))
}

/// The readable form of a symbol that no language of its own scheme has made: gfortran's
/// `__module_MOD_procedure`, ocamlopt's `camlModule__procedure_12`.
pub(crate) fn of_symbol(symbol: &str) -> Cow<'_, str> {
    let readable = if let Some(name) = symbol.strip_prefix("__") {
        of_fortran(name)
    } else if let Some(name) = symbol.strip_prefix("caml") {
        of_ocaml(name)
    } else {
        symbol.strip_prefix('*').map(str::to_owned)
    };
    readable.map_or(Cow::Borrowed(symbol), Cow::Owned)
}

fn of_fortran(name: &str) -> Option<String> {
    let (module, procedure) = name.split_once("_MOD_")?;
    (!module.is_empty() && !procedure.is_empty()).then(|| format!("{module}::{procedure}"))
}

/// `Module__Inner__procedure_12`: the number tells apart what has one name, except of anonymous procedures.
fn of_ocaml(name: &str) -> Option<String> {
    if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let (modules, procedure) = name.rsplit_once("__")?;
    let (stem, number) = procedure.rsplit_once('_').unwrap_or((procedure, ""));
    let numbered = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let procedure = if numbered && stem != "fun" && !stem.is_empty() {
        stem
    } else {
        procedure
    };
    let path = modules.replace("__", ".");
    Some(unescaped(&format!("{path}.{procedure}"), '$', 2))
}

/// Replaces `$2b` and the like by the characters that they are the codes of.
fn unescaped(name: &str, mark: char, digits: usize) -> String {
    let mut pieces = name.split(mark);
    let mut out = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        let code = piece
            .get(..digits)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code.filter(u8::is_ascii_graphic) {
            Some(code) => {
                out.push(char::from(code));
                out.push_str(&piece[digits..]);
            }
            None => {
                out.push(mark);
                out.push_str(piece);
            }
        }
    }
    out
}

/// A symbol of GHC: its kind is left out, its z-encoding undone.
fn of_haskell(symbol: &str) -> String {
    let name = symbol.strip_suffix("_info").unwrap_or(symbol);
    let mut out = String::with_capacity(name.len());
    let mut rest = name.chars();
    while let Some(c) = rest.next() {
        let (table, start) = match c {
            'z' => (LOWER, rest.clone()),
            'Z' => (UPPER, rest.clone()),
            _ => {
                out.push(c);
                continue;
            }
        };
        let meant = rest.next().and_then(|code| {
            let found = table.iter().find(|(letter, _)| *letter == code)?;
            Some(found.1)
        });
        match meant {
            Some(meant) => out.push_str(meant),
            None => {
                // Unicode and tuples stay encoded.
                out.push(c);
                rest = start;
            }
        }
    }
    out
}

const LOWER: &[(char, &str)] = &[
    ('a', "&"),
    ('b', "|"),
    ('c', "^"),
    ('d', "$"),
    ('e', "="),
    ('g', ">"),
    ('h', "#"),
    ('i', "."),
    ('l', "<"),
    ('m', "-"),
    ('n', "!"),
    ('p', "+"),
    ('q', "'"),
    ('r', "\\"),
    ('s', "/"),
    ('t', "*"),
    ('u', "_"),
    ('v', "%"),
    ('z', "z"),
];

const UPPER: &[(char, &str)] = &[
    ('C', ":"),
    ('L', "("),
    ('R', ")"),
    ('M', "["),
    ('N', "]"),
    ('Z', "Z"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn known<'n>(plain: &'n str, path: &'n [&'n str], linkage: &'n str) -> Known<'n> {
        Known {
            plain,
            path,
            linkage: Some(linkage),
            symbol: None,
        }
    }

    #[test]
    fn paths_are_written_as_the_language_does() {
        let of = |language: Language, plain, path, linkage| {
            language
                .qualified(&known(plain, path, linkage))
                .unwrap_or_else(|| plain.to_owned())
        };
        let colons = Language::Colons;
        assert_eq!(of(colons, "f", &["a", "b"], "a_f"), "a::b::f");
        assert_eq!(of(colons, "f", &["a<.5>"], "x"), "a<.5>::f");
        assert_eq!(of(colons, "f", &["B(u32)"], "a.B(u32).f"), "a.B(u32).f");
        let submodule = of(Language::Fortran, "f", &["a.b"], "__a_MOD_f");
        assert_eq!(submodule, "a::b::f");
        assert_eq!(of(colons, "f", &[], "__a_MOD_f"), "a::f");
        assert_eq!(of(colons, "f", &[], "f_"), "f");
        assert_eq!(of(colons, "f", &[], "a.B(u32).f"), "a.B(u32).f");
        assert_eq!(of(colons, "f", &[], ".f"), "f");
        for part in ["work._omp_fn.0", "_ZN1m4workEv._omp_fn.0"] {
            assert_eq!(of(colons, part, &["m", "work"], part), "m::work._omp_fn.0");
            assert_eq!(of(colons, part, &["work"], part), "work._omp_fn.0");
            assert_eq!(of(colons, part, &[], part), part);
        }
        assert_eq!(of(Language::D, "f", &["a.b", "C"], "_D1f"), "a.b.C.f");
        assert_eq!(of(Language::Ada, "g__x__f", &[], "g__x__f"), "g.x.f");
        assert_eq!(of(Language::Ada, "g", &[], "_ada_g"), "g");
        let main = "Main_zdwgo16_info";
        assert_eq!(of(Language::Haskell, "c3", &[], main), "Main_$wgo16");
        let odd = "GHCziBase_zzipZ1_zu_zZ2T_info";
        assert_eq!(
            of(Language::Haskell, "c3", &[], odd),
            "GHC.Base_zipZ1___zZ2T"
        );
    }

    #[test]
    fn symbols_of_crystal_have_the_path() {
        let with_symbol = |symbol| Known {
            symbol: Some(symbol),
            ..known("area", &[], "area")
        };
        let of = |symbol| Language::Colons.qualified(&with_symbol(symbol));
        assert_eq!(of("*A::Ring(B)").as_deref(), Some("A::Ring(B)#area"));
        assert_eq!(of("*area<B>:B").as_deref(), Some("area<B>:B"));
        assert_eq!(of("area"), None);
    }

    #[test]
    fn symbols_of_known_conventions_are_readable_and_others_stay() {
        assert_eq!(of_symbol("__grid_MOD_total"), "grid::total");
        assert_eq!(of_symbol("camlStdlib__List__map_123"), "Stdlib.List.map");
        assert_eq!(of_symbol("camlO__fun_142"), "O.fun_142");
        assert_eq!(of_symbol("camlO__$2b$2b_9"), "O.++");
        assert_eq!(of_symbol("*A(B)#c<D>:E"), "A(B)#c<D>:E");
        for name in [
            "caml_alloc",
            "camlot",
            "__libc_start_main",
            "__MOD_",
            "f",
            "",
        ] {
            assert_eq!(of_symbol(name), name);
        }
    }
}
