//! Recognises, names and counts parallel loops.
//!
//! A parallel loop begins where a logical path enters a library of parallel iterators. It goes on through the
//! frames of that library, of task runtimes and of the system until user code is called: the loop's closures
//! are its callees. User code that enters the library again begins another loop, nested in the first one. So
//! the recursion that splits a loop is one loop, however deep it is and wherever its tasks run.
//!
//! A directive of OpenMP is one loop as well: its body is a frame of the loop.
//!
//! | file | duty |
//! |---|---|
//! | `rules` | what procedures are to loops |
//! | `rayon`, `openmp`, `tbb` | what is known of these libraries |
//! | `recognise` | follows paths: where a loop begins, and which contexts are its frames |
//! | `counts` | gives the runtime's counts of splits and steals to loops |
//! | `names` | names loops: by the source, by their adaptors, by their entry |

pub mod counts;
pub mod names;
pub mod openmp;
mod rayon;
pub mod recognise;
pub mod rules;
mod tbb;
