//! One process image's measurement: start, load map, fork, end.

use crate::config::{Config, SourceKind};
use crate::image::{self, Image, clock};
use crate::logical::rayon;
use crate::sample::{latency, signal};
use crate::threads::{self, ThreadState};
use crate::unwind::loadmap;
use crate::{activity, sites, timer};
use hpc_formats::address::ModuleId;
use hpc_formats::loss::LossCause;
use hpc_formats::process::{self, End, Entry, Start};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{Ordering, fence};

/// Whether samples are taken.
pub fn is_running() -> bool {
    image::is_running()
}

/// The kind of source in force.
pub fn source_kind() -> Option<SourceKind> {
    image::current().map(|i| i.kind)
}

/// Libc's own functions, for a library that interposes them.
#[derive(Clone, Copy, Debug)]
pub struct Libc {
    /// `sigaction`.
    pub sigaction: unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32,
}

/// Starts measuring the process. The calling thread becomes thread 1, on the main stack; it is not sampled
/// before it is armed ([`arm`]). Errors are for the user.
pub fn start(config: Config, arguments: Vec<String>, libc: Libc) -> Result<(), String> {
    let kind = timer::choose(&config)?;
    // SAFETY: `Libc`'s contract.
    unsafe { signal::install(kind, libc.sigaction) }
        .map_err(|e| format!("cannot install the signal handler: error {e}"))?;
    if config.latency {
        latency::enable();
    }
    activity::set_cores(config.cores);
    open_image(config, kind, arguments)?;
    let state = threads::acquire().ok_or("out of memory for the profiler's thread state")?;
    threads::begin(state, (0, 0), main_stack(), true);
    image::set_running(true);
    Ok(())
}

fn open_image(config: Config, kind: SourceKind, arguments: Vec<String>) -> Result<(), String> {
    let new = image::open(config, kind, arguments);
    let mut bytes = process::encode_header().to_vec();
    bytes.extend(process::encode(&Entry::Start(start_entry(new))));
    image::append(&bytes, true).map_err(|e| {
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

fn start_entry(s: &Image) -> Start {
    Start {
        pid: s.pid,
        // SAFETY: no arguments.
        ppid: unsafe { libc::getppid() } as u32,
        image: s.id,
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
        rate_ceiling: timer::rate_ceiling(s.kind, s.config.event),
    }
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
    if image::append(&process::encode(entry), false).is_err() {
        image::count_loss(LossCause::DiskFull);
    }
}

/// Brings the load map up to date and writes what changed. Not async-signal-safe.
pub fn refresh_loadmap() {
    if take_up_modules() {
        // Frames of these modules may have been seen as nobody's since the snapshot.
        loadmap::invalidate();
        take_up_modules();
    }
}

/// Takes a snapshot and writes what changed; whether a new module has an agent's code in it.
fn take_up_modules() -> bool {
    let changes = loadmap::refresh(threads::quiescent);
    changes.added.iter().for_each(append_module);
    for id in changes.removed {
        rayon::forget(id);
        append_or_count(&Entry::Unload(id));
    }
    let learnt = changes
        .added
        .iter()
        .filter(|m| rayon::learn(m.id, &m.path, m.bias));
    learnt.count() > 0
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
    let Some(s) = image::current() else { return };
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

/// Ends the measurement: `reason` as in [`End::reason`]. Later calls do nothing.
pub fn stop(reason: &str) {
    if !image::set_running(false) {
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
    append_end(reason);
    if let Some(line) = latency::summary() {
        eprintln!("hpcrun-rs: {line}");
    }
}

/// Writes an end entry without stopping: before an `exec`, which may yet fail.
pub fn note_exec() {
    if is_running() {
        refresh_loadmap();
        append_end("exec");
    }
}

fn append_end(reason: &str) {
    let counted = sites::counts();
    if !counted.is_empty() {
        append_or_count(&Entry::Sites(counted));
    }
    append_or_count(&Entry::End(end_entry(reason)));
}

fn end_entry(reason: &str) -> End {
    let without_state = threads::WITHOUT_STATE.load(Ordering::Relaxed);
    let losses = LossCause::ALL.iter().filter_map(|cause| {
        let mut n = image::losses(*cause);
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
        cpu: process::CpuTimes::default(),
    }
}

/// In a forked child: only the calling thread exists. It goes on as a new process image.
pub fn continue_in_child() {
    let Some(parent) = image::current() else {
        return;
    };
    if !is_running() {
        return;
    }
    image::forget_losses();
    sites::start_anew();
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
        (Err(_), _) => {
            image::set_running(false);
        }
    }
}
