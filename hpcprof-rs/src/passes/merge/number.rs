//! Gives names and contexts their final numbers: by name and place, never by the order in which files were
//! read, so that equal measurements make equal databases. Names that no context mentions get none.

use crate::model::code::{self, Code};
use crate::model::contexts::{ContextIndex, ContextTree, Part, Scope};
use crate::model::hash::FastMap;
use crate::model::loops::{LoopIndex, ParallelLoops};
use crate::model::symbols::{Kind, Line, ModuleIndex, ProcedureIndex, Symbols};
use crate::model::tree::{Call, Label, SourceLocation, TreeNode};
use std::cmp::Ordering;
use std::sync::Arc;

/// Names and contexts by final number.
#[derive(Debug)]
pub struct Numbered {
    pub code: Code,
    /// The logical projection, without values.
    pub logical: Numbers,
    /// The physical projection; `None` where it is equal to the logical one.
    pub physical: Option<Numbers>,
    /// The final number of each parallel loop.
    pub loops: Vec<u32>,
}

/// A tree in preorder, siblings by kind, procedure, line and call site. A context is its parent and its
/// scope, eight bytes, as in a [`ContextTree`].
#[derive(Debug)]
pub struct Numbers {
    /// What contexts of a scope are, but for their parents and parallel loops.
    scopes: Arc<[TreeNode]>,
    /// By final number: the parent, or [`NO_PARENT`], and the scope.
    contexts: Vec<(u32, u32)>,
    /// The parallel loops of contexts that are frames of one.
    loops: FastMap<u32, u32>,
    /// The final number of each context that the projection has.
    pub of: Vec<u32>,
    /// Whether samples belong to a context, by final number.
    pub sampled: Vec<bool>,
}

const NO_PARENT: u32 = u32::MAX;

impl Numbers {
    pub fn len(&self) -> u32 {
        self.contexts.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    pub fn node(&self, number: u32) -> TreeNode {
        let (parent, scope) = self.contexts[number as usize];
        TreeNode {
            parent: (parent != NO_PARENT).then_some(parent),
            parallel_loop: self.loops.get(&number).copied(),
            ..self.scopes[scope as usize]
        }
    }

    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = TreeNode> + ExactSizeIterator {
        (0..self.len()).map(|number| self.node(number))
    }
}

pub fn number(symbols: &Symbols, contexts: &ContextTree, loops: &ParallelLoops) -> Numbered {
    let (names, code) = Names::new(symbols, contexts, loops);
    let mut code = code;
    let loop_ranks = loop_ranks(loops, &names);
    let mut by_rank: Vec<usize> = (0..loops.all.len()).collect();
    by_rank.sort_by_key(|index| loop_ranks[*index]);
    code.loops = by_rank.iter().map(|index| names.parallel_loop(loops, *index)).collect();
    let of_loop = |context: ContextIndex| {
        let found = loops.frames.get(&context);
        found.map(|index| loop_ranks[index.0 as usize])
    };
    let is_same = contexts.has_equal_parts();
    let ranks = names.scope_ranks(contexts);
    let scopes: Arc<[TreeNode]> = contexts.scopes().iter().map(|s| names.node(s)).collect();
    let logical = (contexts, Part::Logical);
    let physical = (contexts, Part::Physical);
    Numbered {
        logical: Numbers::new(logical, &ranks, &scopes, of_loop),
        physical: (!is_same).then(|| Numbers::new(physical, &ranks, &scopes, |_| None)),
        code,
        loops: loop_ranks,
    }
}

/// What names became: final numbers by index among the symbols.
struct Names<'a> {
    symbols: &'a Symbols,
    procedures: FastMap<ProcedureIndex, u32>,
    /// Loops and partial roots.
    regions: FastMap<ProcedureIndex, u32>,
    files: FastMap<u32, u32>,
}

impl<'a> Names<'a> {
    fn new(symbols: &'a Symbols, contexts: &ContextTree, loops: &ParallelLoops) -> (Names<'a>, Code) {
        let scopes = || contexts.scopes().iter();
        let is_region = |s: &&Scope| matches!(s.kind, Kind::Loop | Kind::Partial);
        let is_procedure = |s: &&Scope| !is_region(s) && s.kind != Kind::Line;
        let entries = loops.all.keys().map(|key| key.entry);
        let procedures = scopes().filter(is_procedure).map(|s| s.procedure).chain(entries);
        let procedures = sorted(symbols, procedures);
        let regions = sorted(symbols, scopes().filter(is_region).map(|s| s.procedure));
        let numbers = |of: &[ProcedureIndex]| (0..).zip(of).map(|(id, p)| (*p, id)).collect();
        let mut names = Names {
            symbols,
            procedures: numbers(&procedures),
            regions: numbers(&regions),
            files: FastMap::default(),
        };
        let named = procedures.iter().chain(&regions);
        let declared = named.map(|p| symbols.procedure(*p).declared);
        let lines = scopes().flat_map(|s| [s.line, s.call]);
        let calls = loops.all.keys().map(|key| key.call);
        let files = names.number_files(declared.chain(lines).chain(calls).flatten());
        let (modules, module_of) = modules(symbols);
        let known = |index: &ProcedureIndex| {
            let procedure = symbols.procedure(*index);
            code::Procedure {
                name: symbols.text(procedure.name).to_owned(),
                module: procedure.module.map(|m| module_of[m.0 as usize]),
                declared: procedure.declared.map(|line| names.location(line)),
                origin: procedure.origin,
                position: procedure.position,
            }
        };
        let code = Code {
            procedures: procedures.iter().map(known).collect(),
            regions: regions.iter().map(known).collect(),
            files,
            modules,
            loops: Vec::new(),
        };
        (names, code)
    }

