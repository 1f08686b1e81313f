//! The command line.

use crate::failure::Failure;
use clap::Parser;
use hpc_formats::critical_path::MESSAGE;
use hpc_formats::environment::{ALL_CORES, MAX_RATE};
use hpc_formats::message;
use hpc_formats::profile::LOCK_WAIT;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

/// Samples a program and keeps, for every logical calling context, its work and the idleness
/// that it caused on other cores.
#[derive(Debug, Parser)]
#[command(
    name = "hpcrun-rs",
    version,
    after_help = "The result is a measurement directory; `hpcprof-rs DIR` turns it into a database and \
     views.",
    after_long_help = "Examples:\n  \
        hpcrun-rs ./target/release/solver input.dat\n  \
        hpcrun-rs -e cpu-time@1000 -o run1 ./solver        1000 samples per CPU second and thread\n  \
        hpcrun-rs --report ./solver                        run, then print the report\n  \
        hpcrun-rs calibrate                                measure what starting tasks costs here\n  \
        hpcrun-rs sweep --workers 1,2,4 -- ./solver        where the speed-up is lost\n\n\
        Exit status: the program's own; 125 when hpcrun-rs itself fails, 126 when the program cannot\n\
        be executed, 127 when it is not found."
)]
pub(crate) struct Options {
    /// What is sampled: `cpu-time` or `wall-time`, with `@RATE` in samples per second and thread
    /// (default 200, at most 20000). `lock-wait` beside it charges the time that threads wait for a lock to
    /// the context that holds the lock.
    #[arg(short, long, value_name = "NAME[@RATE]")]
    pub(crate) event: Vec<String>,

    /// Measurement directory; must not exist or be empty
    /// (default: hpcrun-PROGRAM-measurements, then -2, -3 …).
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Cores n that idleness counts: a number, `all` that the run's processes on a host may use at that
    /// moment (affinity and cgroup quota), or `workers` of the task runtime.
    #[arg(long, value_name = "N|all|workers", default_value = "all")]
    pub(crate) cores: CoresOption,

    /// What delivers the samples; `auto` takes the POSIX timer up to four fifths of the kernel's tick
    /// rate (200 of 250 Hz), above it perf where that is allowed, else the POSIX timer, weighted.
    #[arg(long, value_name = "SOURCE", default_value = "auto",
          value_parser = ["auto", "perf-sigtrap", "perf-signal", "posix-timer"])]
    pub(crate) source: String,

    /// Wait for the program, then build the database and print the report to stdout.
    #[arg(long)]
    pub(crate) report: bool,

    /// Track the critical path, too: the longest chain of CPU time over all threads, which bounds the time on
    /// any number of cores. Prints its summary at the end. With `every:TIME` (`10s`, `5m`, `1h`) it is also
    /// written every so often while the program runs. With `signal:USR1` or `signal:USR2` it is tracked from
    /// one such signal to the next, and written then. With `edges` the costs of edges are a part of the path,
    /// and take part in its choice: 150 ns, or those of `edges:TIME` (`800ns`, `10us`), for any edge but a
    /// spawn, which costs twice that. Commas join these.
    #[arg(long, value_name = "every:TIME,signal:NAME,edges[:TIME]", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    pub(crate) critical_path: Option<Tracking>,

    /// With --critical-path: what the span and the time would be if a procedure, or marked code, was so many
    /// times as fast, exactly. One factor a run; `hpcprof-rs critical-path --faster` gives bounds for others.
    #[arg(long, value_name = "PROCEDURE=FACTOR", requires = "critical_path",
          value_parser = hpc_formats::critical_path::faster)]
    pub(crate) faster: Vec<(String, f64)>,

    /// Keep, too, what each thread does when: its state and context at each sample and at each change of
    /// state. At most so many bytes a process (default 64M; K, M, G); when it is full, the newest replace the
    /// oldest.
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "64M",
          value_parser = trace_size)]
    pub(crate) trace: Option<u64>,

    /// Say nothing unless something is wrong.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The program and its arguments.
    #[arg(value_name = "PROGRAM [ARGS]", required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,
}

/// `--cores`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CoresOption {
    /// As many as the run's processes may use.
    All,
    /// As many as workers.
    Workers,
    /// This many.
    Number(u32),
}

impl CoresOption {
    /// n for the sampler (ARCHITECTURE.md: terms).
    pub(crate) fn number(self) -> u32 {
        match self {
            CoresOption::Number(n) => n,
            CoresOption::Workers => 0,
            CoresOption::All => ALL_CORES,
        }
    }
}

impl std::str::FromStr for CoresOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(CoresOption::All),
            "workers" => Ok(CoresOption::Workers),
            _ => match text.parse() {
                Ok(n) if n > 0 => Ok(CoresOption::Number(n)),
                _ => Err("expected a number of at least 1, `all` or `workers`".to_owned()),
            },
        }
    }
}

