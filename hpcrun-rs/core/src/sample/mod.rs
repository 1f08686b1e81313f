//! Samples: the one signal handler, which takes them ([`signal`]), and a record of how long it
//! takes ([`latency`]).

pub mod latency;
pub mod signal;
