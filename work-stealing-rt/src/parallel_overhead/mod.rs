//! Everything that is runtime work, by category.
//!
//! One duty: be the folder whose name tags code as parallel overhead. After a run, an
//! instruction whose inlining chain passes through a file in this folder counts as overhead of
//! the category that the file is named after; nothing is spent for that at run time.
//!
//! Invariant: no function here calls a user's closure (tasks are entered through the boundary,
//! which is never inlined); otherwise user code inlined into it would be tagged, too.

pub(crate) mod sched;
pub(crate) mod sync;
