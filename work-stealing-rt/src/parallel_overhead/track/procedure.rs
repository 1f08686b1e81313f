//! Exact marks: the procedure in which a thread is.

use hpcrun_abi::LOST_PROCEDURE;

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
    let procedure = path::procedure(name);
    if procedure == 0 {
        path::lose(LOST_PROCEDURE);
    }
    Entered {
        outer: Some(path::enter(procedure)),
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some(outer) = self.outer {
            path::enter(outer);
        }
    }
}
