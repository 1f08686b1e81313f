//! The tracker as a table of functions with C's calling convention ([`PathTable`]).
//!
//! One duty: serve task runtimes and programs, whoever keeps the state of a thread: the profiler, or a test.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU8, Ordering};
use core::{ptr, slice};

use hpcrun_abi::{
    ABI_VERSION, PATH_START, PATH_STOP, PathTable, SERIAL, SITE_CONTEXT, SITE_TASK, TaskHeader,
};

use crate::clock::ThreadClock;
use crate::event::Event;
use crate::path::{Edge, Site};
use crate::report::to_json;
use crate::savings::Procedure;
use crate::strand::Strand;
use crate::thread::Thread;
use crate::tracker::{Lost, Tracker};

/// A thread of a process with one tracker.
pub type Tracked = Thread<'static, ThreadClock>;

/// Who keeps the tracker and the threads' states.
pub trait Host {
    /// The process's tracker.
    fn tracker() -> &'static Tracker;

    /// 1 while the path is tracked.
    fn active() -> &'static AtomicU8;

    /// A session is about to begin.
    fn starts() {}

    /// [`Host::active`] has changed: tells the runtimes.
    fn changed();

    /// The calling thread's context, captured, or that in which a live task was spawned.
    fn context(task: Option<*const TaskHeader>) -> Option<Site> {
        let _ = task;
        None
    }

    /// Calls `change` with the calling thread's state, which `first` makes at the thread's first event.
    /// `None`: the thread ends, or the call comes from within another one.
    fn enter<R>(first: impl FnOnce() -> Tracked, change: impl FnOnce(&mut Tracked) -> R) -> Option<R>;
}

/// The host's functions.
pub fn table<H: Host>() -> PathTable {
    PathTable {
        size: size_of::<PathTable>() as u32,
        version: ABI_VERSION,
        active: H::active(),
        copy: copy::<H>,
        fork: fork::<H>,
        merge: merge::<H>,
        begin: begin::<H>,
        end: end::<H>,
        end_and_merge: end_and_merge::<H>,
        both: both::<H>,
        share: share::<H>,
        discard: discard::<H>,
        finish: finish::<H>,
        publish: publish::<H>,
        pause: pause::<H>,
        resume: resume::<H>,
        restart: restart::<H>,
        enter: enter::<H>,
        procedure: procedure::<H>,
        source: source::<H>,
        lose: lose::<H>,
        control: control::<H>,
        report: report::<H>,
    }
}

/// Calls `change` with the calling thread's state, in the tracker's session. A thread whose first event this
/// is has been active until now, or `idle`; its path begins at `begin`. `None`: as [`Host::enter`].
#[inline]
pub fn with<H: Host, R>(idle: bool, begin: Site, change: impl FnOnce(&mut Tracked) -> R) -> Option<R> {
    let change = |thread: &mut Tracked| {
        thread.restart(begin);
        change(thread)
    };
    H::enter(|| first::<H>(idle, begin), change)
}

#[cold]
#[inline(never)]
fn first<H: Host>(idle: bool, begin: Site) -> Tracked {
    let mut thread = Thread::new(H::tracker(), ThreadClock::new(), begin);
    if idle {
        thread.pause();
    }
    thread
}

/// As [`with`], for events of a thread that was active.
#[inline]
fn active<H: Host, R>(change: impl FnOnce(&mut Tracked) -> R) -> Option<R> {
    with::<H, R>(false, Site(0), change)
}

/// As [`with`], for events of a thread that had nothing to do.
#[inline]
fn idle<H: Host, R>(change: impl FnOnce(&mut Tracked) -> R) -> Option<R> {
    with::<H, R>(true, Site(0), change)
}

/// The task of a site, and the site as one that stays.
///
/// # Safety
/// As for [`PathTable`].
#[inline]
unsafe fn plain(at: u64) -> (Option<*const TaskHeader>, Site) {
    if at & SITE_TASK == 0 {
        return (None, Site(at));
    }
    let task = ptr::with_exposed_provenance::<TaskHeader>((at & !SITE_TASK) as usize);
    // SAFETY: the task lives, and its site is static (the caller's promise).
    (Some(task), Site(unsafe { (*(*task).site).ip } as u64))
}

/// An event of the thread, which happens now: in its context, if a long segment ends.
///
/// # Safety
/// As for [`PathTable`].
#[inline]
unsafe fn event<H: Host>(thread: &mut Tracked, at: u64) -> Event {
    // SAFETY: the caller's promise.
    let (task, at) = unsafe { plain(at) };
    match at {
        Site(0) => at.into(),
        _ => thread.event(at, task.is_some(), || H::context(task)),
    }
}

#[inline]
fn raw(strand: Option<Strand>) -> usize {
    strand.map_or(0, Strand::into_raw)
}

// What is unsafe in the functions below is what `PathTable` asks of their callers. None of them panics. Where
// no thread is found, a strand is dropped, and its share of the path's nodes stays taken.

unsafe extern "C" fn copy<H: Host>(at: u64) -> usize {
    raw(active::<H, _>(|thread| {
        // SAFETY: see above.
        let at = unsafe { event::<H>(thread, at) };
        thread.copy(at)
    }))
}

unsafe extern "C" fn fork<H: Host>(at: u64) -> usize {
    let forked = active::<H, _>(|thread| {
        if thread.leaves_out_fork() {
            return SERIAL;
        }
        // SAFETY: see above.
        let (site, at) = unsafe { (plain(at).1, event::<H>(thread, at)) };
        let forked = thread.fork(at, site);
        (usize::from(forked.is_in_grain()) * SERIAL) | forked.into_raw()
    });
    forked.unwrap_or(0)
}

