//! Hash tables with a fast, fixed hash function. Their order is never used for output.
//!
//! Look-ups of small integer keys are most of the merge's time.

use foldhash::fast::FixedState;

/// A map.
pub type FastMap<K, V> = std::collections::HashMap<K, V, FixedState>;
/// A set.
pub type FastSet<K> = std::collections::HashSet<K, FixedState>;
/// A set whose elements have numbers, in the order in which they were added.
pub type NumberedSet<K> = indexmap::IndexSet<K, FixedState>;
/// A map whose entries have numbers, in the order in which they were added.
pub type NumberedMap<K, V> = indexmap::IndexMap<K, V, FixedState>;
