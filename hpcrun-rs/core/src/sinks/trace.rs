//! Hands samples to the thread's trace.
//!
//! Async-signal-safe.

use super::{Node, Sink, Values};
use crate::trace::ThreadTrace;
use hpc_formats::loss::LossCause;

impl Sink for &ThreadTrace {
    #[inline]
    fn recorded(&mut self, node: Node, values: &Values) -> Result<(), LossCause> {
        self.works(values.last_ns, values.periods(), node.record);
        Ok(())
    }

    #[inline]
    fn idle(&mut self, values: &Values) {
        self.idles(values.last_ns, values.periods());
    }
}
