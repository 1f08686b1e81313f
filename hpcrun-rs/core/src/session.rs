//! The session: the measurement of one process image, from start to end, with load map and fork.

use crate::config::Config;
use crate::host::{self, Host};
pub use crate::image::is_running;
use crate::image::{self, Image};
use crate::lcct::spare;
use crate::logical::{self, agents};
use crate::maps;
use crate::memory::PAGE;
use crate::sample::signal::{self, Sigaction};
use crate::sample::{latency, stand_in};
use crate::sandbox::refuses;
use crate::source::{self, Order};
use crate::system;
use crate::threads::{self, OwnThread, SharedThread};
use crate::unwind::copies;
use crate::unwind::loadmap;
use crate::{activity, descriptors, directives, folder, locks, path, sandbox, sites, trace};
use critical_path::Tracker;
use hpc_formats::address::ModuleId;
use hpc_formats::environment::ALL_CORES;
use hpc_formats::loss::LossCause;
use hpc_formats::process::{self, End, Entry, Start};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{Ordering, fence};

/// Starts to measure the process. The calling thread becomes thread 1, on the main stack. It is not sampled
/// before [`arm`]. `sigaction` is libc's own. Errors are messages for the user.
pub fn start(config: Config, arguments: Vec<String>, sigaction: Sigaction) -> Result<(), String> {
    loadmap::find_lock();
    let kind = source::choose(&config)?;
    // SAFETY: it is libc's own function (this function's contract).
    unsafe { signal::install(kind, sigaction) }
        .map_err(|e| format!("cannot install the signal handler: error {e}"))?;
    if config.latency {
        latency::enable();
    }
    let (tracking, in_job, period) = (config.critical_path, config.in_job, config.period_ns());
    activity::set_cores(config.cores);
    activity::set_distance(period, source::tick_of(kind, config.event));
    let host = Host::current();
    activity::set_quota(host::cpu_quota());
    if !activity::attach(host.table(&config.output).as_deref()) {
        return Err("out of memory for the table of the threads".to_owned());
    }
    activity::set_threads(std::iter::once(system::thread_id()));
    let output = config.output.clone();
    let image = image::open(config, kind, host, arguments);
    begin_entries(image);
    // It is written to later, when nobody may see a message.
    folder::check(&output).map_err(|e| format!("cannot write in {output:?}: {e}"))?;
    trace::start(image).map_err(|cause| format!("cannot make the trace in {output:?}: {}", cause.name()))?;
    let state = threads::acquire().ok_or("out of memory for the profiler's thread state")?;
    threads::begin(state, (0, 0), main_stack(), true);
    let traced = image.config.trace.map(|_| threads::TRACE);
    tracking.inspect(|tracking| path::start(tracking, in_job, (period, traced)));
    image::set_running(true);
    Ok(())
}

fn begin_entries(new: &Image) {
    let mut bytes = process::encode_header().to_vec();
    bytes.extend(process::encode(&Entry::Start(start_entry(new))));
    write_or_count(&bytes);
    loadmap::with_current(|s| append_modules(s.modules()));
    refresh_loadmap();
}

fn start_entry(s: &Image) -> Start {
    Start {
        pid: s.pid,
        // SAFETY: getppid has no preconditions.
        ppid: unsafe { libc::getppid() } as u32,
        image: s.id,
        realtime_ns: system::clock(libc::CLOCK_REALTIME),
        executable: loadmap::executable_path(),
        arguments: s.arguments.clone(),
        directory: std::env::current_dir()
            .map(|d| process::text_of(d.as_os_str().as_bytes()))
            .unwrap_or_default(),
        event: s.config.event.name().to_owned(),
        source: s.kind.name().to_owned(),
        period_ns: s.config.period_ns(),
        cores: match s.config.cores {
            ALL_CORES => activity::cores(),
            n => n,
        },
        rate_ceiling: source::rate_ceiling(s.kind, s.config.event),
        host: s.host.name.clone(),
        boot: s.host.boot.clone(),
        job: s.host.job.clone(),
    }
}

fn append_modules(modules: &[loadmap::Module]) {
    let entry = |m: &loadmap::Module| {
        process::encode(&Entry::Module(process::Module {
            id: m.id,
            path: m.path.clone(),
            build_id: m.build_id.clone(),
            stamp: m.file.stamp(),
            copy: String::new(),
        }))
    };
    let entries: Vec<u8> = modules.iter().flat_map(entry).collect();
    if !entries.is_empty() {
        write_or_count(&entries);
    }
}

/// Counts the cores anew that the process may use, because threads of it were bound to others, or the main
/// thread of `another` process. Not async-signal-safe.
pub fn affinity_changed(another: Option<u32>) {
    match another {
        _ if !is_running() => {}
        Some(process) => activity::set_process(process),
        None if host::binds_threads() => {}
        None => activity::set_threads(threads::live().map(SharedThread::tid)),
    }
}

