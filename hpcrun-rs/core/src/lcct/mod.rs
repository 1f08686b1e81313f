//! The logical calling context tree of one thread (paper, section 3.2 and appendix), built in place in the
//! profile file.
//!
//! [`key`] decides whether two notes are the same node, `index` finds the node, and [`tree`] inserts it.
//! [`metrics`] says which values a node has. [`spare`] keeps the files of ended threads for new threads.
//!
//! Async-signal-safe.

mod index;
pub mod key;
pub mod metrics;
pub mod spare;
pub mod tree;

pub use metrics::{MetricSet, Words};
pub use tree::{Identity, Tree};
