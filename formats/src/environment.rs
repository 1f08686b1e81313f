//! Environment variables through which the launcher configures the preloaded library.

/// Absolute path of the measurement directory; profiling is on when it is set.
pub const ENV_OUTPUT: &str = "HPCRUN_RS_OUTPUT";
/// `cpu-time` or `wall-time`.
pub const ENV_EVENT: &str = "HPCRUN_RS_EVENT";
/// Samples per second and thread.
pub const ENV_RATE: &str = "HPCRUN_RS_RATE";
/// Cores n; 0 = as many as workers; [`ALL_CORES`].
pub const ENV_CORES: &str = "HPCRUN_RS_CORES";
/// As n: the cores that the run's processes on a host may use together, as they are at any time.
pub const ALL_CORES: u32 = u32::MAX;
/// `auto`, `perf-sigtrap`, `perf-signal` or `posix-timer`.
pub const ENV_SOURCE: &str = "HPCRUN_RS_SOURCE";
/// Set to 1: waiting for locks is charged to the contexts that hold them.
pub const ENV_LOCK_WAIT: &str = "HPCRUN_RS_LOCK_WAIT";
/// Set: the critical path is tracked. Three numbers with blanks between: seconds after which it is written
/// again and again (0: at the end only), the signal that starts and stops the tracking (0: it starts with the
/// program), and the part of a procedure's time that is saved if it is faster, in ten thousandths.
pub const ENV_CRITICAL_PATH: &str = "HPCRUN_RS_CRITICAL_PATH";
/// Set: each thread's states and samples are kept with their times, in at most so many bytes a process.
pub const ENV_TRACE: &str = "HPCRUN_RS_TRACE";
/// Path of the table of inlined procedures, if there is one.
pub const ENV_INLINED: &str = "HPCRUN_RS_INLINED";
/// Set: a launcher of jobs, such as `mpirun`, has started the program, and calls of message-passing libraries
/// are observed.
pub const ENV_JOB: &str = "HPCRUN_RS_JOB";
/// Set to 1: the handler returns at once, which measures the machine's own cost (for benchmarks).
pub const ENV_EMPTY_HANDLER: &str = "HPCRUN_EMPTY_HANDLER";
/// Set to 1: per-sample handler latencies are kept and printed (for benchmarks).
pub const ENV_LATENCY: &str = "HPCRUN_LATENCY";

/// Highest rate that is accepted, Hz.
pub const MAX_RATE: u32 = 20_000;