/// How the critical path is tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tracking {
    /// After how many seconds it is written; 0: never.
    pub(crate) every: u32,
    /// The number of the signal that starts and stops the tracking; 0: it is tracked from the start.
    pub(crate) signal: i32,
    /// What an edge costs on the path, in nanoseconds; 0: nothing.
    pub(crate) edges: u64,
}

impl std::str::FromStr for Tracking {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut wanted = Tracking::default();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            match part.split_once(':') {
                Some(("every", time)) => wanted.every = seconds(time)?,
                Some(("signal", "USR1")) => wanted.signal = Signal::SIGUSR1 as i32,
                Some(("signal", "USR2")) => wanted.signal = Signal::SIGUSR2 as i32,
                Some(("signal", _)) => return Err("the signal is USR1 or USR2".to_owned()),
                Some(("edges", time)) => wanted.edges = nanoseconds(time)?,
                None if part == "edges" => wanted.edges = MESSAGE,
                _ => {
                    return Err("expected `every:TIME`, `signal:NAME`, `edges` or several of them".to_owned());
                }
            }
        }
        Ok(wanted)
    }
}

/// The cost of an edge. Twice that of all edges that a run can have is a number, still.
fn nanoseconds(time: &str) -> Result<u64, String> {
    let units = [("ns", 1), ("us", 1000), ("ms", 1_000_000)];
    let wanted = "expected `edges:` and a time up to 1000ms, such as 800ns or 10us";
    amount(time, &units, 1..=1_000_000_000, wanted)
}

/// Bytes of a trace.
fn trace_size(text: &str) -> Result<u64, String> {
    let units = [("", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)];
    amount(text, &units, 64 << 10..=16 << 30, "expected a size from 64K to 16G, such as 64M")
}

fn seconds(time: &str) -> Result<u32, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let wanted = "expected `every:` and a time such as 10s, 5m or 1h";
    amount(time, &units, 1..=u64::from(u32::MAX), wanted).map(|seconds| seconds as u32)
}

/// A number with one of these units, in a range; the error says what is `wanted`.
fn amount(
    text: &str,
    units: &[(&str, u64)],
    range: RangeInclusive<u64>,
    wanted: &str,
) -> Result<u64, String> {
    let amount = units.iter().find_map(|(unit, factor)| {
        let number = text.strip_suffix(unit)?.parse::<u64>().ok()?;
        number.checked_mul(*factor).filter(|amount| range.contains(amount))
    });
    amount.ok_or_else(|| wanted.to_owned())
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Events {
    /// What is sampled.
    pub(crate) sampled: Event,
    /// Whether waiting for locks is measured, too.
    pub(crate) lock_wait: bool,
}

/// An event and its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) rate: u32,
}

impl Options {
    /// What is saved of procedures that are faster; 0: nothing was asked.
    pub(crate) fn saved(&self) -> Result<u32, Failure> {
        let mut factors = self.faster.iter().map(|(_, factor)| *factor);
        let first = factors.next();
        if factors.any(|factor| Some(factor) != first) {
            let problem = "--faster: a run follows one factor; give the others to hpcprof-rs critical-path";
            return Err(Failure::own(problem.to_owned()));
        }
        Ok(first.and_then(hpc_formats::critical_path::saved).unwrap_or(0))
    }

    /// What was asked of procedures that are faster, as arguments.
    pub(crate) fn faster(&self) -> impl Iterator<Item = String> + use<'_> {
        self.faster.iter().map(|(name, factor)| format!("--faster={name}={factor}"))
    }

    /// The events, checked.
    pub(crate) fn events(&self) -> Result<Events, Failure> {
        parse_events(&self.event).map_err(Failure::Own)
    }
}

fn parse_events(texts: &[String]) -> Result<Events, String> {
    let (locks, sampled): (Vec<&str>, Vec<&str>) =
        texts.iter().map(String::as_str).partition(|text| *text == LOCK_WAIT);
    let sampled = match sampled[..] {
        [] => "cpu-time",
        [event] => event,
        [first, second, ..] => {
            return Err(format!("-e {first:?} and -e {second:?}: one event is sampled; leave one out"));
        }
    };
    Ok(Events { sampled: parse_event(sampled)?, lock_wait: !locks.is_empty() })
}

