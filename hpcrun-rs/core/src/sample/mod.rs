//! Samples: what delivers them ([`source`]) and the one signal handler that takes them
//! ([`signal`]).

pub mod latency;
pub mod signal;
pub mod source;
