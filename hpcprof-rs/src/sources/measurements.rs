//! Finds what measurement directories hold: process files, critical paths, and the headers of the threads'
//! profiles. The records of a profile are read when a pass asks for them, so memory does not grow with the
//! measurements.
//!
//! A damaged file becomes a warning; everything else is kept. The order of the result does not depend on
//! the order of directory entries.

use crate::error::{Error, Result};
use crate::model::warnings::Warnings;
use crate::sources::traces::TraceInput;
use hpc_formats::critical_path::{self, CriticalPath, OnPath};
use hpc_formats::process::{COMMAND_FILE, Process, SHORT_EXTENSION, USER_FOLDER, text_of};
use hpc_formats::profile::{HEADER_SIZE, Header, KIND, Profile, RECORD_SIZE, header};
use hpc_formats::trace;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const PROCESS_EXTENSION: &str = "hpcproc";
pub const PROFILE_EXTENSION: &str = "hpcprofile";
/// Why a process's file ended before the process.
pub const TRACED: &str = "traced by another program";

/// Periods of CPU time that a thread may use without a sample.
pub const FEW_PERIODS: u64 = 4;

/// Where one thread's profile is.
#[derive(Debug)]
pub struct ThreadInput {
    pub path: Arc<Path>,
    pub header: Header,
    /// Where it begins in the file.
    offset: u64,
    /// Bytes from its header to the end of its last record that the file has.
    size: usize,
}

impl ThreadInput {
    /// Reads the profile. `buffer` keeps its bytes.
    pub fn read<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<Profile<'a>> {
        buffer.resize(self.size, 0);
        File::open(&self.path)?.read_exact_at(buffer, self.offset)?;
        Profile::parse(buffer).map_err(io::Error::other)
    }

    /// Bytes that [`ThreadInput::read`] reads.
    pub fn size(&self) -> usize {
        self.size
    }
}

/// One process image with its threads.
#[derive(Debug)]
pub struct ProcessInput {
    /// Its run, an index into [`Measurements::runs`]. Only processes of one run share a clock.
    pub run: usize,
    /// Its directory, an index into [`Measurements::directories`].
    pub directory: usize,
    pub pid: u32,
    /// Monotonic clock at its start; tells apart the images of a process that calls exec.
    pub start_monotonic_ns: u64,
    /// The process file; `None` when it is missing or unreadable.
    pub process: Option<Process>,
    /// Its critical path, if it was tracked. Its samples are sorted by profile and record.
    pub critical_path: Option<CriticalPath>,
    /// Its rank in its job, once the paths of the job's processes are joined.
    pub rank: Option<u32>,
    /// What its threads did when, if that was kept.
    pub trace: Option<TraceInput>,
    /// Profiles by thread ordinal.
    pub threads: BTreeMap<u32, ThreadInput>,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Measurements {
    pub directories: Vec<PathBuf>,
    /// For each run the index of its directory: a run is what ran in a directory on one host since its boot.
    pub runs: Vec<usize>,
    /// What the user typed for each directory; empty where that is not known.
    pub commands: Vec<Vec<String>>,
    /// Processes by run, start and process id, oldest first.
    pub processes: Vec<ProcessInput>,
}

impl ProcessInput {
    /// The records of a thread that its trace names, sorted.
    pub fn traced(&self, thread: u32) -> &[u32] {
        self.trace.as_ref().map_or(&[], |trace| trace.records(thread))
    }

    /// The samples of a thread that are on the critical path.
    pub fn on_path(&self, thread: u32) -> &[OnPath] {
        let all = self.critical_path.as_ref().map_or(&[][..], |path| &path.on_path);
        let begin = all.partition_point(|s| s.profile < thread);
        let end = all.partition_point(|s| s.profile <= thread);
        &all[begin..end]
    }
}

impl Measurements {
    pub fn traced_runs(&self) -> Vec<bool> {
        let mut traced = vec![false; self.runs.len()];
        for process in self.processes.iter().filter(|p| p.trace.is_some()) {
            traced[process.run] = true;
        }
        traced
    }

