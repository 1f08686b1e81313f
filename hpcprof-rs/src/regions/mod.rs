//! Parallel regions: what each one costs beside its work, and whether it should be parallel.
//!
//! A region is a construct that runs code in parallel, with all that it calls; constructs within it are parts
//! of it. On p cores it takes t_p, serially t_s. Its overheads add up to p t_p - t_s; p t_p is its effort,
//! since waiting cores are charged to whoever works.
//!
//! | file | duty |
//! |---|---|
//! | `construct` | which procedures are constructs |
//! | `find` | the regions of a tree of contexts, with their sums |
//! | `overheads` | classes of overhead, break-even, verdict, best p |
//! | `whole` | the predicted time of the whole program |
//! | `sizes` | the least size that pays, by runs of several sizes |
//! | `print` | text and JSON (`hpcprof-rs/regions/1`, FORMATS.md) |

pub mod construct;
pub mod find;
pub mod overheads;
pub mod print;
pub mod sizes;
pub mod whole;
