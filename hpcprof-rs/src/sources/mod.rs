//! Readers of what earlier tools wrote. They check and decode; they attribute nothing.

pub mod analyser;
pub mod measurements;
pub mod newest;
pub mod perf_map;
pub mod source_text;
pub mod structures;
pub mod traces;