/// Copies the modules whose files have gone, while they are mapped. Not async-signal-safe.
pub fn keep_modules() {
    // Without a sample nobody asks for names.
    let is_sampled = |i: &&Image| i.entries.has_file() && sandbox::allows_files();
    let Some(image) = image::current().filter(is_sampled) else { return };
    let made = loadmap::with_current(|s| copies::make(&image.config.output, s.modules()));
    for (id, name) in made.unwrap_or_default() {
        append_or_count(&Entry::Copy(id, name));
    }
}

/// Whether this process is measured, or was.
pub fn has_begun() -> bool {
    image::current().is_some()
}

/// Holds the measurement directory open, before the process has another root or other mounts.
pub fn hold_folder() {
    host::moving();
    image::current().inspect(|image| {
        folder::hold(&image.config.output);
    });
}

/// Gives the process's files to the user whom it is about to become. False if that is not possible.
pub fn hand_over(user: u32) -> bool {
    image::current().is_none_or(|image| {
        let own = ["process", "thread"].map(|kind| format!("{kind}-{}-", image.pid));
        folder::hand_over(&image.config.output, user, &own)
    })
}

/// Records that the process starts a program that is not profiled. Changes no state in memory.
pub fn note_unprofiled(executable: &Path, reason: &str) {
    let executable = executable.canonicalize().unwrap_or_else(|_| executable.into());
    let entry = process::encode(&Entry::Unprofiled(process::Unprofiled {
        executable: process::text_of(executable.as_os_str().as_bytes()),
        reason: reason.to_owned(),
    }));
    write(|image| image.entries.add_now(&entry));
}

fn append_or_count(entry: &Entry) {
    write_or_count(&process::encode(entry));
}

fn write_or_count(entries: &[u8]) {
    write(|image| image.entries.add(entries));
}

fn write(add: impl FnOnce(&Image) -> Result<(), LossCause>) {
    if let Some(Err(cause)) = image::current().map(add) {
        image::count_loss(cause);
    }
}

/// Refreshes the load map, and writes the changes. Not async-signal-safe.
pub fn refresh_loadmap() {
    // Nobody would learn what the modules are.
    if !sandbox::allows_files() {
        return;
    }
    if take_up_modules() {
        // The handler may have cached another owner for frames of these modules since the snapshot.
        loadmap::invalidate();
        take_up_modules();
    }
    let remapped = loadmap::remapped();
    if !remapped.is_empty() {
        append_or_count(&Entry::Remapped(remapped));
    }
}

/// Beginnings of the names of modules without code that an agent knows.
const OF_SYSTEM: [&str; 6] =
    ["libc.so.", "ld-linux-", "libm.so.", "libgcc_s.so.", "libpthread.so.", "[vdso]"];

/// Takes a snapshot and writes the changes. Returns whether a new module has code with a role for an agent.
fn take_up_modules() -> bool {
    let changes = loadmap::refresh(threads::quiescent);
    append_modules(&changes.added);
    for id in changes.removed {
        agents::evict(id);
    }
    // Our own library and the C library have no role, and it takes a while to read their symbols.
    let own = take_up_modules as *const () as u64;
    let is_plain = |m: &loadmap::Module| {
        let name = m.path.rsplit('/').next().unwrap_or_default();
        (m.start..m.end).contains(&own) || OF_SYSTEM.iter().any(|of| name.starts_with(of))
    };
    let others = changes.added.iter().filter(|m| !is_plain(m));
    others.filter(|m| agents::scan(m, locks::enabled())).count() > 0
}

/// Prepares an unload: when this returns, no thread uses cached information about modules. Call
/// [`loadmap::end_unload`] after a refresh.
pub fn begin_unload() {
    loadmap::begin_unload();
    logical::forget_sites();
    // Pairs with the fence in `OwnThread::enter`: we wait for a handler that began before the fence, and a
    // later handler sees the pending unload.
    fence(Ordering::SeqCst);
    threads::wait_until_quiescent();
}

/// Drops all cached owners, because a new runtime may own frames.
pub fn forget_owners() {
    loadmap::invalidate();
    refresh_loadmap();
}

/// Calls [`refresh_loadmap`] if the handler has asked for it.
#[inline]
pub fn refresh_if_stale() {
    if loadmap::is_stale() && is_running() {
        refresh_loadmap();
    }
}

/// Calls [`refresh_loadmap`] if modules were loaded. So the modules of a library that creates threads are
/// known before those threads run.
pub fn refresh_if_outdated() {
    if loadmap::is_outdated() && is_running() {
        refresh_loadmap();
    }
}

