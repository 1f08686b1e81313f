//! What is known of runtimes, libraries, the system and what waits, for the analyser and for views.
//!
//! `table.txt` has it all; this module reads it. Nothing else in hpcstruct-rs and hpcprof-rs lists such
//! names, but for what begins a region.

pub(crate) mod globs;

use globs::Globs;
use hpc_formats::numbered;
use hpc_formats::structure::Origin;
use std::sync::LazyLock;

const TABLE: &str = include_str!("table.txt");

numbered! {
    /// What a glob of the table is compared with, and what it says. The table explains each.
    #[allow(missing_docs)]
    Kind {
        Crate = 0, "crate";
        Library = 1, "library";
        Cpp = 2, "cpp";
        Symbol = 3, "symbol";
        Source = 4, "source";
        Folder = 5, "folder";
        Procedure = 6, "procedure";
        Module = 7, "module";
        File = 8, "file";
        Worker = 9, "worker";
        StartUp = 10, "start-up";
        Shim = 11, "shim";
        Wrapper = 12, "wrapper";
        Spin = 13, "spin";
        Wait = 14, "wait";
        Clock = 15, "clock";
        Entry = 16, "entry";
        Interpreter = 17, "interpreter";
        Iterators = 18, "iterators";
        NoReturn = 19, "no-return";
        NoThrow = 20, "no-throw";
        RustNoReturn = 21, "rust-no-return";
        RustNoThrow = 22, "rust-no-throw";
    }
}

/// A line's kind and value, and one of its globs.
type Fact = (Kind, &'static str, &'static str);

/// All facts of the table, in order. A test reads every line.
pub(crate) fn facts() -> impl Iterator<Item = Fact> {
    TABLE.lines().filter(|line| !line.starts_with('#')).flat_map(|line| {
        let mut words = line.split_whitespace();
        let head = words.next().unwrap_or("");
        let (kind, value) = head.split_once(':').unwrap_or((head, ""));
        words.filter_map(move |glob| Some((Kind::from_name(kind)?, value, glob)))
    })
}

static KNOWN: LazyLock<[Globs<(&str, &str)>; Kind::ALL.len()]> = LazyLock::new(|| {
    let mut known = Kind::ALL.map(|_| Globs::default());
    facts().for_each(|(kind, value, glob)| known[kind as usize].push(glob, (value, glob)));
    known
});

/// What the table says of a text: the value, and the glob that matches.
pub fn find(kind: Kind, text: &str) -> Option<(&'static str, &'static str)> {
    let globs = &KNOWN[kind as usize];
    globs.get(globs.first(text)?).copied()
}

/// Whether the table has a text.
pub fn is(kind: Kind, text: &str) -> bool {
    find(kind, text).is_some()
}

/// Whether a procedure starts a program or a thread. Symbols may have a version, as in
/// `pthread_create@@GLIBC_2.34`.
pub fn is_start_up(name: &str) -> bool {
    is(Kind::StartUp, name.split('@').next().unwrap_or(name))
}

/// Whose code something is, if the table says so.
pub fn origin(kind: Kind, text: &str) -> Option<Origin> {
    Origin::from_name(find(kind, text)?.0)
}

/// The origin of a whole load module, if its name determines it.
pub fn origin_of_module(path: &str) -> Option<Origin> {
    origin(Kind::Library, path.rsplit('/').next().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_says_something() {
        let is_told = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let globs = |line: &str| line.split_whitespace().count() - 1;
        assert_eq!(facts().count(), TABLE.lines().filter(is_told).map(globs).sum());
        for (kind, value, glob) in facts() {
            use Kind::{Cpp, Crate, Folder, Library, Source, Symbol};
            let is_origin = matches!(value, "system" | "runtime");
            match kind {
                Crate | Library | Cpp | Symbol => assert!(is_origin, "{glob}"),
                Source | Folder => assert!(is_origin || value == "library", "{glob}"),
                Kind::Procedure | Kind::Module | Kind::File | Kind::Worker | Kind::Iterators => {
                    assert!(!value.is_empty(), "{glob}");
                }
                _ => assert_eq!(value, "", "{glob}"),
            }
        }
    }

    #[test]
    fn scaffolding_is_told_from_user_code() {
        for name in [
            "core::ops::function::FnOnce::call_once",
            "std::panicking::try::do_call",
            "<alloc::boxed::Box<F> as core::ops::function::FnOnce<A>>::call_once",
        ] {
            assert!(is(Kind::Shim, name), "{name}");
        }
        assert!(!is(Kind::Shim, "app::try_it"));
        assert!(is_start_up("__libc_start_main@@GLIBC_2.34"));
        assert!(is_start_up("std::rt::lang_start::{{closure}}"));
        let spawn = "std::thread::scoped::<impl std::thread::builder::Builder>::spawn_scoped";
        assert!(is_start_up(spawn));
        assert!(!is_start_up("app::start"));
    }

    #[test]
    fn modules_and_names_have_their_origin() {
        assert_eq!(origin_of_module("/lib/x86_64-linux-gnu/libc.so.6"), Some(Origin::System));
        assert_eq!(origin_of_module("/usr/lib/libcrypto.so.3"), None);
        assert_eq!(origin_of_module("[vdso]"), Some(Origin::System));
        assert_eq!(origin_of_module("libgomp.so.1"), Some(Origin::Runtime));
        assert_eq!(origin(Kind::Cpp, "std::vector<int>::push_back"), Some(Origin::System));
        assert_eq!(origin(Kind::Cpp, "stdx::f"), None);
    }
}
