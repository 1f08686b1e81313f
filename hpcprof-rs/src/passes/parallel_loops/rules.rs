//! The libraries whose parallel loops are recognised. Another library (TBB) is one more entry.

use crate::model::symbols::{ProcedureIndex, Symbols};
use crate::passes::parallel_loops::rule::Rule;
use crate::passes::parallel_loops::{openmp, rayon};
use hpc_formats::structure::Origin;

/// All libraries.
pub static RULES: [Rule; 2] = [rayon::RULE, openmp::RULE];

/// The rule for the loops that begin with this entry.
pub fn of_entry(entry: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| (rule.is_library)(entry))
}

/// What a procedure is to parallel loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Part of a library of parallel iterators.
    Library,
    /// The body of a directive.
    Directive,
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
            _ if openmp::is_inner(name) => Part::Library,
            _ if openmp::is_outlined(name) => Part::Directive,
            Origin::Runtime if RULES.iter().any(|r| (r.is_library)(name)) => Part::Library,
            Origin::Runtime => Part::Runtime,
            Origin::System if RULES.iter().any(|r| (r.is_shim)(name)) => Part::Shim,
            Origin::System => Part::System,
            Origin::User if RULES.iter().any(|r| (r.is_extension)(name)) => Part::Extension,
            Origin::User => Part::User,
        }
    }
}