fn parse_event(text: &str) -> Result<Event, String> {
    let (name, rate) = match text.split_once('@') {
        None => (text, 200),
        Some((name, rate)) => {
            let rate = rate.parse::<u32>().ok().filter(|r| (1..=MAX_RATE).contains(r));
            let rate = rate.ok_or_else(|| {
                format!("-e {text:?}: the rate after @ must be 1 to {MAX_RATE} samples per second")
            })?;
            (name, rate)
        }
    };
    let name = match name {
        "cpu-time" => "cpu-time",
        "wall-time" => "wall-time",
        _ => {
            return Err(format!(
                "-e {name:?}: unknown event; this version samples cpu-time and wall-time, and measures \
                 lock-wait"
            ));
        }
    };
    Ok(Event { name, rate })
}

/// Prints clap's message. Help and version succeed; any other message is a failure of the launcher (125).
pub fn explain(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // The text quotes the user's input, control characters included.
        let text = error.render().to_string();
        let text = text.replace(|c: char| c.is_control() && c != '\n', "?");
        message!("{}", text.trim_end());
        return ExitCode::from(125);
    }
    // Nothing to do if the terminal is gone.
    let _ = error.print();
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events() {
        let event = |name, rate| Event { name, rate };
        assert_eq!(parse_event("cpu-time"), Ok(event("cpu-time", 200)));
        assert_eq!(parse_event("wall-time@1000"), Ok(event("wall-time", 1000)));
        for bad in ["cpu-time@", "cpu-time@0", "cpu-time@x", "cycles", "", "cpu-time@99999999"] {
            assert!(parse_event(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn waiting_for_locks_goes_with_one_sampled_event() {
        let parse = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            parse_events(&texts).map(|e| (e.sampled.name, e.sampled.rate, e.lock_wait))
        };
        assert_eq!(parse(&[]), Ok(("cpu-time", 200, false)));
        assert_eq!(parse(&["lock-wait"]), Ok(("cpu-time", 200, true)));
        let both = Ok(("wall-time", 9, true));
        assert_eq!(parse(&["wall-time@9", "lock-wait"]), both);
        assert_eq!(parse(&["lock-wait", "wall-time@9"]), both);
        assert!(parse(&["cpu-time", "wall-time"]).is_err());
        assert!(parse(&["lock-wait@5"]).is_err());
    }

    #[test]
    fn the_programs_own_options_are_its_own() {
        let o = Options::parse_from(["hpcrun-rs", "-e", "cpu-time@9", "prog", "-e", "--report"]);
        assert_eq!(o.program, ["prog", "-e", "--report"]);
        assert!(!o.report);
        let o = Options::parse_from(["hpcrun-rs", "--", "prog", "--", "x"]);
        assert_eq!(o.program, ["prog", "--", "x"]);
    }

    #[test]
    fn what_is_done_while_the_program_runs() {
        let wanted = |text: &str| text.parse().map(|w: Tracking| (w.every, w.signal));
        assert_eq!(wanted(""), Ok((0, 0)));
        assert_eq!(wanted("every:10s"), Ok((10, 0)));
        assert_eq!(wanted("every:2m"), Ok((120, 0)));
        assert_eq!(wanted("signal:USR1"), Ok((0, 10)));
        assert_eq!(wanted("signal:USR2,every:1h"), Ok((3600, 12)));
        for bad in [
            "10s",
            "every:",
            "every:s",
            "every:0s",
            "every:10",
            "every:-1s",
            "every:9999999h",
            "every:1s,",
            "signal:KILL",
            "signal:",
            "edges:",
            "edges:0us",
            "edges:2s",
            "edges:1001ms",
        ] {
            assert!(wanted(bad).is_err(), "{bad}");
        }
        let o = Options::parse_from(["hpcrun-rs", "--critical-path", "prog"]);
        for (text, cost) in [("edges", 150), ("edges:800ns", 800), ("every:1s,edges:10us", 10_000)] {
            assert_eq!(text.parse::<Tracking>().map(|w| w.edges), Ok(cost));
        }
        let wanted = Some(Tracking::default());
        assert_eq!((o.critical_path, o.program.len()), (wanted, 1));
    }

    #[test]
    fn sizes_of_traces() {
        let sizes = ["64K", "1000000", "3M", "2G"].map(|text| trace_size(text).ok());
        assert_eq!(sizes, [Some(64 << 10), Some(1_000_000), Some(3 << 20), Some(2 << 30)]);
        for bad in ["", "K", "63K", "17G", "1T", "-1M", "1.5M", "64m", "99999999999999999999"] {
            assert!(trace_size(bad).is_err(), "{bad}");
        }
        let o = Options::parse_from(["hpcrun-rs", "--trace", "prog"]);
        assert_eq!((o.trace, o.program.len()), (Some(64 << 20), 1));
    }

    #[test]
    fn cores() {
        assert_eq!("all".parse(), Ok(CoresOption::All));
        assert_eq!("workers".parse(), Ok(CoresOption::Workers));
        assert_eq!("3".parse(), Ok(CoresOption::Number(3)));
        assert!("0".parse::<CoresOption>().is_err());
    }
}
