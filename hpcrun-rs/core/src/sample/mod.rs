//! Samples: the signal handler, which takes them ([`signal`]), the way into it and from it into the program's
//! own handler (`entry`, `program`, `stand_in`), and the measurement of its latency (`latency`).

pub(crate) mod entry;
pub mod latency;
pub mod program;
pub mod signal;
pub mod stand_in;
