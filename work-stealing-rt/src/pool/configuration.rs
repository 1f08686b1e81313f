//! The old way to set up a pool, for programs that still use rayon's deprecated `Configuration`.
#![allow(deprecated)]

use std::error::Error;

use super::builder::ThreadPoolBuilder;
use super::thread_pool::ThreadPool;

/// Sets up a pool.
#[deprecated(note = "use `ThreadPoolBuilder`")]
pub type Configuration = ThreadPoolBuilder;

/// Makes the global pool.
///
/// # Errors
/// As [`ThreadPoolBuilder::build_global`].
#[deprecated(note = "use `ThreadPoolBuilder::build_global`")]
pub fn initialize(config: Configuration) -> Result<(), Box<dyn Error>> {
    config.build_global().map_err(Box::from)
}

impl ThreadPool {
    /// A pool with these settings.
    ///
    /// # Errors
    /// As [`ThreadPoolBuilder::build`].
    #[deprecated(note = "use `ThreadPoolBuilder::build`")]
    pub fn new(configuration: Configuration) -> Result<ThreadPool, Box<dyn Error>> {
        configuration.build().map_err(Box::from)
    }
}
