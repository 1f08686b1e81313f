//! The host that a process image runs on, and the job that it runs for. Read when the image starts, by the
//! image itself: a job's launcher starts processes on other hosts with the environment of the first.

use crate::config::variable;
use hpc_formats::process::text_of;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

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

/// A host and a job; an empty text is unknown.
#[derive(Clone, Debug)]
pub struct Host {
    /// The host's name.
    pub name: String,
    /// The kernel's id of the host's last boot.
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
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut jobs = JOB_VARIABLES.into_iter().filter_map(variable);
        let job = jobs.find(|job| !job.is_empty()).unwrap_or_default();
        Host {
            name: text_of(name.to_bytes()),
            boot: boot.trim().to_owned(),
            job: text_of(job.as_bytes()),
        }
    }

    /// Path of the table that the run's processes on this host share, in the measurement directory. It is
    /// unique to this host since its last boot, as several hosts may see the same directory.
    pub fn table(&self, directory: &OsStr) -> Option<CString> {
        let mut path = directory.as_bytes().to_vec();
        let id = format!("{}-{}", self.boot, self.name).replace('/', "_");
        path.extend(format!("/node-{id}.hpcnode").bytes());
        CString::new(path).ok()
    }
}
