//! Overhead marks in the code itself: source files and module paths.
//!
//! The marks: a C `#line` file name `hpctoolkit:parallel-overhead[:CATEGORY]`; a Rust source file in
//! a folder `parallel_overhead/`; a Rust module `parallel_overhead`. Which of several tagged
//! procedures wins is decided in `unit_analysis::overhead_category`.

/// The file name that marks overhead in C and C++.
const LINE_MARK: &str = "hpctoolkit:parallel-overhead";
/// The folder or module that marks overhead in Rust.
const MODULE_MARK: &str = "parallel_overhead";
/// The category of a mark that names none.
pub(crate) const OTHER: &str = "other";

/// The category of a marked file, and the mark in words.
pub(crate) fn mark_of_file(path: &str) -> Option<(&str, &'static str)> {
    let base = path.rsplit('/').next().unwrap_or(path);
    if let Some(rest) = base.strip_prefix(LINE_MARK) {
        let category = match rest.strip_prefix(':') {
            Some("") => OTHER,
            Some(category) => category,
            None if rest.is_empty() => OTHER,
            None => return None,
        };
        return Some((category, "`#line` file name `hpctoolkit:parallel-overhead`"));
    }
    let stem = base.strip_suffix(".rs")?;
    if matches!(stem, "parallel-overhead" | MODULE_MARK) {
        return Some((OTHER, "source file `parallel_overhead.rs`"));
    }
    // The segment after the folder: a file's stem or the folder of a module.
    let mut segments = path.split('/');
    segments.find(|s| *s == MODULE_MARK)?;
    let category = match segments.next()? {
        "mod.rs" | "lib.rs" => OTHER,
        segment => segment.strip_suffix(".rs").unwrap_or(segment),
    };
    Some((category, "source folder `parallel_overhead`"))
}

/// The category of an owner path ([`crate::names::crate_origin::RustName::owner_path`]): the module below
/// `parallel_overhead`; a procedure or type directly in it is `other`.
pub(crate) fn category_of_path(owner_path: &str) -> Option<&str> {
    const WITHIN: &[u8] = b"::parallel_overhead::";
    // Nearly all paths have none: a test of each colon is faster than a general search.
    let bytes = owner_path.as_bytes();
    let is_within = |at: &usize| bytes[*at] == b':' && bytes[*at..].starts_with(WITHIN);
    let below = match (0..bytes.len()).find(is_within) {
        Some(at) => &owner_path[at + WITHIN.len()..],
        None => owner_path.strip_prefix("parallel_overhead::")?,
    };
    Some(match below.split_once("::") {
        Some((first, rest)) if first.starts_with(|c: char| c.is_lowercase()) && !rest.starts_with('{') => {
            first
        }
        _ => OTHER,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        for (path, category) in [
            ("hpctoolkit:parallel-overhead", Some("other")),
            ("/build/dir/hpctoolkit:parallel-overhead:sync", Some("sync")),
            ("/build/hpctoolkit:parallel-overhead:", Some("other")),
            ("/build/hpctoolkit:parallel-overheads", None),
            ("/build/hpctoolkit:parallel-overhead:sync/x.c", None),
            ("/w/src/parallel_overhead/sync.rs", Some("sync")),
            ("src/parallel_overhead/sync/lock.rs", Some("sync")),
            ("parallel_overhead/mod.rs", Some("other")),
            ("/w/parallel_overhead.rs", Some("other")),
            ("/w/parallel-overhead.rs", Some("other")),
            ("/w/src/my_parallel_overhead/sync.rs", None),
            ("/w/src/main.rs", None),
            ("parallel_overhead/notes.c", None),
        ] {
            assert_eq!(mark_of_file(path).map(|mark| mark.0), category, "{path}");
        }
    }

    #[test]
    fn paths() {
        for (path, category) in [
            ("a::parallel_overhead::sync::take", Some("sync")),
            ("a::b::parallel_overhead::sched::Pool::go", Some("sched")),
            ("parallel_overhead::sync::take", Some("sync")),
            ("a::parallel_overhead::take", Some("other")),
            ("a::parallel_overhead::take::{closure#0}", Some("other")),
            ("a::parallel_overhead::Lock::take", Some("other")),
            ("a::not_parallel_overhead::sync::take", None),
            ("a::parallel_overheads::sync::take", None),
            ("a::take", None),
        ] {
            assert_eq!(category_of_path(path), category, "{path}");
        }
    }
}
