//! Names as they are shown, and the names of frames that are scaffolding rather than the
//! user's program.

use crate::error::one_line;
use crate::views::load::Database;
use crate::views::tree::{Label, Place};

/// The last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `file.rs:12` of a place; the line is left out when unknown.
pub fn place(database: &Database, place: Place) -> String {
    let file = database
        .files
        .get(place.0 as usize)
        .map_or("?", |f| base_name(f));
    let file = one_line(file);
    match place.1 {
        0 => file,
        line => format!("{file}:{line}"),
    }
}

/// The name of a node.
pub fn label(database: &Database, label: &Label) -> String {
    match label {
        Label::Procedure(p) => database.procedures[*p as usize].name.clone(),
        Label::Line(at) => place(database, *at),
        Label::Module(m) => m
            .map_or("[no module]", |m| &database.modules[m as usize])
            .to_owned(),
        Label::File(f) => f
            .map_or("[no file]", |f| &database.files[f as usize])
            .to_owned(),
        Label::ParallelLoop(l) => database.loops[*l as usize].name.clone(),
        Label::Pruned(1) => "1 context not shown".to_owned(),
        Label::Pruned(n) => format!("{n} contexts not shown"),
    }
}

/// The name of a node for a screen: on one line, without what steers a terminal.
pub fn shown(database: &Database, of: &Label) -> String {
    one_line(&label(database, of))
}

/// Breaks a text into lines of at most `width` characters, at spaces; further lines are indented.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    const INDENT: &str = "    ";
    let mut lines: Vec<String> = Vec::new();
    let leading = text.len() - text.trim_start().len();
    let mut line = text[..leading].to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let length = line.chars().count() + usize::from(!is_empty) + word.chars().count();
        if length > width && !is_empty {
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines.iter().map(|line| middle(line, width)).collect()
}

/// Shortens a text to `width` characters by cutting out its middle.
pub fn middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    if width < 5 {
        return text.chars().take(width).collect();
    }
    let head = (width - 1) / 2;
    let tail = width - 1 - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}…{end}")
}

/// Frames by which std calls a closure and catches its panic: between a runtime and the task it
/// runs they mean nothing to the user.
pub fn is_glue(name: &str) -> bool {
    const PARTS: [&str; 9] = [
        "::call_once",
        "::call_mut",
        "::catch_unwind",
        "::panicking::try",
        "::panicking::catch_unwind",
        "__rust_try",
        "__rust_begin_short_backtrace",
        "::ops::function::Fn",
        "::panic::unwind_safe::AssertUnwindSafe",
    ];
    name.starts_with("__rust_try") || PARTS.iter().any(|part| name.contains(part))
}

/// Frames that start a program or a thread.
pub fn is_start_up(name: &str) -> bool {
    const EXACT: [&str; 9] = [
        "_start",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
        "start_thread",
        "_dl_start_user",
        "pthread_create",
        "_dl_relocate_static_pie",
    ];
    const PARTS: [&str; 11] = [
        "__libc_start_",
        "std::rt::lang_start",
        "__pthread_create",
        "::thread::Thread::new::thread_start",
        "std::thread::spawn",
        "std::thread::functions::spawn",
        "std::thread::Builder::spawn",
        "std::thread::builder::Builder>::spawn",
        "std::thread::scoped::Scope::spawn",
        "std::thread::lifecycle::",
        "std::sys::thread::",
    ];
    // Versioned symbols, as in `pthread_create@@GLIBC_2.34`.
    let plain = name.split('@').next().unwrap_or(name);
    EXACT.contains(&plain) || PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_out_the_middle() {
        assert_eq!(middle("abcdefghij", 10), "abcdefghij");
        assert_eq!(middle("abcdefghijk", 10), "abcd…ghijk");
        assert_eq!(middle("äöüäöüäöü", 5), "äö…öü");
        assert_eq!(middle("abcdef", 3), "abc");
    }

    #[test]
    fn wraps_at_spaces() {
        assert_eq!(wrap("a bc def", 20), ["a bc def"]);
        assert_eq!(
            wrap("  1 s: one two three", 12),
            ["  1 s: one", "    two", "    three"]
        );
        assert_eq!(wrap("one abcdefghijkl", 8), ["one", "   …ijkl"]);
    }

    #[test]
    fn knows_scaffolding_from_users() {
        for name in [
            "core::ops::function::FnOnce::call_once",
            "std::panicking::try::do_call",
            "<alloc::boxed::Box<F> as core::ops::function::FnOnce<A>>::call_once",
        ] {
            assert!(is_glue(name), "{name}");
        }
        assert!(!is_glue("app::try_it"));
        assert!(is_start_up("__libc_start_main@@GLIBC_2.34"));
        assert!(is_start_up("std::rt::lang_start::{{closure}}"));
        let spawn = "std::thread::scoped::<impl std::thread::builder::Builder>::spawn_scoped";
        assert!(is_start_up(spawn));
        assert!(!is_start_up("app::start"));
    }
}
