//! One profiled run of a program, and the database made from it.
//!
//! Input: a program and how to sample it. Output: its exit status and output, the measurement
//! directory, the views. Invariant: caller holds [`crate::tools::ExclusiveCores`] while it measures.

use crate::tools::{behind, c_program, check, folder, release, tool};
use crate::view::{Values, View, assert_close, value};
use hpc_formats::critical_path::CriticalPath;
use hpc_formats::process::{Process, SHORT_EXTENSION};
use hpc_formats::profile::{Profile, profiles};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Instant;

/// What else the machine does while a program is profiled. No truth may depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Nothing.
    Alone,
    /// A neighbour spins on one core, with the same right to it.
    BesideBusy,
    /// It takes 3 us of CPU time to read a clock.
    SlowClock,
    /// Programs that take a number of threads take six.
    Crowded,
}

impl Condition {
    /// The one that `HPCRUN_TEST_CONDITION` names for all programs of which a test does not state it.
    pub fn by_default() -> Condition {
        match std::env::var("HPCRUN_TEST_CONDITION").as_deref() {
            Err(_) | Ok("alone") => Condition::Alone,
            Ok("beside-busy") => Condition::BesideBusy,
            Ok("slow-clock") => Condition::SlowClock,
            Ok("crowded") => Condition::Crowded,
            Ok(other) => {
                panic!("HPCRUN_TEST_CONDITION={other}: alone, beside-busy, slow-clock, crowded")
            }
        }
    }
}

/// Whether tests have time for all that they can try. `cargo xtask nightly` sets the variable.
pub fn is_long() -> bool {
    std::env::var_os("HPCRUN_TEST_LONG").is_some()
}

/// A process that spins on one core until this is dropped, or two minutes at most.
struct Neighbour(Child);

