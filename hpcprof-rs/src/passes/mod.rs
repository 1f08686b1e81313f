//! The passes from measurements to an experiment, in the order in which they run.

pub mod code;
pub mod critical_path;
pub mod edges;
pub mod function_times;
pub mod load_map;
pub mod merge;
pub mod missing;
pub mod parallel_loops;
pub mod runs;
pub mod slices;
pub mod summarise;
pub mod traces;
