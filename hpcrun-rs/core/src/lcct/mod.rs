//! The logical calling context tree of one thread (paper, section 3.2 and appendix), built in
//! place in the profile file. [`key`] says when two notes are one node, `index` finds it, [`tree`] inserts;
//! [`spare`] keeps files for the next threads.
//!
//! Async-signal-safe.

mod index;
pub mod key;
pub mod spare;
pub mod tree;

pub use tree::{Identity, Tree};
