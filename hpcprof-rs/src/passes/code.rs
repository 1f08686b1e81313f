//! Second pass: what every sampled address means, by the structure of its module.
//!
//! A procedure has one declaration in all its instances, though debug information may give it for the
//! out-of-line body only, or for the inlined one only.

use crate::model::hash::FastMap;
use crate::model::symbols::{
    Frame, FrameIndex, FrameScope, Kind, Line, ModuleIndex, Procedure, ProcedureIndex, Symbols,
};
use crate::model::warnings::Warnings;
use crate::passes::load_map::{SampledModule, SampledModules};
use crate::sources::structures::StructureLibrary;
use hpc_formats::structure::{Origin, ProcedureId, Scope, ScopeKind, SourceLine, Span, StringId, Structure};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The frame of every sampled (module, address).
pub type FrameTable = FastMap<(ModuleIndex, u64), FrameIndex>;

pub fn resolve(
    sampled: &SampledModules,
    library: &mut StructureLibrary,
    symbols: &mut Symbols,
    warnings: &mut Warnings,
) -> FrameTable {
    let mut table = FrameTable::default();
    let mut incomplete = Vec::new();
    for (module, SampledModule { addresses, samples }) in sampled {
        let info = symbols.module(*module).clone();
        let copy = symbols.copies.get(module).cloned();
        let mut own = Warnings::default();
        let structure = library.find(&info, copy.as_deref(), addresses, &mut own);
        own.details().for_each(|line| warnings.add_detail(line));
        if own.lines().len() > 0 {
            incomplete.push(Incomplete {
                module: info.base_name().to_owned(),
                samples: *samples,
                warnings: own,
            });
        }
        let unnamed = symbols.module_frame(*module);
        let mut unnamed_index = None;
        let mut names = structure.as_ref().map(|s| ModuleNames::new(s, *module, addresses));
        if structure.is_some() {
            symbols.analysed.insert(*module);
        }
        let mut last: Option<(Span, u32, FrameIndex)> = None;
        for address in addresses {
            let span = structure.as_ref().and_then(|s| s.span_at(*address));
            let index = match (span, &mut names) {
                (Some(span), Some(names)) => {
                    let column = names.structure.columns.of_call(*address).unwrap_or(0);
                    match last {
                        Some((known, at, index)) if (known, at) == (*span, column) => index,
                        _ => {
                            let frame = names.frame(span, column, symbols);
                            let index = symbols.add_frame(frame.unwrap_or_else(|| unnamed.clone()));
                            last = Some((*span, column, index));
                            index
                        }
                    }
                }
                _ => *unnamed_index.get_or_insert_with(|| symbols.add_frame(unnamed.clone())),
            };
            table.insert((*module, *address), index);
        }
    }
    let all = sampled.values().map(|m| m.samples);
    warn(incomplete, all.fold(0, u64::saturating_add), warnings);
    table
}

/// A module that lacks names or lines.
struct Incomplete {
    module: String,
    samples: u64,
    warnings: Warnings,
}

/// Modules that together hold less than this part of the samples are worth no warning.
const SMALL_PART: u64 = 100;
/// Modules that the warning names.
const NAMED: usize = 3;

/// One warning, with what is wrong with each module as details.
fn warn(mut incomplete: Vec<Incomplete>, samples: u64, warnings: &mut Warnings) {
    incomplete.sort_by(|a, b| (b.samples, &a.module).cmp(&(a.samples, &b.module)));
    let lines = || incomplete.iter().flat_map(|module| module.warnings.lines());
    lines().for_each(|line| warnings.add_detail(&line));
    let held = incomplete.iter().fold(0_u64, |sum, module| sum.saturating_add(module.samples));
    if held == 0 || held.saturating_mul(SMALL_PART) < samples {
        return;
    }
    if let (Some(only), None) = (lines().next(), lines().nth(1)) {
        warnings.add(only);
        return;
    }
    let names: Vec<&str> = incomplete.iter().map(|module| module.module.as_str()).collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    warnings.add(format!(
        "{:.0} % of the samples are in code without names or source lines, of {}{more} (-v has all); {}",
        held as f64 * 100.0 / samples.max(1) as f64,
        names[..names.len().min(NAMED)].join(", "),
        lines().next().unwrap_or_default()
    ));
}

#[derive(Clone, Copy)]
enum Declaration {
    Unique(SourceLine),
    Several,
}

/// What loops are counted among: those of a procedure, or of a function that is inlined in it. Loops in the
/// system's code are apart, and system code in a user's function is that function's.
type Around = (ProcedureId, StringId, bool);

/// Translates one module's structure.
struct ModuleNames<'a> {
    structure: &'a Structure,
    module: ModuleIndex,
    declarations: HashMap<StringId, Declaration>,
    /// Loops by their places.
    loops: HashMap<Around, BTreeSet<(&'a str, u32)>>,
}

