//! One process image's measurement: start, load map, threads' files, fork, end.
//!
//! Async-signal-safe: [`is_running`], [`has_empty_handler`], [`event`], [`coarse_now`],
//! [`create_profile`].

use crate::activity;
use crate::config::{Config, Event, SourceKind};
use crate::lcct::{Identity, Tree};
use crate::sample::{latency, signal, source};
use crate::threads::{self, ThreadState};
use crate::unwind::loadmap;
use hpc_formats::address::ModuleId;
use hpc_formats::loss::{LOSS_SLOTS, LossCause};
use hpc_formats::process::{self, End, Entry, Start};
use std::ffi::{CStr, CString, OsStr};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

/// What is fixed for the life of a process image.
struct Session {
    config: Config,
    kind: SourceKind,
    pid: u32,
    image: u64,
    arguments: Vec<String>,
}

static SESSION: AtomicPtr<Session> = AtomicPtr::new(ptr::null_mut());
static RUNNING: AtomicBool = AtomicBool::new(false);
static EMPTY_HANDLER: AtomicBool = AtomicBool::new(false);
static LOSSES: [AtomicU64; LOSS_SLOTS] = [const { AtomicU64::new(0) }; LOSS_SLOTS];

fn session() -> Option<&'static Session> {
    // SAFETY: sessions are leaked, never freed.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

/// Whether samples are taken.
#[inline]
pub fn is_running() -> bool {
    RUNNING.load(Ordering::SeqCst)
}

/// Whether the handler is to do nothing (benchmarks).
#[inline]
pub fn has_empty_handler() -> bool {
    EMPTY_HANDLER.load(Ordering::Relaxed)
}

/// What is sampled.
#[inline]
pub fn event() -> Event {
    session().map_or(Event::CpuTime, |s| s.config.event)
}

