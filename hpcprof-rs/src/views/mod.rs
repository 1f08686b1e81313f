//! Views: a view is a tree of nodes over the contexts of a catalogue.
//!
//! `fold` simplifies the contexts, `top_down`, `bottom_up` and `flat` arrange them as a view, `prune` cuts it
//! by depth and threshold. Every step keeps the sum of the exclusive values of every metric.

pub mod bottom_up;
pub mod critical_path;
pub mod diff;
pub mod flat;
pub mod fold;
pub mod prune;
pub mod threads;
pub mod top_down;
pub mod user_code;
pub mod view;
