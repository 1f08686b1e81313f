//! `cargo xtask synthetic`: measurement directories of any size, with totals that are known exactly, for
//! benchmarks of the merge.
//!
//! One duty: choose which thread has which values, write the files of each run, and print the totals.
//! [`program`] makes the contexts, [`profile`] the bytes of a thread. Equal options give equal files.

mod profile;
mod program;

use fastrand::Rng;
use hpc_formats::process::{self, CpuTimes, End, Entry, Module, Stamp, Start};
use profile::{ProfileWriter, Thread, Values};
use program::{BUILD_ID, Context, EXECUTABLE, MODULE, Program};
use serde_json::{Value, json};
use std::io::Error;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

/// Sampling period, nanoseconds.
const PERIOD_NS: u64 = 5_000_000;
/// Consecutive contexts, about a path, that a thread has all or none of.
const BLOCK: usize = 16;
/// Samples of a context in a thread, unless told otherwise.
const MEAN_SAMPLES: u64 = 4;
/// Nanoseconds between the starts of two runs.
const RUN_DISTANCE_NS: u64 = 600_000_000_000;
/// Hosts of the runs, by turns; after each turn all were booted anew.
const HOSTS: u32 = 16;
/// The wall clock at the start of the first run: 2026-01-01.
const FIRST_START_NS: u64 = 1_767_225_600_000_000_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Threads of a run, over all its processes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    threads: u32,
    /// Different contexts of the program
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    contexts: u32,
    /// Part of the contexts in which a thread has values, from 0 to 1; each context has some in some thread
    #[arg(long, default_value_t = 0.2, value_parser = share)]
    share: f64,
    /// Frames of a call path, within five
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1000))]
    depth: u32,
    /// Procedures of the program
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    procedures: u32,
    /// Samples of a thread; each of its contexts has at least one [default: four for each of its contexts]
    #[arg(long)]
    samples_per_thread: Option<u64>,
    /// Processes of a run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    processes: u32,
    /// Runs: with more than one, DIR has a measurement directory for each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9999))]
    runs: u32,
    /// What chance starts from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory to write, which must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

fn share(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.0..=1.0).contains(&number) {
        true => Ok(number),
        false => Err("not between 0 and 1".to_owned()),
    }
}

/// What the profiles have in all.
#[derive(Clone, Copy, Default)]
struct Totals {
    samples: u64,
    work_ns: u64,
    overhead_ns: u64,
    idleness_ns: u64,
    profiles: u64,
    bytes: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.samples += other.samples;
        self.work_ns += other.work_ns;
        self.overhead_ns += other.overhead_ns;
        self.idleness_ns += other.idleness_ns;
        self.profiles += other.profiles;
        self.bytes += other.bytes;
    }
}

impl Totals {
    fn json(&self) -> Value {
        json!({
            "samples": self.samples,
            "work_ns": self.work_ns,
            "overhead_ns": self.overhead_ns,
            "idleness_ns": self.idleness_ns,
            "profiles": self.profiles,
            "bytes": self.bytes,
        })
    }
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    println!("{:#}", write(options)?);
    Ok(())
}

/// Writes all runs; returns their totals.
fn write(options: &Options) -> Result<Value, String> {
    if options.processes > options.threads {
        return Err("each process has a thread: give fewer --processes".to_owned());
    }
    let program = Program::new(
        options.contexts,
        options.depth,
        options.procedures,
        &mut Rng::with_seed(options.seed),
    );
    let structure = program.structure().encode();
    let mut all = Totals::default();
    let mut runs = Vec::new();
    for run in 0..options.runs {
        let name = format!("run-{:04}", run + 1);
        let directory = match options.runs {
            1 => options.output.clone(),
            _ => options.output.join(&name),
        };
        let totals = write_run(options, &program, &structure, run, &directory)
            .map_err(|e| format!("{}: {e}", directory.display()))?;
        all += totals;
        let mut row = totals.json();
        row["directory"] = directory.to_string_lossy().into();
        runs.push(row);
    }
    let mut report = all.json();
    report["contexts"] = program.contexts.len().into();
    report["runs"] = runs.into();
    Ok(report)
}

