//! The regions and tasks of OpenMP. What compilers make of one is a procedure of its own, which the runtime
//! calls; here it is a loop of the procedure that it was taken from.

use crate::passes::parallel_loops::rule::Rule;

/// Its entry in the table.
pub(super) const RULE: Rule = Rule {
    is_library: is_outlined,
    is_extension: |_| false,
    is_shim: |_| false,
    is_internal: |_| false,
    adaptor: |_| None,
    source_starts: &[],
    directive: Some("omp "),
};

/// Whether a procedure is the body of a region or task.
pub(super) fn is_outlined(name: &str) -> bool {
    ["._omp_fn.", ".omp_outlined", ".omp_task_entry."].iter().any(|part| name.contains(part))
}

/// Whether it is only called by another part of the same body.
pub(super) fn is_inner(name: &str) -> bool {
    name.contains("omp_outlined") && name.contains("debug__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_known_by_name() {
        let bodies = ["f._omp_fn.0", "m::f._omp_fn.12", ".omp_outlined.", ".omp_outlined..3"];
        for name in bodies.into_iter().chain(["f.omp_outlined", ".omp_task_entry..2"]) {
            assert!(is_outlined(name) && !is_inner(name), "{name}");
        }
        assert!(is_inner(".omp_outlined._debug__"));
        assert!(!is_outlined("outlined"));
    }
}
