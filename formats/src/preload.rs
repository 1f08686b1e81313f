//! Which programs the sampler's library cannot be preloaded into, by the headers of their files.
//!
//! The launcher asks before it starts a program, the preloaded library before a profiled process starts
//! another. Only headers and the table of dynamic names are read. A file that cannot be read has no obstacle.

use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadCache, ReadRef, elf};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// First part of the preloaded library's file name; its content's fingerprint follows.
pub const LIBRARY_NAME: &str = "libhpcrun_preload";
/// The same of the library that observes MPI.
pub const MPI_LIBRARY_NAME: &str = "libhpcrun_mpi";

/// Where programs are looked for when `PATH` is not set, as `execvp` does.
pub const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Why a program cannot be profiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// No dynamic linker starts it.
    Static,
    /// The kernel gives it rights that its user lacks, so the dynamic linker preloads nothing.
    Privileged,
    /// A 32-bit program.
    Class,
    /// Made for another processor.
    Machine,
    Musl,
    /// Linked with no glibc, so nothing initialises the one that the sampler's library brings: another C
    /// library, or none (assembly, Go without cgo).
    Library,
    /// Built with the sanitizer of this name.
    Sanitizer(&'static str),
}

impl Obstacle {
    /// What the program is.
    pub fn reason(self) -> String {
        match self {
            Obstacle::Static => "statically linked".into(),
            Obstacle::Privileged => "set-user-id or set-group-id".into(),
            Obstacle::Class => "a 32-bit program".into(),
            Obstacle::Machine => "built for another processor".into(),
            Obstacle::Musl => "linked with musl".into(),
            Obstacle::Library => "not linked with glibc".into(),
            Obstacle::Sanitizer(name) => format!("built with {name}"),
        }
    }

    /// What its user can profile instead.
    pub fn remedy(self) -> &'static str {
        match self {
            Obstacle::Static => {
                "link it dynamically (for Rust: not a -musl target, no -C target-feature=+crt-static)"
            }
            Obstacle::Privileged => "profile a copy without that bit",
            Obstacle::Class | Obstacle::Machine => "build it for x86_64",
            Obstacle::Musl => "build it for glibc (for Rust: a -gnu target)",
            Obstacle::Library => "build it for glibc (Go: with CGO_ENABLED=1 and a package that uses cgo)",
            Obstacle::Sanitizer(_) => "profile a build without -fsanitize (for Rust: -Zsanitizer)",
        }
    }

    /// Whether the library would break the program. Other obstacles keep the library out of the program, but
    /// not out of the programs that it starts.
    pub fn breaks(self) -> bool {
        !matches!(self, Obstacle::Static | Obstacle::Privileged)
    }
}

/// The executable that stands in the way of a profile: the program, or the interpreter of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub executable: PathBuf,
    pub obstacle: Obstacle,
}

/// What keeps a program from being profiled. A script's `env NAME` is looked for in `search`, a `PATH`.
pub fn obstacle(program: &Path, search: &OsStr) -> Option<Found> {
    let mut executable = program.to_owned();
    // The kernel follows interpreters of interpreters, up to five.
    for _ in 0..5 {
        let file = File::open(&executable).ok()?;
        let metadata = file.metadata().ok()?;
        let bytes = ReadCache::new(file);
        if let Some(line) = script_line(&bytes, metadata.size()) {
            executable = interpreter(line, search)?;
            continue;
        }
        let obstacle = of_elf(&bytes).or_else(|| is_privileged(&metadata).then_some(Obstacle::Privileged));
        return obstacle.map(|obstacle| Found { executable, obstacle });
    }
    None
}

/// The program that `execvp` would run for a name without a slash.
pub fn find(name: &OsStr, search: &OsStr) -> Option<PathBuf> {
    let candidates = std::env::split_paths(search).map(|folder| folder.join(name));
    candidates.into_iter().find(|path| is_program(path))
}

/// Whether there is an executable file at a path.
pub fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0)
}

/// The first line of a script, behind its `#!`, as far as the kernel reads it.
fn script_line<'d>(bytes: impl ReadRef<'d>, size: u64) -> Option<&'d [u8]> {
    let start = bytes.read_bytes_at(0, size.min(256)).ok()?;
    start.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()
}

