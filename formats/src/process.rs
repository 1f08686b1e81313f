//! The process file: who ran, how it was sampled, which modules were mapped, how it ended.
//!
//! Layout: a header of 16 bytes, then entries `{u32 kind, u32 length, payload}`. Each entry is appended with
//! one system call, alone or with others. So a file that ends early (crash, kill, full disk) keeps all whole
//! entries.

use crate::address::{CodeAddress, ModuleId};
use crate::bytes::{ByteReader, ByteWriter};
use crate::error::{FileError, Kind};
use crate::fields::{Field, by_number, structures};
use crate::loss::LossCause;
use crate::numbered;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Readers skip entry kinds that they do not know.
pub static KIND: Kind = Kind::measured("process file", *b"HPCRSPRC", 3);
const HEADER_SIZE: usize = 16;

const KIND_START: u32 = 1;
const KIND_MODULE: u32 = 2;
const KIND_END: u32 = 3;
const KIND_SITES: u32 = 4;
const KIND_UNPROFILED: u32 = 5;
const KIND_COPY: u32 = 6;
const KIND_DIRECTIVES: u32 = 7;
const KIND_REMAPPED: u32 = 8;

/// Start of a process image.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Start {
    pub pid: u32,
    pub ppid: u32,
    /// Id of the image: the monotonic clock at its start, nanoseconds.
    pub image: u64,
    /// Wall clock at the start, nanoseconds since 1970.
    pub realtime_ns: u64,
    pub executable: String,
    pub arguments: Vec<String>,
    pub directory: String,
    /// Event name, as the user gave it.
    pub event: String,
    /// Source that serves the event: `perf-sigtrap`, `perf-signal`, `posix-timer`.
    pub source: String,
    pub period_ns: u64,
    /// Cores n that idleness was computed against at first; 0 = as many as workers (see [`End::cores`]).
    pub cores: u32,
    /// Most distinct samples of a thread that the source can take per second; 0 = unknown.
    pub rate_ceiling: u32,
    /// Name of the host; empty if unknown, as are the next two.
    pub host: String,
    /// Id of the host's last boot: two images with the same host and boot share its monotonic clock.
    pub boot: String,
    /// The job, as its batch system or MPI launcher names it; empty outside of one.
    pub job: String,
}

/// How the reason begins why a thread of the process ran unprofiled, whose name stands for an executable's.
pub const THREAD_OF: &str = "a thread of ";

/// The beginning of the names of folders in the measurement directory, each of which belongs to another user,
/// whom processes have become.
pub const USER_FOLDER: &str = "user-";

/// Extension of the file of a host's processes that ended without a profile: their process files, one behind
/// the other. The last one of an image counts, and none if the image has a file of its own.
pub const SHORT_EXTENSION: &str = "hpcprocs";

/// File of a measurement directory with what the user typed: the program and its arguments, a NUL between.
pub const COMMAND_FILE: &str = "command";

/// The name by which a user knows a program: its file's. Cargo's hash is dropped from benchmarks and tests,
/// which lie in a folder `deps`.
pub fn program_name(executable: &str) -> &str {
    let (folder, name) = executable.rsplit_once('/').unwrap_or(("", executable));
    let is_hash = |text: &str| {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        text.len() == 16 && text.bytes().all(is_digit)
    };
    match name.rsplit_once('-') {
        Some((own, hash)) if folder.ends_with("deps") && is_hash(hash) && !own.is_empty() => own,
        _ => name,
    }
}

/// A path or an argument as text, from which [`bytes_of`] restores the bytes. A byte that is not UTF-8
/// becomes `\xHH`, and so does a backslash that would begin such a sequence.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find('\\') {
            text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            text.push_str(if escaped(rest).is_some() { "\\x5c" } else { "\\" });
        }
        text.push_str(rest);
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The bytes of a text that [`text_of`] made.
pub fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend(before.bytes());
        let byte = escaped(after);
        bytes.push(byte.unwrap_or(b'\\'));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    bytes.extend(rest.bytes());
    bytes
}

