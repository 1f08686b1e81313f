//! The parallel loops of the crate `rayon`.

use crate::passes::parallel_loops::rule::{Rule, last_part};
use hpcstruct_rs::known::{self, Kind};

/// Its entry in the table.
pub(super) const RULE: Rule = Rule {
    is_library: |name| known::is(Kind::Iterators, name),
    is_extension: |name| name.contains(" as rayon::iter::"),
    is_shim,
    is_internal: |name| name.contains("::plumbing::"),
    adaptor,
    source_starts: &["par_", "into_par_iter"],
    directive: None,
};

/// The standard library's iterators and shims, which are out of line without optimisation.
fn is_shim(name: &str) -> bool {
    let parts = ["core::iter::", "::ops::function::", "::panic::unwind_safe::"];
    known::is(Kind::Shim, name) || parts.iter().any(|part| name.contains(part))
}

/// `map` of `<rayon::iter::map::Map<I,F> as rayon::iter::ParallelIterator>::drive_unindexed`, and
/// `slice::Iter` of the iterator over a slice.
fn adaptor(name: &str) -> Option<String> {
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