/// The interpreter that a script's first line names; of `env NAME` it is the program that `env` finds.
fn interpreter(line: &[u8], search: &OsStr) -> Option<PathBuf> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).map(OsStr::from_bytes);
    let path = Path::new(words.next()?);
    if path.file_name() != Some(OsStr::new("env")) {
        return Some(path.to_owned());
    }
    let is_setting = |w: &OsStr| w.as_bytes().starts_with(b"-") || w.as_bytes().contains(&b'=');
    let name = words.find(|w| !is_setting(w))?;
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    find(name, search)
}

/// Whether the kernel gives the program another user or group than its caller's.
fn is_privileged(program: &fs::Metadata) -> bool {
    let user = program.mode() & 0o4000 != 0;
    let group = program.mode() & 0o2010 == 0o2010;
    if !user && !group {
        return false;
    }
    let Ok(caller) = fs::metadata("/proc/self") else {
        return true;
    };
    let is_other = (user && program.uid() != caller.uid()) || (group && program.gid() != caller.gid());
    let ignores_bits = || fs::read_to_string("/proc/self/status").is_ok_and(|s| s.contains("NoNewPrivs:\t1"));
    is_other && !ignores_bits()
}

fn of_elf<'d, R: ReadRef<'d>>(bytes: R) -> Option<Obstacle> {
    let start = bytes.read_bytes_at(0, 20).ok()?;
    if !start.starts_with(&elf::ELFMAG) {
        return None;
    }
    if start[4] == elf::ELFCLASS32 {
        return Some(Obstacle::Class);
    }
    let header = elf::FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        return Some(Obstacle::Machine);
    }
    let segments = header.program_headers(endian, bytes).ok()?;
    let interpreter = segments.iter().find_map(|s| s.interpreter(endian, bytes).ok()?);
    let names = Names::dynamic(segments, endian, bytes).unwrap_or(Names(b""));
    let Some(interpreter) = interpreter else {
        // A dynamic linker may be told which program to start.
        return if names.has("ld-linux") {
            None
        } else if names.has("ld-musl") || names.has("__dls3") {
            Some(Obstacle::Musl)
        } else {
            let is_program = matches!(header.e_type(endian), elf::ET_EXEC | elf::ET_DYN);
            is_program.then_some(Obstacle::Static)
        };
    };
    if contains(interpreter, b"musl") || names.has("libc.musl-") {
        Some(Obstacle::Musl)
    } else if !names.has("libc.so.6") && !names.has("__libc_start_main") || names.has("__libc_early_init") {
        // The last is what glibc itself has, which can be run, too.
        Some(Obstacle::Library)
    } else {
        let all = || Names::symbols(header, endian, bytes).unwrap_or(Names(b""));
        sanitizer(&names, all).map(Obstacle::Sanitizer)
    }
}

/// The sanitizer whose runtime is in a program, as a library or linked in (clang, rustc).
///
/// Rustc exports no symbol of the runtime. Then the sign is a hook that every such runtime looks up, and the
/// program's other symbols tell which runtime it is. UBSan's alone works with a preloaded library.
fn sanitizer<'d>(names: &Names<'d>, all: impl FnOnce() -> Names<'d>) -> Option<&'static str> {
    let has_runtime = || names.has("__sanitizer_symbolize_code") && !names.has("__ubsan_handle_");
    let unknown = || has_runtime().then(|| all().sanitizer().unwrap_or("a sanitizer"));
    names.sanitizer().or_else(unknown)
}

/// The strings of a table of symbols. Those of the dynamic table name the needed libraries, too.
struct Names<'d>(&'d [u8]);

