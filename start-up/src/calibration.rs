//! What starting up costs on one machine, and the file that keeps it (FORMATS.md).

use std::path::PathBuf;
use std::{env, fmt, fs};

/// First line of a file.
const HEAD: &str = "hpcrun-rs start-up 1";
/// The line above the rows.
const COLUMNS: &str = "construct\tplace\tstate\tworkers\tstart_up_ns\tdeviation_ns\texecutions";

/// Declares an enum whose variants have names in the file.
macro_rules! named {
    ($(#[$of_type:meta])* $type:ident { $($(#[$of_variant:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum $type {
            $($(#[$of_variant])* $variant,)*
        }

        impl $type {
            /// All of them.
            pub const ALL: &[$type] = &[$($type::$variant),*];

            /// Its name, for users and in files.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }
    };
}

named! {
    /// What starts parallel execution.
    Construct {
        /// `join` of work-stealing-rt, to as many leaves as workers.
        Join = "join",
        /// `scope` of work-stealing-rt with a spawned task for each further worker.
        Scope = "scope",
        /// `par_for` of work-stealing-rt.
        ParFor = "par_for",
        /// `ThreadPool::install` of work-stealing-rt: one task, which one worker runs.
        Install = "install",
        /// A parallel iterator on the published rayon-core.
        ParIter = "par_iter",
        /// `std::thread::scope` with a thread for each further worker.
        StdThread = "std::thread",
        /// A parallel region of GCC's OpenMP.
        Libgomp = "libgomp",
        /// A parallel region of LLVM's OpenMP.
        Libomp = "libomp",
        /// An algorithm of TBB; not calibrated.
        Tbb = "TBB",
        /// A task of a pool of the program's own; not calibrated.
        Pool = "pool",
    }
}

named! {
    /// Where a construct is executed.
    Place {
        /// On one of the workers.
        Worker = "worker",
        /// On a thread that is none of them, and waits meanwhile.
        Outside = "outside",
    }
}

named! {
    /// What the workers do when the execution begins.
    State {
        /// They have just ended the execution before.
        Awake = "awake",
        /// They sleep, after a pause.
        Asleep = "asleep",
    }
}

/// Start-up overhead of a construct.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    /// The construct.
    pub construct: Construct,
    /// Where it was executed.
    pub place: Place,
    /// The workers' state.
    pub state: State,
    /// Workers p, from 2.
    pub workers: u32,
    /// t_PS in nanoseconds, the median of the executions.
    pub start_up_ns: f64,
    /// Standard deviation, estimated by the median deviation from the median.
    pub deviation_ns: f64,
    /// Executions measured.
    pub executions: u32,
}

/// The start-up overheads of a machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Calibration {
    /// Host name.
    pub host: String,
    /// Model of its processors.
    pub cpu: String,
    /// Cores that the calibrating process could use.
    pub cores: u32,
    /// What was measured.
    pub rows: Vec<Row>,
}

impl Calibration {
    /// Of this machine, without rows.
    pub fn of_this_machine(cores: u32) -> Calibration {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
        Calibration {
            host: host(),
            cpu: plain(model.unwrap_or("unknown").trim_start_matches([' ', '\t', ':'])),
            cores,
            rows: Vec::new(),
        }
    }

    /// t_PS in nanoseconds, between two measured numbers of workers interpolated; `None` if that was not
    /// measured.
    pub fn start_up_ns(&self, construct: Construct, place: Place, state: State, workers: u32) -> Option<f64> {
        let rows = self.rows.iter();
        let rows = rows.filter(|r| (r.construct, r.place, r.state) == (construct, place, state));
        let (mut below, mut above) = (None::<&Row>, None::<&Row>);
        for row in rows {
            if row.workers <= workers && below.is_none_or(|b| b.workers < row.workers) {
                below = Some(row);
            }
            if row.workers >= workers && above.is_none_or(|a| a.workers > row.workers) {
                above = Some(row);
            }
        }
        let (below, above) = (below?, above?);
        let width = f64::from(above.workers - below.workers);
        let share = match width {
            0.0 => 0.0,
            width => f64::from(workers - below.workers) / width,
        };
        Some(below.start_up_ns + share * (above.start_up_ns - below.start_up_ns))
    }

    /// Reads a file's text. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Calibration, String> {
        let mut lines = text.lines();
        let mut line = || lines.next().unwrap_or_default();
        if line() != HEAD {
            return Err(format!("its first line is not `{HEAD}`"));
        }
        let mut field = |name: &str| {
            let found = line().strip_prefix(name).and_then(|rest| rest.strip_prefix('\t'));
            found.map(str::to_owned).ok_or(format!("it has no `{name}` where it should be"))
        };
        let mut read = Calibration {
            host: field("host")?,
            cpu: field("cpu")?,
            cores: field("cores")?.parse().map_err(|_| "its number of cores is no number")?,
            rows: Vec::new(),
        };
        if line() != COLUMNS {
            return Err("its columns are not those of this version".to_owned());
        }
        for (number, line) in (6..).zip(lines) {
            let row = parse_row(line).ok_or(format!("line {number} is no start-up overhead"))?;
            read.rows.push(row);
        }
        Ok(read)
    }
}