fn write_run(
    options: &Options,
    program: &Program,
    structure: &[u8],
    run: u32,
    directory: &Path,
) -> Result<Totals, Error> {
    if directory.exists() {
        return Err(Error::other("exists: give a directory that does not"));
    }
    std::fs::create_dir_all(directory.join("structure"))?;
    std::fs::write(directory.join("structure/app.hpcstruct"), structure)?;
    let mut totals = Totals::default();
    for index in 0..options.processes {
        let first = |process: u32| {
            let threads = u64::from(options.threads) * u64::from(process);
            (threads / u64::from(options.processes)) as u32
        };
        let process = Process {
            run,
            pid: 1000 + index * options.threads,
            image: u64::from(run + 1) * RUN_DISTANCE_NS + u64::from(index) * 1_000_000,
            threads: first(index)..first(index + 1),
        };
        totals += process.write(options, program, directory)?;
    }
    Ok(totals)
}

/// A process of a run.
struct Process {
    run: u32,
    pid: u32,
    image: u64,
    /// Its threads, counted over all processes of the run.
    threads: std::ops::Range<u32>,
}

impl Process {
    fn write(
        &self,
        options: &Options,
        program: &Program,
        directory: &Path,
    ) -> Result<Totals, Error> {
        let mut totals = Totals::default();
        let mut choice = Choice::new(options, program);
        let mut bytes = Vec::new();
        let mut longest_ns = 0;
        for thread in self.threads.clone() {
            let ordinal = thread - self.threads.start + 1;
            let (own, written) = choice.thread(self, thread, ordinal, bytes);
            let name = format!("thread-{}-{}-{ordinal}.hpcprofile", self.pid, self.image);
            std::fs::write(directory.join(name), &written)?;
            longest_ns = longest_ns.max(own.work_ns + own.overhead_ns);
            totals += own;
            bytes = written;
        }
        let name = format!("process-{}-{}.hpcproc", self.pid, self.image);
        let file = self.file(totals, longest_ns);
        std::fs::write(directory.join(name), file)?;
        Ok(totals)
    }

    /// The process file. The run took as long as its effort on one core for each thread.
    fn file(&self, totals: Totals, longest_ns: u64) -> Vec<u8> {
        let cores = self.threads.len() as u32;
        let work_ns = totals.work_ns + totals.overhead_ns;
        let wall_ns = (work_ns + totals.idleness_ns).div_ceil(u64::from(cores));
        let start = Start {
            pid: self.pid,
            ppid: 1,
            image: self.image,
            realtime_ns: FIRST_START_NS + self.image,
            executable: EXECUTABLE.to_owned(),
            arguments: vec![EXECUTABLE.to_owned(), self.run.to_string()],
            directory: "/".to_owned(),
            event: "cpu-time".to_owned(),
            source: "posix-timer".to_owned(),
            period_ns: PERIOD_NS,
            cores,
            host: format!("host-{:02}", self.run % HOSTS),
            boot: format!("synthetic-boot-{}", self.run / HOSTS),
            ..Start::default()
        };
        let module = Module {
            id: MODULE,
            path: EXECUTABLE.to_owned(),
            build_id: BUILD_ID.to_vec(),
            stamp: Stamp::default(),
            copy: String::new(),
        };
        let end = End {
            monotonic_ns: self.image + wall_ns.max(longest_ns),
            reason: "exit".to_owned(),
            cores,
            threads: cores,
            cpu: CpuTimes { process_ns: work_ns, ..CpuTimes::default() },
            ..End::default()
        };
        let entries = [Entry::Start(start), Entry::Module(module), Entry::End(end)];
        let mut file = process::encode_header().to_vec();
        file.extend(entries.iter().flat_map(process::encode));
        file
    }
}

