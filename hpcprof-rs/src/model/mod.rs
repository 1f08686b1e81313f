//! What the passes build and the sinks write: names, code, contexts, metrics, losses.

pub mod contexts;
pub mod experiment;
pub mod hash;
pub mod loops;
pub mod metrics;
pub mod runtimes;
pub mod scaffolding;
pub mod symbols;
pub mod warnings;