impl Neighbour {
    fn start() -> Neighbour {
        let mut spin = Command::new("timeout");
        spin.args(["120", "sh", "-c", "while :; do :; done"]);
        Neighbour(shielded(spin).spawn().expect("timeout runs"))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // `timeout` passes this signal on, and what `kill` of the standard library sends it cannot.
        let _ = signal::kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// How to run a program under the profiler.
#[derive(Clone, Debug)]
pub struct Spec {
    folder: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    event: &'static str,
    lock_wait: bool,
    critical_path: Option<&'static str>,
    trace: Option<&'static str>,
    rate: u32,
    cores: String,
    source: &'static str,
    environment: Vec<(String, OsString)>,
    condition: Condition,
}

impl Spec {
    /// `program` at 200 Hz against 2 cores, in a fresh folder for `test`.
    pub fn new(test: &str, program: impl AsRef<Path>) -> Spec {
        Spec {
            folder: folder(test),
            program: program.as_ref().to_path_buf(),
            arguments: Vec::new(),
            event: "cpu-time",
            lock_wait: false,
            critical_path: None,
            trace: None,
            rate: 200,
            cores: "2".into(),
            source: "auto",
            environment: Vec::new(),
            condition: Condition::by_default(),
        }
    }

    /// A fixture of the workspace.
    pub fn fixture(test: &str, name: &str) -> Spec {
        Spec::new(test, release(name))
    }

    /// With these arguments.
    pub fn arguments(mut self, arguments: &[&str]) -> Spec {
        self.arguments = arguments.iter().map(|a| (*a).into()).collect();
        self
    }

    /// With a trace of at most this size.
    pub fn trace(mut self, size: &'static str) -> Spec {
        self.trace = Some(size);
        self
    }

    /// At `rate` Hz.
    pub fn rate(mut self, rate: u32) -> Spec {
        self.rate = rate;
        self
    }

    /// Sampling wall time.
    pub fn wall_time(mut self) -> Spec {
        self.event = "wall-time";
        self
    }

    /// Measuring waiting for locks, too.
    pub fn lock_wait(mut self) -> Spec {
        self.lock_wait = true;
        self
    }

    /// Tracking the critical path, too; `repeat`: empty, or as in `--critical-path=every:1s`.
    pub fn critical_path(mut self, repeat: &'static str) -> Spec {
        self.critical_path = Some(repeat);
        self
    }

    /// Against `n` cores.
    pub fn cores(mut self, n: usize) -> Spec {
        self.cores = n.to_string();
        self
    }

    /// Against the cores that the run's processes may use.
    pub fn all_cores(mut self) -> Spec {
        self.cores = "all".into();
        self
    }

    /// By this source of samples.
    pub fn source(mut self, source: &'static str) -> Spec {
        self.source = source;
        self
    }

    /// With this environment variable.
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Spec {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// While the machine does this.
    pub fn condition(mut self, condition: Condition) -> Spec {
        self.condition = condition;
        self
    }

    /// Runs it, whatever becomes of the program: up to three times, while the host of a virtual machine takes
    /// more than 1 % of a core away.
    pub fn run(&self) -> Run {
        for _ in 0..2 {
            let (begin, stolen) = (Instant::now(), stolen_seconds());
            let run = self.run_once();
            let lost = stolen_seconds() - stolen;
            if lost < 0.01 * begin.elapsed().as_secs_f64() {
                return run;
            }
            eprintln!("the host took {lost:.2} s away: {:?} runs again", self.program);
            let _ = std::fs::remove_dir_all(&run.measurements);
        }
        self.run_once()
    }

    fn run_once(&self) -> Run {
        let measurements = self.folder.join("measurements");
        let _neighbour = (self.condition == Condition::BesideBusy).then(Neighbour::start);
        let mut tool = tool("hpcrun-rs");
        if self.condition == Condition::SlowClock {
            tool.env("LD_PRELOAD", c_program("slow_clock.so"));
        }
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        let output = shielded(tool)
            .envs(environment)
            .current_dir(&self.folder)
            .arg("-o")
            .arg(&measurements)
            .args(["-e", &format!("{}@{}", self.event, self.rate)])
            .args(self.lock_wait.then_some(["-e", "lock-wait"]).into_iter().flatten())
            .args(self.critical_path.map(|_| "--faster=any=2"))
            .args(self.critical_path.map(|repeat| match repeat {
                "" => "--critical-path".to_owned(),
                repeat => format!("--critical-path={repeat}"),
            }))
            .args(self.trace.map(|size| format!("--trace={size}")))
            .args(["--cores", &self.cores, "--source", self.source, "--"])
            .arg(&self.program)
            .args(&self.arguments)
            .output()
            .expect("hpcrun-rs runs");
        Run { folder: self.folder.clone(), measurements, output }
    }

    /// Runs it and panics unless it succeeds.
    pub fn succeed(&self) -> Run {
        let run = self.run();
        assert!(
            run.output.status.success(),
            "{:?} under hpcrun-rs: {}\n{}{}",
            self.program,
            run.output.status,
            run.stdout(),
            run.stderr()
        );
        run
    }
}

/// What the host of a virtual machine has taken away from all cores so far (proc_stat(5)); 0 where the kernel
/// does not know.
pub fn stolen_seconds() -> f64 {
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().and_then(|all| all.split_whitespace().nth(8)?.parse().ok());
    ticks.map_or(0.0, |ticks: f64| ticks / TICKS)
}

/// The same command in a session of its own that the kernel prefers to other sessions, where that
/// is allowed, so that a neighbour's load disturbs the measurement less. The process stays the same.
fn shielded(command: Command) -> Command {
    const PREFER: &str = "(echo -20 >/proc/self/autogroup) 2>/dev/null; exec \"$@\"";
    let works = Command::new("setsid").arg("true").status();
    if !works.is_ok_and(|status| status.success()) {
        return command;
    }
    behind(&["setsid", "sh", "-c", PREFER, "sh"], &command)
}

/// A finished run.
#[derive(Debug)]
pub struct Run {
    /// Folder of the test.
    pub folder: PathBuf,
    /// The measurement directory.
    pub measurements: PathBuf,
    /// Exit status and output of `hpcrun-rs`, which are the program's.
    pub output: Output,
}

/// What a fixture says of itself.
#[derive(Clone, Debug, Deserialize)]
pub struct Truth {
    /// Site name to its seconds of `work` and `idleness`.
    pub sites: BTreeMap<String, Values>,
}

impl Truth {
    /// All truths in a program's output, one a line.
    pub fn all_in(output: &str) -> Vec<Truth> {
        let lines = output.lines().filter(|line| line.starts_with('{'));
        let truth = |line| serde_json::from_str(line).expect("a fixture prints its truth as JSON");
        lines.map(truth).collect()
    }

    /// The sum over some processes.
    pub fn sum(truths: &[Truth]) -> Truth {
        let mut sum: BTreeMap<String, Values> = BTreeMap::new();
        for (site, values) in truths.iter().flat_map(|truth| &truth.sites) {
            let all = sum.entry(site.clone()).or_default();
            for (metric, seconds) in values {
                *all.entry(metric.clone()).or_default() += seconds;
            }
        }
        Truth { sites: sum }
    }

    /// Seconds of a metric at a site.
    pub fn of(&self, site: &str, metric: &str) -> f64 {
        let values = self.sites.get(site);
        value(values.unwrap_or_else(|| panic!("no site {site}")), metric)
    }

    /// Seconds of a metric over all sites.
    pub fn total(&self, metric: &str) -> f64 {
        self.sites.values().map(|values| value(values, metric)).sum()
    }

    /// Where a view of samples at `rate` differs from the truth by more than 5 % of the site's work and
    /// idleness (which one transition that is seen late takes from the one and gives to the other) and two
    /// samples.
    pub fn faults(&self, view: &View, rate: u32) -> Vec<String> {
        let mut faults = Vec::new();
        for (site, values) in &self.sites {
            for metric in ["work", "idleness"] {
                let (truth, shown) = (value(values, metric), view.inclusive(site, metric));
                let of = truth.max(value(values, "work"));
                if (shown - truth).abs() > tolerance(of, rate) {
                    faults.push(format!("{site}, {metric}: {shown:.4} s, truth {truth:.4} s"));
                }
            }
        }
        faults
    }

    /// Panics unless each site's work and idleness in a view of samples at `rate` is within the share of the
    /// truth, beside a few samples: a site begins and ends in the middle of a period, some of them several
    /// times.
    pub fn assert_sites(&self, what: &str, view: &View, rate: u32, share: f64) {
        let period = 1.0 / f64::from(rate);
        for (site, values) in &self.sites {
            for metric in ["work", "idleness"] {
                let truth = value(values, metric);
                let allowed = share * truth + 5.0 * period;
                let what = format!("{what}: {site}, {metric}");
                assert_close(&what, view.inclusive(site, metric), truth, allowed);
            }
        }
    }
}

/// 5 % of so many seconds, and two samples.
pub fn tolerance(seconds: f64, rate: u32) -> f64 {
    0.05 * seconds + 2.0 / f64::from(rate)
}

/// What the profiles themselves count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded {
    /// Samples in the trees.
    pub samples: u64,
    /// Seconds that these stand for.
    pub working: f64,
    /// Seconds of CPU time that threads used while idle; not in the trees.
    pub idle: f64,
    /// Seconds that threads beyond the cores had to wait for one.
    pub oversubscribed: f64,
}

impl Run {
    /// Standard output.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// Standard error.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// The truths that the program printed, one a line.
    pub fn truths(&self) -> Vec<Truth> {
        Truth::all_in(&self.stdout())
    }

    /// The program's only truth.
    pub fn truth(&self) -> Truth {
        let mut truths = self.truths();
        assert_eq!(truths.len(), 1, "one truth in:\n{}", self.stdout());
        truths.remove(0)
    }

    /// Files of the measurement directory with this extension, in order.
    pub fn files(&self, extension: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.measurements).expect("there is a measurement folder");
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.expect("the folder is readable").path())
            .filter(|path| path.extension() == Some(OsStr::new(extension)))
            .collect();
        files.sort();
        files
    }