    /// All profiles, each with the index of its process; in the order of processes and ordinals.
    pub fn profiles(&self) -> impl Iterator<Item = (usize, &ThreadInput)> {
        let processes = self.processes.iter().enumerate();
        processes.flat_map(|(index, process)| process.threads.values().map(move |t| (index, t)))
    }
}

/// Finds the contents of all `directories`, as one set of measurements.
pub fn read(directories: &[PathBuf], warnings: &mut Warnings) -> Result<Measurements> {
    let mut measurements = Measurements::default();
    for directory in directories {
        let found = read_directory(directory, measurements.directories.len(), warnings)?;
        let known = measurements.processes.iter();
        if known.clone().any(|p| found.values().any(|q| is_copy(p, q))) {
            warnings.add(format!(
                "{}: a copy of measurements that were read already; ignored: give each directory once",
                directory.display()
            ));
            continue;
        }
        let index = measurements.directories.len();
        measurements.directories.push(directory.clone());
        measurements.commands.push(read_command(directory));
        for mut own in by_host(found) {
            own.iter_mut().for_each(|process| process.run = measurements.runs.len());
            measurements.runs.push(index);
            measurements.processes.extend(own);
        }
    }
    Ok(measurements)
}

/// What the user typed.
fn read_command(directory: &Path) -> Vec<String> {
    match std::fs::read(directory.join(COMMAND_FILE)) {
        Ok(bytes) if !bytes.is_empty() => bytes.split(|b| *b == 0).map(text_of).collect(),
        _ => Vec::new(),
    }
}

/// The processes of a directory by host and boot, oldest first; those of an unknown host are with the first.
fn by_host(found: ByIdentity) -> Vec<Vec<ProcessInput>> {
    let host = |p: &ProcessInput| {
        let start = p.process.as_ref().map(|file| &file.start);
        start.map(|s| (s.host.clone(), s.boot.clone())).filter(|h| *h != Default::default())
    };
    let mut hosts: Vec<Option<(String, String)>> = Vec::new();
    let mut runs: Vec<Vec<ProcessInput>> = Vec::new();
    let (known, unknown): (Vec<_>, Vec<_>) = found.into_values().partition(|p| host(p).is_some());
    for process in known {
        let host = host(&process);
        let at = hosts.iter().position(|h| *h == host).unwrap_or_else(|| {
            hosts.push(host);
            runs.push(Vec::new());
            runs.len() - 1
        });
        runs[at].push(process);
    }
    match runs.first_mut() {
        Some(first) => {
            first.extend(unknown);
            first.sort_by_key(|p| (p.start_monotonic_ns, p.pid));
        }
        None => runs.push(unknown),
    }
    runs
}

/// Whether two process images of different directories are one. Process id and monotonic clock may be equal
/// by chance on two hosts or after a reboot; wall clock and arguments are compared, too.
fn is_copy(a: &ProcessInput, b: &ProcessInput) -> bool {
    let start = |p: &ProcessInput| p.process.as_ref().map(|file| file.start.clone());
    (a.pid, a.start_monotonic_ns) == (b.pid, b.start_monotonic_ns) && start(a) == start(b)
}

/// The processes of one run by start and process id.
type ByIdentity = BTreeMap<(u64, u32), ProcessInput>;

fn read_directory(directory: &Path, index: usize, warnings: &mut Warnings) -> Result<ByIdentity> {
    let mut processes = ByIdentity::new();
    if directory.is_file() {
        let problem = "is a file, not a measurement directory";
        let remedy = "give the directory that `hpcrun-rs PROGRAM` wrote";
        return Err(Error::input(directory, problem, remedy));
    }
    let mut files = list(directory)?;
    let of_user = |p: &&PathBuf| p.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(USER));
    let folders: Vec<PathBuf> = files.iter().filter(of_user).filter(|p| p.is_dir()).cloned().collect();
    for folder in folders {
        files.extend(list(&folder)?);
    }
    // Whether a short process counts depends on all others.
    files.sort_by_key(|p| (p.extension().is_some_and(|e| e == SHORT_EXTENSION), p.clone()));
    // A named pipe would make the reader wait.
    let regular = files.iter().filter(|p| p.is_file());
    let mut found = 0;
    let mut profiles = 0;
    let mut readable = 0;
    for path in regular {
        match path.extension().and_then(|e| e.to_str()) {
            Some(PROCESS_EXTENSION) => {
                found += 1;
                read_process(path, &mut processes, warnings);
            }
            Some(SHORT_EXTENSION) => {
                found += 1;
                read_short(path, &mut processes, warnings);
            }
            Some(PROFILE_EXTENSION) => {
                found += 1;
                profiles += 1;
                readable += usize::from(read_threads(path, &mut processes, warnings));
            }
            Some(trace::EXTENSION) => {
                found += 1;
                if let Some(trace) = TraceInput::find(path, warnings) {
                    let slot = entry(&mut processes, trace.image, trace.pid);
                    fill(&mut slot.trace, trace, (path, "trace"), warnings);
                }
            }
            Some(critical_path::EXTENSION) => {
                found += 1;
                read_critical_path(path, &mut processes, warnings);
            }
            _ => {}
        }
    }
    if found == 0 {
        let problem = match files.is_empty() {
            true => "is empty",
            false => "is not a measurement directory (no .hpcproc, no .hpcprofile)",
        };
        let remedy = "measure with `hpcrun-rs PROGRAM` and give the directory that it names";
        return Err(Error::input(directory, problem, remedy));
    }
    let is_tracked = processes.values().any(|p| p.critical_path.is_some());
    if readable == 0 && !is_tracked && !processes.values().any(used_cpu_time) {
        // A thread's profile is made at its first sample.
        let ends = || processes.values().filter_map(|p| p.process.as_ref()?.end.as_ref());
        if ends().any(|end| end.reason == TRACED) {
            let problem = "has no samples: another program traced it (a debugger, strace, or by ptrace)";
            return Err(Error::input(directory, problem, "measure it alone"));
        }
        if profiles == 0 && ends().all(|end| end.losses.is_empty()) {
            return Err(Error::NoSample {
                path: directory.to_owned(),
                cpu_ns: processes.values().map(cpu_ns).fold(0, u64::saturating_add),
            });
        }
        let remedy = "run `hpcrun-rs PROGRAM` again, with room on the disk";
        return Err(Error::input(directory, "has no readable profile", remedy));
    }
    for process in processes.values_mut() {
        process.directory = index;
    }
    Ok(processes)
}

