//! Tasks that depend on several messages.

use crate::strand::{self, Tables};
use crate::table::Path;

/// A point where several messages are needed before a task goes on, for systems that follow messages alone
/// ([`actor_order(false)`](crate::SystemBuilder::actor_order)): each handler that only keeps a message adds
/// itself, [`Context::add_to`](crate::Context::add_to), and the one that goes on depends on them,
/// [`Context::depend_on`](crate::Context::depend_on). In the paper's terms: declare, maximum and reset.
///
/// By default an actor's tasks depend on those before them, so that nothing need be said.
#[derive(Debug, Default)]
pub struct MergePoint(Path);

impl MergePoint {
    pub(crate) fn add(&mut self, tables: &Tables, path: Path) {
        self.0 = strand::join(tables, path, self.0);
    }

    pub(crate) fn take(&mut self) -> Path {
        std::mem::take(&mut self.0)
    }
}
