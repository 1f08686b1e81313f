//! The passes from measurements to an experiment, in the order in which they run.

pub mod code;
pub mod load_map;
pub mod loop_names;
pub mod loops;
pub mod missing;
pub mod paths;
pub mod project;
pub mod summarise;