/// How a folder of another user begins, whom processes have become.
const USER: &[u8] = USER_FOLDER.as_bytes();

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).map_err(Error::io("read", directory))?;
    let paths = entries.map(|entry| entry.map(|e| e.path()));
    paths.collect::<std::io::Result<_>>().map_err(Error::io("read", directory))
}

/// CPU time of a process and its children; 0 when unknown.
fn cpu_ns(input: &ProcessInput) -> u64 {
    let end = input.process.as_ref().and_then(|p| p.end.as_ref());
    end.map_or(0, |e| e.cpu.process_ns.saturating_add(e.cpu.children_ns))
}

/// Whether a process used enough CPU time for a sample.
fn used_cpu_time(input: &ProcessInput) -> bool {
    let period = input.process.as_ref().map_or(0, |p| p.start.period_ns);
    cpu_ns(input) > FEW_PERIODS.saturating_mul(period)
}

fn entry(processes: &mut ByIdentity, start_monotonic_ns: u64, pid: u32) -> &mut ProcessInput {
    processes.entry((start_monotonic_ns, pid)).or_insert_with(|| ProcessInput {
        directory: 0,
        run: 0,
        pid,
        start_monotonic_ns,
        process: None,
        critical_path: None,
        rank: None,
        trace: None,
        threads: BTreeMap::new(),
    })
}

/// What a file holds; `None`, with a warning that says what that costs, if it cannot be read.
pub(super) fn decoded<T, E: Display>(
    path: &Path,
    decode: impl FnOnce(&[u8]) -> std::result::Result<T, E>,
    cost: &str,
    warnings: &mut Warnings,
) -> Option<T> {
    let data = std::fs::read(path).map_err(|e| e.to_string());
    let decoded = data.and_then(|data| decode(&data).map_err(|e| e.to_string()));
    let warn = |problem| warnings.add(format!("{}: {problem}; {cost}", path.display()));
    decoded.map_err(warn).ok()
}

/// Fills a slot, unless another file has filled it.
fn fill<T>(slot: &mut Option<T>, value: T, (path, what): (&Path, &str), warnings: &mut Warnings) {
    match slot {
        None => *slot = Some(value),
        Some(_) => warnings.add(format!(
            "{}: a second {what} of the same process; ignored: give each directory once",
            path.display()
        )),
    }
}

fn read_process(path: &Path, processes: &mut ByIdentity, warnings: &mut Warnings) {
    let cost = "its load map is lost: run the program again for names";
    let Some(process) = decoded(path, Process::parse, cost, warnings) else {
        return;
    };
    warn_if_damaged(path, &process, warnings);
    let slot = entry(processes, process.start.image, process.start.pid);
    fill(&mut slot.process, process, (path, "process file"), warnings);
}

