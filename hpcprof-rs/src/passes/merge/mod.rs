//! Third pass: merges the profiles of all threads. Memory follows the result, not the measurements.
//!
//! 1. Workers take one profile after the other: each resolves paths (`paths`) into trees of its own and
//!    spools the values (`shard`, `spool`).
//! 2. The trees of all workers become one (`reduce`).
//! 3. Contexts and names get their final numbers, by name and place (`number`).
//! 4. The values are added up, thread by thread (`values`).
//!
//! The result depends neither on the order of the files nor on the number of workers.

pub mod number;
pub mod paths;
pub mod reduce;
pub mod shard;
pub mod spool;
pub mod values;
