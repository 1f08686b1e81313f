//! The regions and tasks of OpenMP. What compilers make of one is a call of the runtime, which the sampler
//! has counted, and a procedure of its own, which the runtime calls; it may have no frame, since its last
//! call is a jump. Here a directive is a loop of the procedure that it was taken from. The same for tasks of
//! a pool of the program's own, which is the place that makes them.

use crate::model::loops::directive_of;
use crate::model::symbols::{FrameScope, Procedure, Symbols};
use crate::model::warnings::Warnings;
use crate::model::workers::Runtime;
use crate::passes::code::FrameTable;
use crate::passes::load_map::LoadMap;
use hpc_formats::process::{Directive, DirectiveKind};
use hpc_formats::structure::Origin;

/// Whether a procedure is the body of a region or task, or stands for one.
pub(super) fn is_outlined(name: &str) -> bool {
    directive_of(name).is_some()
        || ["._omp_fn.", ".omp_outlined", ".omp_task_entry."].iter().any(|part| name.contains(part))
}

/// Says how many tasks are not under their creators.
pub fn warn<'a>(directives: impl Iterator<Item = &'a Directive>, warnings: &mut Warnings) {
    let is_task = |d: &&Directive| matches!(d.kind, DirectiveKind::GompTask | DirectiveKind::OmpTask);
    let counts = directives.filter(is_task).map(|task| (task.uncaptured, task.executions));
    let (uncaptured, all) =
        counts.fold((0_u64, 0_u64), |sum, task| (sum.0.saturating_add(task.0), sum.1.saturating_add(task.1)));
    if uncaptured > 0 {
        warnings.add(format!(
            "{uncaptured} of {all} tasks of OpenMP are under their region, not under their creators: a \
             thread made more than 250,000 a second; fewer and larger ones are also cheaper"
        ));
    }
}

/// Marks the frames whose calls a process's directives have made.
pub fn mark<'a>(
    directives: impl Iterator<Item = &'a Directive>,
    map: &LoadMap,
    table: &mut FrameTable,
    symbols: &mut Symbols,
) {
    let is_told = |d: &&Directive| !matches!(d.kind, DirectiveKind::TbbAlgorithm | DirectiveKind::TbbTask);
    for Directive { place, kind, .. } in directives.filter(is_told) {
        let Some(code) = map.place(*place) else { continue };
        let Some(known) = table.get_mut(&code) else { continue };
        let mut frame = symbols.frame(*known).clone();
        // The program's place is outside of what it tells the profiler by.
        let is_telling = |scope: &FrameScope| {
            let name = symbols.name_of(scope.procedure);
            name.starts_with("hpcrun::") || name.starts_with("hpcrun_")
        };
        // A call within a runtime is no directive.
        let is_runtimes = |scope: &FrameScope| {
            Runtime::of(symbols, scope.procedure).is_some()
                || symbols.procedure(scope.procedure).origin == Origin::Runtime
        };
        if frame.scopes.iter().any(|scope| !is_telling(scope) && is_runtimes(scope)) {
            continue;
        }
        if let Some(at) = frame.scopes.iter().position(is_telling) {
            (frame.line, frame.column) = (frame.scopes[at].call, frame.scopes[at].column);
            frame.scopes = frame.scopes[..at].into();
        }
        if frame.scopes.is_empty() {
            continue;
        }
        let name = match frame.line {
            Some(_) => kind.name().to_owned(),
            None => format!("{} at {:#x}", kind.name(), place.offset()),
        };
        let name = symbols.intern(&name);
        let origin = Origin::Runtime;
        let (module, declared, position) = (Some(code.0), frame.line, 0);
        let procedure = Procedure { name, module, declared, origin, position };
        frame.directive = Some(symbols.add_procedure(procedure));
        *known = symbols.add_frame(frame);
    }
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
        assert_eq!(directive_of("libomp task at 0x1f"), Some(DirectiveKind::OmpTask));
    }
}
