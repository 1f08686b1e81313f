//! The user's handlers of a pool.

use core::mem;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;

/// Several workers may call a handler at the same time.
#[derive(Default)]
pub(crate) struct Handlers {
    /// A worker has started; its index.
    pub(crate) start: Option<Box<IndexHandler>>,
    /// A worker ends; its index.
    pub(crate) exit: Option<Box<IndexHandler>>,
    /// A detached task, or another handler, has panicked.
    pub(crate) panic: Option<Box<PanicHandler>>,
}

type IndexHandler = dyn Fn(usize) + Send + Sync;
type PanicHandler = dyn Fn(Box<dyn Any + Send>) + Send + Sync;

impl Handlers {
    /// Calls one of them.
    pub(crate) fn call(&self, handler: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(handler)) {
            self.handle_panic(payload);
        }
    }

    /// Handles a panic of code that nobody waits for. Aborts the process if there is no handler.
    pub(crate) fn handle_panic(&self, payload: Box<dyn Any + Send>) {
        let Some(handler) = &self.panic else {
            eprintln!("work-stealing-rt: a detached task panicked; aborting");
            abort();
        };
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| handler(payload))) {
            mem::forget(again);
            eprintln!("work-stealing-rt: the panic handler panicked; aborting");
            abort();
        }
    }
}
