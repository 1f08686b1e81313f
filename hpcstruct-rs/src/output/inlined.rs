//! The table by which a program's critical path knows inlined procedures, and loops that only another thread
//! can end ([`hpc_formats::inlined`]).
//!
//! A procedure is one whatever code it is inlined in, as in views: what has one name and, where there are
//! several procedures of that name, one declaration.

use crate::known::origin_of_module;
use crate::{Options, StructError, analyse};
use hpc_formats::inlined::{Around, Builder, SPINS, identity};
use hpc_formats::structure::{
    Origin, ProcedureId, SPIN_LOOP, Scope, ScopeId, ScopeKind, SourceLine, StringId, Structure,
};
use std::collections::HashMap;
use std::path::Path;

/// Adds the load module at `path`, unless it is the system's or has neither.
///
/// # Errors
/// As [`analyse`].
pub fn add(builder: &mut Builder, path: &Path, threads: usize) -> Result<(), StructError> {
    if origin_of_module(&path.to_string_lossy()) == Some(Origin::System) {
        return Ok(());
    }
    let structure = analyse(path, &Options { threads, ..Options::default() })?;
    if structure.scopes.iter().any(|scope| is_inlined(scope) || spins(&structure, scope)) {
        add_structure(builder, &structure);
    }
    Ok(())
}

fn add_structure(builder: &mut Builder, structure: &Structure) {
    builder.begin_module(identity(&structure.build_id, &structure.module));
    let mut numbers = structure.scopes.iter().any(is_inlined).then(|| Numbers::new(structure));
    // Spans of one list of scopes are consecutive, or nearly so.
    let mut known: HashMap<(ProcedureId, Option<ScopeId>), Vec<Around>> = HashMap::new();
    let mut end = None;
    for span in &structure.spans {
        let (Ok(start), Ok(next)) = (u32::try_from(span.start), u32::try_from(span.end)) else {
            break;
        };
        if let Some(end) = end.filter(|end| *end != start) {
            builder.add(end, &[]);
        }
        end = Some(next);
        let around = known.entry((span.procedure, span.scope)).or_insert_with(|| {
            let scopes = structure.scope_chain(span);
            let around = numbers.as_mut().map(|numbers| numbers.around(span.procedure, &scopes));
            let mut scopes = scopes.iter().filter_map(|id| structure.scopes.get(id.0 as usize));
            let waits = scopes.any(|scope| spins(structure, scope)).then_some(SPINS);
            around.into_iter().flatten().chain(waits).collect()
        });
        builder.add(start, around);
    }
    end.into_iter().for_each(|end| builder.add(end, &[]));
}

/// The numbers of a module's procedures.
struct Numbers<'a> {
    structure: &'a Structure,
    /// By name: the declaration, if there is only one.
    declared: HashMap<StringId, Option<SourceLine>>,
    known: HashMap<(StringId, Option<SourceLine>), u32>,
}

impl<'a> Numbers<'a> {
    fn new(structure: &'a Structure) -> Numbers<'a> {
        let procedures = structure.procedures.iter().map(|p| (p.name, p.declared));
        let scopes = structure.scopes.iter().filter(|scope| is_inlined(scope));
        let all = procedures.chain(scopes.map(|s| (s.name, s.declared)));
        let mut declared = HashMap::new();
        for (name, line) in all.filter(|(_, line)| line.is_some()) {
            let known = declared.entry(name).or_insert(line);
            *known = known.filter(|known| line == Some(*known));
        }
        Numbers { structure, declared, known: HashMap::new() }
    }

    fn number(&mut self, name: StringId, declared: Option<SourceLine>) -> u32 {
        let only = self.declared.get(&name).copied().flatten();
        let next = self.known.len() as u32;
        *self.known.entry((name, declared.or(only))).or_insert(next)
    }

    /// The procedures around code, each once. Inlined ones are the user's: a machine procedure of the system
    /// is one whose callers are shown, and a runtime's are folded.
    fn around(&mut self, procedure: ProcedureId, scopes: &[ScopeId]) -> Vec<Around> {
        let structure = self.structure;
        let procedure = structure.procedures.get(procedure.0 as usize);
        let procedure = procedure.map(|p| (p.name, p.declared, p.origin != Origin::Runtime));
        let scopes = scopes.iter();
        let scopes = scopes.filter_map(|id| structure.scopes.get(id.0 as usize));
        let scopes = scopes.filter(|scope| is_inlined(scope));
        let scopes = scopes.map(|s| (s.name, s.declared, s.origin == Origin::User));
        let mut around: Vec<Around> = Vec::new();
        for (depth, (name, declared, is_wanted)) in (0..).zip(procedure.into_iter().chain(scopes)) {
            let procedure = self.number(name, declared);
            if is_wanted && around.iter().all(|known| known.procedure != procedure) {
                around.push(Around { procedure, depth });
            }
        }
        around
    }
}

fn spins(structure: &Structure, scope: &Scope) -> bool {
    scope.kind == ScopeKind::Loop && structure.string(scope.name).starts_with(SPIN_LOOP)
}

fn is_inlined(scope: &Scope) -> bool {
    scope.kind == ScopeKind::Inlined
}
