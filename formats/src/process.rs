//! The process file: who ran, how it was sampled, which modules were mapped, how it ended.
//!
//! Layout: a header of 16 bytes, then entries `{u32 kind, u32 length, payload}`. Each entry is appended with
//! one system call, alone or with others. So a file that ends early (crash, kill, full disk) keeps all whole
//! entries.

use crate::address::{CodeAddress, ModuleId};
use crate::bytes::{ByteReader, ByteWriter};
use crate::loss::LossCause;
use crate::numbered;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// First bytes of every process file.
pub const MAGIC: [u8; 8] = *b"HPCRSPRC";
/// Readers refuse another major version.
pub const VERSION_MAJOR: u16 = 1;
/// Readers accept any minor version, and skip entry kinds that they do not know.
pub const VERSION_MINOR: u16 = 8;

const KIND_START: u32 = 1;
const KIND_MODULE: u32 = 2;
const KIND_UNLOAD: u32 = 3;
const KIND_END: u32 = 4;
const KIND_SITES: u32 = 5;
const KIND_UNPROFILED: u32 = 6;
const KIND_COPY: u32 = 7;
const KIND_DIRECTIVES: u32 = 8;

/// Start of a process image.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Start {
    /// Process id.
    pub pid: u32,
    /// Parent's process id.
    pub ppid: u32,
    /// Id of the image: the monotonic clock at its start, nanoseconds.
    pub image: u64,
    /// Wall clock at the start, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Path of the executable.
    pub executable: String,
    /// Argument vector.
    pub arguments: Vec<String>,
    /// Working directory.
    pub directory: String,
    /// Event name, as the user gave it.
    pub event: String,
    /// Source that serves the event: `perf-sigtrap`, `perf-signal`, `posix-timer`.
    pub source: String,
    /// Sampling period, nanoseconds.
    pub period_ns: u64,
    /// Cores n that idleness was computed against at first; 0 = as many as workers (see [`End::cores`]).
    pub cores: u32,
    /// Most distinct samples of a thread that the source can take per second; 0 = unknown.
    pub rate_ceiling: u32,
    /// Name of the host; empty if unknown, as are the next two, and in files of version 1.2 and before.
    pub host: String,
    /// Id of the host's last boot: two images with the same host and boot share its monotonic clock.
    pub boot: String,
    /// The job, as its batch system or MPI launcher names it; empty outside of one.
    pub job: String,
}

/// The beginning of the names of folders in the measurement directory, each of which belongs to another user,
/// whom processes have become.
pub const USER_FOLDER: &str = "user-";

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

/// A load module.
#[derive(Clone, PartialEq, Debug)]
pub struct Module {
    /// Its id in [`crate::address::CodeAddress`].
    pub id: ModuleId,
    /// Lowest mapped address.
    pub start: u64,
    /// One past the highest mapped address.
    pub end: u64,
    /// Mapped address minus the address that the module states.
    pub bias: u64,
    /// Path, or `[vdso]`.
    pub path: String,
    /// GNU build id, empty when there is none.
    pub build_id: Vec<u8>,
    /// Its file when it was first seen.
    pub stamp: Stamp,
    /// Name of a copy in the measurement directory, of a file that has gone since; empty when there is none.
    pub copy: String,
}

/// What tells whether a file is the same: zeros if unknown, as in files of version 1.6 and before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Stamp {
    /// Its size.
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
    /// The same unrounded; rounded in files of version 1.5 and before.
    pub mean_cores: f64,
    /// Threads seen, with or without samples.
    pub threads: u32,
    /// Most workers of cooperating runtimes alive at once.
    pub workers: u32,
    /// Losses that no thread's profile could count.
    pub losses: Vec<(LossCause, u64)>,
    /// CPU times; zeros in files of version 1.1 and before.
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
    /// Waiting for locks that no context is charged with; 0 in files of version 1.3 and before.
    pub unknown_lock_wait_ns: u64,
    /// For how long its threads were ready to run and had no core; 0 in files of version 1.5 and before.
    pub run_delay_ns: u64,
}

/// A program that a process of the run started and that was not profiled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unprofiled {
    /// Path of the executable.
    pub executable: String,
    /// Why: `statically linked`, `linked with musl`, `built with AddressSanitizer`, …
    pub reason: String,
}

/// What a cooperating runtime counted at one spawn site. A site is one inlined copy of the code that makes a
/// task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SiteCounts {
    /// The site.
    pub place: CodeAddress,
    /// Tasks that were split in two there.
    pub splits: u64,
    /// Tasks of the site that were stolen: run by another call than their spawner's own.
    pub steals: u64,
    /// Wall time in stolen tasks, nanoseconds.
    pub stolen_ns: u64,
    /// Splits that were the first ones of a parallel iterator, in code that is no task's. Those outside of a
    /// pool are at sites that count nothing else. 0 in a file of a version before 1.5.
    pub executions: u64,
}