fn warn_if_damaged(path: &Path, process: &Process, warnings: &mut Warnings) {
    if process.damaged {
        warnings.add(format!(
            "{}: ends within an entry; whole entries were kept: names may be missing, run again if they are",
            path.display()
        ));
    }
}

/// Reads processes that have ended without a profile. A process that goes on after a record of its end, since
/// an exec has failed, has another one, or a file of its own, which was read before.
fn read_short(path: &Path, processes: &mut ByIdentity, warnings: &mut Warnings) {
    let cost = "short processes are lost: their CPU time is that of unprofiled children";
    let all = |data: &[u8]| Ok::<_, std::convert::Infallible>(Process::parse_all(data));
    let mut last = BTreeMap::new();
    for process in decoded(path, all, cost, warnings).into_iter().flatten() {
        match process {
            Ok(process) => {
                warn_if_damaged(path, &process, warnings);
                last.insert((process.start.image, process.start.pid), process);
            }
            Err(problem) => warnings.add(format!("{}: {problem}; {cost}", path.display())),
        }
    }
    for ((image, pid), process) in last {
        entry(processes, image, pid).process.get_or_insert(process);
    }
}

fn read_critical_path(path: &Path, processes: &mut ByIdentity, warnings: &mut Warnings) {
    let cost = "the critical path of this process is lost, all else is kept: run again for it";
    let Some(mut found) = decoded(path, CriticalPath::decode, cost, warnings) else {
        return;
    };
    found.on_path.sort_unstable_by_key(|s| (s.profile, s.record));
    let slot = entry(processes, found.image, found.pid);
    fill(&mut slot.critical_path, found, (path, "critical path"), warnings);
}

/// Finds the profiles of a file. Returns whether any is readable.
fn read_threads(path: &Path, processes: &mut ByIdentity, warnings: &mut Warnings) -> bool {
    let (inputs, problems) = find_profiles(path);
    for problem in problems {
        warnings.add(format!(
            "{}: {problem}; this thread's samples are lost, all others are kept: run again for them",
            path.display()
        ));
    }
    let is_readable = !inputs.is_empty();
    for input in inputs {
        let slot = entry(processes, input.header.image, input.header.pid);
        if let Some(first) = slot.threads.get(&input.header.thread) {
            warnings.add(format!(
                "{}: the same thread as {}; ignored: give each directory once",
                path.display(),
                first.path.display()
            ));
            continue;
        }
        slot.threads.insert(input.header.thread, input);
    }
    is_readable
}

/// The profiles of a file, one behind the other, and what is wrong with those that cannot be read.
fn find_profiles(path: &Path) -> (Vec<ThreadInput>, Vec<String>) {
    let shared: Arc<Path> = path.into();
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = match opened {
        Ok(opened) => opened,
        Err(error) => return (found, vec![error.to_string()]),
    };
    let mut offset = 0;
    loop {
        let mut head = [0; HEADER_SIZE];
        let rest = length.saturating_sub(offset);
        let known = rest.min(HEADER_SIZE as u64) as usize;
        if let Err(error) = file.read_exact_at(&mut head[..known], offset) {
            problems.push(error.to_string());
            return (found, problems);
        }
        // A file that is cut where another profile should follow ends in an empty one, which is an error.
        let next = match head.starts_with(&KIND.magic) {
            true => u64::from_le_bytes(head[header::NEXT..][..8].try_into().unwrap_or_default()),
            false => 0,
        };
        // A next one within the header of this cannot be: this is damaged, and said to be.
        let extent = if next == 0 { rest } else { next.min(rest) };
        let known = known.min(extent as usize);
        match Profile::parse(&head[..known]) {
            Ok(profile) => {
                // The valid part only: a killed program leaves a file with an unused end.
                let promised = profile.header.records;
                let room = (extent - profile.size() as u64) / RECORD_SIZE as u64;
                let records = promised.min(room) as usize;
                found.push(ThreadInput {
                    path: shared.clone(),
                    offset,
                    size: profile.size() + records * RECORD_SIZE,
                    header: profile.header,
                });
            }
            Err(problem) => problems.push(problem.to_string()),
        }
        if next == 0 || offset >= length {
            return (found, problems);
        }
        offset = offset.saturating_add(next);
    }
}
