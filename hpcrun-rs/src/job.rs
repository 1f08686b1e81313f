//! A job of several processes, each of which a launcher such as `mpirun` has started under `hpcrun-rs`.

use std::fs::{self, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

/// What this process knows of its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Job {
    /// Equal in all its processes, and in no other job; part of a file's name.
    pub(crate) id: String,
    /// This process's number, from 0.
    pub(crate) rank: u32,
    /// Processes.
    ranks: u32,
}

/// The variables of launchers: rank, number of ranks, and what names a job together. A launcher that names
/// none (MPICH's Hydra) is known by its process.
const LAUNCHERS: [(&str, &str, &[&str]); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"]),
    ("PMI_RANK", "PMI_SIZE", &["PMI_JOBID", "SLURM_STEP_ID", "SLURM_JOB_ID"]),
    ("PMIX_RANK", "SLURM_NTASKS", &["PMIX_NAMESPACE"]),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", &["SLURM_JOB_ID", "SLURM_STEP_ID"]),
];

impl Job {
    /// The job that this process was started for.
    pub(crate) fn current() -> Option<Job> {
        let launcher = || launcher(std::process::id(), 0);
        Job::of(|name| std::env::var(name).ok(), launcher)
    }

    fn of(variable: impl Fn(&str) -> Option<String>, launcher: impl Fn() -> Option<String>) -> Option<Job> {
        let number = |name| variable(name)?.parse::<u32>().ok();
        LAUNCHERS.iter().find_map(|(rank, ranks, names)| {
            let (rank, ranks) = (number(rank)?, number(ranks)?);
            let named: Vec<String> = names.iter().filter_map(|name| variable(name)).collect();
            let id = if named.is_empty() { launcher()? } else { named.join("-") };
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
            Some(Job { id: id.replace(|c| !is_plain(c), "_"), rank, ranks })
        })
    }

    /// The file by which the processes know that a measurement directory is theirs.
    pub(crate) fn file(&self, directory: &Path) -> PathBuf {
        directory.join(format!("job-{}", self.id))
    }

    /// This process's program has ended; whether all others' had before. Each adds a byte to the job's file.
    pub(crate) fn is_last(&self, directory: &Path) -> bool {
        let file = OpenOptions::new().append(true).open(self.file(directory));
        let place = file.and_then(|mut file| {
            file.write_all(b".")?;
            file.stream_position()
        });
        place.is_ok_and(|place| place >= u64::from(self.ranks))
    }
}

/// The process of Hydra above a process.
fn launcher(pid: u32, depth: usize) -> Option<String> {
    // `PID (NAME) STATE PARENT …`; a name may have blanks and brackets.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    if name.starts_with("hydra") {
        return Some(format!("hydra-{pid}"));
    }
    let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
    (depth < 64).then(|| launcher(parent, depth + 1)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<Job> {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Job::of(value, || Some("hydra-7".to_owned()))
    }

    #[test]
    fn launchers_name_their_jobs() {
        let job = |id: &str, rank, ranks| Some(Job { id: id.to_owned(), rank, ranks });
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("PMIX_NAMESPACE", "prterun-host@1"),
            ("PMIX_RANK", "2"),
        ];
        assert_eq!(of(&open_mpi), job("prterun-host_1", 2, 4));
        assert_eq!(of(&[("PMI_RANK", "0"), ("PMI_SIZE", "3")]), job("hydra-7", 0, 3));
        let slurm = [
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "0"),
        ];
        assert_eq!(of(&slurm), job("77-0", 1, 8));
        assert_eq!(of(&[("SLURM_JOB_ID", "77"), ("SLURM_PROCID", "0")]), None);
        assert_eq!(of(&[]), None);
    }
}