/// The id of the module that contains an address of this library.
pub fn module_of(address: u64) -> Option<ModuleId> {
    loadmap::with_current(|s| loadmap::locate(s, address).map(|found| found.id))?
}

/// Bounds of the stack that the program's entry point runs on.
fn main_stack() -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes `limit`. It has put the program's path at the upper end of the stack, and a
    // word behind it.
    let (path, size) = unsafe {
        libc::getrlimit(libc::RLIMIT_STACK, &mut limit);
        let path = libc::getauxval(libc::AT_EXECFN);
        (path, if path == 0 { 0 } else { libc::strlen(path as *const _) as u64 })
    };
    match limit.rlim_cur {
        // libc knows both for the initial thread, which this is, but reads all mappings for it.
        0 | MOST_STACK.. => pthread_stack().unwrap_or((0, 0)),
        _ if path == 0 => pthread_stack().unwrap_or((0, 0)),
        low => {
            let high = (path + size + 9).next_multiple_of(PAGE as u64);
            (high.saturating_sub(low), high)
        }
    }
}

/// A stack that may be larger may meet other mappings.
const MOST_STACK: u64 = 1 << 30;

/// Bounds (low, high) of the calling thread's stack. The initial thread's stack grows up to its limit.
pub fn pthread_stack() -> Option<(u64, u64)> {
    // libc asks for the mask of cores as well.
    if refuses(libc::SYS_sched_getaffinity) {
        return None;
    }
    // SAFETY: `attributes` is initialised by pthread_getattr_np, and is destroyed once.
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

/// Unblocks our signal in the calling thread, without the interposed functions. Threads that libc creates
/// block all signals, and so may the creator of a thread or process: then the stand-in is blocked.
fn unblock(signal: i32) {
    let change = |how: i32, set: u64| {
        let mut old = 0_u64;
        let arguments = [how as usize, &raw const set as usize, &raw mut old as usize, 8, 0];
        // SAFETY: the kernel reads and writes sets of eight bytes, which outlive the call.
        unsafe { system::call(libc::SYS_rt_sigprocmask, arguments) };
        old
    };
    let ours = 1_u64 << (signal - 1);
    if change(libc::SIG_UNBLOCK, ours) & ours != 0 {
        change(libc::SIG_BLOCK, stand_in::BIT);
    }
}

/// Bounds of a stack that ends at `high`: the part of its mapping below `high`.
pub fn mapping_below(high: u64) -> (u64, u64) {
    let mapping = maps::mappings().into_iter().find(|m| m.start < high && high <= m.end);
    mapping.map_or((0, 0), |m| (m.start, high))
}

pub fn arm(state: OwnThread) {
    let Some(s) = image::current() else { return };
    if !is_running() {
        return;
    }
    unblock(source::signal_of(s.kind));
    let order = Order::new(&s.config, s.kind, state.tid(), state.cookie());
    if state.source.arm(&order).is_err() {
        state.count_loss(LossCause::NoTimer);
    }
}

/// Ends the measurement; `reason` as in [`End::reason`]. Later calls have no effect. Nor does a call in a
/// child that shares the parent's memory, or that the C library did not fork, so that it still has the
/// parent's files open.
pub fn stop(reason: &str) {
    let me = system::process_id();
    let is_own = |i: &Image| me.is_none_or(|me| i.pid == me);
    if !image::current().is_some_and(is_own) || !image::set_running(false) {
        return;
    }
    fence(Ordering::SeqCst);
    let tracked = path::finish();
    threads::all().for_each(SharedThread::stop);
    // A thread that completes itself at this moment publishes its strand itself: its profile may be gone.
    let claimed: Vec<&SharedThread> = threads::all().filter(|state| state.claim()).collect();
    if tracked && may_lock_tracker() {
        // The path ends with the thread that ends the process, not in one that nobody waits for.
        let has_end = claimed.iter().any(|state| state.publish_own_path());
        claimed.iter().for_each(|state| state.tell_path(!has_end));
    }
    activity::end_process();
    claimed.iter().for_each(|state| state.complete());
    refresh_loadmap();
    keep_modules();
    write_path();
    append_end(reason);
    if let Some(line) = latency::summary() {
        eprintln!("hpcrun-rs: {line}");
    }
}

/// Writes the critical path at the end. A signal handler of the program that has interrupted the tracker may
/// end the process: then the calling thread's strand is missing, and all if it has the tracker's locks.
fn write_path() {
    if may_lock_tracker() {
        path::write(!is_inside_event());
    }
}

/// Whether the calling thread is in the middle of an event, which a signal handler has interrupted.
fn is_inside_event() -> bool {
    threads::current().is_some_and(|thread| thread.path().is_inside())
}

/// Whether the tracker's locks can be taken: an interrupted event may hold one, which nobody gives back.
fn may_lock_tracker() -> bool {
    !is_inside_event() || threads::wait_until(|| path::tracker().is_none_or(Tracker::is_unlocked))
}

/// Stops the tracking of the critical path, and writes it up to now. Called by a thread without a state.
pub fn stop_path() {
    path::stop_after(|| threads::all().for_each(|state| state.tell_path(true)));
    path::write(false);
}

/// The program is about to enter a sandbox with this filter. While calls still pass, makes what samples will
/// need, and writes how far the process is: later it may not be able to. Ends the measurement if the filter
/// lets no signal handler return. Returns what [`sandbox::leave`] needs if the filter is not installed.
pub fn enter_sandbox(filter: &[sandbox::Instruction]) -> sandbox::Refused {
    let before = sandbox::enter(filter);
    let no_samples = refuses(libc::SYS_rt_sigreturn);
    let no_distances = [libc::SYS_timer_settime, libc::SYS_ioctl, libc::SYS_clock_gettime];
    let is_steady = no_distances.into_iter().any(refuses);
    sandbox::leave(&before);
    if no_samples {
        stop("sandbox that refuses samples");
    } else {
        prepare_for_refusals();
        if is_steady && is_running() {
            threads::all().for_each(|state| state.source.be_steady());
        }
    }
    sandbox::enter(filter);
    before
}

/// Makes what the calling thread's samples need, and writes how far the process is, before it can make no
/// files any more.
pub fn prepare_for_refusals() {
    if is_running() {
        threads::current().inspect(|thread| thread.prepare_profile());
        refresh_loadmap();
        append_end("no more files");
    }
}

/// Writes an end entry without stopping, before an `exec` that may still fail.
pub fn note_exec() {
    if is_running() {
        refresh_loadmap();
        keep_modules();
        threads::current().inspect(|thread| thread.publish_so_far());
        write_path();
        append_end("exec");
    }
}

fn append_end(reason: &str) {
    let is_sampled = |i: &&Image| i.entries.has_file() && sandbox::allows_files();
    let image = image::current().filter(is_sampled);
    image.inspect(|i| copies::keep_perf_map(&i.config.output, i.pid, i.id));
    let (counted, directives) = (sites::counts(), directives::counts());
    if !counted.is_empty() {
        append_or_count(&Entry::Sites(counted));
    }
    if !directives.is_empty() {
        append_or_count(&Entry::Directives(directives));
    }
    let entry = process::encode(&Entry::End(end_entry(reason)));
    write(|image| image.entries.end(&entry));
}

fn end_entry(reason: &str) -> End {
    let losses = LossCause::ALL.iter().map(|cause| (*cause, image::losses(*cause)));
    End {
        monotonic_ns: system::clock(libc::CLOCK_MONOTONIC),
        reason: reason.to_owned(),
        cores: activity::mean_cores().round() as u32,
        mean_cores: activity::mean_cores(),
        threads: image::threads(),
        workers: activity::peak_workers(),
        losses: losses.filter(|(_, n)| *n > 0).collect(),
        cpu: cpu_times(),
    }
}

fn cpu_times() -> process::CpuTimes {
    let at_start = image::current().map_or(Default::default(), |i| i.cpu_at_start);
    let now = image::cpu_used();
    let foreign = image::counted(|counts| &counts.foreign_ns);
    process::CpuTimes {
        process_ns: now.0.saturating_sub(at_start.0) + foreign,
        children_ns: now.1.saturating_sub(at_start.1 + foreign),
        unsampled_ns: image::counted(|counts| &counts.unsampled_ns),
        estimated_wait_ns: activity::estimated_ns(),
        unknown_lock_wait_ns: if locks::enabled() { locks::unknown_ns() } else { 0 },
        run_delay_ns: threads::run_delays(),
    }
}

/// Continues in a forked child, where only the calling thread exists, as a new process image.
pub fn continue_in_child() {
    let Some(parent) = image::current() else {
        return;
    };
    if !is_running() {
        return;
    }
    descriptors::enter_child();
    locks::forget();
    sites::start_anew();
    directives::start_anew();
    spare::abandon();
    path::start_anew();
    let me = threads::current();
    for state in threads::all() {
        if !me.is_some_and(|m| ptr::eq(&*m, state)) {
            state.forget_after_fork();
        }
    }
    // The fork may have left the namespace whose clock or host name the parent had.
    let (config, arguments) = (parent.config.clone(), parent.arguments.clone());
    let new = image::open(config, parent.kind, Host::of_child(&parent.host), arguments);
    if let Err(cause) = trace::start(new) {
        image::count_loss(cause);
    }
    match me {
        Some(me) => me.renew_after_fork(),
        None => activity::enter_child(0),
    }
    begin_entries(new);
    if let Some(me) = me {
        arm(me);
        me.begin_main_path();
    }
}