    /// Numbers the files of `lines` by path; returns the paths.
    fn number_files(&mut self, lines: impl Iterator<Item = Line>) -> Vec<String> {
        let mut seen: Vec<u32> = lines.map(|line| line.file.0).collect();
        seen.sort_unstable();
        seen.dedup();
        let path = |text: &u32| self.symbols.text(crate::model::symbols::Text(*text));
        seen.sort_by_key(path);
        let paths = seen.iter().map(|text| path(text).to_owned()).collect();
        self.files = (0..).zip(seen).map(|(id, text)| (text, id)).collect();
        paths
    }

    fn location(&self, line: Line) -> SourceLocation {
        SourceLocation { file: self.files.get(&line.file.0).copied().unwrap_or(0), line: line.line }
    }

    fn procedure(&self, procedure: ProcedureIndex) -> u32 {
        self.procedures.get(&procedure).copied().unwrap_or(0)
    }

    /// The number of a scope's procedure or region.
    fn number(&self, scope: &Scope) -> u32 {
        let numbers = match scope.kind {
            Kind::Loop | Kind::Partial => &self.regions,
            _ => &self.procedures,
        };
        numbers.get(&scope.procedure).copied().unwrap_or(0)
    }

    fn parallel_loop(&self, loops: &ParallelLoops, index: usize) -> code::ParallelLoop {
        let Some((key, known)) = loops.all.get_index(index) else {
            unreachable!("an index of the table itself")
        };
        code::ParallelLoop {
            name: known.name.clone(),
            quoted: known.name_from_source,
            entry: self.procedure(key.entry),
            call: key.call.map(|call| self.location(Line { line: known.line.unwrap_or(call.line), ..call })),
            counts: known.counts,
            shared_by: known.sharing + 1,
            task_ns: 0,
        }
    }

    fn node(&self, scope: &Scope) -> TreeNode {
        let call = scope.call.map(|call| Call::Unique(self.location(call)));
        let number = self.number(scope);
        let label = match (scope.kind, scope.line) {
            (Kind::Line, Some(line)) => Label::Line(self.location(line)),
            (Kind::Loop, _) => Label::Loop(number),
            (Kind::Partial, _) => Label::Partial(number),
            (Kind::Inlined, _) => Label::Inlined(number),
            _ => Label::Procedure(number),
        };
        let call = call.unwrap_or(Call::Unknown);
        TreeNode { call, is_runtime: scope.is_runtime, ..TreeNode::new(None, label) }
    }

    /// The position of each scope among all scopes of a tree in their order.
    fn scope_ranks(&self, tree: &ContextTree) -> Vec<u32> {
        let scopes: Vec<&Scope> = tree.scopes().iter().collect();
        let mut sorted: Vec<u32> = (0..scopes.len() as u32).collect();
        let lines = |line: Option<Line>| line.map(|line| self.location(line)).map(|l| (l.file, l.line));
        let key = |index: &u32| {
            let s = scopes[*index as usize];
            let place = (lines(s.line), lines(s.call), s.column, s.is_runtime);
            (s.kind, self.number(s), place)
        };
        sorted.sort_by_cached_key(key);
        ranks(&sorted)
    }
}

impl Numbers {
    fn new(
        (tree, part): (&ContextTree, Part),
        ranks: &[u32],
        scopes: &Arc<[TreeNode]>,
        loop_of: impl Fn(ContextIndex) -> Option<u32>,
    ) -> Numbers {
        let order = preorder(tree, &tree.part(part), ranks);
        let mut of = vec![0; tree.len()];
        for (number, context) in (0..).zip(&order) {
            of[context.0 as usize] = number;
        }
        let parent = |context| tree.parent(context).map_or(NO_PARENT, |p| of[p.0 as usize]);
        let contexts = order.iter().map(|c| (parent(*c), tree.scope_index(*c)));
        let loops = (0..).zip(&order);
        let loops = loops.filter_map(|(number, context)| Some((number, loop_of(*context)?)));
        let sampled = order.iter().map(|c| tree.is_sampled(*c, part));
        Numbers {
            scopes: scopes.clone(),
            contexts: contexts.collect(),
            loops: loops.collect(),
            sampled: sampled.collect(),
            of,
        }
    }
}