numbered! {
    /// What a directive of OpenMP makes, and whose runtime runs it.
    DirectiveKind {
        /// A region of libgomp.
        GompRegion = 1, "libgomp region";
        /// A task of libgomp.
        GompTask = 2, "libgomp task";
        /// A region of libomp.
        OmpRegion = 3, "libomp region";
        /// A task of libomp.
        OmpTask = 4, "libomp task";
    }
}

/// What was counted at a call that compilers make of a directive of OpenMP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directive {
    /// The last byte of the call.
    pub place: CodeAddress,
    /// What it makes.
    pub kind: DirectiveKind,
    /// How often it was executed.
    pub executions: u64,
    /// How many of the tasks have the context of the task around them, because there were too many of them.
    pub uncaptured: u64,
}

/// One entry.
#[derive(Clone, PartialEq, Debug)]
pub enum Entry {
    /// See [`Start`].
    Start(Start),
    /// See [`Module`].
    Module(Module),
    /// The module with this id was unmapped.
    Unload(ModuleId),
    /// See [`End`].
    End(End),
    /// All spawn sites at which anything was counted; written before the end.
    Sites(Vec<SiteCounts>),
    /// All directives of OpenMP that were executed; written before the end.
    Directives(Vec<Directive>),
    /// See [`Unprofiled`].
    Unprofiled(Unprofiled),
    /// See [`Module::copy`].
    Copy(ModuleId, String),
}

/// The file's header.
pub fn encode_header() -> [u8; 16] {
    let mut h = [0; 16];
    h[..8].copy_from_slice(&MAGIC);
    h[8..10].copy_from_slice(&VERSION_MAJOR.to_le_bytes());
    h[10..12].copy_from_slice(&VERSION_MINOR.to_le_bytes());
    h
}

/// One entry, ready to append.
pub fn encode(entry: &Entry) -> Vec<u8> {
    let mut w = ByteWriter::new();
    let kind = match entry {
        Entry::Start(s) => {
            w.u32(s.pid);
            w.u32(s.ppid);
            w.u64(s.image);
            w.u64(s.realtime_ns);
            w.string(&s.executable);
            w.u32(s.arguments.len() as u32);
            for a in &s.arguments {
                w.string(a);
            }
            w.string(&s.directory);
            w.string(&s.event);
            w.string(&s.source);
            w.u64(s.period_ns);
            w.u32(s.cores);
            w.u32(s.rate_ceiling);
            for text in [&s.host, &s.boot, &s.job] {
                w.string(text);
            }
            KIND_START
        }
        Entry::Module(m) => {
            w.u16(m.id.0);
            w.u64(m.start);
            w.u64(m.end);
            w.u64(m.bias);
            w.string(&m.path);
            w.blob(&m.build_id);
            w.u64(m.stamp.size);
            w.u64(m.stamp.modified_ns);
            KIND_MODULE
        }
        Entry::Unload(id) => {
            w.u16(id.0);
            KIND_UNLOAD
        }
        Entry::End(e) => {
            w.u64(e.monotonic_ns);
            w.string(&e.reason);
            w.u32(e.cores);
            w.u32(e.threads);
            w.u32(e.workers);
            w.u32(e.losses.len() as u32);
            for (cause, n) in &e.losses {
                w.u8(*cause as u8);
                w.u64(*n);
            }
            w.u64(e.cpu.process_ns);
            w.u64(e.cpu.children_ns);
            w.u64(e.cpu.unsampled_ns);
            w.u64(e.cpu.estimated_wait_ns);
            w.u64(e.cpu.unknown_lock_wait_ns);
            w.u64(e.mean_cores.to_bits());
            w.u64(e.cpu.run_delay_ns);
            KIND_END
        }
        Entry::Sites(sites) => {
            w.u32(sites.len() as u32);
            for site in sites {
                w.u64(site.place.0);
                w.u64(site.splits);
                w.u64(site.steals);
                w.u64(site.stolen_ns);
            }
            for site in sites {
                w.u64(site.executions);
            }
            KIND_SITES
        }
        Entry::Directives(directives) => {
            w.u32(directives.len() as u32);
            for directive in directives {
                w.u64(directive.place.0);
                w.u8(directive.kind as u8);
                w.u64(directive.executions);
                w.u64(directive.uncaptured);
            }
            KIND_DIRECTIVES
        }
        Entry::Unprofiled(u) => {
            w.string(&u.executable);
            w.string(&u.reason);
            KIND_UNPROFILED
        }
        Entry::Copy(id, name) => {
            w.u16(id.0);
            w.string(name);
            KIND_COPY
        }
    };
    let mut out = ByteWriter::new();
    out.u32(kind);
    out.blob(&w.data);
    out.data
}