    /// The process images of the run.
    pub fn processes(&self) -> Vec<Process> {
        let files = [self.files("hpcproc"), self.files(SHORT_EXTENSION)].concat();
        let read = |path: &PathBuf| {
            let bytes = std::fs::read(path).expect("the process file is readable");
            let all = Process::parse_all(&bytes).into_iter();
            all.map(|process| process.expect("the process file is whole")).collect::<Vec<_>>()
        };
        let all: Vec<Process> = files.iter().flat_map(read).collect();
        assert!(all.iter().all(|process| !process.damaged), "{all:?}");
        all
    }

    /// The critical paths of the run's processes.
    pub fn critical_paths(&self) -> Vec<CriticalPath> {
        let read = |path: &PathBuf| {
            let bytes = std::fs::read(path).expect("the critical path is readable");
            CriticalPath::decode(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        self.files("hpcpath").iter().map(read).collect()
    }

    /// That of the only process.
    pub fn critical_path(&self) -> CriticalPath {
        let mut paths = self.critical_paths();
        assert_eq!(paths.len(), 1, "one process: {}", self.stderr());
        paths.remove(0)
    }

    /// What the profiles' headers count, over all threads.
    pub fn recorded(&self) -> Recorded {
        let mut sum = Recorded::default();
        for path in self.files("hpcprofile") {
            let bytes = std::fs::read(&path).expect("the profile is readable");
            for profile in profiles(&bytes) {
                let header = Profile::parse(profile).expect("the profile is whole").header;
                let period = header.period_ns as f64 * 1e-9;
                sum.samples += header.samples;
                sum.working += header.weight as f64 * period;
                sum.idle += header.idle_weight as f64 * period;
                sum.oversubscribed += header.oversubscribed * period;
            }
        }
        sum
    }

    /// Builds the database, once, and panics when that fails.
    pub fn database(&self) -> Database {
        self.try_database().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Builds the database, once; what is wrong when that fails.
    pub fn try_database(&self) -> Result<Database, String> {
        let path = self.folder.join("database");
        let output = build(&self.measurements, &path);
        if output.status.success() {
            return Ok(Database { path, output });
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("hpcprof-rs failed with {}\n{errors}", output.status))
    }
}

/// `hpcprof-rs MEASUREMENTS -o DATABASE`.
pub fn build(measurements: &Path, database: &Path) -> Output {
    tool("hpcprof-rs").arg(measurements).arg("-o").arg(database).output().expect("hpcprof-rs runs")
}

/// A database.
#[derive(Debug)]
pub struct Database {
    /// Its folder.
    pub path: PathBuf,
    /// What building it printed: the first screen and the warnings.
    pub output: Output,
}

impl Database {
    /// The text of a view.
    pub fn text(&self, view: &str, options: &[&str]) -> String {
        check(self.command(view).args(options))
    }

    /// A view as JSON, checked for conservation.
    pub fn view(&self, view: &str, options: &[&str]) -> View {
        let json = check(self.command(view).args(["--format", "json"]).args(options));
        let parsed = View::parse(&json);
        parsed.assert_conserved();
        parsed
    }

    /// The logical top-down view.
    pub fn top_down(&self) -> View {
        self.view("top-down", &[])
    }

    /// The logical bottom-up view.
    pub fn bottom_up(&self) -> View {
        self.view("bottom-up", &[])
    }

    fn command(&self, view: &str) -> Command {
        let mut command = tool("hpcprof-rs");
        command.arg(view).arg(&self.path);
        command
    }
}
