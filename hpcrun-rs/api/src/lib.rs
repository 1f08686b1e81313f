//! What a program can tell hpcrun-rs of itself: the names of its procedures; and the tasks of a runtime of
//! its own, and who waits for whom, where the profiler cannot see it.
//!
//! One duty: be safe Rust over the profiler's tables (`hpcrun_abi::PathTable` and `ProfilerTable`), which are
//! looked up at run time. Without a profiler, or for names and strands one that tracks (`hpcrun-rs
//! --critical-path`), each function costs a load and a branch. `hpcrun.h`, beside this crate's manifest, is
//! the same for C and C++. The README has examples.
//!
//! # Synchronisation of one's own
//! The profiler sees threads, libc's locks and conditions, the tasks of work-stealing-rt, and the channels of
//! crossbeam-channel. A program with queues or tasks of its own says where a [`Strand`] goes:
//!
//! | the program | calls |
//! |---|---|
//! | spawns a task; it begins, ends; is waited for | [`copy`](Strand::copy); `begin`, `end`; `merge` |
//! | sends; receives | `copy`, which travels beside the message; `merge` |
//! | releases a lock; acquires it | `copy`, kept at the lock; `share` of that, and `merge` |
//! | arrives at a barrier; leaves it | `copy`, and `both` of all; `share` of that, and `merge` |
//! | waits or polls; goes on | [`pause`]; [`resume`] |
//!
//! None of these functions may be called in a signal handler. None panics.

mod table;

use core::mem::ManuallyDrop;
use core::panic::Location;

use hpcrun_abi::{self as abi, client};
pub use table::is_active;
use table::{active, profiler, table};

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Examples;

/// Why one strand waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Edge {
    /// For the end of a thread or task.
    Join = abi::EDGE_JOIN,
    /// For a value in a channel, or for room in one.
    Channel = abi::EDGE_CHANNEL,
    /// For the release of a lock.
    Lock = abi::EDGE_LOCK,
    /// For a signalled condition.
    Condition = abi::EDGE_CONDITION,
    /// For all others that arrive at a barrier.
    Barrier = abi::EDGE_BARRIER,
    /// For a message from another process, or to an event handler.
    Message = abi::EDGE_MESSAGE,
}

/// A copy of a thread's or task's path at an event, on its way to whoever waits for that event. One word.
/// Dropped, it is forgotten.
///
/// There is none (`None`) while nothing is tracked. Places in the report are those of the calls.
#[derive(Debug)]
#[must_use = "a strand that is dropped is forgotten"]
pub struct Strand(client::Strand);

impl Strand {
    fn new(word: abi::Strand) -> Option<Self> {
        client::Strand::new(word).map(Strand)
    }

    /// The word, which is now the caller's.
    fn word(strand: Option<Self>) -> abi::Strand {
        strand.map_or(0, |strand| ManuallyDrop::new(strand).0.lent())
    }

    /// A copy of the current strand, at an event for which another one may wait.
    #[inline]
    #[track_caller]
    pub fn copy() -> Option<Self> {
        // Not in a closure, whose caller is this function.
        let path = active()?;
        // SAFETY: a place in the source.
        Strand::new(unsafe { (path.copy)(here(path)) })
    }

    /// The current strand has waited for the event of `strand`: the longer of both goes on. `None` while the
    /// path is tracked is counted as a lost edge.
    #[inline]
    #[track_caller]
    pub fn merge(strand: Option<Self>, edge: Edge) {
        if let Some(path) = active() {
            // SAFETY: the word comes from the table, and is given back.
            unsafe { (path.merge)(Strand::word(strand), here(path), edge as u32) };
        }
    }

    /// Leaves the calling thread's strand, and begins a spawned one, from its spawner's copy; `None` while
    /// the path is tracked is counted as a lost edge. [`end`](Self::end) the result, on the same thread.
    #[track_caller]
    pub fn begin(spawned: Option<Self>) -> Option<Self> {
        Self::begin_from(spawned, Location::caller())
    }

    /// As [`begin`](Self::begin), with the place of the spawn as that of the begin: for runtimes.
    pub fn begin_from(spawned: Option<Self>, place: &'static Location<'static>) -> Option<Self> {
        let path = active()?;
        // SAFETY: as in `merge`.
        Strand::new(unsafe { (path.begin)(Strand::word(spawned), path.at(place)) })
    }

    /// Ends the current strand; the thread goes on with this one, which it has left for it. The result is for
    /// whoever waits for the end, or for [`finish`](Self::finish).
    #[track_caller]
    pub fn end(self) -> Option<Self> {
        let path = table()?;
        // SAFETY: as in `merge`.
        Strand::new(unsafe { (path.end)(Strand::word(Some(self)), here(path)) })
    }

    /// As [`end`](Self::end), for a thread that waits for the strand which it has run itself.
    #[track_caller]
    pub fn end_and_merge(self) {
        if let Some(path) = table() {
            // SAFETY: as in `merge`.
            unsafe { (path.end_and_merge)(Strand::word(Some(self)), here(path)) };
        }
    }

    /// Of two strands for which the same one waits, leaves one.
    pub fn both(self, other: Self) -> Option<Self> {
        let path = table()?;
        // SAFETY: as in `merge`.
        let word = unsafe { (path.both)(Strand::word(Some(self)), Strand::word(Some(other))) };
        Strand::new(word)
    }

    /// The same strand once more.
    pub fn share(&self) -> Option<Self> {
        // SAFETY: the word comes from the table, which keeps it valid.
        table().and_then(|path| Strand::new(unsafe { (path.share)(self.0.lent()) }))
    }

