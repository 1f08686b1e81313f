//! Procedures that start parallel execution, by name.

use crate::model::loops::directive_of;
use hpc_formats::process::DirectiveKind;
use hpcstruct_rs::known::{self, Kind};
use start_up::calibration::Construct;

/// What a procedure of a construct does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Begins a region, in which its callee is executed serially: the closure of a scope.
    Begins(Construct),
    /// Runs its callees in parallel, and begins a region if there is none.
    Forks(Construct),
}

impl Role {
    pub fn construct(self) -> Construct {
        match self {
            Role::Begins(construct) | Role::Forks(construct) => construct,
        }
    }
}

/// Crates whose functions have rayon's names.
const CRATES: [&str; 3] = ["work_stealing_rt::", "rayon_core::", "rayon::"];
/// Modules and types of these that have the constructs.
const OWNERS: [&str; 11] = [
    "join",
    "par_for",
    "adaptive",
    "scope",
    "Scope",
    "ScopeFifo",
    "spawn",
    "broadcast",
    "ThreadPool",
    "rayon_core",
    "work_stealing_rt",
];
/// Functions that hand work from outside of a pool over to a worker.
const HAND_OVER: [&str; 4] = ["install", "run_from_outside", "in_worker_cold", "in_worker_cross"];

/// The last two segments of a function's path in one of [`CRATES`], without parameters of generic code.
fn owner_and_name(name: &str) -> Option<(&str, &str)> {
    let plain = name.trim_start_matches('<').split("::<").next().unwrap_or(name);
    CRATES.iter().find(|of| plain.starts_with(**of))?;
    let (path, last) = plain.rsplit_once("::")?;
    let owner = path.rsplit("::").next().unwrap_or(path);
    Some((owner.split('<').next().unwrap_or(owner), last))
}

/// Whether what the procedure calls runs on a worker of a pool.
pub fn is_hand_over(name: &str) -> bool {
    owner_and_name(name).is_some_and(|(_, last)| HAND_OVER.contains(&last))
}

pub fn role(name: &str) -> Option<Role> {
    if let Some(kind) = directive_of(name) {
        return Some(Role::Forks(match kind {
            DirectiveKind::GompRegion | DirectiveKind::GompTask => Construct::Libgomp,
            DirectiveKind::OmpRegion | DirectiveKind::OmpTask => Construct::Libomp,
            DirectiveKind::TbbAlgorithm | DirectiveKind::TbbTask => Construct::Tbb,
            DirectiveKind::PoolTask => Construct::Pool,
        }));
    }
    if name.contains("._omp_fn.") {
        return Some(Role::Forks(Construct::Libgomp));
    }
    if name.contains(".omp_outlined") {
        return Some(Role::Forks(Construct::Libomp));
    }
    if known::find(Kind::Iterators, name).is_some_and(|(library, _)| library == "TBB") {
        return Some(Role::Forks(Construct::Tbb));
    }
    if let Some(inside) = name.strip_prefix("std::thread::") {
        return match inside.split("::<").next()?.rsplit("::").next()? {
            "scope" => Some(Role::Begins(Construct::StdThread)),
            "spawn" | "spawn_scoped" | "spawn_unchecked" => Some(Role::Forks(Construct::StdThread)),
            _ => None,
        };
    }
    let (owner, last) = owner_and_name(name)?;
    if !OWNERS.contains(&owner) {
        return None;
    }
    match last {
        "join" | "join_context" => Some(Role::Forks(Construct::Join)),
        "par_for" | "par_for_grain" | "par_for_adaptive" => Some(Role::Forks(Construct::ParFor)),
        "spawn" | "spawn_fifo" | "spawn_broadcast" | "broadcast" => Some(Role::Forks(Construct::Scope)),
        "scope" | "scope_fifo" | "in_place_scope" | "in_place_scope_fifo" => {
            Some(Role::Begins(Construct::Scope))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructs_are_known_by_name() {
        for (name, known) in [
            ("work_stealing_rt::join::join", Role::Forks(Construct::Join)),
            ("rayon_core::join::join_context::<A, B>", Role::Forks(Construct::Join)),
            ("work_stealing_rt::par_for::par_for", Role::Forks(Construct::ParFor)),
            ("work_stealing_rt::scope::Scope::spawn", Role::Forks(Construct::Scope)),
            ("rayon_core::scope::scope", Role::Begins(Construct::Scope)),
            ("std::thread::scoped::scope", Role::Begins(Construct::StdThread)),
            ("std::thread::scoped::Scope::spawn", Role::Forks(Construct::StdThread)),
            ("main._omp_fn.0", Role::Forks(Construct::Libgomp)),
            ("main.omp_outlined", Role::Forks(Construct::Libomp)),
            ("libomp region", Role::Forks(Construct::Libomp)),
        ] {
            assert_eq!(role(name), Some(known), "{name}");
        }
        for name in ["app::join", "str::join", "work_stealing_rt::pool::install", "std::thread::sleep"] {
            assert_eq!(role(name), None, "{name}");
        }
    }
}