/// The byte that `xHH` behind a backslash stands for.
fn escaped(text: &str) -> Option<u8> {
    let digits = text.strip_prefix('x')?.get(..2)?;
    let are_digits = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| are_digits)
}

#[derive(Clone, PartialEq, Debug)]
pub struct Module {
    /// Its id in [`crate::address::CodeAddress`].
    pub id: ModuleId,
    /// Path, or `[vdso]`.
    pub path: String,
    /// GNU build id, empty when there is none.
    pub build_id: Vec<u8>,
    /// Its file when it was first seen.
    pub stamp: Stamp,
    /// Name of a copy in the measurement directory, of a file that has gone since; empty when there is none.
    pub copy: String,
}

/// What tells whether a file is the same: zeros if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Stamp {
    pub size: u64,
    /// Its last modification, nanoseconds since 1970.
    pub modified_ns: u64,
}

impl Stamp {
    /// Of a file; zeros if there is none.
    pub fn of(path: &Path) -> Stamp {
        std::fs::metadata(path).map_or(Stamp::default(), |m| Stamp {
            size: m.size(),
            modified_ns: (m.mtime() as u64 * 1_000_000_000).wrapping_add(m.mtime_nsec() as u64),
        })
    }

    /// Whether the file at a path may still be the one that had this stamp.
    pub fn may_be(self, path: &Path) -> bool {
        self == Stamp::default() || self == Stamp::of(path)
    }
}

/// End of a process image.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct End {
    /// Monotonic clock at the end, nanoseconds (same clock as [`Start::image`]).
    pub monotonic_ns: u64,
    /// How it ended: `exit`, `_exit`, `exec`. A process that a signal ended has no end entry.
    pub reason: String,
    /// Cores n that were in force, on average of the time in which samples saw someone work.
    pub cores: u32,
    /// The same unrounded.
    pub mean_cores: f64,
    /// Threads seen, with or without samples.
    pub threads: u32,
    /// Most workers of cooperating runtimes alive at once.
    pub workers: u32,
    /// Losses that no thread's profile could count.
    pub losses: Vec<(LossCause, u64)>,
    pub cpu: CpuTimes,
}

/// CPU time of a process image from its start to its end, and the parts that no thread's profile can show,
/// nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTimes {
    /// Of all its threads, seen or not.
    pub process_ns: u64,
    /// Of its children that ended and were waited for, and of their children.
    pub children_ns: u64,
    /// Of threads that have no profile, because they ended before their first sample.
    pub unsampled_ns: u64,
    /// Of waits that no hook saw, estimated from threads' CPU time and state.
    pub estimated_wait_ns: u64,
    /// Waiting for locks that no context is charged with.
    pub unknown_lock_wait_ns: u64,
    /// For how long its threads were ready to run and had no core.
    pub run_delay_ns: u64,
}

/// A program that a process of the run started and that was not profiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unprofiled {
    pub executable: String,
    /// Why: `statically linked`, `linked with musl`, `built with AddressSanitizer`, …
    pub reason: String,
}

/// What a cooperating runtime counted at one spawn site. A site is one inlined copy of the code that makes a
/// task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteCounts {
    pub place: CodeAddress,
    /// Tasks that were split in two there.
    pub splits: u64,
    /// Tasks of the site that were stolen: run by another call than their spawner's own.
    pub steals: u64,
    /// Wall time in stolen tasks, nanoseconds.
    pub stolen_ns: u64,
    /// Splits that were the first ones of a parallel iterator, in code that is no task's. Those outside of a
    /// pool are at sites that count nothing else.
    pub executions: u64,
}