/// Chooses and writes the contexts of one thread after another.
struct Choice<'a> {
    options: &'a Options,
    contexts: &'a [Context],
    /// Whether the thread has values in a context.
    has_values: Vec<bool>,
    /// Whether it has values there or below.
    is_needed: Vec<bool>,
    /// A context's record.
    records: Vec<u32>,
}

impl<'a> Choice<'a> {
    fn new(options: &'a Options, program: &'a Program) -> Self {
        let contexts = &program.contexts;
        Choice {
            options,
            contexts,
            has_values: vec![false; contexts.len()],
            is_needed: vec![false; contexts.len()],
            records: vec![0; contexts.len()],
        }
    }

    /// The profile of a thread of `process`, number `thread` of the run, in the memory of another.
    fn thread(
        &mut self,
        process: &Process,
        thread: u32,
        ordinal: u32,
        bytes: Vec<u8>,
    ) -> (Totals, Vec<u8>) {
        let seed = self.options.seed ^ u64::from(process.run + 1) << 32 ^ u64::from(thread) << 1;
        let mut random = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let weight = self.choose(thread, ordinal, &mut random);
        let chosen = self.has_values.iter().filter(|has| **has).count() as u64;
        let wanted = self.options.samples_per_thread;
        let further = wanted.unwrap_or(chosen * MEAN_SAMPLES).saturating_sub(chosen);

        let mut profile = ProfileWriter::begin(bytes);
        // The first thread begins at the program's entry, and `main` creates the others, in its record 2.
        let root = match ordinal {
            1 => profile.entry(),
            _ => profile.anchor(1, 2),
        };
        let mut totals = Totals { profiles: 1, ..Totals::default() };
        for (id, context) in self.contexts.iter().enumerate() {
            if !self.is_needed[id] {
                continue;
            }
            let values = self.has_values[id].then(|| {
                let samples = 1 + further * u64::from(context.weight) / weight.max(1);
                // Quarters of a period are whole nanoseconds, so sums are exact in any order.
                let quarters = random.u64(..4) * samples;
                let time_ns = samples * PERIOD_NS;
                totals.samples += samples;
                totals.idleness_ns += quarters * PERIOD_NS / 4;
                match Program::is_overhead(context) {
                    true => totals.overhead_ns += time_ns,
                    false => totals.work_ns += time_ns,
                }
                Values { samples, idleness: quarters as f64 / 4.0 }
            });
            let parent = match id {
                0 => root,
                _ => self.records[context.parent as usize],
            };
            self.records[id] = match (id, ordinal) {
                (0, 2..) => root,
                _ => profile.frame(parent, context.address, values),
            };
        }
        let own = Thread { pid: process.pid, image: process.image, ordinal };
        let bytes = profile.end(own, PERIOD_NS);
        totals.bytes = bytes.len() as u64;
        (totals, bytes)
    }