fn modules(symbols: &Symbols) -> (Vec<code::Module>, Vec<u32>) {
    let mut sorted: Vec<usize> = (0..symbols.modules.len()).collect();
    sorted.sort_by_key(|m| {
        let module = &symbols.modules[*m];
        (&module.path, &module.build_id, module.stamp)
    });
    let mut rank = vec![0; sorted.len()];
    let modules = (0..).zip(&sorted).map(|(id, index)| {
        rank[*index] = id;
        let module = &symbols.modules[*index];
        code::Module {
            path: module.path.clone(),
            build_id: module.build_id.iter().map(|b| format!("{b:02x}")).collect(),
            analysed: symbols.analysed.contains(&ModuleIndex(*index as u32)),
        }
    });
    (modules.collect(), rank)
}

/// These procedures, each once, in their order.
fn sorted(symbols: &Symbols, procedures: impl Iterator<Item = ProcedureIndex>) -> Vec<ProcedureIndex> {
    let mut sorted: Vec<ProcedureIndex> = procedures.collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.sort_by(|a, b| by_name(symbols, *a, *b));
    sorted
}

/// The order of procedures: name, module, declaration, origin.
fn by_name(symbols: &Symbols, a: ProcedureIndex, b: ProcedureIndex) -> Ordering {
    let (a, b) = (symbols.procedure(a), symbols.procedure(b));
    let module = |m: Option<_>| m.map(|m| symbols.module(m)).map(|m| (&m.path, &m.build_id, m.stamp));
    let line = |line: Option<Line>| line.map(|l| (symbols.text(l.file), l.line));
    let name = symbols.text(a.name).cmp(symbols.text(b.name));
    name.then_with(|| module(a.module).cmp(&module(b.module)))
        .then_with(|| line(a.declared).cmp(&line(b.declared)))
        .then_with(|| (a.origin, a.position).cmp(&(b.origin, b.position)))
}

/// The position of each parallel loop when they are sorted by name, place and entry.
fn loop_ranks(loops: &ParallelLoops, names: &Names<'_>) -> Vec<u32> {
    let mut sorted: Vec<LoopIndex> = (0..loops.all.len() as u32).map(LoopIndex).collect();
    sorted.sort_by_cached_key(|index| {
        let (key, known) = loops.all.get_index(index.0 as usize)?;
        let call = key.call.map(|line| names.location(line)).map(|l| (l.file, l.line));
        let caller = key.caller.map(|c| names.procedure(c));
        let place = (call, key.column, names.procedure(key.entry), caller);
        Some((known.name.clone(), place))
    });
    ranks(&sorted.iter().map(|index| index.0).collect::<Vec<_>>())
}

/// The position of each index.
fn ranks(sorted: &[u32]) -> Vec<u32> {
    let mut ranks = vec![0; sorted.len()];
    for (position, index) in (0..).zip(sorted) {
        ranks[*index as usize] = position;
    }
    ranks
}

/// The contexts that are `in_part` in preorder, siblings by the ranks of their scopes.
fn preorder(tree: &ContextTree, in_part: &[bool], ranks: &[u32]) -> Vec<ContextIndex> {
    // Roots have parent 0, others their parent's index plus one.
    let parent = |c: ContextIndex| tree.parent(c).map_or(0, |p| p.0 + 1);
    let mut all: Vec<(u32, u32, ContextIndex)> = tree
        .all()
        .filter(|c| in_part[c.0 as usize])
        .map(|c| (parent(c), ranks[tree.scope_index(c) as usize], c))
        .collect();
    all.sort_unstable();
    // Where the children of each parent begin.
    let mut begins = vec![all.len() as u32; tree.len() + 2];
    for (at, (parent, _, _)) in all.iter().enumerate().rev() {
        begins[*parent as usize] = at as u32;
    }
    let children = |parent: u32| {
        let begin = begins[parent as usize] as usize;
        let own = all[begin..].iter().take_while(move |c| c.0 == parent);
        own.map(|c| c.2)
    };
    let mut order = Vec::with_capacity(all.len());
    let mut stack = vec![0];
    let mut below = Vec::new();
    while let Some(parent) = stack.pop() {
        if parent > 0 {
            order.push(ContextIndex(parent - 1));
        }
        below.clear();
        below.extend(children(parent).map(|c| c.0 + 1));
        stack.extend(below.iter().rev());
    }
    order
}
