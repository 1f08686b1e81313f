//! What only the command does.

pub(crate) mod progress_bar;
#[allow(unsafe_code)]
pub(crate) mod sigbus;