impl<'d> Names<'d> {
    /// The strings that the dynamic linker reads. Needs no section headers, which may be gone.
    fn dynamic<R: ReadRef<'d>>(
        segments: &'d [elf::ProgramHeader64<Endianness>],
        endian: Endianness,
        bytes: R,
    ) -> Option<Names<'d>> {
        let entries = segments.iter().find_map(|s| s.dynamic(endian, bytes).ok()?)?;
        let value = |tag: u32| {
            let entry = entries.iter().find(|e| e.d_tag(endian) == u64::from(tag))?;
            Some(entry.d_val(endian))
        };
        let (address, size) = (value(elf::DT_STRTAB)?, value(elf::DT_STRSZ)?);
        let strings = segments.iter().find_map(|s| s.data_range(endian, bytes, address, size).ok()?);
        strings.map(Names)
    }

    /// The strings of the table of all symbols.
    fn symbols<R: ReadRef<'d>>(
        header: &elf::FileHeader64<Endianness>,
        endian: Endianness,
        bytes: R,
    ) -> Option<Names<'d>> {
        let sections = header.section_headers(endian, bytes).ok()?;
        let symbols = sections.iter().find(|s| s.sh_type(endian) == elf::SHT_SYMTAB)?;
        let strings = sections.get(symbols.sh_link(endian) as usize)?;
        strings.data(endian, bytes).ok().map(Names)
    }

    fn has(&self, beginning: &str) -> bool {
        self.first(&[(beginning, ())]).is_some()
    }

    fn sanitizer(&self) -> Option<&'static str> {
        const ADDRESS: &str = "AddressSanitizer";
        const THREAD: &str = "ThreadSanitizer";
        const MEMORY: &str = "MemorySanitizer";
        self.first(&[
            ("libasan.so", ADDRESS),
            ("libclang_rt.asan", ADDRESS),
            ("__asan_init", ADDRESS),
            ("libtsan.so", THREAD),
            ("libclang_rt.tsan", THREAD),
            ("__tsan_init", THREAD),
            ("__msan_init", MEMORY),
            ("__msan_track_origins", MEMORY),
        ])
    }

    /// The value of the first prefix with which a string begins.
    fn first<T: Copy>(&self, beginnings: &[(&str, T)]) -> Option<T> {
        self.0.split(|b| *b == 0).find_map(|string| {
            let of = |(beginning, _): &&(&str, T)| string.starts_with(beginning.as_bytes());
            beginnings.iter().find(of).map(|(_, what)| *what)
        })
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|w| w == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scripts_interpreter_is_the_one_that_runs_it() {
        let path = OsStr::new("/nowhere:/bin:/usr/bin");
        let of = |line: &str| interpreter(line.as_bytes(), path);
        assert_eq!(of(" /bin/sh -e"), Some("/bin/sh".into()));
        assert_eq!(of("/usr/bin/env sh"), Some("/bin/sh".into()));
        assert_eq!(of("/usr/bin/env -S A=b sh -e"), Some("/bin/sh".into()));
        assert_eq!(of("/usr/bin/env /opt/x"), Some("/opt/x".into()));
        assert_eq!(of("/usr/bin/env no-such-program-anywhere"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn names_tell_the_sanitizer() {
        let of = |names: &'static str, all: &'static str| {
            sanitizer(&Names(names.as_bytes()), || Names(all.as_bytes()))
        };
        let hook = "\0main\0__sanitizer_symbolize_code\0";
        assert_eq!(of("\0libc.so.6\0main\0", "\0__asan_init\0"), None);
        assert_eq!(of("\0libasan.so.8\0", ""), Some("AddressSanitizer"));
        assert_eq!(of(hook, "\0__tsan_init\0"), Some("ThreadSanitizer"));
        assert_eq!(of(hook, ""), Some("a sanitizer"));
        assert_eq!(of("\0__sanitizer_symbolize_code\0__ubsan_handle_add\0", ""), None);
    }

    #[test]
    fn this_test_can_be_profiled() {
        let test = std::env::current_exe().expect("a test has a file");
        assert_eq!(obstacle(&test, OsStr::new(DEFAULT_PATH)), None);
        assert_eq!(obstacle(Path::new("/no/such/file"), OsStr::new("")), None);
        let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
        assert!(loader.exists() && obstacle(loader, OsStr::new("")).is_none());
        // glibc, which prints its version when it is run, would find a library that is not ready.
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        let libc =
            maps.lines().find_map(|line| line.split(' ').next_back().filter(|p| p.contains("/libc.so.6")));
        let found = obstacle(Path::new(libc.expect("mapped")), OsStr::new(""));
        assert_eq!(found.map(|f| f.obstacle), Some(Obstacle::Library));
    }
}