numbered! {
    /// What a call makes that is counted, and whose runtime runs it.
    DirectiveKind {
        GompRegion = 1, "libgomp region";
        GompTask = 2, "libgomp task";
        OmpRegion = 3, "libomp region";
        OmpTask = 4, "libomp task";
        /// An algorithm of TBB, which the call waits for.
        TbbAlgorithm = 5, "TBB algorithm";
        /// A task of TBB, of an algorithm's own too.
        TbbTask = 6, "TBB task";
        /// A task of a pool of the program's own.
        PoolTask = 7, "pool task";
    }
}

/// What was counted at a call that makes a region or a task: the compiler has made it of a directive of
/// OpenMP, or it is one of TBB, or of [`DirectiveKind::PoolTask`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directive {
    /// The last byte of the call.
    pub place: CodeAddress,
    pub kind: DirectiveKind,
    /// How often it was executed.
    pub executions: u64,
    /// How many of the tasks have the context of the task around them, because there were too many of them.
    pub uncaptured: u64,
    /// Chunks of loops that the runtime has given to threads of a region.
    pub chunks: u64,
    /// Iterations in these.
    pub iterations: u64,
}

/// Code of a module that the program has mapped once more, elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remapped {
    /// Its first absolute address there.
    pub start: u64,
    pub size: u64,
    /// The same place in the module.
    pub code: CodeAddress,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Entry {
    Start(Start),
    Module(Module),
    End(End),
    /// All spawn sites at which anything was counted; written before the end.
    Sites(Vec<SiteCounts>),
    /// All directives that were executed; written before the end.
    Directives(Vec<Directive>),
    /// What is there at one moment; the last one that has an address counts.
    Remapped(Vec<Remapped>),
    Unprofiled(Unprofiled),
    /// See [`Module::copy`].
    Copy(ModuleId, String),
}

pub fn encode_header() -> [u8; HEADER_SIZE] {
    let mut h = [0; HEADER_SIZE];
    h[..8].copy_from_slice(&KIND.magic);
    h[8..12].copy_from_slice(&KIND.version().to_le_bytes());
    h
}

structures! {
    Start, Start {
        pid ppid image realtime_ns executable arguments directory event source period_ns cores rate_ceiling
        host boot job
    }
    Module, Module { id path build_id stamp copy }
    Stamp, Stamp { size modified_ns }
    End, End { monotonic_ns reason cores mean_cores threads workers losses cpu }
    CpuTimes, CpuTimes {
        process_ns children_ns unsampled_ns estimated_wait_ns unknown_lock_wait_ns run_delay_ns
    }
    Unprofiled, Unprofiled { executable reason }
    SiteCounts, SiteCounts { place splits steals stolen_ns executions }
    Directive, Directive { place kind executions uncaptured chunks iterations }
    Remapped, Remapped { start size code }
}

impl Field for ModuleId {
    fn write(&self, w: &mut ByteWriter) {
        w.u16(self.0);
    }
    fn read(r: &mut ByteReader<'_>) -> Option<Self> {
        r.u16().map(ModuleId)
    }
}

by_number! { DirectiveKind LossCause }

/// One entry, ready to append.
pub fn encode(entry: &Entry) -> Vec<u8> {
    fn entry_of(kind: u32, payload: &impl Field) -> Vec<u8> {
        let (mut own, mut out) = (ByteWriter::new(), ByteWriter::new());
        payload.write(&mut own);
        out.u32(kind);
        out.blob(&own.data);
        out.data
    }
    match entry {
        Entry::Start(start) => entry_of(KIND_START, start),
        Entry::Module(module) => entry_of(KIND_MODULE, module),
        Entry::End(end) => entry_of(KIND_END, end),
        Entry::Sites(sites) => entry_of(KIND_SITES, sites),
        Entry::Unprofiled(program) => entry_of(KIND_UNPROFILED, program),
        Entry::Directives(directives) => entry_of(KIND_DIRECTIVES, directives),
        Entry::Remapped(ranges) => entry_of(KIND_REMAPPED, ranges),
        Entry::Copy(id, name) => entry_of(KIND_COPY, &(*id, name.clone())),
    }
}

