//! Structures in forms for people, for HPCToolkit and for critical paths.

pub mod inlined;
pub mod load_module;
pub mod text;
pub mod xml;
