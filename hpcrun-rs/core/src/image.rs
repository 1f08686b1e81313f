//! The measured process image: its constants, whether samples are taken, the losses that no thread can count,
//! and its entries.
//!
//! Async-signal-safe: [`is_running`], [`has_empty_handler`], [`event`], [`now`],
//! [`create_profile`], [`add_losses`].

use crate::arch::counter;
use crate::config::{Config, Event, SourceKind};
use crate::entries::Entries;
use crate::host::Host;
use crate::lcct::{Identity, MetricSet, Tree, spare};
use crate::system::{self, Text};
use hpc_formats::loss::{LOSS_SLOTS, LossCause};
use hpc_formats::process::SHORT_EXTENSION;
use hpc_formats::profile::{
    LOCK_WAIT, LONG_POLL, MPI_WAIT, Metric, OVERSUBSCRIPTION, STANDSTILL, wait_metric,
};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

pub struct Image {
    pub config: Config,
    pub kind: SourceKind,
    pub pid: u32,
    /// Monotonic clock at its start, nanoseconds; distinguishes images of one process.
    pub id: u64,
    /// The processor's counter then.
    counter: u64,
    pub host: Host,
    pub metrics: MetricSet,
    /// Position among them of the waiting for locks, if it is measured.
    pub lock_wait: Option<usize>,
    /// The same of the waiting in calls of a message-passing library.
    pub mpi_wait: Option<usize>,
    /// The same of time without a core, if samples tell of CPU time.
    pub oversubscription: Option<usize>,
    /// The same of waits while nobody works.
    pub standstill: Option<usize>,
    /// The same of long polls, which are not measured in a job: a profile has no room for all.
    pub long_poll: Option<usize>,
    pub arguments: Vec<String>,
    /// [`cpu_used`] at its start: an exec does not reset CPU time.
    pub cpu_at_start: (u64, u64),
    pub entries: Entries,
    counts: Counts,
}

/// What is counted from the start of an image on. A forked child has a new image, which begins at zero.
#[derive(Default)]
pub struct Counts {
    /// Losses that no thread can count, by cause.
    losses: [AtomicU64; LOSS_SLOTS],
    /// Threads that got a state.
    threads: AtomicU64,
    /// CPU time of threads that ended without a profile, nanoseconds.
    pub unsampled_ns: AtomicU64,
    /// CPU time of threads that share the memory but are separate processes to the kernel, nanoseconds.
    pub foreign_ns: AtomicU64,
    /// Time for which threads that ended were ready to run and had no core, nanoseconds.
    pub run_delay_ns: AtomicU64,
    /// Waiting for locks that no context is charged with, nanoseconds.
    pub unknown_lock_wait_ns: AtomicU64,
}

static IMAGE: AtomicPtr<Image> = AtomicPtr::new(ptr::null_mut());
static RUNNING: AtomicBool = AtomicBool::new(false);

/// The current image; `None` in a process that is not measured.
pub fn current() -> Option<&'static Image> {
    // SAFETY: null, or an image that `open` has leaked, so it lives forever.
    unsafe { IMAGE.load(Ordering::Acquire).as_ref() }
}

/// Makes a new image the current one.
pub fn open(config: Config, kind: SourceKind, host: Host, arguments: Vec<String>) -> &'static Image {
    let mut metrics = MetricSet::new(config.period_ns());
    let mut add = |is_measured: bool, metric: &Metric| {
        let position = is_measured.then(|| metrics.count() as usize);
        position.filter(|_| metrics.push(metric))
    };
    let lock_wait = add(config.lock_wait, &wait_metric(LOCK_WAIT));
    let mpi_wait = add(config.in_job, &wait_metric(MPI_WAIT));
    let of_cpu = config.event == Event::CpuTime;
    let oversubscription = add(of_cpu, &wait_metric(OVERSUBSCRIPTION));
    let standstill = add(true, &wait_metric(STANDSTILL));
    let long_poll = add(!config.in_job, &wait_metric(LONG_POLL));
    // SAFETY: getpid has no preconditions.
    let pid = unsafe { libc::getpid() } as u32;
    let (id, counter) = (now(), counter());
    let file = |name: String| {
        let path = [config.output.as_bytes(), b"/", name.as_bytes()].concat();
        CString::new(path).unwrap_or_default()
    };
    let own = file(format!("process-{pid}-{id}.hpcproc"));
    let shared = file(format!("short-{}.{SHORT_EXTENSION}", host.file_name()));
    let image: &'static Image = Box::leak(Box::new(Image {
        config,
        kind,
        pid,
        id,
        counter,
        host,
        metrics,
        lock_wait,
        mpi_wait,
        oversubscription,
        standstill,
        long_poll,
        arguments,
        cpu_at_start: cpu_used(),
        entries: Entries::new(own, shared),
        counts: Counts::default(),
    }));
    IMAGE.store(ptr::from_ref(image).cast_mut(), Ordering::Release);
    image
}

