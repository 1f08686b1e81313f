//! Writers of an experiment. A sink takes the whole experiment and says where it put it.

pub mod database;
pub mod order;
pub mod staged_directory;