/// Why a file is not a readable process file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ProcessError {
    /// The first bytes are not [`MAGIC`].
    NotAProcessFile,
    /// Written by an incompatible version.
    Version(u16, u16),
    /// There is no whole [`Start`] entry.
    NoStart,
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessError::NotAProcessFile => write!(f, "not a process file: wrong first bytes"),
            ProcessError::Version(a, b) => write!(
                f,
                "process file version {a}.{b} is not readable by this version ({VERSION_MAJOR}.x): \
                 use the hpcprof-rs of the same release"
            ),
            ProcessError::NoStart => write!(f, "truncated before the end of its first entry"),
        }
    }
}

impl std::error::Error for ProcessError {}

/// A process file, decoded.
#[derive(Clone, PartialEq, Debug)]
pub struct Process {
    /// Its start.
    pub start: Start,
    /// Modules in the order in which they were first seen.
    pub modules: Vec<Module>,
    /// Its end; `None` when it crashed, was killed or still runs.
    pub end: Option<End>,
    /// What was counted at its spawn sites, as last written.
    pub sites: Vec<SiteCounts>,
    /// What was counted at its directives of OpenMP, as last written.
    pub directives: Vec<Directive>,
    /// Programs that it started and that were not profiled.
    pub unprofiled: Vec<Unprofiled>,
    /// Whether the file ends within an entry, or an entry could not be decoded.
    pub damaged: bool,
}

impl Process {
    /// Decodes a file as far as it goes.
    pub fn parse(data: &[u8]) -> Result<Process, ProcessError> {
        if data.len() < 16 || data[..8] != MAGIC {
            return Err(ProcessError::NotAProcessFile);
        }
        let (major, minor) =
            (u16::from_le_bytes([data[8], data[9]]), u16::from_le_bytes([data[10], data[11]]));
        if major != VERSION_MAJOR {
            return Err(ProcessError::Version(major, minor));
        }
        let mut r = ByteReader::new(&data[16..]);
        let mut start = None;
        let mut modules = Vec::new();
        let mut end = None;
        let mut sites = Vec::new();
        let mut directives = Vec::new();
        let mut unprofiled = Vec::new();
        let mut damaged = false;
        while r.remaining() > 0 {
            let Some((kind, payload)) = r.u32().and_then(|k| Some((k, r.blob()?))) else {
                damaged = true;
                break;
            };
            let mut p = ByteReader::new(payload);
            let decoded = match kind {
                KIND_START => decode_start(&mut p).map(|s| start = start.take().or(Some(s))),
                KIND_MODULE => decode_module(&mut p).map(|m| modules.push(m)),
                KIND_END => decode_end(&mut p).map(|e| end = Some(e)),
                KIND_SITES => decode_sites(&mut p).map(|s| sites = s),
                KIND_DIRECTIVES => decode_directives(&mut p).map(|d| directives = d),
                KIND_UNPROFILED => decode_unprofiled(&mut p).map(|u| unprofiled.push(u)),
                KIND_COPY => decode_copy(&mut p, &mut modules),
                _ => Some(()),
            };
            damaged |= decoded.is_none();
        }
        Ok(Process {
            start: start.ok_or(ProcessError::NoStart)?,
            modules,
            end,
            sites,
            directives,
            unprofiled,
            damaged,
        })
    }
}

fn decode_start(r: &mut ByteReader<'_>) -> Option<Start> {
    let (pid, ppid, image, realtime_ns) = (r.u32()?, r.u32()?, r.u64()?, r.u64()?);
    let executable = r.string()?;
    let n = r.u32()?;
    let mut arguments = Vec::new();
    for _ in 0..n {
        arguments.push(r.string()?);
    }
    let mut start = Start {
        pid,
        ppid,
        image,
        realtime_ns,
        executable,
        arguments,
        directory: r.string()?,
        event: r.string()?,
        source: r.string()?,
        period_ns: r.u64()?,
        cores: r.u32()?,
        rate_ceiling: r.u32()?,
        ..Start::default()
    };
    // An entry of version 1.2 ends here.
    if r.remaining() > 0 {
        (start.host, start.boot, start.job) = (r.string()?, r.string()?, r.string()?);
    }
    Some(start)
}

