//! Second pass: what every sampled address means, by the structure of its module.
//!
//! A procedure's declaration is made the same in all its instances: debug information may give
//! it on the out-of-line body only, or on the inlined one only, and they are one procedure.

use crate::model::hash::FastMap;
use crate::model::symbols::{
    Frame, FrameIndex, Kind, Line, ModuleIndex, ModuleStatus, Procedure, Segment, Symbols,
};
use crate::model::warnings::Warnings;
use crate::passes::load_map::SampledAddresses;
use crate::sources::structures::StructureLibrary;
use hpc_formats::structure::{
    Origin, ProcedureId, ScopeKind, SourceLine, Span, StringId, Structure,
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The frame of every sampled (module, address).
pub type FrameTable = FastMap<(ModuleIndex, u64), FrameIndex>;

/// Builds the frames of all sampled addresses.
pub fn resolve(
    sampled: &SampledAddresses,
    library: &mut StructureLibrary,
    symbols: &mut Symbols,
    warnings: &mut Warnings,
) -> FrameTable {
    let mut table = FrameTable::default();
    for (module, addresses) in sampled {
        let info = symbols.modules[module.0 as usize].clone();
        let structure = library.find(&info, addresses, warnings);
        let unnamed = symbols.module_frame(*module);
        let mut unnamed_index = None;
        let mut names = structure
            .as_ref()
            .map(|s| ModuleNames::new(s, *module, addresses));
        if structure.is_some() {
            symbols.modules[module.0 as usize].status = ModuleStatus::Analysed;
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
    table
}

#[derive(Clone, Copy)]
enum Declaration {
    Unique(SourceLine),
    Several,
}

/// Translates one module's structure.
struct ModuleNames<'a> {
    structure: &'a Structure,
    module: ModuleIndex,
    declarations: HashMap<StringId, Declaration>,
}

impl<'a> ModuleNames<'a> {
    /// Procedures without samples have no say: a structure may have more of them or less.
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
        ModuleNames {
            structure,
            module,
            declarations,
        }
    }

    /// `None` when the structure is not consistent.
    fn frame(&mut self, span: &Span, column: u32, symbols: &mut Symbols) -> Option<Frame> {
        let structure = self.structure;
        let procedure = structure.procedures.get(span.procedure.0 as usize)?;
        let mut system = procedure.origin == Origin::System;
        let mut segments = vec![Segment {
            kind: Kind::Procedure,
            procedure: self.procedure(
                procedure.name,
                procedure.declared,
                procedure.origin,
                symbols,
            ),
            site: None,
            column: 0,
        }];
        for id in structure.scope_chain(span) {
            let scope = structure.scopes.get(id.0 as usize)?;
            let (kind, declared) = match scope.kind {
                ScopeKind::Inlined => (Kind::Inlined, scope.declared),
                ScopeKind::Loop => (Kind::Loop, scope.site),
            };
            system &= scope.origin == Origin::System || kind == Kind::Loop;
            segments.push(Segment {
                kind,
                procedure: self.procedure(scope.name, declared, scope.origin, symbols),
                site: self.line(scope.site, symbols),
                column: structure.columns.of_scope(id).unwrap_or(0),
            });
        }
        Some(Frame {
            segments: segments.into(),
            line: self.line(span.line, symbols),
            column,
            tag: span.tag.map(|t| symbols.intern(structure.string(t))),
            function: Some(span.procedure.0),
            system,
        })
    }

    fn procedure(
        &self,
        name: StringId,
        declared: Option<SourceLine>,
        origin: Origin,
        symbols: &mut Symbols,
    ) -> crate::model::symbols::ProcedureIndex {
        let declared = match self.declarations.get(&name) {
            Some(Declaration::Unique(line)) => declared.or(Some(*line)),
            _ => declared,
        };
        let declared = self.line(declared, symbols);
        let name = symbols.intern(self.structure.string(name));
        symbols.procedure(Procedure {
            name,
            module: Some(self.module),
            declared,
            origin,
        })
    }

    fn line(&self, line: Option<SourceLine>, symbols: &mut Symbols) -> Option<Line> {
        let line = line?;
        Some(Line {
            file: symbols.intern(self.structure.string(line.file)),
            line: line.line,
        })
    }
}
