//! Structures in forms for people and for HPCToolkit.

pub mod load_module;
pub mod text;
pub mod xml;
