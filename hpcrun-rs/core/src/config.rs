//! Settings that the launcher passes to the preloaded library through the environment.

use hpc_formats::critical_path::PARTS;
use hpc_formats::environment::{
    ALL_CORES, ENV_CORES, ENV_CRITICAL_PATH, ENV_EMPTY_HANDLER, ENV_EVENT, ENV_JOB, ENV_LATENCY,
    ENV_LOCK_WAIT, ENV_OUTPUT, ENV_RATE, ENV_SOURCE, ENV_TRACE, MAX_RATE,
};
use hpc_formats::numbered;
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

numbered! {
    Event {
        CpuTime = 1, "cpu-time";
        WallTime = 2, "wall-time";
    }
}

numbered! {
    SourceKind {
        /// perf task clock with a synchronous SIGTRAP.
        PerfSigtrap = 1, "perf-sigtrap";
        /// perf task clock with a queued signal.
        PerfSignal = 2, "perf-signal";
        /// POSIX per-thread timer.
        PosixTimer = 3, "posix-timer";
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracking {
    /// Seconds after which it is written again and again; 0: only at the end.
    pub every: u64,
    /// The signal that starts and stops it; 0: it starts with the program.
    pub signal: i32,
    pub faster: u32,
    /// What an edge costs that is no spawn, in nanoseconds, if that is a part of the path; else 0.
    pub edges: u64,
}

impl Tracking {
    fn parse(text: &str) -> Option<Tracking> {
        let mut numbers = text.split(' ').map(|number| number.parse::<u64>().ok());
        let tracking = Tracking {
            every: numbers.next()??,
            signal: i32::try_from(numbers.next()??).ok()?,
            faster: numbers.next()??.try_into().ok().filter(|parts| *parts <= PARTS)?,
            edges: numbers.next()??,
        };
        numbers.next().is_none().then_some(tracking)
    }
}

#[derive(Clone, Debug)]
pub struct Config {
    pub output: OsString,
    pub event: Event,
    /// Samples per second and thread.
    pub rate: u32,
    /// The number of cores, n; 0: the peak number of workers; [`ALL_CORES`]: all that may be used.
    pub cores: u32,
    /// The requested source; `None`: the best that the system allows.
    pub source: Option<SourceKind>,
    /// Whether waiting for locks is charged to the contexts that hold them.
    pub lock_wait: bool,
    /// The process was started by a launcher of jobs whose processes exchange messages.
    pub in_job: bool,
    /// How the critical path is tracked, if it is.
    pub critical_path: Option<Tracking>,
    /// Most bytes of the process's trace, if there is to be one.
    pub trace: Option<u64>,
    /// Benchmark: the handler returns at once.
    pub empty_handler: bool,
    /// Benchmark: measure the handler's latency.
    pub latency: bool,
}

impl Config {
    /// Reads the environment. `None`: this process is not to be profiled.
    pub fn from_environment() -> Option<Result<Config, String>> {
        let output = variable(ENV_OUTPUT)?;
        Some(Self::parse(output))
    }

    fn parse(output: OsString) -> Result<Config, String> {
        let text = |name| variable(name).map(|v| v.to_string_lossy().into_owned());
        let event = text(ENV_EVENT).unwrap_or_else(|| Event::CpuTime.name().to_owned());
        let event = Event::from_name(&event).ok_or_else(|| format!("{ENV_EVENT}={event} is not an event"))?;
        let number = |name, default| match text(name) {
            None => Ok(default),
            Some(v) => v.parse::<u32>().map_err(|_| format!("{name}={v} is not a number")),
        };
        let rate = number(ENV_RATE, 200)?;
        if rate == 0 || rate > MAX_RATE {
            return Err(format!("{ENV_RATE}={rate} is not in 1..={MAX_RATE}"));
        }
        let source = match text(ENV_SOURCE).as_deref() {
            None | Some("auto") => None,
            Some(name) => match SourceKind::from_name(name) {
                None => return Err(format!("{ENV_SOURCE}={name} is not a sample source")),
                known => known,
            },
        };
        Ok(Config {
            output,
            event,
            rate,
            cores: number(ENV_CORES, ALL_CORES)?,
            source,
            lock_wait: text(ENV_LOCK_WAIT).as_deref() == Some("1"),
            in_job: variable(ENV_JOB).is_some(),
            critical_path: match text(ENV_CRITICAL_PATH) {
                None => None,
                Some(numbers) => Some(
                    Tracking::parse(&numbers)
                        .ok_or_else(|| format!("{ENV_CRITICAL_PATH}={numbers} is not four numbers"))?,
                ),
            },
            trace: match text(ENV_TRACE) {
                None => None,
                Some(size) => Some(size.parse().map_err(|_| format!("{ENV_TRACE}={size} is not a number"))?),
            },
            empty_handler: text(ENV_EMPTY_HANDLER).as_deref() == Some("1"),
            latency: text(ENV_LATENCY).as_deref() == Some("1"),
        })
    }

    pub fn period_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.rate)
    }
}

/// `getenv` without the environment lock of std, which another constructor may hold.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    let mut buffer = [0u8; 64];
    buffer.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    let name = CStr::from_bytes_until_nul(&buffer).ok()?;
    // SAFETY: `name` is NUL-terminated. The result is copied before anything can change it: the library's
    // constructor runs before the program's threads.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| OsStr::from_bytes(CStr::from_ptr(value).to_bytes()).to_os_string())
    }
}
