//! Printing: text, JSON, CSV and folded stacks, with the names and numbers that they share.

pub mod chance;
pub mod critical_path;
pub mod csv;
pub mod diff;
pub mod folded;
pub mod json;
pub mod loops;
pub mod names;
pub mod numbers;
pub mod over_time;
pub mod style;
pub mod table;
pub mod text;
pub mod threads;
