//! Exact marks: the procedure in which a thread is.

use core::cell::RefCell;

use critical_path::{Lost, Procedure};

use super::{is_active, tracker, with};

thread_local! {
    /// The procedures that the calling thread has entered, by the addresses of their names.
    static KNOWN: RefCell<Vec<(&'static str, Procedure)>> = const { RefCell::new(Vec::new()) };
}

/// Leaves a procedure when it is dropped.
pub(crate) struct Entered {
    /// The one around it. `None`: nothing was entered.
    outer: Option<Option<Procedure>>,
}

/// Enters the procedure of that name.
#[inline]
pub(crate) fn enter(name: &'static str) -> Entered {
    let outer = if is_active() {
        let procedure = number(name);
        with(false, |thread| {
            if procedure.is_none() {
                thread.lose(Lost::Procedure);
            }
            thread.enter(procedure)
        })
    } else {
        None
    };
    Entered { outer }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some(outer) = self.outer {
            with(false, |thread| thread.enter(outer));
        }
    }
}

/// The procedure's number; `None` if there are too many, or the thread ends.
fn number(name: &'static str) -> Option<Procedure> {
    let look = |known: &RefCell<Vec<(&'static str, Procedure)>>| {
        let mut known = known.borrow_mut();
        let found = known.iter().find(|(other, _)| core::ptr::eq(*other, name));
        if let Some((_, procedure)) = found {
            return Some(*procedure);
        }
        let procedure = tracker().procedure(name)?;
        known.push((name, procedure));
        Some(procedure)
    };
    KNOWN.try_with(look).ok().flatten()
}
