//! Who owns a procedure in the eyes of a reader. The first screen is about the user's own procedures, where
//! there are any.

use crate::catalogue::Catalogue;
use crate::render::names::base_name;
use hpc_formats::structure::Origin;
use hpcstruct_rs::known::{self, Kind};

/// Owners, those that a user cares about most first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Owner {
    Program,
    /// A library that the program uses.
    Library,
    /// Code that calls others: wrappers of threads, an interpreter, a loop that spins.
    Scaffold,
    /// The system's or a task runtime's.
    System,
}

pub fn owners(catalogue: &Catalogue) -> Vec<Owner> {
    let code = &catalogue.code;
    let is_program = |path: &str| catalogue.statistics.executables.iter().any(|e| e == path);
    let procedures = code.procedures.iter();
    procedures
        .map(|row| {
            let module = code.module_of(row).unwrap_or("");
            let file = row.declared.map_or("", |at| code.file(at.file));
            if row.origin != Origin::User || known::is(Kind::Entry, &row.name) {
                Owner::System
            } else if is_scaffold(&row.name) || is_interpreter(base_name(module)) {
                Owner::Scaffold
            } else if known::is(Kind::Source, file)
                || (!is_program(module) && known::is(Kind::Folder, module))
            {
                Owner::Library
            } else {
                Owner::Program
            }
        })
        .collect()
}

/// Programs that run others, by their file names: a script's procedures are no machine code.
pub fn is_interpreter(module: &str) -> bool {
    let version = |c: char| !c.is_alphabetic() && c != '_';
    known::is(Kind::Interpreter, module.split(version).next().unwrap_or(module))
}

/// Wrappers of threads and callables by name, and helpers that wait by spinning.
fn is_scaffold(name: &str) -> bool {
    let plain = name.split(['<', '(']).next().unwrap_or(name);
    let last = plain.rsplit("::").next().unwrap_or(plain);
    known::is_start_up(name)
        || known::is(Kind::Shim, name)
        || known::is(Kind::Wrapper, plain)
        || known::is(Kind::Spin, last)
}

/// The procedure that a closure or a lambda stands in, by its name; empty where the name does not tell.
/// Of other procedures it is the name itself.
pub fn enclosing(name: &str) -> &str {
    const CLOSURES: [&str; 4] = ["{closure", "{{closure", "{lambda", "$_"];
    let mut depth = 0_i32;
    for (at, c) in name.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            _ => {}
        }
        let starts_here = at == 0 || name[..at].ends_with("::");
        if depth <= 0 && starts_here && CLOSURES.iter().any(|start| name[at..].starts_with(start)) {
            return name[..at].trim_end_matches("::");
        }
    }
    if name.starts_with("<lambda") { "" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_is_named_by_its_procedure() {
        for (name, procedure) in [
            ("app::par::{closure#0}", "app::par"),
            ("<app::T as app::Run>::run::{closure#1}::{closure#0}", "<app::T as app::Run>::run"),
            ("main::{lambda(int)#1}::operator()(int) const", "main"),
            ("main::$_0::operator()() const", "main"),
            ("run<main::{lambda()#1}>(int)", "run<main::{lambda()#1}>(int)"),
            ("{lambda()#1}::operator()() const", ""),
            ("app::par", "app::par"),
        ] {
            assert_eq!(enclosing(name), procedure, "{name}");
        }
    }

    #[test]
    fn wrappers_and_interpreters_are_told_from_programs() {
        for name in [
            "std::thread::Builder::spawn",
            "crossbeam_utils::thread::Scope::spawn",
            "tokio::runtime::builder::Builder::build",
            "std::thread::_Invoker<std::tuple<void (*)()> >::operator()()",
            "app::spin",
        ] {
            assert!(is_scaffold(name), "{name}");
        }
        assert!(!is_scaffold("app::spinner::draw"));
        assert!(!is_scaffold("app::run<std::function<void()>>"));
        assert!(is_interpreter("libpython3.12.so.1.0") && is_interpreter("python3.12"));
        assert!(!is_interpreter("pythonic") && !is_interpreter("node_exporter"));
    }
}
