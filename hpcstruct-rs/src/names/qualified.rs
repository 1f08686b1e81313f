//! Qualified names of procedures that are neither Rust's nor C++'s: C, Fortran, what gcc outlines
//! for OpenMP, and languages whose symbols are readable.
//!
//! Input: what debug information calls a procedure. A name that follows no convention known here
//! stays as it is.

use std::borrow::Cow;

/// What is known of the name of a procedure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'n> {
    /// Its own name.
    pub(crate) plain: &'n str,
    /// The names around it, outermost first.
    pub(crate) path: &'n [&'n str],
    /// Its name in the symbol table, as debug information states it.
    pub(crate) linkage: Option<&'n str>,
}

/// The name with what is around the procedure; `None` where nothing is known of that.
pub(crate) fn qualified(known: &Known<'_>, is_fortran: bool) -> Option<String> {
    let Known { plain, path, .. } = *known;
    let linkage = known.linkage.filter(|l| *l != plain);
    if let Some(linkage) = linkage.filter(|l| is_dotted(l, plain)) {
        return Some(linkage.to_owned());
    }
    let Some((last, around)) = path.split_last() else {
        return match of_symbol(linkage?) {
            Cow::Owned(name) => Some(name),
            Cow::Borrowed(_) => None,
        };
    };
    // Ada's names have their packages in them.
    if plain.strip_prefix(last).is_some_and(|rest| rest.starts_with("__")) {
        return Some(plain.to_owned());
    }
    let (around, name) = match outlined_suffix(plain) {
        // Debug information nests an outlined part in its procedure.
        Some(suffix) => (around, format!("{last}{suffix}")),
        None => (path, plain.to_owned()),
    };
    let mut out = around.join("::");
    if is_fortran {
        // Debug information calls a submodule `module.submodule`.
        out = out.replace('.', "::");
    }
    if !out.is_empty() {
        out.push_str("::");
    }
    Some(out + &name)
}

/// What gcc appends to the name of a procedure for a part of it that other threads run.
const OUTLINED: [&str; 3] = ["._omp_fn.", "._loopfn.", "._omp_cpyfn"];

fn outlined_suffix(plain: &str) -> Option<&str> {
    let at = OUTLINED.iter().find_map(|suffix| plain.find(suffix))?;
    Some(&plain[at..])
}

/// Whether a name in the symbol table is the plain one after a path with dots, as Zig's are.
fn is_dotted(linkage: &str, plain: &str) -> bool {
    linkage
        .strip_suffix(plain)
        .is_some_and(|path| path.len() > 1 && path.ends_with('.') && !path.starts_with('.'))
}

/// The readable form of a symbol of gfortran, `__module_MOD_procedure`; others stay.
pub(crate) fn of_symbol(symbol: &str) -> Cow<'_, str> {
    let parts = symbol.strip_prefix("__").and_then(|name| name.split_once("_MOD_"));
    match parts {
        Some((module, procedure)) if !module.is_empty() && !procedure.is_empty() => {
            Cow::Owned(format!("{module}::{procedure}"))
        }
        _ => Cow::Borrowed(symbol),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_before_names() {
        let of = |plain, path, linkage, is_fortran| {
            let linkage = Some(linkage);
            let known = Known { plain, path, linkage };
            qualified(&known, is_fortran).unwrap_or_else(|| plain.to_owned())
        };
        assert_eq!(of("f", &["a", "b"], "a_f", false), "a::b::f");
        assert_eq!(of("f", &["a<.5>"], "x", false), "a<.5>::f");
        assert_eq!(of("a__v__f", &["a"], "a__v__f", false), "a__v__f");
        assert_eq!(of("f", &["B(u32)"], "a.B(u32).f", false), "a.B(u32).f");
        assert_eq!(of("f", &["a.b"], "__a_MOD_f", true), "a::b::f");
        assert_eq!(of("f", &[], "__a_MOD_f", true), "a::f");
        assert_eq!(of("f", &[], "f_", true), "f");
        assert_eq!(of("f", &[], "a.B(u32).f", false), "a.B(u32).f");
        assert_eq!(of("f", &[], ".f", false), "f");
        for part in ["work._omp_fn.0", "_ZN1m4workEv._omp_fn.0"] {
            let nested = of(part, &["m", "work"], part, false);
            assert_eq!(nested, "m::work._omp_fn.0");
            assert_eq!(of(part, &["work"], part, false), "work._omp_fn.0");
            assert_eq!(of(part, &[], part, false), part);
        }
    }

    #[test]
    fn symbols_of_other_conventions_stay() {
        assert_eq!(of_symbol("__grid_MOD_total"), "grid::total");
        for name in ["__libc_start_main", "__MOD_", "___MOD_x", "f", ""] {
            assert_eq!(of_symbol(name), name);
        }
    }
}
