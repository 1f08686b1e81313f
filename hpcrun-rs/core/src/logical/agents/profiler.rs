//! The profiler's own frames.

use super::Owner;
use hpc_formats::address::ModuleId;
use std::sync::atomic::{AtomicU16, Ordering};

static MODULE: AtomicU16 = AtomicU16::new(0);

/// Declares the module whose frames are the profiler's.
pub fn set_module(id: ModuleId) {
    MODULE.store(id.0, Ordering::Release);
}

pub(super) fn owner_of(module: ModuleId) -> Option<Owner> {
    (module.0 == MODULE.load(Ordering::Acquire)).then_some(Owner::Profiler)
}
