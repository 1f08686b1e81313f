//! Exact marks: the procedure in which a thread is.

use super::path::{self, is_active};

/// Leaves a procedure when it is dropped.
pub(crate) struct Entered {
    /// The one around it, by number. `None`: nothing was entered.
    outer: Option<u32>,
}

/// Enters the procedure of that name.
#[inline]
pub(crate) fn enter(name: &'static str) -> Entered {
    if !is_active() {
        return Entered { outer: None };
    }
    Entered { outer: Some(path::enter(path::procedure(name))) }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some(outer) = self.outer {
            path::enter(outer);
        }
    }
}
