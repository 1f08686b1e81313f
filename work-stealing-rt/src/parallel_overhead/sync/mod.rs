//! Overhead of the category `sync`: waiting, and waking those who wait.
//!
//! One duty: synchronisation between workers. As in [`crate::sched`], the folder's name is the tag, and no
//! function here calls a user's closure.

pub(crate) mod announce;
pub(crate) mod wait_until;
