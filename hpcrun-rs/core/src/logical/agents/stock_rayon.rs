//! Finds stock rayon-core's scheduler in a module. This rayon does not cooperate with the profiler.
//!
//! Two kinds of functions matter, and rayon-core 1.x never inlines them: the loop in which a worker searches
//! for a job (`WorkerThread::wait_until_cold`, and the `yield_now` pair that programs may call), and the
//! entry of a job (`Job::execute`, called through a pointer). A stripped module, or one that lacks either
//! kind, has no ranges.

use super::roles::{self, Range, Role};
use super::symbols::{self, contains};
use crate::logical::walk::Walk;
use hpc_formats::address::ModuleId;

const SCHEDULER: u8 = 0;
const TASK: u8 = 1;

/// The walk has passed a task that the scheduler runs.
const IN_TASK: u64 = 2;

pub(super) fn owns(lookup: u64, _: ModuleId) -> Option<u8> {
    match roles::role_of(lookup)? {
        Role::Scheduler => Some(SCHEDULER),
        Role::Task => Some(TASK),
        _ => None,
    }
}

pub(super) fn step(walk: &mut Walk<'_>, tag: u8) {
    if tag == TASK {
        walk.notice(IN_TASK);
        walk.program_frame();
    } else if walk.has_not_noticed(IN_TASK) {
        walk.wait();
    } else {
        walk.runtime_rest();
    }
}

/// The ranges from a module's symbol table; `None` unless it has both roles.
pub(super) fn ranges_of(path: &str, bias: u64) -> Option<Vec<Range>> {
    // Most programs have no rayon: one search of the names rules it out.
    let ranges = symbols::ranges_of(path, bias, b"15wait_until_cold", role_of)?;
    let has = |role| ranges.iter().any(|r: &Range| r.role == role);
    (has(Role::Scheduler) && has(Role::Task)).then_some(ranges)
}

/// The role of a function by its mangled name. Both manglings (legacy and v0) contain identifiers with their
/// lengths.
fn role_of(name: &[u8]) -> Option<Role> {
    if !contains(name, b"rayon_core") {
        return None;
    }
    let any = |parts: &[&[u8]]| parts.iter().any(|p| contains(name, p));
    if any(&[b"..job..Job$GT$7execute", b"3Job7execute"]) {
        Some(Role::Task)
    } else if any(&[
        b"12WorkerThread15wait_until_cold",
        b"11thread_pool9yield_now",
        b"11thread_pool11yield_local",
    ]) {
        Some(Role::Scheduler)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rayons_functions_are_known_in_both_manglings() {
        for (name, role) in [
            (
                "_ZN10rayon_core8registry12WorkerThread15wait_until_cold17h8d1af91c0b2c5a0eE",
                Some(Role::Scheduler),
            ),
            (
                "_RNvMs5_NtCs3yRk2LxJZkM_10rayon_core8registryNtB5_12WorkerThread15wait_until_cold",
                Some(Role::Scheduler),
            ),
            ("_ZN10rayon_core11thread_pool9yield_now17h0123456789abcdefE", Some(Role::Scheduler)),
            (
                "_ZN83_$LT$rayon_core..job..StackJob$LT$L$C$F$C$R$GT$$u20$as$u20$\
                 rayon_core..job..Job$GT$7execute17h0123456789abcdefE",
                Some(Role::Task),
            ),
            (
                "_RNvXs_NtCs3yRk2LxJZkM_10rayon_core3jobINtB4_7HeapJobNCNvC3app4mainE0E\
                 NtB4_3Job7executeC3app",
                Some(Role::Task),
            ),
            ("_ZN10rayon_core4join12join_context17h0123456789abcdefE", None),
            ("_ZN3app3Job7execute17h0123456789abcdefE", None),
        ] {
            assert_eq!(role_of(name.as_bytes()), role, "{name}");
        }
    }

    #[test]
    fn a_program_without_rayon_has_no_ranges() {
        let this = std::env::current_exe().expect("a test has a file");
        let path = this.to_str().expect("its name is text");
        assert_eq!(ranges_of(path, 0), None);
        assert_eq!(ranges_of("/no/such/file", 0), None);
    }
}