    /// Says that the strand has ended and nobody waits for it: the report counts it among the ends.
    pub fn finish(self) {
        if let Some(path) = table() {
            // SAFETY: as in `merge`.
            unsafe { (path.finish)(Strand::word(Some(self))) };
        }
    }
}

impl Drop for Strand {
    fn drop(&mut self) {
        if let Some(path) = table() {
            // SAFETY: the word comes from the table, and is not used any more.
            unsafe { (path.discard)(self.0.lent()) };
        }
    }
}

/// Where a task was made: a logical call path, which the profiler has kept. One word.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller(usize);

impl Caller {
    /// The calling function, and those that have called it. Costs about as much as a sample.
    #[inline]
    pub fn here() -> Self {
        // SAFETY: a function of the profiler.
        profiler().map_or(Caller(0), |profiler| Caller(unsafe { (profiler.capture_context)() }))
    }

    /// Runs a task that was made there, or a part of one, on the calling thread.
    ///
    /// A panic passes through, and ends the task.
    #[inline]
    pub fn run<R>(self, task: impl FnOnce() -> R) -> R {
        Caller::run_in(self.0, task)
    }

    /// As [`run`](Self::run), for a part of a task that is to give its thread back soon: what takes long is
    /// pointed out.
    #[inline]
    pub fn poll<R>(self, task: impl FnOnce() -> R) -> R {
        Caller::run_in(self.0 | abi::POLL, task)
    }

    #[inline]
    fn run_in<R>(context: usize, task: impl FnOnce() -> R) -> R {
        /// Ends the task when it is dropped.
        struct Run(&'static abi::ProfilerTable, abi::TaskRecord);
        impl Drop for Run {
            fn drop(&mut self) {
                // SAFETY: the record of the task that was begun.
                unsafe { (self.0.task_end)(&raw mut self.1) };
            }
        }
        let Some(profiler) = profiler() else { return task() };
        let mut run = Run(profiler, abi::TaskRecord::default());
        // SAFETY: the record stays in this frame until it is dropped, at the end of the task.
        unsafe { (profiler.task_begin)(&raw mut run.1, context) };
        out_of_line(task)
    }
}

/// Runs the loop by which a thread of a runtime finds its tasks: it is idle but in them. Says nothing of
/// critical paths.
#[inline(never)]
pub fn idle<R>(search: impl FnOnce() -> R) -> R {
    /// Ends the wait when it is dropped.
    struct Wait(&'static abi::ProfilerTable);
    impl Drop for Wait {
        fn drop(&mut self) {
            (self.0.wait_end)();
        }
    }
    let _wait = profiler().map(|profiler| {
        (profiler.wait_begin)();
        Wait(profiler)
    });
    search()
}

/// Calls a task: its frames begin here.
#[inline(never)]
fn out_of_line<R>(task: impl FnOnce() -> R) -> R {
    task()
}

/// The calling thread waits, or looks for work. Who calls this tells the edges of the wait too: wake-ups in
/// it are not taken for edges. A task that it runs meanwhile is work.
#[inline]
pub fn pause() {
    if let Some(profiler) = profiler() {
        (profiler.wait_begin)();
    }
    if let Some(path) = active() {
        (path.pause)();
    }
}

/// What follows on the calling thread is activity again, even if the tracking has been stopped meanwhile.
#[inline]
pub fn resume() {
    if let Some(profiler) = profiler() {
        (profiler.wait_end)();
    }
    if let Some(path) = table() {
        (path.resume)();
    }
}

/// Counts an edge to the calling thread of which the other side is not known.
pub fn lose() {
    if let Some(path) = active() {
        (path.lose)(abi::LOST_UNKNOWN);
    }
}

/// Calls the closure as the procedure of that name: the report has its time, its share of the path, and the
/// span as it were if the procedure took no time. A procedure inside of another one counts for itself alone.
///
/// A panic of the closure passes through, and ends the procedure.
#[inline]
pub fn procedure<R>(name: &'static str, closure: impl FnOnce() -> R) -> R {
    let _entered = active().map(|path| Entered((path.enter)(path.number(name))));
    closure()
}

/// Enters the procedure around, by its number, when it is dropped.
struct Entered(u32);

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some(path) = table() {
            (path.enter)(self.0);
        }
    }
}

/// Forgets what was tracked, and tracks from now on, in the whole process. The calling thread's path begins
/// here.
#[track_caller]
pub fn start() {
    if let Some(path) = table() {
        (path.control)(abi::PATH_START);
        (path.restart)(here(path));
    }
}

/// Stops the tracking, and returns its report, as [`report`] does. The calling thread's path ends here.
#[track_caller]
pub fn stop() -> Option<String> {
    let report = report();
    if let Some(path) = table() {
        (path.control)(abi::PATH_STOP);
    }
    report
}

/// The report up to now, as the JSON of `hpcprof-rs critical-path`; of the last tracking, if none is active.
/// `None` without a profiler that tracks. While the path is tracked, the calling thread's ends here, for this
/// report; other threads are asked to tell theirs at their next event, for the next report.
#[track_caller]
pub fn report() -> Option<String> {
    if let Some(path) = active() {
        (path.publish)(here(path));
    }
    table()?.json()
}

/// The place of the call of the public function that calls this.
#[inline]
#[track_caller]
fn here(path: &abi::PathTable) -> abi::Site {
    path.at(Location::caller())
}
