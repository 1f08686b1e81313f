//! Takes a sample (paper, section 2.1): a working thread gets it as work, and its share of the idle cores as
//! idleness, in its logical calling context. An idle thread gets nothing.
//!
//! Async-signal-safe.

use super::{Busy, OwnThread, by_cookie, current};
use crate::activity::Charge;
use crate::config::Event;
use crate::image;
use crate::sinks::{Sink, Values, Verdict};
use crate::source::{self, Claim, Sample};
use hpc_formats::loss::LossCause;

/// The thread that a signal is a sample of; for other signals, the calling thread. The thread may share the
/// thread-local storage of another thread or process, or have none.
#[inline]
pub fn signalled(info: &libc::siginfo_t) -> Option<OwnThread> {
    let (here, named) = (current(), source::cookie_of(info));
    if here.is_some_and(|thread| Some(thread.cookie()) == named) {
        return here;
    }
    named.and_then(by_cookie).or_else(|| here.filter(|thread| thread.is_own()))
}

/// Says what a signal is, and whose.
#[inline]
pub fn claim(info: &libc::siginfo_t, context: &libc::ucontext_t) -> (Claim, Option<OwnThread>) {
    let thread = signalled(info);
    let claim = match (thread, source::cookie_of(info)) {
        (Some(thread), _) => thread.source.claim(info, context, thread.cookie()),
        (None, Some(_)) => Claim::Lost,
        (None, None) => Claim::Foreign,
    };
    (claim, thread)
}

impl OwnThread {
    #[inline]
    pub fn take(&self, sample: &Sample) {
        let Some(busy) = self.enter() else {
            return self.defer(sample);
        };
        let mut busy = busy.in_handler();
        let verdict = match self.is_idle(sample) {
            true => Verdict::Idle,
            false => {
                self.own().working.prepare_charge();
                busy.walk(&sample.registers)
            }
        };
        let charge = match verdict {
            Verdict::Path(_) => self.charge(sample),
            Verdict::Idle | Verdict::Lost(_) => Charge::default(),
        };
        busy.tell(verdict, &Values::of(sample, charge));
        if let Verdict::Path(node) = verdict {
            self.charge_run_delay(&mut busy, node, sample.now);
        }
        if sample.held_back > 0 {
            self.take_held_back(&mut busy, sample, verdict);
        }
    }

    /// What was held back before a sample has a context of its own, unless the thread was idle.
    #[cold]
    fn take_held_back(&self, busy: &mut Busy<'_>, sample: &Sample, verdict: Verdict) {
        let held = Sample { weight: sample.held_back, ..*sample };
        let (verdict, charge) = match verdict {
            Verdict::Path(_) => (busy.held_back(), self.charge(&held)),
            Verdict::Idle | Verdict::Lost(_) => (verdict, Charge::default()),
        };
        busy.tell(verdict, &Values::of(&held, charge));
    }

    /// A sample took long: the next comes later, if it and the one before took too much of the thread's time.
    #[cold]
    pub fn put_off(&self) {
        self.tally.lose(LossCause::SlowSamples, self.source.put_off());
    }

    /// Takes a sample that arrived while the thread was in the profiler. During a capture it is deferred, and
    /// later added to the captured context; otherwise it is lost.
    #[cold]
    fn defer(&self, sample: &Sample) {
        let sample = &Sample { weight: sample.weight + sample.held_back, ..*sample };
        let values = || Values::of(sample, Charge::default());
        if self.is_idle(sample) {
            self.own().working.idles(sample.now);
            (&self.tally).idle(&values());
            self.own().working.trace().idle(&values());
        } else if self.own().deferred.is_open() {
            self.own().deferred.add(sample, self.charge(sample));
        } else {
            (&self.tally).lost(&values(), LossCause::Reentered);
        }
    }

    /// Whether a sample finds the thread idle, as far as this is known without its stack.
    #[inline]
    pub fn is_idle(&self, sample: &Sample) -> bool {
        // A CPU-time sample shows that the thread runs, even if it is flagged as waiting. A thread that
        // yields has nothing to do.
        let working = &self.own().working;
        working.is_idle_worker()
            || working.is_paused()
            || working.is_yielding()
            || self.is_idle_in_call(sample.registers.ip())
            || (image::event() == Event::WallTime
                && (self.cpu.has_slept(sample.period) || working.is_waiting()))
    }

    /// The charge of a sample that finds the thread working.
    #[inline]
    pub fn charge(&self, sample: &Sample) -> Charge {
        self.own().working.charge(sample.now, sample.time())
    }
}
