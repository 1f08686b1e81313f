//! The passes from measurements to an experiment, in the order in which they run.

pub mod attribute;
pub mod code;
pub mod load_map;
pub mod missing;
pub mod parallel_loops;
pub mod paths;
pub mod summarise;
