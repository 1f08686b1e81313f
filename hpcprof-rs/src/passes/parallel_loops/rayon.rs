//! The parallel loops of the crate `rayon`.

use hpcstruct_rs::known::{self, Kind};

/// Prefixes of the methods that begin a loop's expression in the source.
pub(super) const SOURCE_STARTS: &[&str] = &["par_", "into_par_iter"];

/// Whether a runtime's procedure is part of the library. User code that calls one begins a loop.
pub(super) fn is_library(name: &str) -> bool {
    known::find(Kind::Iterators, name).is_some_and(|(library, _)| library == "rayon")
}

/// Whether a user's procedure implements the library's interfaces: a frame within a loop, not its body.
pub(super) fn is_extension(name: &str) -> bool {
    name.contains(" as rayon::iter::")
}

/// Whether a system procedure between a loop and its body is a frame of the loop: the standard library's
/// iterators and shims, which are out of line without optimisation.
pub(super) fn is_shim(name: &str) -> bool {
    let parts = ["core::iter::", "::ops::function::", "::panic::unwind_safe::"];
    known::is(Kind::Shim, name) || parts.iter().any(|part| name.contains(part))
}

/// The part that a frame adds to the name of its loop: `map` of
/// `<rayon::iter::map::Map<I,F> as rayon::iter::ParallelIterator>::drive_unindexed`, and `slice::Iter` of the
/// iterator over a slice.
pub(super) fn adaptor(name: &str) -> Option<String> {
    let drives = [">::drive_unindexed", ">::drive", ">::with_producer"];
    drives.iter().find(|method| name.ends_with(*method))?;
    let (own, _) = name.strip_prefix('<')?.split_once(" as ")?;
    let path = own.split('<').next()?.trim_start_matches(['&', ' ']);
    let path = path.trim_start_matches("mut ");
    let inside = path.strip_prefix("rayon::").unwrap_or(path);
    let Some(adaptor) = inside.strip_prefix("iter::") else {
        return Some(inside.to_owned());
    };
    if last_part(adaptor) == "IterBridge" {
        return Some("par_bridge".to_owned());
    }
    let mut out = String::new();
    for c in last_part(adaptor).chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    Some(out)
}

/// The last component of a name's path, without generic arguments.
pub(super) fn last_part(name: &str) -> &str {
    let mut parts = parts(name);
    let last = parts.next().unwrap_or(name);
    if last.starts_with('<') { parts.next().unwrap_or(last) } else { last }
}

/// The components of a path, the last one first; generic arguments and `<impl A for B>` are one each.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(name);
    std::iter::from_fn(move || {
        let path = rest?;
        let bytes = path.as_bytes();
        let mut depth = 0_usize;
        let start = (0..bytes.len()).rev().find(|&at| {
            // The arrow of a function type closes nothing.
            let is_arrow = at > 0 && matches!(bytes[at - 1], b'-' | b'=');
            match bytes[at] {
                b'>' if !is_arrow => depth += 1,
                b'<' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && at > 0 && bytes[at - 1..=at] == *b"::"
        });
        rest = start.map(|at| &path[..at - 1]);
        Some(start.map_or(path, |at| &path[at + 1..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adaptors_are_named_as_their_methods() {
        for (own, name) in [
            ("rayon::iter::filter_map::FilterMap<P,F>", "filter_map"),
            ("rayon::iter::par_bridge::IterBridge<I>", "par_bridge"),
            ("rayon::slice::Iter<T>", "slice::Iter"),
            ("rayon::range::Iter<u64>", "range::Iter"),
            ("app::Mine<T>", "app::Mine"),
        ] {
            let method = format!("<{own} as rayon::iter::ParallelIterator>::drive_unindexed");
            assert_eq!(adaptor(&method).as_deref(), Some(name));
        }
        assert_eq!(adaptor("rayon::iter::ParallelIterator::sum"), None);
    }
}
