//! What began a strand, or made it go on: told to the trace as it happens, and counted for the report.

use super::Thread;
use crate::clock::Clock;
use crate::event::Moment;
use crate::path::{Edge, Site};
use crate::starts::{self, Started};

impl<C: Clock> Thread<'_, C> {
    /// The moment, for the trace, which knows up to there what the strand goes on after.
    #[inline]
    pub(super) fn moment(&mut self) -> Moment {
        let Some(trace) = &self.tracker.settings.trace else { return Moment::default() };
        let returns_to = core::mem::take(&mut self.returns_to);
        if returns_to.thread != 0 {
            (trace.follow)(returns_to, Edge::Start, true);
        }
        (trace.now)()
    }

    /// The strand has waited for that moment of another one, which is longer if it `is_path`.
    #[inline]
    pub(super) fn follow(&mut self, moment: Moment, edge: Edge, is_path: bool) {
        let Some(trace) = &self.tracker.settings.trace else { return };
        if is_path {
            self.returns_to = Moment::default();
        } else {
            self.moment();
        }
        (trace.follow)(moment, edge, is_path);
    }

    /// The strand begins, or goes on, after an event at `place` of another one.
    #[inline]
    pub(super) fn start(&mut self, place: Site, edge: Edge) {
        let length = self.strand.0.length;
        let started = Started::at(place, edge, length);
        self.strand.0.started = started;
        if started.by.is_some() {
            self.add_start(|starts| starts.begin(place, edge, length));
        }
    }

    /// Counts what the strand has done since it was started, up to now.
    #[inline]
    pub(super) fn count_started(&mut self) {
        let chain = &mut *self.strand.0;
        let time = chain.started.count(chain.length);
        if let Some((place, edge)) = chain.started.by {
            self.add_start(|starts| starts.add(place, edge, time));
        }
    }

    #[inline]
    pub(super) fn add_start(&mut self, add: impl Fn(&mut starts::Recent) -> bool) {
        if !add(&mut self.starts) {
            self.move_starts();
            add(&mut self.starts);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn move_starts(&mut self) {
        let session = self.strand.0.of.session;
        self.tracker.add_starts(session, &mut self.starts);
    }
}
