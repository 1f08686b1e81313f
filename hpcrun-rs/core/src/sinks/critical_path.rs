//! Hands samples to the thread's part in the critical path.
//!
//! Async-signal-safe.

use super::{Node, Sink, Values};
use crate::path::ThreadPath;
use hpc_formats::loss::LossCause;

pub(super) struct CriticalPath<'a>(pub(super) &'a ThreadPath);

impl Sink for CriticalPath<'_> {
    #[inline]
    fn recorded(&mut self, node: Node, values: &Values) -> Result<(), LossCause> {
        self.0.samples().inspect(|s| s.add(node.profile, node.record, values.time));
        Ok(())
    }

    #[inline]
    fn idle(&mut self, values: &Values) {
        self.0.samples().inspect(|samples| samples.wait(values.time));
    }
}
