//! Calls a reader that may panic on damaged files: the caller reports what failed, the panic prints nothing.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is expected.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// What `read` returns; `None` if it panics. Panics elsewhere are reported as before.
pub(super) fn catch<T>(read: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !EXPECTED.get() {
                report(panic);
            }
        }));
    });
    let before = EXPECTED.replace(true);
    let read = catch_unwind(AssertUnwindSafe(read));
    EXPECTED.set(before);
    read.ok()
}
