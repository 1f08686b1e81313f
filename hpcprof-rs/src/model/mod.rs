//! Plain data that passes make, sinks write and the catalogue reads: names, code, contexts, metrics, runs.

pub mod advice;
pub mod code;
pub mod contexts;
pub mod critical_path;
pub mod errors;
pub mod experiment;
pub mod hash;
pub mod keys;
pub mod loops;
pub mod metrics;
pub mod spread;
pub mod statistics;
pub mod symbols;
pub mod tree;
pub mod warnings;
pub mod workers;
