//! The critical path in the measurement directory: a file of each process image, which replaces the one
//! before as a whole.

use super::{Job, Path, contexts};
use crate::image::{self, Image};
use crate::system;
use crate::unwind::loadmap::{self, Snapshot};
use critical_path::{Context, Exported, Function, Lost, Site};
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::critical_path as format;
use hpcrun_abi::{SITE_CONTEXT, SITE_REMOTE, SITE_SOURCE};
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
    let report = path.tracker.report();
    let exported = path.job.get().map(|job| (job, path.tracker.exported()));
    let sites = |snapshot: Option<&Snapshot>| {
        let site = |site: Site| resolve(path, snapshot, site);
        let segment = |s: &critical_path::Segment| format::Segment {
            begin: site(s.begin),
            end: site(s.end),
            edge: s.edge as u8,
            thread: s.thread,
            time: s.time,
            count: s.count,
        };
        let near = |n: &critical_path::Near| format::Near {
            begin: site(n.begin),
            end: site(n.end),
            thread: n.thread,
            time: n.time,
            slack: n.slack,
        };
        let rank = exported
            .as_ref()
            .map(|(job, exported)| rank(path, job, exported, segment));
        (
            report.segments.iter().map(segment).collect(),
            report.near.iter().map(near).collect(),
            rank,
        )
    };
    let (segments, near, rank) =
        loadmap::with_current(|s| sites(Some(s))).unwrap_or_else(|| sites(None));
    let segments: Vec<format::Segment> = segments;
    let near: Vec<format::Near> = near;
    let exports = rank.iter().flat_map(format::Rank::segments);
    let named = segments.iter().chain(exports).filter_map(|s| s.thread);
    let named: BTreeSet<u32> = named.chain(near.iter().map(|n| n.thread)).collect();
    let mut threads = path.threads().clone();
    threads.retain(|(number, _)| named.contains(number));
    let procedure = |p: critical_path::ProcedureTimes| format::Procedure {
        name: format::ProcedureName::Mark(p.name),
        work: p.work,
        on_path: p.on_path,
        zeroed_span: p.zeroed_span,
    };
    // Views know a function's own work and its time on the path by its contexts. Those that are known from
    // messages only have no address here.
    let addresses = contexts::addresses();
    let function = |(function, zeroed): &(Function, u64)| {
        let address = match super::is_in_job() {
            true => *addresses.get(&function.0)?,
            false => CodeAddress(function.0),
        };
        Some(format::Procedure {
            name: format::ProcedureName::Function(address),
            work: 0,
            on_path: 0,
            zeroed_span: *zeroed,
        })
    };
    let lost = |(cause, count): (Lost, u64)| (cause.name().to_owned(), count);
    let result = format::CriticalPath {
        pid: image.pid,
        image: image.id,
        complete,
        work: report.work,
        span: report.span,
        burdened_span: report.burdened_span,
        wall: report.wall,
        spawn_cost: path.settings.spawn_cost,
        message_cost: path.settings.message_cost,
        segments,
        procedures: {
            let marks = report.procedures.into_iter().map(procedure);
            marks
                .chain(report.functions.iter().filter_map(function))
                .collect()
        },
        near,
        on_path: report.on_path.iter().map(on_path).collect(),
        threads,
        quality: format::Quality {
            resyncs: report.quality.resyncs,
            exact_edges: report.quality.exact_edges,
            woken_edges: report.quality.woken_edges,
            lost_edges: report.quality.lost_edges.into_iter().map(lost).collect(),
        },
        rank,
    };
    result.encode()
}

fn on_path((context, time): &(Context, u64)) -> format::OnPath {
    format::OnPath {
        profile: context.profile,
        record: context.record,
        time: *time,
    }
}

fn rank(
    path: &Path,
    job: &Job,
    exported: &Exported,
    segment: impl Fn(&critical_path::Segment) -> format::Segment,
) -> format::Rank {
    let (savings, marks) = path.tracker.savings();
    let marks = marks
        .into_iter()
        .map(|(key, name)| (key, format::ProcedureName::Mark(name)));
    let functions = contexts::addresses().into_iter();
    let functions = functions.map(|(key, address)| (key, format::ProcedureName::Function(address)));
    let contexts = exported.contexts.iter();
    let exports = exported.exports.iter().map(|export| format::Export {
        length: export.length,
        last: segment(&export.last),
        before: export.before,
        contexts: export.contexts,
        marks: export.marks.clone(),
    });
    format::Rank {
        job: job.id,
        rank: job.rank,
        ranks: job.ranks,
        savings: savings.iter().map(|s| (s.procedure, s.time)).collect(),
        names: marks.chain(functions).collect(),
        first: exported.first,
        segments: exported
            .segments
            .iter()
            .map(|(before, s)| (*before, segment(s)))
            .collect(),
        contexts: contexts
            .map(|(before, times)| (*before, times.iter().map(on_path).collect()))
            .collect(),
        exports: exports.collect(),
    }
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
    if site & SITE_REMOTE != 0 {
        return format::Site::Remote {
            rank: ((site & !SITE_REMOTE) >> 32) as u32,
            export: site as u32,
        };
    }
    let located = snapshot.and_then(|snapshot| loadmap::locate(snapshot, site));
    format::Site::Address(match located {
        Some(module) => CodeAddress::new(module.id, site - module.bias),
        None => CodeAddress::new(ModuleId::UNKNOWN, site),
    })
}
