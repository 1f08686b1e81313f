//! Samples: the signal handler, which takes them ([`signal`]), and the measurement of its latency
//! ([`latency`]).

pub mod latency;
pub mod signal;
