//! The algorithms and groups of oneTBB, and C++'s parallel algorithms on top of it.

use hpcstruct_rs::known::{self, Kind};

/// Whether a runtime's procedure is part of the library. User code that calls one begins a loop.
pub(super) fn is_library(name: &str) -> bool {
    known::find(Kind::Iterators, name).is_some_and(|(library, _)| library == "TBB")
}

/// As the program writes it: without the library's inner namespaces and the arguments of templates.
pub(super) fn written(entry: &str) -> String {
    let mut depth = 0_usize;
    let is_outside = |c: &char| {
        depth = (depth + usize::from(*c == '<')).saturating_sub(usize::from(*c == '>'));
        depth == 0 && *c != '>'
    };
    let plain: String = entry.chars().filter(is_outside).collect();
    let is_inner = |part: &&str| {
        let version = part.strip_prefix('d').filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        *part != "detail" && version.is_none()
    };
    plain.split("::").filter(is_inner).collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_named_as_in_the_source() {
        for (entry, name) in [
            ("tbb::detail::d1::parallel_for<int, main::{lambda(int)#1}>", "tbb::parallel_for"),
            ("tbb::detail::d1::task_group::run<F>", "tbb::task_group::run"),
            ("tbb::detail::d1::receiver<a::B<int> >::try_put", "tbb::receiver::try_put"),
        ] {
            assert_eq!(written(entry), name);
        }
    }
}
