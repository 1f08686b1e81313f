//! The critical path in the measurement directory: a file of each process image, which replaces the one
//! before as a whole.

use super::{Job, Path};
use crate::folder;
use crate::image::{self, Image};
use crate::memory;
use crate::sandbox::allows_files;
use crate::system;
use crate::unwind::loadmap::{self, Snapshot};
use critical_path::{Report, Site};
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::critical_path::{self as format, ProcedureName};
use hpcrun_abi::{SITE_CONTEXT, SITE_REMOTE, SITE_SOURCE};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes the critical path up to the ends of all strands that have ended or were published. `complete`: the
/// process ends. Without a tracker, nothing is written. Not async-signal-safe.
pub fn write(complete: bool) {
    let (Some(path), Some(image)) = (super::current(), image::current()) else {
        return;
    };
    // Another thread may be writing.
    let writer = system::within(1000, || path.writer.try_lock().ok());
    let written = writer.map(|mut series| replace(image, &encode(path, &mut series, image, complete)));
    if let Some(Err(error)) = written {
        warn(&error);
    }
}

fn replace(image: &Image, bytes: &[u8]) -> io::Result<()> {
    let mut file = PathBuf::from(&image.config.output);
    file.push(format::file_name(image.pid, image.id));
    let new = file.with_extension("new");
    if !allows_files() || !memory::may_be_as_large(bytes.len()) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let [new, file] = [new, file].map(|path| CString::new(path.into_os_string().into_vec()));
    let (new, file) = (new?, file?);
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
    let opened = memory::open(&new, flags).map_err(io::Error::from_raw_os_error)?;
    // SAFETY: we have just opened the descriptor, and nobody else has it.
    unsafe { File::from_raw_fd(opened) }.write_all(bytes)?;
    let ((folder, new), (_, file)) = (folder::place(&new), folder::place(&file));
    // SAFETY: both names are NUL-terminated.
    match unsafe { libc::renameat(folder, new.as_ptr(), folder, file.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn warn(error: &io::Error) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        // A closed standard error is ignored.
        let _ = writeln!(io::stderr(), "hpcrun-rs: warning: the critical path cannot be written: {error}");
    }
}

/// Moments that are kept; more are thinned out.
const MOST_MOMENTS: usize = 256;

/// The moment of a report becomes one of the series.
fn add_moment(series: &mut Vec<format::Moment>, report: &mut Report, name: impl Fn(&mut ProcedureName)) {
    for mut moment in report.series.drain(..) {
        moment.procedures.iter_mut().for_each(|(procedure, _)| name(procedure));
        if series.len() >= MOST_MOMENTS {
            let mut number = 0;
            series.retain(|_| {
                number += 1;
                number % 2 == 0
            });
        }
        series.push(moment);
    }
    report.series.clone_from(series);
}

fn encode(path: &Path, series: &mut (u32, Vec<format::Moment>), image: &Image, complete: bool) -> Vec<u8> {
    let session = path.tracker.session();
    if series.0 != session {
        *series = (session, Vec::new());
    }
    let mut report = path.tracker.report();
    if let Some(job) = path.job.get() {
        report.rank = Some(rank(path, job));
    }
    let names = path.names.all();
    report.procedures.retain_mut(|p| {
        let ProcedureName::Function(number, _) = &p.name else {
            return true;
        };
        let name = names.get(&number.0).cloned();
        // In a job, those that are known from messages only have no address here.
        let is_known = name.is_some() || !super::is_in_job();
        p.name = name.unwrap_or_else(|| p.name.clone());
        is_known
    });
    match path.in_job {
        // A rank does not know how the path through all of them grows.
        true => report.series.clear(),
        false => add_moment(&mut series.1, &mut report, |name| {
            if let ProcedureName::Function(number, _) = name {
                *name = names.get(&number.0).cloned().unwrap_or_else(|| name.clone());
            }
        }),
    }
    let exports = report.rank.iter().flat_map(format::Rank::segments);
    let segments = report.segments.iter().chain(exports);
    let named = segments.filter_map(|s| s.thread);
    let near = report.near.iter().filter_map(|n| n.thread);
    let named: BTreeSet<u32> = named.chain(near).collect();
    report.threads = path.threads().clone();
    report.threads.retain(|(number, _)| named.contains(number));
    report.pid = image.pid;
    report.image = image.id;
    report.complete = complete;
    let resolved = |snapshot: Option<&Snapshot>| {
        let site = |site| resolve(path, snapshot, site);
        report.clone().map(site, |name| name)
    };
    let resolved = loadmap::with_current(|s| resolved(Some(s))).unwrap_or_else(|| resolved(None));
    resolved.encode()
}

/// What the process has exported, as a rank of its job.
fn rank(path: &Path, job: &Job) -> format::Rank<Site> {
    let (savings, marks) = path.tracker.savings();
    let marks = marks.into_iter();
    let marks = marks.map(|(key, name)| (key, ProcedureName::Mark(name)));
    format::Rank {
        job: job.id,
        rank: job.rank,
        ranks: job.ranks,
        savings: savings.iter().map(|s| (s.procedure, s.time)).collect(),
        names: marks.chain(path.names.all()).collect(),
        ..path.tracker.exported()
    }
}

fn resolve(path: &Path, snapshot: Option<&Snapshot>, Site(site): Site) -> format::Site {
    if site == 0 {
        return format::Site::Unknown;
    }
    if site & SITE_SOURCE != 0 {
        let place = path.tracker.place(Site(site));
        return format::Site::Source { file: place.file, line: place.line };
    }
    if site & SITE_CONTEXT != 0 {
        let (thread, record) = ((site & !SITE_CONTEXT) >> 32, site as u32);
        return format::Site::Context { profile: thread as u32, record };
    }
    if site & SITE_REMOTE != 0 {
        return format::Site::Remote { rank: ((site & !SITE_REMOTE) >> 32) as u32, export: site as u32 };
    }
    let located = snapshot.and_then(|snapshot| loadmap::locate(snapshot, site));
    format::Site::Address(match located {
        Some(module) => CodeAddress::new(module.id, site - module.bias),
        None => CodeAddress::new(ModuleId::UNKNOWN, site),
    })
}
