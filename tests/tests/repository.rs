//! The repository's own checks, which build and measure nothing.

mod architecture;
mod hygiene;