unsafe extern "C" fn merge<H: Host>(strand: usize, at: u64, edge: u32) {
    // SAFETY: see above.
    let strand = unsafe { Strand::from_raw(strand) };
    active::<H, _>(|thread| match (strand, Edge::from_number(edge)) {
        (Some(strand), Some(edge)) => {
            // SAFETY: see above.
            let at = unsafe { event::<H>(thread, at) };
            thread.merge(strand, at, edge);
        }
        (Some(strand), None) => {
            thread.discard(strand);
            thread.lose(Lost::Unknown);
        }
        (None, _) => thread.lose(Lost::Untracked),
    });
}

unsafe extern "C" fn begin<H: Host>(spawned: usize, at: u64) -> usize {
    let is_part = spawned == SERIAL;
    // SAFETY: see above.
    let (spawned, (task, at)) = unsafe { (Strand::from_raw(spawned), plain(at)) };
    // A task begins where it was spawned.
    let context = spawned.as_ref().map(Strand::at);
    let context = context.filter(|at| task.is_some() && at.0 & SITE_CONTEXT != 0);
    let at = context.unwrap_or(at);
    raw(idle::<H, _>(|thread| match is_part {
        true => thread.begin_part(at),
        false => thread.begin(spawned, at),
    }))
}

unsafe extern "C" fn end<H: Host>(left: usize, at: u64) -> usize {
    // SAFETY: see above.
    let left = unsafe { Strand::from_raw(left) };
    raw(left.and_then(|left| {
        idle::<H, _>(|thread| {
            // SAFETY: see above.
            let at = unsafe { event::<H>(thread, at) };
            thread.end(left, at)
        })
    }))
}

unsafe extern "C" fn end_and_merge<H: Host>(left: usize, at: u64) {
    // SAFETY: see above.
    if let Some(left) = unsafe { Strand::from_raw(left) } {
        idle::<H, _>(|thread| {
            // SAFETY: see above.
            let at = unsafe { event::<H>(thread, at) };
            thread.end_and_merge(left, at);
        });
    }
}

unsafe extern "C" fn both<H: Host>(first: usize, second: usize) -> usize {
    // SAFETY: see above.
    raw(match unsafe { (Strand::from_raw(first), Strand::from_raw(second)) } {
        (Some(first), Some(second)) => idle::<H, _>(|thread| thread.both(first, second)),
        (first, second) => first.or(second),
    })
}

unsafe extern "C" fn share<H: Host>(strand: usize) -> usize {
    // SAFETY: see above; it stays the caller's.
    let strand = ManuallyDrop::new(unsafe { Strand::from_raw(strand) });
    raw(strand.as_ref().and_then(|strand| idle::<H, _>(|thread| thread.share(strand))))
}

unsafe extern "C" fn discard<H: Host>(strand: usize) {
    // SAFETY: see above.
    if let Some(strand) = unsafe { Strand::from_raw(strand) } {
        idle::<H, _>(|thread| thread.discard(strand));
    }
}

unsafe extern "C" fn finish<H: Host>(strand: usize) {
    // SAFETY: see above.
    if let Some(strand) = unsafe { Strand::from_raw(strand) } {
        idle::<H, _>(|thread| thread.finish(strand));
    }
}

extern "C" fn publish<H: Host>(at: u64) {
    active::<H, _>(|thread| {
        let at = thread.event(Site(at), false, || H::context(None));
        thread.publish(at);
    });
}

extern "C" fn pause<H: Host>() {
    active::<H, _>(Thread::pause);
}

extern "C" fn resume<H: Host>() {
    active::<H, _>(Thread::resume);
}

extern "C" fn restart<H: Host>(at: u64) {
    with::<H, _>(false, Site(at), Thread::resume);
}

extern "C" fn enter<H: Host>(procedure: u32) -> u32 {
    let procedure = procedure.checked_sub(1).map(Procedure);
    let outer = active::<H, _>(|thread| thread.enter(procedure)).flatten();
    outer.map_or(0, |outer| outer.0 + 1)
}

/// # Safety
/// As for `slice::from_raw_parts`.
unsafe fn text<'a>(text: *const u8, length: usize) -> &'a str {
    // SAFETY: the caller's promise.
    core::str::from_utf8(unsafe { slice::from_raw_parts(text, length) }).unwrap_or("?")
}

unsafe extern "C" fn procedure<H: Host>(name: *const u8, length: usize) -> u32 {
    // SAFETY: see above.
    let name = unsafe { text(name, length) };
    let procedure = H::tracker().procedure(name);
    procedure.map_or(0, |procedure| procedure.0 + 1)
}

unsafe extern "C" fn source<H: Host>(file: *const u8, length: usize, line: u32) -> u64 {
    // SAFETY: see above.
    H::tracker().source(unsafe { text(file, length) }, line).0
}

extern "C" fn lose<H: Host>(cause: u32) {
    active::<H, _>(|thread| thread.lose(Lost::from_number(cause).unwrap_or(Lost::Unknown)));
}

extern "C" fn control<H: Host>(command: u32) {
    match command {
        PATH_START => {
            H::starts();
            H::tracker().restart();
            H::active().store(1, Ordering::SeqCst);
        }
        PATH_STOP => H::active().store(0, Ordering::SeqCst),
        _ => return,
    }
    H::changed();
}

unsafe extern "C" fn report<H: Host>(buffer: *mut u8, size: usize) -> usize {
    let tracker = H::tracker();
    if H::active().load(Ordering::Relaxed) != 0 {
        tracker.ask();
    }
    let json = to_json(&tracker.report(), |site| tracker.place(*site));
    if json.len() <= size {
        // SAFETY: the caller's buffer has room for so many bytes.
        unsafe { ptr::copy_nonoverlapping(json.as_ptr(), buffer, json.len()) };
    }
    json.len()
}