fn decode_module(r: &mut ByteReader<'_>) -> Option<Module> {
    Some(Module {
        id: ModuleId(r.u16()?),
        start: r.u64()?,
        end: r.u64()?,
        bias: r.u64()?,
        path: r.string()?,
        build_id: r.blob()?.to_vec(),
        // An entry of version 1.6 ends here.
        stamp: match r.remaining() {
            0 => Stamp::default(),
            _ => Stamp { size: r.u64()?, modified_ns: r.u64()? },
        },
        copy: String::new(),
    })
}

/// A name with a slash would lead out of the directory.
fn decode_copy(r: &mut ByteReader<'_>, modules: &mut [Module]) -> Option<()> {
    let (id, name) = (ModuleId(r.u16()?), r.string()?);
    let is_name = !name.contains('/');
    modules.iter_mut().filter(|m| m.id == id && is_name).for_each(|m| m.copy.clone_from(&name));
    Some(())
}

fn decode_sites(r: &mut ByteReader<'_>) -> Option<Vec<SiteCounts>> {
    let n = r.u32()?;
    let mut sites = Vec::new();
    for _ in 0..n {
        sites.push(SiteCounts {
            place: CodeAddress(r.u64()?),
            splits: r.u64()?,
            steals: r.u64()?,
            stolen_ns: r.u64()?,
            executions: 0,
        });
    }
    for site in &mut sites {
        site.executions = r.u64().unwrap_or(0);
    }
    Some(sites)
}

fn decode_directives(r: &mut ByteReader<'_>) -> Option<Vec<Directive>> {
    let n = r.u32()?;
    let mut directives = Vec::new();
    for _ in 0..n {
        let (place, kind) = (CodeAddress(r.u64()?), r.u8()?);
        let (executions, uncaptured) = (r.u64()?, r.u64()?);
        let kind = DirectiveKind::from_number(kind);
        directives.extend(kind.map(|kind| Directive { place, kind, executions, uncaptured }));
    }
    Some(directives)
}

fn decode_unprofiled(r: &mut ByteReader<'_>) -> Option<Unprofiled> {
    Some(Unprofiled { executable: r.string()?, reason: r.string()? })
}

fn decode_end(r: &mut ByteReader<'_>) -> Option<End> {
    let (monotonic_ns, reason) = (r.u64()?, r.string()?);
    let (cores, threads, workers) = (r.u32()?, r.u32()?, r.u32()?);
    let n = r.u32()?;
    let mut losses = Vec::new();
    for _ in 0..n {
        let (cause, count) = (r.u8()?, r.u64()?);
        losses.extend(LossCause::from_number(cause).map(|c| (c, count)));
    }
    // An entry of version 1.1 ends here.
    let mut cpu = match r.remaining() {
        0 => CpuTimes::default(),
        _ => CpuTimes {
            process_ns: r.u64()?,
            children_ns: r.u64()?,
            unsampled_ns: r.u64()?,
            estimated_wait_ns: r.u64()?,
            // An entry of version 1.3 ends before this.
            unknown_lock_wait_ns: match r.remaining() {
                0 => 0,
                _ => r.u64()?,
            },
            run_delay_ns: 0,
        },
    };
    // An entry of version 1.5 ends here.
    let mean = f64::from_bits(r.u64().unwrap_or(0));
    cpu.run_delay_ns = r.u64().unwrap_or(0);
    let mean_cores = if mean.is_finite() && mean > 0.0 { mean } else { f64::from(cores) };
    Some(End { monotonic_ns, reason, cores, mean_cores, threads, workers, losses, cpu })
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
    fn older_starts_have_no_host() {
        let start = Start {
            executable: "/bin/true".to_owned(),
            rate_ceiling: 7,
            host: "node17".to_owned(),
            boot: "b-1".to_owned(),
            job: "123.server".to_owned(),
            ..Start::default()
        };
        let entry = encode(&Entry::Start(start.clone()));
        let parse = |cut: usize| {
            let payload = &entry[8..entry.len() - cut];
            let mut file = encode_header().to_vec();
            file.extend(KIND_START.to_le_bytes());
            file.extend((payload.len() as u32).to_le_bytes());
            file.extend(payload);
            Process::parse(&file)
        };
        let added =
            3 * 4 + [&start.host, &start.boot, &start.job].map(String::len).iter().sum::<usize>();
        assert_eq!(parse(0).map(|p| p.start), Ok(start.clone()));
        let older = Start { host: String::new(), boot: String::new(), job: String::new(), ..start };
        assert_eq!(parse(added).map(|p| (p.start, p.damaged)), Ok((older, false)));
        for cut in (1..added).chain([added + 1]) {
            assert_eq!(parse(cut), Err(ProcessError::NoStart), "{cut}");
        }
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