fn parse_row(line: &str) -> Option<Row> {
    fn of<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Option<T> {
        all.iter().copied().find(|one| name(*one) == text)
    }
    let time = |text: &str| text.parse().ok().filter(|t: &f64| t.is_finite());
    let fields: Vec<&str> = line.split('\t').collect();
    let [construct, place, state, workers, start_up, deviation, executions] = fields[..] else {
        return None;
    };
    Some(Row {
        construct: of(Construct::ALL, Construct::name, construct)?,
        place: of(Place::ALL, Place::name, place)?,
        state: of(State::ALL, State::name, state)?,
        workers: workers.parse().ok().filter(|p| *p >= 2)?,
        start_up_ns: time(start_up)?,
        deviation_ns: time(deviation)?,
        executions: executions.parse().ok()?,
    })
}

/// The file's text.
impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}\nhost\t{}\ncpu\t{}\ncores\t{}", self.host, self.cpu, self.cores)?;
        writeln!(f, "{COLUMNS}")?;
        for r in &self.rows {
            let (construct, place, state) = (r.construct.name(), r.place.name(), r.state.name());
            writeln!(
                f,
                "{construct}\t{place}\t{state}\t{}\t{:.0}\t{:.0}\t{}",
                r.workers, r.start_up_ns, r.deviation_ns, r.executions
            )?;
        }
        Ok(())
    }
}

/// The name of this host, as profiles have it.
pub fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname");
    plain(&name.unwrap_or_else(|_| "unknown".to_owned()))
}

/// The file of a host in the user's cache; `None` if neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn file(host: &str) -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    let allowed = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let name: String = host.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    Some(cache.join("hpcrun-rs/start-up").join(format!("{name}.tsv")))
}

/// One line without tabs.
fn plain(text: &str) -> String {
    let text = text.trim().chars();
    text.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Calibration {
        let row = |state, workers, start_up_ns| Row {
            construct: Construct::ParFor,
            place: Place::Outside,
            state,
            workers,
            start_up_ns,
            deviation_ns: 12.0,
            executions: 640,
        };
        Calibration {
            host: "here".to_owned(),
            cpu: "a processor".to_owned(),
            cores: 8,
            rows: vec![
                row(State::Awake, 2, 1000.0),
                row(State::Awake, 4, 2000.0),
                row(State::Awake, 8, 6000.0),
                row(State::Asleep, 2, 9000.0),
            ],
        }
    }

    #[test]
    fn a_file_is_read_back() {
        let known = known();
        assert_eq!(Calibration::parse(&known.to_string()), Ok(known));
    }

    #[test]
    fn damaged_files_are_refused() {
        let text = known().to_string();
        assert!(Calibration::parse("").is_err());
        for (from, to) in [
            ("start-up 1", "start-up 2"),
            ("cores\t8", "cores\tx"),
            ("cpu\t", "gpu\t"),
            ("par_for", "par_far"),
            ("outside", "inside"),
            ("\t2\t", "\t1\t"),
            ("1000", "inf"),
            ("\t640", ""),
        ] {
            let damaged = text.replacen(from, to, 1);
            assert_ne!(damaged, text);
            assert!(Calibration::parse(&damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn start_ups_are_interpolated_but_not_extrapolated() {
        let known = known();
        let of = |state, p| known.start_up_ns(Construct::ParFor, Place::Outside, state, p);
        assert_eq!(of(State::Awake, 2), Some(1000.0));
        assert_eq!(of(State::Awake, 3), Some(1500.0));
        assert_eq!(of(State::Awake, 6), Some(4000.0));
        assert_eq!(of(State::Awake, 8), Some(6000.0));
        assert_eq!(of(State::Awake, 9), None);
        assert_eq!(of(State::Asleep, 2), Some(9000.0));
        assert_eq!(of(State::Asleep, 3), None);
        assert_eq!(known.start_up_ns(Construct::Join, Place::Outside, State::Awake, 2), None);
    }

    #[test]
    fn a_host_names_one_file() {
        if let Some(path) = file("../x/y") {
            assert!(path.ends_with("hpcrun-rs/start-up/.._x_y.tsv"), "{path:?}");
        }
    }
}
