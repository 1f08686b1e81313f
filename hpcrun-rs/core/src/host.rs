//! The host that a process image runs on, and the job that it runs for. Read when the image starts, by the
//! image itself: a job's launcher starts processes on other hosts with the environment of the first.

use crate::config::variable;
use crate::system;
use hpc_formats::process::text_of;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The variables that name a job, the most general job first: batch systems (Slurm, PBS, LSF, Flux), then
/// what MPI launchers set (Open MPI 4; PMIx, which Open MPI 5 and `srun --mpi=pmix` use; PMI 2; Intel MPI).
/// MPICH's Hydra sets none of its own.
const JOB_VARIABLES: [&str; 8] = [
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "OMPI_MCA_ess_base_jobid",
    "PMIX_NAMESPACE",
    "PMI_JOBID",
    "I_MPI_HYDRA_UUID",
];

/// Set, other than `false`: a runtime of OpenMP binds its threads one by one to cores of the process.
const BINDING_VARIABLES: [&str; 3] = ["OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"];

/// Whether the process, or one that it is a fork of, has changed its namespaces.
static HAS_MOVED: AtomicBool = AtomicBool::new(false);

/// The process is about to change its namespaces.
pub fn moving() {
    HAS_MOVED.store(true, Ordering::Relaxed);
}

/// Whether a runtime binds the process's threads, so that the mask of one is no wish to use fewer cores.
pub fn binds_threads() -> bool {
    let values = BINDING_VARIABLES.into_iter().filter_map(variable);
    values.into_iter().any(|value| !value.eq_ignore_ascii_case("false") && !value.is_empty())
}

/// The smallest CPU quota of the process's control groups in whole cores, at least 1; 0 if there is none.
/// Both versions of control groups have the quota and its period in microseconds.
pub fn cpu_quota() -> u32 {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let mut least = u64::MAX;
    for line in system::read_text("/proc/self/cgroup").lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            list if list.split(',').any(|name| name == "cpu") => "/sys/fs/cgroup/cpu",
            _ => continue,
        };
        let ends = group.match_indices('/').map(|(at, _)| at);
        for end in ends.chain((group.len() > 1).then_some(group.len())) {
            let file =
                |name| system::read_text(&format!("{root}{}/{name}", group[..end].trim_end_matches('/')));
            let limit = match controllers {
                "" => file("cpu.max"),
                _ => format!("{} {}", file("cpu.cfs_quota_us").trim(), file("cpu.cfs_period_us")),
            };
            let limit = limit.split_once(' ').map(|(quota, period)| (number(quota), number(period)));
            if let Some((Some(quota), Some(period @ 1..))) = limit {
                least = least.min((quota / period).max(1));
            }
        }
    }
    if least == u64::MAX { 0 } else { u32::try_from(least).unwrap_or(0) }
}

/// What tells the monotonic clock of a time namespace from the host's; empty if nothing does.
fn clock_offset() -> String {
    let offsets = system::read_text("/proc/self/timens_offsets");
    let words: Vec<&str> = offsets.split_whitespace().collect();
    match words[..] {
        ["monotonic", seconds, nanoseconds, ..] if (seconds, nanoseconds) != ("0", "0") => {
            format!("+{seconds}.{nanoseconds}")
        }
        _ => String::new(),
    }
}

/// A host and a job; an empty text is unknown.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    /// The kernel's id of the host's last boot, and the offset of the monotonic clock if it has one.
    pub boot: String,
    /// The job, as its batch system or MPI launcher names it.
    pub job: String,
}

impl Host {
    /// The current one. Not async-signal-safe.
    pub fn current() -> Host {
        let mut name = [0; 256];
        // SAFETY: libc writes at most the length that it is told; the last byte stays zero.
        unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        let boot = system::read_text("/proc/sys/kernel/random/boot_id");
        let mut jobs = JOB_VARIABLES.into_iter().filter_map(variable);
        let job = jobs.find(|job| !job.is_empty()).unwrap_or_default();
        Host {
            name: text_of(name.to_bytes()),
            boot: boot.trim().to_owned() + &clock_offset(),
            job: text_of(job.as_bytes()),
        }
    }

    /// The current one in a forked child: its parent's, unless the process has left namespaces and `/proc` is
    /// there.
    pub fn of_child(parent: &Host) -> Host {
        let current = HAS_MOVED.load(Ordering::Relaxed).then(Host::current);
        current.filter(|host| !host.boot.is_empty()).unwrap_or_else(|| parent.clone())
    }

    /// Path of the table that the run's processes on this host share, in the measurement directory. It is
    /// unique to this host since its last boot, as several hosts may see the same directory.
    pub fn table(&self, directory: &OsStr) -> Option<CString> {
        let mut path = directory.as_bytes().to_vec();
        path.extend(format!("/node-{}.hpcnode", self.file_name()).bytes());
        CString::new(path).ok()
    }

    /// The part of a file's name that is unique to this host since its last boot.
    pub fn file_name(&self) -> String {
        format!("{}-{}", self.boot, self.name).replace('/', "_")
    }
}