impl<'a> ModuleNames<'a> {
    /// Procedures without samples do not count: a structure may have any number of them.
    fn new(structure: &'a Structure, module: ModuleIndex, addresses: &BTreeSet<u64>) -> Self {
        let mut declarations = HashMap::new();
        let spans = addresses.iter().filter_map(|a| structure.span_at(*a));
        let sampled: HashSet<ProcedureId> = spans.map(|s| s.procedure).collect();
        let procedures = sampled.iter().filter_map(|id| {
            let procedure = structure.procedures.get(id.0 as usize)?;
            Some((procedure.name, procedure.declared))
        });
        let scopes = structure
            .scopes
            .iter()
            .filter(|s| s.kind == ScopeKind::Inlined && sampled.contains(&s.procedure))
            .map(|s| (s.name, s.declared));
        for (name, declared) in procedures.chain(scopes) {
            let Some(line) = declared else { continue };
            declarations
                .entry(name)
                .and_modify(|known| match *known {
                    Declaration::Unique(other) if other == line => {}
                    _ => *known = Declaration::Several,
                })
                .or_insert(Declaration::Unique(line));
        }
        let mut names = ModuleNames { structure, module, declarations, loops: HashMap::new() };
        for scope in structure.scopes.iter().filter(|s| s.kind == ScopeKind::Loop) {
            if let (Some(key), true) = (names.around(scope), sampled.contains(&scope.procedure)) {
                let place = names.place(scope);
                names.loops.entry(key).or_default().insert(place);
            }
        }
        names
    }

    /// Which loops a loop is counted among.
    fn around(&self, own: &Scope) -> Option<Around> {
        let structure = self.structure;
        let is_system = own.origin == Origin::System;
        let outer = |s: &&Scope| {
            let parent = s.parent.and_then(|id| structure.scopes.get(id.0 as usize));
            parent.filter(|p| p.parent < s.parent)
        };
        let mut around = std::iter::successors(Some(own), outer);
        let is_counted =
            |s: &&Scope| s.kind == ScopeKind::Inlined && (is_system || s.origin != Origin::System);
        let name = match around.find(is_counted) {
            Some(inlined) => inlined.name,
            None => structure.procedures.get(own.procedure.0 as usize)?.name,
        };
        Some((own.procedure, name, is_system))
    }

    /// What loops are counted by: line, or without one their name, which has their addresses.
    fn place(&self, own: &Scope) -> (&'a str, u32) {
        match own.site {
            Some(site) => (self.structure.string(site.file), site.line),
            None => (self.structure.string(own.name), 0),
        }
    }

    /// The position of a loop among those of its procedure, sampled or not.
    fn position(&self, own: &Scope) -> u32 {
        let known = self.around(own).and_then(|key| self.loops.get(&key));
        known.map_or(0, |loops| loops.range(..self.place(own)).count() as u32)
    }

    /// `None` when the structure is not consistent.
    fn frame(&mut self, span: &Span, column: u32, symbols: &mut Symbols) -> Option<Frame> {
        let structure = self.structure;
        let procedure = structure.procedures.get(span.procedure.0 as usize)?;
        let mut is_system = procedure.origin == Origin::System;
        let mut scopes = vec![FrameScope {
            kind: Kind::Procedure,
            procedure: self.procedure((procedure.name, procedure.declared, procedure.origin), 0, symbols),
            call: None,
            column: 0,
        }];
        for id in structure.scope_chain(span) {
            let scope = structure.scopes.get(id.0 as usize)?;
            let (kind, declared, position) = match scope.kind {
                ScopeKind::Inlined => (Kind::Inlined, scope.declared, 0),
                ScopeKind::Loop => (Kind::Loop, scope.site, self.position(scope)),
            };
            let own = (scope.name, declared, scope.origin);
            is_system &= scope.origin == Origin::System || kind == Kind::Loop;
            scopes.push(FrameScope {
                kind,
                procedure: self.procedure(own, position, symbols),
                call: self.line(scope.site, symbols),
                column: structure.columns.of_scope(id).unwrap_or(0),
            });
        }
        Some(Frame {
            scopes: scopes.into(),
            line: self.line(span.line, symbols),
            column,
            tag: span.tag.map(|t| symbols.intern(structure.string(t))),
            function: Some(span.procedure.0),
            is_system,
            directive: None,
        })
    }

    fn procedure(
        &self,
        (name, declared, origin): (StringId, Option<SourceLine>, Origin),
        position: u32,
        symbols: &mut Symbols,
    ) -> ProcedureIndex {
        let declared = match self.declarations.get(&name) {
            Some(Declaration::Unique(line)) => declared.or(Some(*line)),
            _ => declared,
        };
        let declared = self.line(declared, symbols);
        let name = symbols.intern(self.structure.string(name));
        let module = Some(self.module);
        symbols.add_procedure(Procedure { name, module, declared, origin, position })
    }

    fn line(&self, line: Option<SourceLine>, symbols: &mut Symbols) -> Option<Line> {
        let line = line?;
        Some(Line { file: symbols.intern(self.structure.string(line.file)), line: line.line })
    }
}