/// Whether samples are taken.
#[inline]
pub fn is_running() -> bool {
    RUNNING.load(Ordering::SeqCst)
}

/// Starts or stops taking samples; returns whether they were taken before.
pub fn set_running(on: bool) -> bool {
    RUNNING.swap(on, Ordering::SeqCst)
}

/// Whether the handler returns at once (benchmarks).
#[inline]
pub fn has_empty_handler() -> bool {
    current().is_some_and(|i| i.config.empty_handler)
}

#[inline]
pub fn event() -> Event {
    current().map_or(Event::CpuTime, |i| i.config.event)
}

/// CPU time of the process, and of the children that it has waited for, in nanoseconds.
pub fn cpu_used() -> (u64, u64) {
    let time = |u: libc::rusage| [u.ru_utime, u.ru_stime].map(system::nanoseconds).iter().sum();
    let children = system::usage(libc::RUSAGE_CHILDREN).map_or(0, time);
    (system::clock(libc::CLOCK_PROCESS_CPUTIME_ID), children)
}

/// The monotonic clock, nanoseconds; mostly without a system call (vDSO).
#[inline]
pub fn now() -> u64 {
    system::clock(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of so many counts of the processor, by the clock since the image began.
pub fn nanoseconds(counts: u64) -> u64 {
    let Some(image) = current() else { return 0 };
    let (time, all) = (now().saturating_sub(image.id), counter().saturating_sub(image.counter));
    ((counts as f64 * time as f64 / all as f64) as u64).min(time)
}

/// Adds the losses of a thread without a profile, indexed by cause.
pub fn add_losses(losses: impl Iterator<Item = u64>) {
    if let Some(image) = current() {
        for (slot, n) in image.counts.losses.iter().zip(losses) {
            slot.fetch_add(n, Ordering::Relaxed);
        }
    }
}

/// Counts a loss that belongs to no thread.
pub fn count_loss(cause: LossCause) {
    count(|counts| &counts.losses[cause as usize], 1);
}

pub fn losses(cause: LossCause) -> u64 {
    counted(|counts| &counts.losses[cause as usize])
}

/// Adds to a count. Returns what it was.
pub fn count(of: impl FnOnce(&Counts) -> &AtomicU64, more: u64) -> u64 {
    current().map_or(0, |image| of(&image.counts).fetch_add(more, Ordering::Relaxed))
}

pub fn counted(of: impl FnOnce(&Counts) -> &AtomicU64) -> u64 {
    count(of, 0)
}

/// Ordinal of a thread that begins, from 1.
pub fn next_ordinal() -> u32 {
    count(|counts| &counts.threads, 1) as u32 + 1
}

/// The number of threads that ever got a state.
pub fn threads() -> u32 {
    counted(|counts| &counts.threads) as u32
}

/// Begins a thread's profile, in the file of an ended thread or in a new file. Fills in the process's part of
/// the identity. Async-signal-safe.
pub fn create_profile(identity: &Identity) -> Result<Tree, LossCause> {
    let s = current().ok_or(LossCause::NoThreadState)?;
    s.entries.make_file()?;
    let identity = Identity { pid: s.pid, image: s.id, period_ns: s.config.period_ns(), ..*identity };
    if let Some(mut tree) = spare::take() {
        if tree.begin_next(&identity, &s.metrics).is_ok() {
            return Ok(tree);
        }
    }
    let mut name = Text::<4224>::new();
    name.text(s.config.output.as_bytes()).text(b"/thread-").number(u64::from(s.pid));
    name.text(b"-").number(s.id).text(b"-").number(u64::from(identity.thread));
    name.text(b".hpcprofile");
    let path = name.as_c_str().ok_or(LossCause::NoFile)?;
    Tree::create(path, &identity, &s.metrics)
}
