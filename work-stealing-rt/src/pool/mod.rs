//! Pools of workers.
//!
//! | file | duty |
//! |---|---|
//! | `handlers` | the user's handlers |
//! | `life` | who keeps a pool alive, and when it ends |
//! | `install` | runs closures in a pool while their callers wait |
//! | `thread_pool` | the owner's handle |
//! | `threads`, `builder`, `error` | start a pool's threads, and set it up |
//! | `global` | the global pool |
//! | `configuration` | the old way to set a pool up |
//! | `operations` | every operation of the crate, in a given pool |

mod builder;
mod configuration;
mod error;
pub(crate) mod global;
pub(crate) mod handlers;
mod install;
pub(crate) mod life;
mod operations;
mod thread_pool;
mod threads;

pub use builder::{ThreadPoolBuilder, max_num_threads};
#[allow(deprecated)]
pub use configuration::{Configuration, initialize};
pub use error::ThreadPoolBuildError;
pub use global::{current_num_threads, current_thread_has_pending_tasks, current_thread_index};
pub use thread_pool::ThreadPool;
pub use threads::{CustomSpawn, DefaultSpawn, ThreadBuilder, ThreadSpawn};
