//! Builds synthetic measurements from the file formats' constants alone, and runs the tool on
//! them in this process.

#![allow(unreachable_pub, missing_docs)]

pub mod pages;
pub mod program;
pub mod random;
pub mod readers;
pub mod schema;
pub mod synthetic;

use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::critical_path::{self, CriticalPath};
use hpc_formats::loss::LossCause;
use hpc_formats::process::{self, CpuTimes, End, Entry, Module, SiteCounts, Stamp, Start, Unprofiled};
use hpc_formats::profile::{
    Association, HEADER_SIZE, KIND, METRIC_SIZE, RecordKind, default_metrics, header, meta,
};
use hpc_formats::structure::{
    Origin, Procedure, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, Span, StringId, Structure,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A sampling period of 5 ms.
pub const PERIOD_NS: u64 = 5_000_000;
/// Image id of the first process.
pub const IMAGE: u64 = 1_000_000_000;

/// A directory that is removed when dropped.
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    /// A new, empty one.
    pub fn new() -> TempDir {
        TempDir(tempfile::tempdir().expect("temporary directory"))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// A code address of a process.
pub const fn at(module: u16, offset: u64) -> CodeAddress {
    CodeAddress::new(ModuleId(module), offset)
}

/// Builds one thread's profile.
#[derive(Clone)]
pub struct ThreadBuilder {
    pub pid: u32,
    pub image: u64,
    pub ordinal: u32,
    pub period_ns: u64,
    records: Vec<[u8; 32]>,
    pub samples: u64,
    pub weight: u64,
    /// Idleness of all records, each rounded to whole nanoseconds.
    pub idleness_ns: i64,
    pub losses: Vec<(LossCause, u64)>,
    pub oversubscribed: f64,
    /// CPU time, 0 = unknown.
    pub cpu_ns: u64,
    /// Periods that fell while it was idle.
    pub idle: u64,
    pub name: String,
}

impl ThreadBuilder {
    /// A thread with nothing but the synthetic root.
    pub fn new(ordinal: u32) -> Self {
        let mut thread = ThreadBuilder {
            pid: 100,
            image: IMAGE,
            ordinal,
            period_ns: PERIOD_NS,
            records: Vec::new(),
            samples: 0,
            weight: 0,
            idleness_ns: 0,
            losses: Vec::new(),
            oversubscribed: 0.0,
            cpu_ns: 0,
            idle: 0,
            name: "worker".to_owned(),
        };
        thread.record(meta(RecordKind::Root, 0, 0), 0, 0, 0, 0);
        thread
    }

    fn record(&mut self, meta: u32, parent: u32, a: u64, b: u64, c: u64) -> u32 {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&meta.to_le_bytes());
        bytes[4..8].copy_from_slice(&parent.to_le_bytes());
        bytes[8..16].copy_from_slice(&a.to_le_bytes());
        bytes[16..24].copy_from_slice(&b.to_le_bytes());
        bytes[24..].copy_from_slice(&c.to_le_bytes());
        self.records.push(bytes);
        self.records.len() as u32 - 1
    }

    pub fn entry(&mut self) -> u32 {
        self.record(meta(RecordKind::Entry, 0, 0), 0, 0, 0, 0)
    }

    pub fn anchor(&mut self, thread: u32, node: u32) -> u32 {
        let (thread, node) = (u64::from(thread), u64::from(node));
        self.record(meta(RecordKind::Anchor, 0, 0), 0, thread, node, 0)
    }

    pub fn partial(&mut self, cause: LossCause) -> u32 {
        self.record(meta(RecordKind::Partial, 0, 0), 0, cause as u64, 0, 0)
    }

    pub fn note(
        &mut self,
        parent: u32,
        association: Association,
        id: u32,
        ip: CodeAddress,
        lip: CodeAddress,
    ) -> u32 {
        let meta = meta(RecordKind::Note, association as u8, id);
        self.record(meta, parent, ip.0, lip.0, 0)
    }

    /// A native frame (1<->1).
    pub fn native(&mut self, parent: u32, address: CodeAddress) -> u32 {
        self.note(parent, Association::OneToOne, 1, address, address)
    }

    /// A chain of native frames.
    pub fn natives(&mut self, parent: u32, addresses: &[CodeAddress]) -> u32 {
        addresses.iter().fold(parent, |p, a| self.native(p, *a))
    }

    /// A frame of run-time support (1<->0).
    pub fn support(&mut self, parent: u32, address: CodeAddress) -> u32 {
        self.note(parent, Association::OneToZero, 1, address, CodeAddress::NONE)
    }

    /// A scheduler's frame that stands for the frames of a spawner (1<->M).
    pub fn spawner(&mut self, parent: u32, scheduler: CodeAddress, frames: &[CodeAddress]) -> u32 {
        let mut at = parent;
        for (index, frame) in frames.iter().enumerate() {
            let ip = if index == 0 { scheduler } else { CodeAddress::NONE };
            at = self.note(at, Association::OneToMany, index as u32 + 1, ip, *frame);
        }
        at
    }

    pub fn values(&mut self, owner: u32, samples: u64, work: u64, idleness: f64) {
        self.samples += samples;
        self.weight += work;
        self.idleness_ns += (idleness * self.period_ns as f64).round() as i64;
        let meta = meta(RecordKind::Metric, 0, 0);
        self.record(meta, owner, samples, work, idleness.to_bits());
    }

    /// Samples of one period each, while `idle` of the others were idle per sample.
    pub fn sample(&mut self, owner: u32, samples: u64, idle: f64) {
        self.values(owner, samples, samples, idle * samples as f64);
    }

    /// Leaves the contexts as they are, without values.
    pub fn drop_values(&mut self) {
        for record in &mut self.records {
            if record[0] & 0xf == RecordKind::Metric as u8 {
                record[8..].fill(0);
            }
        }
        (self.samples, self.weight, self.idleness_ns) = (0, 0, 0);
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0_u8; HEADER_SIZE];
        let mut put = |offset: usize, bytes: &[u8]| {
            out[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        put(header::MAGIC, &KIND.magic);
        put(header::VERSION, &KIND.version().to_le_bytes());
        put(header::HEADER_SIZE, &(HEADER_SIZE as u32).to_le_bytes());
        put(header::PID, &self.pid.to_le_bytes());
        put(header::THREAD, &self.ordinal.to_le_bytes());
        put(header::TID, &(self.pid + self.ordinal).to_le_bytes());
        put(header::STATE, &1_u32.to_le_bytes());
        put(header::IMAGE, &self.image.to_le_bytes());
        put(header::PERIOD_NS, &self.period_ns.to_le_bytes());
        put(header::RECORDS, &(self.records.len() as u64).to_le_bytes());
        put(header::SAMPLES, &self.samples.to_le_bytes());
        put(header::WEIGHT, &self.weight.to_le_bytes());
        put(header::OVERSUBSCRIBED, &self.oversubscribed.to_bits().to_le_bytes());
        put(header::LAST_NS, &(self.image + 2_000_000_000).to_le_bytes());
        put(header::CPU_NS, &self.cpu_ns.to_le_bytes());
        put(header::IDLE_WEIGHT, &self.idle.to_le_bytes());
        put(header::NAME, self.name.as_bytes());
        let metrics = default_metrics(self.period_ns);
        put(header::METRIC_COUNT, &(metrics.len() as u32).to_le_bytes());
        for (i, metric) in metrics.iter().enumerate() {
            put(header::METRICS + i * METRIC_SIZE, &metric.encode());
        }
        for (cause, n) in &self.losses {
            put(header::LOSSES + 8 * *cause as usize, &n.to_le_bytes());
        }
        for record in &self.records {
            out.extend_from_slice(record);
        }
        out
    }
}

/// Builds the structure of a module.
#[derive(Default, Clone)]
pub struct StructureBuilder {
    pub structure: Structure,
}

impl StructureBuilder {
    pub fn new(module: &str, build_id: &[u8]) -> Self {
        StructureBuilder {
            structure: Structure {
                module: module.to_owned(),
                build_id: build_id.to_vec(),
                complete: true,
                ..Structure::default()
            },
        }
    }

    pub fn text(&mut self, text: &str) -> StringId {
        let strings = &mut self.structure.strings;
        let found = strings.iter().position(|s| s == text).unwrap_or_else(|| {
            strings.push(text.to_owned());
            strings.len() - 1
        });
        StringId(found as u32)
    }

    pub fn line(&mut self, file: &str, line: u32) -> SourceLine {
        SourceLine { file: self.text(file), line }
    }

    pub fn procedure(&mut self, name: &str, declared: Option<(&str, u32)>, origin: Origin) -> ProcedureId {
        let procedure = Procedure {
            name: self.text(name),
            linkage_name: self.text(name),
            declared: declared.map(|(f, l)| self.line(f, l)),
            origin,
            tag: None,
        };
        self.structure.procedures.push(procedure);
        ProcedureId(self.structure.procedures.len() as u32 - 1)
    }

    pub fn inlined(
        &mut self,
        procedure: ProcedureId,
        parent: Option<ScopeId>,
        name: &str,
        declared: Option<(&str, u32)>,
        site: (&str, u32),
        origin: Origin,
    ) -> ScopeId {
        let scope = Scope {
            kind: ScopeKind::Inlined,
            procedure,
            parent,
            name: self.text(name),
            declared: declared.map(|(f, l)| self.line(f, l)),
            site: Some(self.line(site.0, site.1)),
            origin,
        };
        self.structure.scopes.push(scope);
        ScopeId(self.structure.scopes.len() as u32 - 1)
    }

    /// A loop, named by its place.
    pub fn looping(
        &mut self,
        procedure: ProcedureId,
        parent: Option<ScopeId>,
        site: (&str, u32),
        origin: Origin,
    ) -> ScopeId {
        let base = site.0.rsplit('/').next().unwrap_or(site.0);
        let name = format!("loop at {base}:{}", site.1);
        let id = self.inlined(procedure, parent, &name, None, site, origin);
        self.structure.scopes[id.0 as usize].kind = ScopeKind::Loop;
        id
    }

    pub fn name_loop(&mut self, of: ScopeId, name: &str) {
        self.structure.scopes[of.0 as usize].name = self.text(name);
    }

    pub fn span(
        &mut self,
        start: u64,
        procedure: ProcedureId,
        scope: Option<ScopeId>,
        line: (&str, u32),
        tag: Option<&str>,
    ) {
        let span = Span {
            start,
            end: start + 0x10,
            procedure,
            scope,
            line: (line.1 > 0).then(|| self.line(line.0, line.1)),
            tag: tag.map(|t| self.text(t)),
        };
        self.structure.spans.push(span);
        self.structure.spans.sort_by_key(|s| s.start);
    }
}

/// A measurement directory to be.
#[derive(Clone)]
pub struct Run {
    pub start: Start,
    pub modules: Vec<Module>,
    pub end: Option<End>,
    pub sites: Vec<SiteCounts>,
    pub unprofiled: Vec<Unprofiled>,
    pub critical_path: Option<CriticalPath>,
    pub trace: Option<Vec<u8>>,
    pub threads: Vec<ThreadBuilder>,
    pub structures: Vec<Structure>,
}

impl Run {
    /// A run of `/opt/app` on two cores, without threads.
    pub fn new() -> Self {
        Run {
            start: Start {
                pid: 100,
                ppid: 1,
                image: IMAGE,
                executable: "/opt/app".to_owned(),
                arguments: vec!["./app".to_owned(), "-n".to_owned(), "7".to_owned()],
                directory: "/tmp".to_owned(),
                event: "cpu-time".to_owned(),
                source: "perf-sigtrap".to_owned(),
                period_ns: PERIOD_NS,
                cores: 2,
                ..Start::default()
            },
            modules: Vec::new(),
            end: Some(End {
                monotonic_ns: IMAGE + 2_500_000_000,
                reason: "exit".to_owned(),
                cores: 2,
                mean_cores: 0.0,
                threads: 2,
                workers: 2,
                losses: Vec::new(),
                cpu: CpuTimes::default(),
            }),
            sites: Vec::new(),
            unprofiled: Vec::new(),
            critical_path: None,
            trace: None,
            threads: Vec::new(),
            structures: Vec::new(),
        }
    }

    pub fn module(&mut self, id: u16, path: &str, build_id: &[u8]) {
        self.modules.push(Module {
            id: ModuleId(id),
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            stamp: Stamp::default(),
            copy: String::new(),
        });
    }

    /// CPU times of its end.
    pub fn cpu(&mut self) -> &mut CpuTimes {
        &mut self.end.as_mut().expect("an end").cpu
    }

    /// Another process of it, with threads numbered anew.
    pub fn process(&self, pid: u32, image: u64) -> Run {
        let mut run = self.clone();
        (run.start.pid, run.start.image) = (pid, image);
        for thread in &mut run.threads {
            (thread.pid, thread.image) = (pid, image);
        }
        if let Some(path) = &mut run.critical_path {
            (path.pid, path.image) = (pid, image);
        }
        run
    }

    pub fn process_bytes(&self) -> Vec<u8> {
        let mut out = process::encode_header().to_vec();
        out.extend(process::encode(&Entry::Start(self.start.clone())));
        for module in &self.modules {
            out.extend(process::encode(&Entry::Module(module.clone())));
        }
        if !self.sites.is_empty() {
            out.extend(process::encode(&Entry::Sites(self.sites.clone())));
        }
        for program in &self.unprofiled {
            out.extend(process::encode(&Entry::Unprofiled(program.clone())));
        }
        if let Some(end) = &self.end {
            out.extend(process::encode(&Entry::End(end.clone())));
        }
        out
    }

    pub fn process_name(&self) -> String {
        format!("process-{}-{}.hpcproc", self.start.pid, self.start.image)
    }

    /// Writes all files into `directory`.
    pub fn write(&self, directory: &Path) {
        std::fs::create_dir_all(directory.join("structure")).expect("directory");
        std::fs::write(directory.join(self.process_name()), self.process_bytes()).expect("process file");
        for thread in &self.threads {
            let name = format!("thread-{}-{}-{}.hpcprofile", thread.pid, thread.image, thread.ordinal);
            std::fs::write(directory.join(name), thread.bytes()).expect("profile");
        }
        if let Some(path) = &self.critical_path {
            let name = critical_path::file_name(path.pid, path.image);
            std::fs::write(directory.join(name), path.encode()).expect("critical path");
        }
        if let Some(trace) = &self.trace {
            let name = format!("trace-{}-{}.hpctrace", self.start.pid, self.start.image);
            std::fs::write(directory.join(name), trace).expect("trace");
        }
        for (index, structure) in self.structures.iter().enumerate() {
            let path = directory.join("structure").join(format!("{index}.hpcstruct"));
            std::fs::write(path, structure.encode()).expect("structure");
        }
    }

    /// Work and overhead that the threads recorded, nanoseconds.
    pub fn recorded_work(&self) -> i64 {
        let sum = self.threads.iter().map(|t| t.weight * t.period_ns);
        sum.sum::<u64>() as i64
    }

    /// Idleness that the threads recorded, nanoseconds.
    pub fn recorded_idleness(&self) -> i64 {
        self.threads.iter().map(|t| t.idleness_ns).sum()
    }

    pub fn samples(&self) -> u64 {
        self.threads.iter().map(|t| t.samples).sum()
    }
}

/// Runs the tool with a command line; its output, or the error's line.
pub fn tool(arguments: &[&str]) -> Result<String, String> {
    tool_on_screen(140, arguments)
}

/// The same on a screen of so many columns.
pub fn tool_on_screen(columns: usize, arguments: &[&str]) -> Result<String, String> {
    use clap::Parser;
    let all = std::iter::once("hpcprof-rs").chain(arguments.iter().copied());
    let mut cli = hpcprof_rs::cli::Cli::try_parse_from(all).map_err(|e| e.to_string())?;
    // The user's cache is no business of the tests.
    cli.build.no_cache = true;
    let mut out = Vec::new();
    let style = hpcprof_rs::render::style::Style { width: columns, line: columns, colour: false };
    hpcprof_rs::run::run(cli, style, &mut out).map_err(|e| e.to_string())?;
    Ok(String::from_utf8(out).expect("output is UTF-8"))
}

/// A database directory that is removed when dropped, with its measurements.
pub struct Database {
    _temp: TempDir,
    path: PathBuf,
    /// The first screen.
    pub screen: String,
}

impl std::ops::Deref for Database {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

/// Builds a database from `run`.
pub fn database(run: &Run) -> Database {
    build(&[&[run]], &[])
}

/// Builds a database from measurement directories, each of some processes, with these options.
pub fn build(directories: &[&[&Run]], options: &[&str]) -> Database {
    let temp = TempDir::new();
    let mut paths = Vec::new();
    for (index, processes) in directories.iter().enumerate() {
        paths.push(temp.join(&format!("m{index}")));
        processes.iter().for_each(|run| run.write(&paths[index]));
    }
    let path = temp.join("db");
    let mut arguments: Vec<&str> = paths.iter().map(|path| text(path)).collect();
    arguments.extend(["-o", text(&path)]);
    arguments.extend(options);
    let screen = tool(&arguments).expect("build");
    Database { _temp: temp, path, screen }
}

/// Carries out a command on a database: `flat --lines` is `hpcprof-rs flat DATABASE --lines`.
pub fn on(database: &Path, line: &str) -> Result<String, String> {
    tool(&words(database, line))
}

fn words<'a>(database: &'a Path, line: &'a str) -> Vec<&'a str> {
    let mut words: Vec<&str> = line.split(' ').collect();
    words.insert(1, text(database));
    words
}

/// What it prints.
#[track_caller]
pub fn show(database: &Path, line: &str) -> String {
    on(database, line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// What it prints on a screen of so many columns.
#[track_caller]
pub fn show_on(columns: usize, database: &Path, line: &str) -> String {
    tool_on_screen(columns, &words(database, line)).expect(line)
}

/// Why it fails, in one line.
#[track_caller]
pub fn refused(database: &Path, line: &str) -> String {
    let error = on(database, line).expect_err(line);
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

/// Runs the command itself, in `directory`.
pub fn command(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hpcprof-rs"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the command starts")
}

/// What it said on standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8 path")
}

/// Panics unless `text` contains `part`.
#[track_caller]
pub fn has(text: &str, part: &str) {
    assert!(text.contains(part), "no `{part}` in: {text}");
}

/// Panics if `text` contains `part`.
#[track_caller]
pub fn lacks(text: &str, part: &str) {
    assert!(!text.contains(part), "`{part}` in: {text}");
}

/// A view as JSON.
pub fn view(database: &Path, view: &str, options: &[&str]) -> Value {
    let output = tool(&[&[view, text(database), "--format", "json"], options].concat());
    let output = output.expect("view");
    let mut deserializer = serde_json::Deserializer::from_str(&output);
    deserializer.disable_recursion_limit();
    let mut values = deserializer.into_iter();
    values.next().expect("a value").expect("valid JSON")
}

/// The child of that name among `nodes`.
pub fn named<'a>(nodes: &'a Value, name: &str) -> &'a Value {
    let nodes = nodes.as_array().expect("an array of nodes");
    let matching: Vec<&Value> = nodes.iter().filter(|n| n["name"] == name).collect();
    let all: Vec<&Value> = nodes.iter().map(|n| &n["name"]).collect();
    assert_eq!(matching.len(), 1, "`{name}` among {all:?}");
    matching[0]
}

/// The node at a path of names from the roots.
pub fn at_path<'a>(view: &'a Value, path: &[&str]) -> &'a Value {
    let mut node = named(&view["roots"], path[0]);
    for name in &path[1..] {
        node = named(&node["children"], name);
    }
    node
}

/// A JSON number of seconds as whole nanoseconds.
pub fn nanoseconds(value: &Value) -> i64 {
    (value.as_f64().expect("a number") * 1e9).round() as i64
}

/// Inclusive nanoseconds of a node.
pub fn inclusive(node: &Value, metric: &str) -> i64 {
    nanoseconds(&node["inclusive"][metric])
}

/// Exclusive nanoseconds of a node.
pub fn exclusive(node: &Value, metric: &str) -> i64 {
    nanoseconds(&node["exclusive"][metric])
}
