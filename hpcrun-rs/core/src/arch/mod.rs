//! What differs from processor to processor: instructions that Rust has no words for.
//!
//! Async-signal-safe.

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod processor;

pub use processor::{counter, prefetch, stack_pointer, system_call, thread_slot};
