//! n, the number of cores that the program may use: affinity mask and cgroup CPU quota (ARCHITECTURE.md:
//! terms).

use crate::cli::CoresOption;
use crate::failure::Failure;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};

/// The value for the sampler. 0 means "as many as workers".
pub(crate) fn resolve(option: CoresOption) -> Result<u32, Failure> {
    match option {
        CoresOption::Number(n) => Ok(n),
        CoresOption::Workers => Ok(0),
        CoresOption::All => {
            let set = sched_getaffinity(Pid::from_raw(0)).map_err(|e| {
                Failure::own(format!(
                    "cannot read the affinity mask: {e}; give --cores N"
                ))
            })?;
            let allowed = (0..CpuSet::count())
                .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
                .count() as u32;
            Ok(quota().map_or(allowed, |q| q.min(allowed)).max(1))
        }
    }
}

/// The smallest CPU quota of the process's cgroup and its ancestors, in whole cores, rounded up.
fn quota() -> Option<u32> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().filter_map(group_quota).min()
}

fn group_quota(line: &str) -> Option<u32> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (root, read): (&str, fn(&Path) -> Option<u32>) = match controllers {
        "" => ("/sys/fs/cgroup", read_v2),
        c if c.split(',').any(|c| c == "cpu") => ("/sys/fs/cgroup/cpu", read_v1),
        _ => return None,
    };
    let group = PathBuf::from(root).join(path.trim_start_matches('/'));
    group
        .ancestors()
        .take_while(|a| a.starts_with(root))
        .filter_map(read)
        .min()
}

fn read_v2(group: &Path) -> Option<u32> {
    parse_v2(&fs::read_to_string(group.join("cpu.max")).ok()?)
}

fn parse_v2(text: &str) -> Option<u32> {
    let (quota, period) = text.trim().split_once(' ')?;
    whole_cores(quota.parse().ok()?, period.parse().ok()?)
}

fn read_v1(group: &Path) -> Option<u32> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    let quota = read("cpu.cfs_quota_us")?.trim().parse().ok()?;
    whole_cores(quota, read("cpu.cfs_period_us")?.trim().parse().ok()?)
}

fn whole_cores(quota: i64, period: i64) -> Option<u32> {
    if quota <= 0 || period <= 0 {
        return None;
    }
    u32::try_from((quota + period - 1) / period).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        assert_eq!(parse_v2("150000 100000\n"), Some(2));
        assert_eq!(parse_v2("max 100000\n"), None);
        assert_eq!(whole_cores(-1, 100_000), None);
        assert_eq!(whole_cores(50_000, 100_000), Some(1));
    }
}