    /// Chooses the contexts of a thread; returns the sum of their weights.
    fn choose(&mut self, thread: u32, ordinal: u32, random: &mut Rng) -> u64 {
        let mut weight = 0;
        self.is_needed.fill(false);
        // All threads know `main`.
        self.is_needed[0] = true;
        for (block, has_values) in self.has_values.chunks_mut(BLOCK).enumerate() {
            let own = block as u32 % self.options.threads == thread;
            has_values.fill(random.f64() < self.options.share || own);
        }
        // The other threads' paths continue `main`: none ends there.
        self.has_values[0] &= ordinal == 1;
        for (id, context) in self.contexts.iter().enumerate().rev() {
            if self.has_values[id] {
                weight += u64::from(context.weight);
                self.is_needed[id] = true;
            }
            if self.is_needed[id] {
                self.is_needed[context.parent as usize] = true;
            }
        }
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use hpcprof_rs::cli::Cli;
    use hpcprof_rs::render::style::Style;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn generate(arguments: &str, output: &Path) -> Value {
        let words = ["synthetic"].into_iter().chain(arguments.split(' '));
        let mut options =
            Command::try_parse_from(words.chain(["-o", "unset"])).expect("options").options;
        options.output = output.to_owned();
        write(&options).expect("a new directory")
    }

    fn hpcprof(arguments: &[&Path], options: &[&str]) -> String {
        let words = ["hpcprof-rs"].into_iter().chain(options.iter().copied());
        let words = words.map(Path::new).chain(arguments.iter().copied());
        let mut cli = Cli::try_parse_from(words).expect("command line");
        cli.build.no_cache = true;
        let style = Style { width: 140, line: 140, colour: false };
        let mut out = Vec::new();
        hpcprof_rs::run::run(cli, style, &mut out).expect("hpcprof-rs");
        String::from_utf8(out).expect("UTF-8")
    }

    fn nanoseconds(seconds: &Value) -> u64 {
        (seconds.as_f64().expect("seconds") * 1e9).round() as u64
    }

    #[test]
    fn hpcprof_reads_what_the_totals_say() {
        let temp = tempfile::tempdir().expect("temporary directory");
        let (measurements, database) = (temp.path().join("m"), temp.path().join("db"));
        let shape = "--threads 12 --contexts 700 --processes 2 --runs 3 --share 0.1";
        let truth = generate(shape, &measurements);
        let runs = truth["runs"].as_array().expect("runs");
        let directories = runs.iter().map(|r| r["directory"].as_str().expect("a path"));
        let directories: Vec<&Path> = directories.map(Path::new).collect();
        assert_eq!((directories.len(), &truth["profiles"]), (3, &json!(36)));
        let output = [Path::new("-o"), &database];
        hpcprof(&[&directories, output.as_slice()].concat(), &[]);

        let options = ["top-down", "--format", "json", "--flat", "--lines"];
        let view: Value = serde_json::from_str(&hpcprof(&[&database], &options)).expect("JSON");
        for (metric, total) in
            [("work", "work_ns"), ("overhead:sync", "overhead_ns"), ("idleness", "idleness_ns")]
        {
            let read = nanoseconds(&view["totals"][metric]);
            assert_eq!(Some(read), truth[total].as_u64(), "{metric}");
            assert!(read > 0, "{metric}");
        }
        let quality = &view["quality"];
        assert_eq!(quality["samples"], truth["samples"]);
        assert_eq!(quality["rooted"], truth["samples"]);
        assert_eq!((&quality["lost"], &quality["missing"]), (&json!({}), &json!([])));
        // A line is where a path ends: as many as there are contexts.
        let nodes = view["nodes"].as_array().expect("nodes");
        let lines = nodes.iter().filter(|n| n["kind"] == "line").count();
        assert_eq!(lines as u64, 700);
    }

    #[test]
    fn a_seed_gives_the_same_files_and_an_existing_directory_is_refused() {
        let temp = tempfile::tempdir().expect("temporary directory");
        let [a, b, c] = ["a", "b", "c"].map(|name| temp.path().join(name));
        generate("--threads 3 --contexts 50", &a);
        generate("--threads 3 --contexts 50", &b);
        generate("--threads 3 --contexts 50 --seed 2", &c);
        let content = |directory: &Path| {
            let entries = std::fs::read_dir(directory).expect("directory");
            let paths = entries.map(|e| e.expect("entry").path());
            let mut files: Vec<_> = paths
                .filter(|p| p.is_file())
                .map(|p| (p.file_name().map(ToOwned::to_owned), std::fs::read(&p).expect("file")))
                .collect();
            files.sort();
            files
        };
        assert_eq!(content(&a).len(), 4);
        assert!(content(&a) == content(&b));
        assert!(content(&a) != content(&c));
        let words = ["synthetic", "-o", a.to_str().expect("UTF-8")];
        let options = Command::try_parse_from(words).expect("options").options;
        let problem = write(&options).expect_err("it exists");
        assert!(problem.contains("give a directory that does not"), "{problem}");
    }
}