/// A process file, decoded.
#[derive(Clone, PartialEq, Debug)]
pub struct Process {
    pub start: Start,
    /// Modules in the order in which they were first seen.
    pub modules: Vec<Module>,
    /// Its end; `None` when it crashed, was killed or still runs.
    pub end: Option<End>,
    /// What was counted at its spawn sites, as last written.
    pub sites: Vec<SiteCounts>,
    /// What was counted at its directives of OpenMP, as last written.
    pub directives: Vec<Directive>,
    /// Where code of its modules is mapped once more.
    pub remapped: Vec<Remapped>,
    /// Programs that it started and that were not profiled.
    pub unprofiled: Vec<Unprofiled>,
    /// Whether the file ends within an entry, or an entry could not be decoded.
    pub damaged: bool,
}

impl Process {
    /// Decodes a file as far as it goes.
    pub fn parse(data: &[u8]) -> Result<Process, FileError> {
        Process::parse_first(data).map(|(process, _)| process)
    }

    /// Decodes files that lie one behind the other. An error ends them.
    pub fn parse_all(mut data: &[u8]) -> Vec<Result<Process, FileError>> {
        let next = || {
            let first = (!data.is_empty()).then(|| Process::parse_first(data))?;
            data = first.as_ref().map_or(&[], |(_, rest)| rest);
            Some(first.map(|(process, _)| process))
        };
        std::iter::from_fn(next).collect()
    }

    /// Decodes the first file. Returns what follows it, too.
    fn parse_first(data: &[u8]) -> Result<(Process, &[u8]), FileError> {
        KIND.begin(data, HEADER_SIZE)?;
        let mut r = ByteReader::new(&data[HEADER_SIZE..]);
        let mut start = None;
        let mut modules = Vec::new();
        let mut end: Option<End> = None;
        let mut sites = Vec::new();
        let mut directives = Vec::new();
        let (mut unprofiled, mut remapped) = (Vec::new(), Vec::new());
        let mut damaged = false;
        while r.remaining() > 0 && !r.rest().starts_with(&KIND.magic) {
            let Some((kind, payload)) = r.u32().and_then(|k| Some((k, r.blob()?))) else {
                (damaged, r) = (true, ByteReader::new(&[]));
                break;
            };
            let mut p = ByteReader::new(payload);
            let decoded = match kind {
                KIND_START => Field::read(&mut p).map(|s| start = start.take().or(Some(s))),
                KIND_MODULE => Field::read(&mut p).map(|m| modules.push(m)),
                KIND_END => Field::read(&mut p).map(|e| end = Some(e)),
                KIND_SITES => Field::read(&mut p).map(|s| sites = s),
                KIND_UNPROFILED => Field::read(&mut p).map(|u| unprofiled.push(u)),
                KIND_DIRECTIVES => Field::read(&mut p).map(|d| directives = d),
                KIND_REMAPPED => Field::read(&mut p).map(|r: Vec<Remapped>| remapped.extend(r)),
                KIND_COPY => Field::read(&mut p).map(|copy| take_copy(copy, &mut modules)),
                _ => Some(()),
            };
            damaged |= decoded.is_none();
        }
        for end in end.iter_mut().filter(|e| !e.mean_cores.is_finite() || e.mean_cores <= 0.0) {
            end.mean_cores = f64::from(end.cores);
        }
        let start = start.ok_or(KIND.corrupt("it ends before it says whose it is"))?;
        let process = Process { start, modules, end, sites, directives, remapped, unprofiled, damaged };
        Ok((process, r.rest()))
    }
}

