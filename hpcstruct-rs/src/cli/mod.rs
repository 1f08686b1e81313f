//! What only the command does.

pub(crate) mod progress_bar;
