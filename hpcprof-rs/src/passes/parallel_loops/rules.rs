//! The libraries whose parallel loops are recognised. Another library (OpenMP, TBB) is one more entry.

use crate::model::symbols::{ProcedureIndex, Symbols};
use crate::passes::parallel_loops::rayon;
use hpc_formats::structure::Origin;

/// How the parallel loops of one library are recognised and named. Procedures are known by name.
#[derive(Debug)]
pub struct Rule {
    /// A runtime's procedure that is part of the library. User code that calls one begins a loop.
    pub is_library: fn(&str) -> bool,
    /// A user's procedure that implements the library's interfaces: a frame within a loop, not its body.
    pub is_extension: fn(&str) -> bool,
    /// A system procedure between a loop and its body: a frame of the loop.
    pub is_shim: fn(&str) -> bool,
    /// An entry that the program does not call itself: its method alone would say nothing.
    pub is_internal: fn(&str) -> bool,
    /// The part that a frame adds to the name of its loop, `map` of an adaptor's frame.
    pub adaptor: fn(&str) -> Option<String>,
    /// Prefixes of the methods that begin a loop's expression in Rust source.
    pub source_starts: &'static [&'static str],
}

/// All libraries.
pub static RULES: [Rule; 1] = [rayon::RULE];

/// The rule for the loops that begin with this entry.
pub fn of_entry(entry: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| (rule.is_library)(entry))
}

/// What a procedure is to parallel loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Part of a library of parallel iterators.
    Library,
    /// A user's implementation of such a library's interfaces.
    Extension,
    /// A task runtime's.
    Runtime,
    /// System code between a loop and its body.
    Shim,
    /// Other system code.
    System,
    /// User code.
    User,
}

impl Part {
    /// Of a procedure.
    pub fn of(symbols: &Symbols, procedure: ProcedureIndex) -> Part {
        let name = symbols.name_of(procedure);
        match symbols.procedure(procedure).origin {
            Origin::Runtime if RULES.iter().any(|r| (r.is_library)(name)) => Part::Library,
            Origin::Runtime => Part::Runtime,
            Origin::System if RULES.iter().any(|r| (r.is_shim)(name)) => Part::Shim,
            Origin::System => Part::System,
            Origin::User if RULES.iter().any(|r| (r.is_extension)(name)) => Part::Extension,
            Origin::User => Part::User,
        }
    }
}
