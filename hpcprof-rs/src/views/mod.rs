//! Views of a database. They read nothing but the database, so that it can be moved and kept.
//!
//! `load` reads it, `fold` simplifies the tree for reading, `top_down`, `bottom_up` and `flat`
//! arrange it, `prune` cuts it by depth and threshold, and `json`, `text`, `csv` and `folded`
//! print it. Every step keeps the sum of exclusive values of every metric.

pub mod bottom_up;
pub mod csv;
pub mod efficiency;
pub mod first_screen;
pub mod flat;
pub mod fold;
pub mod folded;
pub mod headline;
pub mod json;
pub mod load;
pub mod loops;
pub mod names;
pub mod newest;
pub mod owners;
pub mod prune;
pub mod quality;
pub mod summary;
pub mod text;
pub mod top_down;
pub mod tree;
