//! The critical path in the measurement directory: a file of each process image, which replaces the one
//! before as a whole.

use super::Path;
use crate::image::{self, Image};
use crate::system;
use crate::unwind::loadmap::{self, Snapshot};
use critical_path::Site;
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::critical_path as format;
use hpcrun_abi::{SITE_CONTEXT, SITE_SOURCE};
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes the critical path up to the ends of all strands that have ended or were published. `complete`: the
/// process ends. Without a tracker, nothing is written. Not async-signal-safe.
pub fn write(complete: bool) {
    let (Some(path), Some(image)) = (super::current(), image::current()) else {
        return;
    };
    // Another thread may be writing.
    for _ in 0..1000 {
        if let Ok(_writer) = path.writer.try_lock() {
            if let Err(error) = replace(image, &encode(path, image, complete)) {
                warn(&error);
            }
            return;
        }
        system::sleep(100_000);
    }
}

fn replace(image: &Image, bytes: &[u8]) -> io::Result<()> {
    let mut file = PathBuf::from(&image.config.output);
    file.push(format::file_name(image.pid, image.id));
    let new = file.with_extension("new");
    std::fs::write(&new, bytes)?;
    std::fs::rename(&new, &file)
}

fn warn(error: &io::Error) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        // A closed standard error is ignored.
        let _ = writeln!(
            io::stderr(),
            "hpcrun-rs: warning: the critical path cannot be written: {error}"
        );
    }
}

fn encode(path: &Path, image: &Image, complete: bool) -> Vec<u8> {
    let mut report = path.tracker.report();
    let named = report.segments.iter().filter_map(|s| s.thread);
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

fn resolve(path: &Path, snapshot: Option<&Snapshot>, Site(site): Site) -> format::Site {
    if site == 0 {
        return format::Site::Unknown;
    }
    if site & SITE_SOURCE != 0 {
        let place = path.tracker.place(Site(site));
        return format::Site::Source {
            file: place.file,
            line: place.line,
        };
    }
    if site & SITE_CONTEXT != 0 {
        let (thread, record) = ((site & !SITE_CONTEXT) >> 32, site as u32);
        return format::Site::Context {
            profile: thread as u32,
            record,
        };
    }
    let located = snapshot.and_then(|snapshot| loadmap::locate(snapshot, site));
    format::Site::Address(match located {
        Some(module) => CodeAddress::new(module.id, site - module.bias),
        None => CodeAddress::new(ModuleId::UNKNOWN, site),
    })
}
