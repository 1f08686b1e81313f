//! What procedures are to parallel loops: those of rayon's iterators, of OpenMP's directives and of TBB are
//! recognised. Another library is one more file, and its lines here and in `names`.

use crate::model::symbols::{ProcedureIndex, Symbols};
use crate::passes::parallel_loops::{openmp, rayon, tbb};
use hpc_formats::structure::Origin;

/// What a procedure is to parallel loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Part of a library of parallel iterators.
    Library,
    /// The body of a directive.
    Directive,
    /// A user's implementation of such a library's interfaces.
    Extension,
    Runtime,
    /// System code between a loop and its body.
    Shim,
    /// Other system code.
    System,
    User,
}

impl Part {
    pub fn of(symbols: &Symbols, procedure: ProcedureIndex) -> Part {
        let name = symbols.name_of(procedure);
        match symbols.procedure(procedure).origin {
            _ if openmp::is_inner(name) => Part::Library,
            _ if openmp::is_outlined(name) => Part::Directive,
            Origin::Runtime if rayon::is_library(name) || tbb::is_library(name) => Part::Library,
            Origin::Runtime => Part::Runtime,
            Origin::System if rayon::is_shim(name) => Part::Shim,
            Origin::System => Part::System,
            Origin::User if rayon::is_extension(name) => Part::Extension,
            Origin::User => Part::User,
        }
    }
}