/// A name with a slash would lead out of the directory.
fn take_copy((id, name): (ModuleId, String), modules: &mut [Module]) {
    let is_name = !name.contains('/');
    modules.iter_mut().filter(|m| m.id == id && is_name).for_each(|m| m.copy.clone_from(&name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive_as_text() {
        for (bytes, text) in [
            (&b"/a/b c\n"[..], "/a/b c\n"),
            (b"/a\xff\xfe/b\xc3", "/a\\xff\\xfe/b\\xc3"),
            (b"a\\b\\", "a\\b\\"),
            (b"\\xff\\x+1\\xf", "\\x5cxff\\x+1\\xf"),
            (b"\\\xff\\\\x00", "\\\\xff\\\\x5cx00"),
        ] {
            assert_eq!(text_of(bytes), text);
            assert_eq!(bytes_of(text), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_until_it_ends() {
        let text = |text: &str| text.to_owned();
        let start = Start {
            pid: 7,
            executable: text("/bin/é"),
            arguments: vec![text("a"), text("")],
            rate_ceiling: 7,
            job: text("123.server"),
            ..Start::default()
        };
        let module = Module {
            id: ModuleId(3),
            path: text("/lib/x"),
            build_id: vec![0xff, 0],
            stamp: Stamp { size: 1, modified_ns: 2 },
            copy: String::new(),
        };
        let end = End {
            reason: text("exit"),
            mean_cores: 1.5,
            losses: vec![(LossCause::DiskFull, 9)],
            cpu: CpuTimes { run_delay_ns: 5, ..CpuTimes::default() },
            ..End::default()
        };
        let place = CodeAddress::new(ModuleId(3), 8);
        let sites = vec![SiteCounts { place, splits: 1, steals: 2, stolen_ns: 3, executions: 4 }];
        let kind = DirectiveKind::OmpTask;
        let directives =
            vec![Directive { place, kind, executions: 5, uncaptured: 6, chunks: 7, iterations: 8 }];
        let remapped: Vec<_> = [1, 2].map(|start| Remapped { start, size: 9, code: place }).into();
        let program = Unprofiled { executable: text("/bin/sh"), reason: text("musl") };
        let entries = [
            Entry::Start(start.clone()),
            Entry::Module(module.clone()),
            Entry::Copy(ModuleId(3), text("module-1.elf")),
            Entry::Copy(ModuleId(3), text("../x")),
            Entry::Sites(sites.clone()),
            Entry::Unprofiled(program.clone()),
            Entry::Directives(directives.clone()),
            Entry::Remapped(vec![remapped[0]]),
            Entry::Remapped(vec![remapped[1]]),
            Entry::End(end.clone()),
        ];
        let mut file = encode_header().to_vec();
        file.extend(entries.iter().flat_map(encode));
        let whole = Process {
            start,
            modules: vec![Module { copy: text("module-1.elf"), ..module }],
            end: Some(end),
            sites,
            unprofiled: vec![program],
            directives,
            remapped,
            damaged: false,
        };
        assert_eq!(Process::parse(&file), Ok(whole.clone()));
        for length in 16 + encode(&entries[0]).len() + 1..file.len() {
            let cut = Process::parse(&file[..length]).expect("a start");
            assert!(cut.end.is_none() && cut.start == whole.start, "{length}");
        }
        let all = Process::parse_all(&[&file[..], &file[..file.len() - 1]].concat());
        assert_eq!(all[0], Ok(whole));
        assert!(all.len() == 2 && all[1].as_ref().is_ok_and(|last| last.damaged), "{all:?}");
    }

    #[test]
    fn what_cargo_adds_to_a_name_is_left_out() {
        for (path, name) in [
            ("/t/release/deps/race-011238a1262bf961", "race"),
            ("deps/two-parts-0000000000000000", "two-parts"),
            ("/t/release/race-011238a1262bf961", "race-011238a1262bf961"),
            ("/t/release/deps/race-011238a1262bf96", "race-011238a1262bf96"),
            ("/t/release/deps/race-011238A1262BF961", "race-011238A1262BF961"),
            ("/t/release/deps/-011238a1262bf961", "-011238a1262bf961"),
            ("/t/release/deps/race", "race"),
            ("race", "race"),
            ("", ""),
        ] {
            assert_eq!(program_name(path), name, "{path}");
        }
    }
}