/// The kind of source in force.
pub fn source_kind() -> Option<SourceKind> {
    session().map(|s| s.kind)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is ours.
    unsafe { libc::clock_gettime(id, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The monotonic clock with the resolution of a tick, nanoseconds; a few instructions.
#[inline]
pub fn coarse_now() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

/// Adds losses of a thread that has no profile of its own.
pub fn add_losses(losses: impl Iterator<Item = u64>) {
    for (slot, n) in LOSSES.iter().zip(losses) {
        slot.fetch_add(n, Ordering::Relaxed);
    }
}

/// Libc's own functions, for a library that interposes them.
#[derive(Clone, Copy, Debug)]
pub struct Libc {
    /// `sigaction`.
    pub sigaction: unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32,
}

/// Starts measuring the process. The calling thread becomes thread 1, on the main stack.
/// Errors are for the user.
pub fn start(config: Config, arguments: Vec<String>, libc: Libc) -> Result<(), String> {
    let kind = source::choose(&config)?;
    // SAFETY: `Libc`'s contract.
    unsafe { signal::install(kind, libc.sigaction) }
        .map_err(|e| format!("cannot install the signal handler: error {e}"))?;
    if config.latency {
        latency::enable();
    }
    EMPTY_HANDLER.store(config.empty_handler, Ordering::Relaxed);
    activity::set_cores(config.cores);
    open_image(config, kind, arguments)?;
    let state = threads::begin((0, 0), main_stack(), true)
        .ok_or("out of memory for the profiler's thread state")?;
    RUNNING.store(true, Ordering::SeqCst);
    arm(state);
    Ok(())
}

fn open_image(config: Config, kind: SourceKind, arguments: Vec<String>) -> Result<(), String> {
    // SAFETY: no arguments.
    let pid = unsafe { libc::getpid() } as u32;
    let new = Box::leak(Box::new(Session {
        config,
        kind,
        pid,
        image: clock(libc::CLOCK_MONOTONIC),
        arguments,
    }));
    SESSION.store(new, Ordering::Release);
    let mut bytes = process::encode_header().to_vec();
    bytes.extend(process::encode(&Entry::Start(start_entry(new))));
    append(&bytes, true).map_err(|e| {
        format!(
            "cannot write in {}: {e}",
            PathBuf::from(&new.config.output).display()
        )
    })?;
    for module in loadmap::current().map_or(&[][..], |s| s.modules()) {
        append_module(module);
    }
    refresh_loadmap();
    Ok(())
}

fn start_entry(s: &Session) -> Start {
    Start {
        pid: s.pid,
        // SAFETY: no arguments.
        ppid: unsafe { libc::getppid() } as u32,
        image: s.image,
        realtime_ns: clock(libc::CLOCK_REALTIME),
        executable: loadmap::executable_path(),
        arguments: s.arguments.clone(),
        directory: std::env::current_dir()
            .map(|d| d.to_string_lossy().into_owned())
            .unwrap_or_default(),
        event: s.config.event.name().to_owned(),
        source: s.kind.name().to_owned(),
        period_ns: s.config.period_ns(),
        cores: s.config.cores,
        rate_ceiling: source::rate_ceiling(s.kind, s.config.event),
    }
}

fn process_path(s: &Session) -> PathBuf {
    let mut path = PathBuf::from(&s.config.output);
    path.push(format!("process-{}-{}.hpcproc", s.pid, s.image));
    path
}

fn append(bytes: &[u8], create: bool) -> std::io::Result<()> {
    let Some(s) = session() else {
        return Ok(());
    };
    std::fs::OpenOptions::new()
        .append(true)
        .create_new(create)
        .mode(0o644)
        .open(process_path(s))?
        .write_all(bytes)
}

fn append_module(m: &loadmap::Module) {
    let entry = Entry::Module(process::Module {
        id: m.id,
        start: m.start,
        end: m.end,
        bias: m.bias,
        path: m.path.clone(),
        build_id: m.build_id.clone(),
    });
    append_or_count(&entry);
}

fn append_or_count(entry: &Entry) {
    if append(&process::encode(entry), false).is_err() {
        LOSSES[LossCause::DiskFull as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Brings the load map up to date and writes what changed. Not async-signal-safe.
pub fn refresh_loadmap() {
    let changes = loadmap::refresh(threads::quiescent);
    changes.added.iter().for_each(append_module);
    for id in changes.removed {
        append_or_count(&Entry::Unload(id));
    }
}

/// A runtime has registered: frames that were seen before may have another owner now.
pub fn forget_owners() {
    loadmap::invalidate();
    refresh_loadmap();
}

/// As [`refresh_loadmap`], when the handler has asked for it.
#[inline]
pub fn refresh_if_stale() {
    if loadmap::is_stale() && is_running() {
        refresh_loadmap();
    }
}

/// The id of the module that holds an address of this library's.
pub fn module_of(address: u64) -> Option<ModuleId> {
    let snapshot = loadmap::current()?;
    Some(loadmap::locate(snapshot, address)?.id)
}

/// Bounds of the stack that the program's entry point runs on.
fn main_stack() -> (u64, u64) {
    // SAFETY: attributes of the calling thread, which is the initial one.
    pthread_stack().unwrap_or((0, 0))
}

/// Bounds (low, high) of the calling thread's stack; the initial thread's grow with its limit.
pub fn pthread_stack() -> Option<(u64, u64)> {
    // SAFETY: `attributes` is initialised by pthread_getattr_np and destroyed once.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return None;
        }
        let (mut low, mut size) = (ptr::null_mut(), 0);
        let ok = libc::pthread_attr_getstack(&attributes, &mut low, &mut size) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        ok.then_some((low as u64, low as u64 + size as u64))
    }
}

/// Starts the calling thread's timer.
pub fn arm(state: &ThreadState) {
    let Some(s) = session() else { return };
    if !is_running() {
        return;
    }
    let armed = state
        .source
        .arm(&s.config, s.kind, state.tid(), signal::cookie(state));
    if armed.is_err() {
        state.count_loss(LossCause::NoThreadState);
    }
}

/// Creates a thread's profile; fills in what is the process's. Async-signal-safe.
pub fn create_profile(identity: &Identity) -> Result<Tree, LossCause> {
    let s = session().ok_or(LossCause::NoThreadState)?;
    let mut name = PathName::new();
    name.text(s.config.output.as_bytes());
    name.text(b"/thread-");
    name.number(u64::from(s.pid));
    name.text(b"-");
    name.number(s.image);
    name.text(b"-");
    name.number(u64::from(identity.thread));
    name.text(b".hpcprofile");
    let identity = Identity {
        pid: s.pid,
        image: s.image,
        period_ns: s.config.period_ns(),
        ..*identity
    };
    Tree::create(name.as_c_str().ok_or(LossCause::DiskFull)?, &identity)
}

/// A path built without allocation.
struct PathName {
    bytes: [u8; 4224],
    len: usize,
}

impl PathName {
    fn new() -> PathName {
        PathName {
            bytes: [0; 4224],
            len: 0,
        }
    }

    fn text(&mut self, text: &[u8]) {
        if let Some(to) = self.bytes.get_mut(self.len..self.len + text.len()) {
            to.copy_from_slice(text);
            self.len += text.len();
        }
    }

    fn number(&mut self, mut n: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.text(&digits[at..]);
    }

    fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }
}

/// Ends the measurement: `reason` as in [`End::reason`]. Later calls do nothing.
pub fn stop(reason: &str) {
    if !RUNNING.swap(false, Ordering::SeqCst) {
        return;
    }
    fence(Ordering::SeqCst);
    for state in threads::all() {
        state.source.disarm();
    }
    for state in threads::all().filter(|s| s.is_in_use()) {
        state.complete_from_outside();
    }
    refresh_loadmap();
    append_or_count(&Entry::End(end_entry(reason)));
    if let Some(line) = latency::summary() {
        eprintln!("hpcrun-rs: {line}");
    }
}

/// Writes an end entry without stopping: before an `exec`, which may yet fail.
pub fn note_exec() {
    if is_running() {
        refresh_loadmap();
        append_or_count(&Entry::End(end_entry("exec")));
    }
}

fn end_entry(reason: &str) -> End {
    let without_state = threads::WITHOUT_STATE.load(Ordering::Relaxed);
    let losses = LossCause::ALL.iter().filter_map(|cause| {
        let mut n = LOSSES[*cause as usize].load(Ordering::Relaxed);
        if *cause == LossCause::NoThreadState {
            n += without_state;
        }
        (n > 0).then_some((*cause, n))
    });
    End {
        monotonic_ns: clock(libc::CLOCK_MONOTONIC),
        reason: reason.to_owned(),
        cores: activity::cores(),
        threads: threads::count(),
        workers: activity::peak_workers(),
        losses: losses.collect(),
    }
}

/// In a forked child: only the calling thread exists. It goes on as a new process image.
pub fn continue_in_child() {
    let Some(parent) = session() else { return };
    if !is_running() {
        return;
    }
    for loss in &LOSSES {
        loss.store(0, Ordering::Relaxed);
    }
    let me = threads::current();
    for state in threads::all() {
        if !me.is_some_and(|m| ptr::eq(m, state)) {
            state.forget_after_fork();
        }
    }
    if let Some(me) = me {
        me.renew_after_fork();
    }
    let opened = open_image(parent.config.clone(), parent.kind, parent.arguments.clone());
    match (opened, me) {
        (Ok(()), Some(me)) => arm(me),
        (Ok(()), None) => {}
        (Err(_), _) => RUNNING.store(false, Ordering::SeqCst),
    }
}

/// The output directory as given, for messages.
pub fn output() -> Option<CString> {
    let bytes = session()?.config.output.clone().into_vec();
    CString::new(OsStr::from_bytes(&bytes).as_bytes()).ok()
}
