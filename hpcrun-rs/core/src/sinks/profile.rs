//! Adds samples to their contexts in the thread's tree, which is the profile file.
//!
//! Async-signal-safe.

use super::{Node, Sink, Values};
use crate::lcct::Tree;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::header;

/// The tree in which the samples' contexts are.
pub(super) struct Profile<'a>(pub(super) Option<&'a mut Tree>);

impl Sink for Profile<'_> {
    #[inline]
    fn recorded(&mut self, node: Node, values: &Values) -> Result<(), LossCause> {
        let tree = self.0.as_mut().ok_or(LossCause::TreeFull)?;
        tree.add(node.record, &values.words)?;
        if values.oversubscribed > 0.0 {
            tree.add_to(header::OVERSUBSCRIBED, values.oversubscribed);
        }
        tree.set(header::LAST_NS, values.last_ns);
        Ok(())
    }
}
