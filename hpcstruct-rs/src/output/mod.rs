//! Structures in forms for people and for critical paths.

pub mod inlined;
pub mod text;
