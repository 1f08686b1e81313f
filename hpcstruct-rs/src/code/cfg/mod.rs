//! From transfers of control to the loops of a procedure.

mod exception_blocks;
pub(super) mod finder;
mod graph;
mod loop_forest;
pub(super) mod noreturn;
