//! Actors: `address` is how others know one, `cell` is where it lives with its mailbox and handles its
//! messages, `setup` is what a caller says of it before it lives. Addresses lead to cells, and a cell gives
//! its actor a context with its own address, so the three know each other.

pub(crate) mod address;
pub(crate) mod cell;
pub(crate) mod setup;
