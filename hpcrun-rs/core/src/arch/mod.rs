//! Processor-specific instructions.
//!
//! Async-signal-safe.

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod processor;

pub use processor::{counter, prefetch, stack_pointer, system_call, thread_slot};
