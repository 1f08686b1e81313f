//! Runs, hosts, and which runs are parts of one job.

use crate::model::experiment::{Experiment, Host, Run};
use crate::model::keys::StableHash;
use crate::model::warnings::Warnings;
use crate::sources::measurements::Measurements;
use hpc_formats::process::Start;

/// Fills in the runs and hosts of the experiment, whose processes are known.
///
/// A directory has a run for each host. Directories are parts of one job if the launcher's job id says so, or
/// if their times overlap; `is_job` says so of all. Clocks of hosts may differ, so an overlap is
/// looked for by wall clocks only where no job id is known.
pub fn find(measurements: &Measurements, is_job: bool, experiment: &mut Experiment, warnings: &mut Warnings) {
    for (index, directory) in measurements.runs.iter().enumerate() {
        let command = measurements.commands.get(*directory).cloned().unwrap_or_default();
        let directory = &measurements.directories[*directory];
        let own = || experiment.processes.iter().filter(move |p| p.run == index);
        let first = own().min_by_key(|p| (p.start.image, p.start.pid));
        let start = first.map_or_else(Start::default, |p| p.start.clone());
        let end = own().map(|p| p.end_ns).max().unwrap_or(start.image);
        let host = Host { name: start.host.clone(), boot: start.boot.clone() };
        let known = experiment.hosts.iter().position(|h| *h == host);
        let host = known.unwrap_or_else(|| {
            experiment.hosts.push(host);
            experiment.hosts.len() - 1
        });
        experiment.runs.push(Run {
            key: key(&start),
            host,
            set: 0,
            job: start.job.clone(),
            directory: directory.display().to_string(),
            command,
            start_ns: start.realtime_ns,
            wall_ns: end.saturating_sub(start.image),
        });
    }
    let mut seen: Vec<String> = Vec::new();
    for run in &mut experiment.runs {
        // Two runs that cannot be told apart by what they know of themselves.
        while seen.contains(&run.key) {
            run.key = hex(StableHash::default().with(run.key.as_bytes()));
        }
        seen.push(run.key.clone());
    }
    set_jobs(&mut experiment.runs, is_job);
    let others = |run: &Run| {
        let is_other = |r: &&Run| r.set == run.set && r.directory != run.directory;
        experiment.runs.iter().filter(is_other).count()
    };
    if let Some(run) = experiment.runs.iter().find(|run| others(run) > 0 && run.job.is_empty()) {
        if !is_job {
            let others = match others(run) {
                1 => "another directory".to_owned(),
                n => format!("{n} other directories"),
            };
            warnings.add(format!(
                "{} and {others} are taken for parts of one job, as they ran at the same time",
                run.directory,
            ));
        }
    }
}

/// Numbers the sets from 0, in the order of their first runs.
fn set_jobs(runs: &mut [Run], is_job: bool) {
    let overlap = |a: &Run, b: &Run| {
        let ends = |r: &Run| r.start_ns.saturating_add(r.wall_ns);
        a.start_ns > 0 && b.start_ns > 0 && a.start_ns < ends(b) && b.start_ns < ends(a)
    };
    let is_one = |a: &Run, b: &Run| match (a.job.as_str(), b.job.as_str()) {
        _ if is_job || a.directory == b.directory => true,
        ("", _) | (_, "") => overlap(a, b),
        (a, b) => a == b,
    };
    let mut next = 0;
    for index in 0..runs.len() {
        let same = (0..index).find(|other| is_one(&runs[*other], &runs[index]));
        runs[index].set = same.map_or(next, |other| runs[other].set);
        next = next.max(runs[index].set + 1);
    }
}

fn key(start: &Start) -> String {
    let hash = StableHash::default()
        .with(start.host.as_bytes())
        .with(start.boot.as_bytes())
        .with(&start.image.to_le_bytes())
        .with(&start.pid.to_le_bytes())
        .with(&start.realtime_ns.to_le_bytes());
    hex(hash)
}

fn hex(hash: StableHash) -> String {
    format!("{:016x}", hash.0)
}
