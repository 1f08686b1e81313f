//! The boundary: the one call through which tasks are entered, and the recording of contexts.
//!
//! Makes a stolen task's spawner findable from the task's physical stack. `enter` enters every task that its
//! spawner does not run inline. Its frame keeps the task's header at a fixed place; a profiler recognises the
//! frame by its return address alone. `record` stores the spawner's place in the header.
//!
//! The architecture is chosen only here. `portable` enters tasks by a plain call and records no context; it
//! also serves Miri, which has no assembly, and builds without the feature `context`.

#[cfg(all(
    feature = "context",
    target_arch = "x86_64",
    target_os = "linux",
    target_pointer_width = "64",
    not(miri)
))]
#[path = "x86_64.rs"]
mod imp;

#[cfg(not(all(
    feature = "context",
    target_arch = "x86_64",
    target_os = "linux",
    target_pointer_width = "64",
    not(miri)
)))]
#[path = "portable.rs"]
mod imp;

#[cfg(all(feature = "context", target_os = "linux"))]
pub(crate) use imp::{TASK_SLOT, return_address, sites, text_range};
pub(crate) use imp::{enter, record};
