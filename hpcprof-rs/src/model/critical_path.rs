//! The critical path of a process, with names of its places.

use hpc_formats::critical_path as path;
use std::sync::Arc;

/// A procedure of a path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// Its name, and where it is declared.
    pub place: Arc<path::Place>,
    /// Whether it is the user's own, as marks are.
    pub is_user: bool,
}

/// A critical path. Threads are ordinals.
pub type CriticalPath = path::CriticalPath<Arc<path::Place>, Known>;

/// A part of it.
pub type Segment = path::Segment<Arc<path::Place>>;

/// A place that begins activity.
pub type Start = path::Start<Arc<path::Place>>;

/// A procedure's part in it, with what it calls.
pub type Procedure = path::Procedure<Known>;
