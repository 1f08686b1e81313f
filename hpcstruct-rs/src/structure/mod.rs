//! The structure of a module, put together from all passes.

pub(crate) mod assemble;
pub(crate) mod columns;
