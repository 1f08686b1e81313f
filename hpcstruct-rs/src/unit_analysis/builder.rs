//! The procedures of a unit: from entries and line rows to scopes and spans.
//!
//! Invariants: the spans of a procedure are sorted and do not overlap; only scopes that hold code
//! are kept, parents before children.

use super::{Function, InlinedScope, Inputs, Piece};
use crate::dwarf::EntryRef;
use crate::dwarf::line_table::{self, Cutter, Row};
use crate::dwarf::walk::{FunctionDie, Walked};
use crate::unit_analysis::classify::{FileFacts, OverheadTag};
use crate::unit_analysis::flatten_inlines::{self, ScopeRange, Segment};
use crate::unit_analysis::function_info::{self, Body, FunctionInfo, FunctionInfos};
use crate::unit_analysis::overhead_category::{self, Step};
use hpc_formats::structure::SourceLine;
use std::ops::Range;

/// What the analysis of a procedure works in.
#[derive(Debug, Default)]
pub(super) struct OfFunction {
    base: Vec<Range<u64>>,
    /// Its scopes as indices into the walk.
    ids: Vec<usize>,
    scope_ranges: Vec<ScopeRange>,
    flattening: flatten_inlines::Scratch,
    segments: Vec<Segment>,
    drafts: Vec<Draft>,
    call_tags: Vec<Option<OverheadTag>>,
    /// Whether a chain has any tag; most have none and need no category.
    is_tagged: Vec<bool>,
    pieces: Vec<Piece>,
    /// New numbers of scopes.
    numbers: Vec<Option<u32>>,
    scopes: Vec<InlinedScope>,
}

/// Builds the procedures of one unit.
pub(super) struct Builder<'a, 'd> {
    pub(super) inputs: &'a Inputs<'a, 'd>,
    pub(super) unit: u32,
    pub(super) walked: &'a Walked<'d>,
    pub(super) rows: &'a [Row],
    pub(super) infos: FunctionInfos<'a, 'd>,
}

/// A scope while its function is built.
#[derive(Debug)]
struct Draft {
    parent: Option<usize>,
    info: FunctionInfo,
    site: Option<SourceLine>,
    tag: Option<OverheadTag>,
    kept: bool,
}

impl Builder<'_, '_> {
    /// The procedure of a walk with this index; `None` when it has no code.
    pub(super) fn function(
        &mut self,
        index: usize,
        die: &FunctionDie,
        buffers: &mut OfFunction,
    ) -> Option<Function> {
        buffers.base.clear();
        for range in &die.ranges {
            if let Some((section, _)) = self.inputs.image.code_at(range.start) {
                buffers.base.push(range.start..range.end.min(section.end));
            }
        }
        let entry_address = buffers.base.first()?.start;
        self.scope_ranges(index, die, &mut buffers.ids, &mut buffers.scope_ranges);
        let symbol = self.inputs.symbols.starting_at(entry_address);
        let symbol = symbol.and_then(|s| std::str::from_utf8(s.name).ok());
        let body = self.body_file(&buffers.ids, None, &buffers.base);
        let mut info = self.infos.of_procedure(die.entry, self.walked, symbol, body);
        if info.declared.is_none() && !self.infos.is_rust() {
            // What a compiler makes, such as the body of a region, begins where its code does.
            let row = line_table::row_at(self.rows, entry_address).filter(|row| row.line > 0);
            info.declared = row.and_then(|row| {
                let file = self.infos.file(self.unit, u64::from(row.file))?;
                Some(SourceLine { file: file.path, line: row.line })
            });
        }
        self.drafts(&info, buffers);
        flatten_inlines::flatten(
            &buffers.base,
            &buffers.scope_ranges,
            &mut buffers.flattening,
            &mut buffers.segments,
        );
        let own_tag = overhead_category::tag(std::iter::once(Step { info, call_tag: None }));
        self.pieces(&buffers.segments, &mut buffers.drafts, own_tag, &mut buffers.pieces);
        Some(finish(info, buffers))
    }

    /// Collects the scopes of a function as indices into the walk, and their ranges. The `scope` of a
    /// range is an index into `ids`.
    fn scope_ranges(
        &self,
        index: usize,
        die: &FunctionDie,
        ids: &mut Vec<usize>,
        scope_ranges: &mut Vec<ScopeRange>,
    ) {
        ids.clear();
        scope_ranges.clear();
        for id in die.scopes.clone() {
            let scope = &self.walked.scopes[id];
            if scope.function as usize != index {
                continue;
            }
            for range in self.walked.ranges_of(scope) {
                scope_ranges.push(ScopeRange { range: range.clone(), depth: scope.depth, scope: ids.len() });
            }
            ids.push(id);
        }
    }

    /// Where a procedure's body lies: where its first inlined call is made, else its
    /// first line; `ids` begins after `parent`. Only needed where no declaration is stated.
    fn body_file(&mut self, ids: &[usize], parent: Option<usize>, ranges: &[Range<u64>]) -> Option<Body> {
        // Scopes are in depth-first order: the first child follows its parent.
        let child =
            ids.first().map(|id| &self.walked.scopes[*id]).filter(|s| s.parent.map(|p| p as usize) == parent);
        // Only in Rust: a procedure of C begins with its own line, and its first call may be marked.
        let child = child.filter(|_| self.infos.is_rust() || parent.is_some());
        let (file, line) = match child.and_then(|s| s.call) {
            Some((file, line)) => (file, line),
            None => {
                let row = line_table::row_at(self.rows, ranges.first()?.start)?;
                (row.file, row.line)
            }
        };
        let file = self.infos.file(self.unit, u64::from(file))?;
        // Only Rust names are looked up by line.
        let line = if self.infos.is_rust() { line } else { 0 };
        Some(Body { file, line })
    }

    fn drafts(&mut self, procedure: &FunctionInfo, buffers: &mut OfFunction) {
        let OfFunction { ids, drafts, call_tags, is_tagged, .. } = buffers;
        drafts.clear();
        call_tags.clear();
        is_tagged.clear();
        for id in ids.iter() {
            let die = &self.walked.scopes[*id];
            let site =
                die.call.and_then(|(file, line)| Some((self.infos.file(self.unit, u64::from(file))?, line)));
            let info = self.scope_frame(ids, *id, die.origin);
            let parent = die.parent.and_then(|p| position(ids, p as usize));
            let call_tag = site.and_then(|(file, _)| file.tag);
            let around = parent.map_or(procedure.tag.is_some(), |p| is_tagged[p]);
            is_tagged.push(around || info.tag.is_some() || call_tag.is_some());
            call_tags.push(call_tag);
            drafts.push(Draft {
                parent,
                info,
                site: site.map(|(file, line)| SourceLine { file: file.path, line }),
                tag: None,
                kept: false,
            });
        }
        for i in (0..drafts.len()).filter(|i| is_tagged[*i]) {
            // From the scope outwards; the procedure is the last step.
            let around = std::iter::successors(Some(i), |scope| drafts[*scope].parent);
            let mut call_tag = None;
            let tag = overhead_category::tag(around.map(Some).chain([None]).map(|scope| Step {
                info: scope.map_or(*procedure, |scope| drafts[scope].info),
                call_tag: std::mem::replace(&mut call_tag, scope.and_then(|scope| call_tags[scope])),
            }));
            drafts[i].tag = tag;
        }
    }

    fn scope_frame(&mut self, ids: &[usize], id: usize, origin: Option<EntryRef>) -> FunctionInfo {
        if let Some(known) = origin.and_then(|entry| self.infos.known(entry)) {
            return known;
        }
        let walked = self.walked;
        if let Some(info) = origin.and_then(|entry| self.infos.without_body(entry, walked)) {
            return info;
        }
        let ranges = walked.ranges_of(&walked.scopes[id]);
        // Scopes are sorted: a scope's children come after it.
        let after = ids.partition_point(|i| *i <= id);
        let body = self.body_file(&ids[after..], Some(id), ranges);
        match origin {
            Some(entry) => {
                let rows = line_table::rows_in(self.rows, ranges);
                self.infos.of_inlined(entry, walked, body, rows)
            }
            None => function_info::of_symbol(self.inputs.classifier, "?", None),
        }
    }

    /// Splits segments at line rows and gives every piece its tag.
    fn pieces(
        &mut self,
        segments: &[Segment],
        drafts: &mut [Draft],
        own_tag: Option<OverheadTag>,
        out: &mut Vec<Piece>,
    ) {
        out.clear();
        let module_tag = self.inputs.classifier.module.tag;
        let mut cutter = Cutter::new(self.rows);
        for segment in segments {
            if let Some(scope) = segment.scope {
                keep(drafts, scope);
            }
            let scope_tag = segment.scope.map_or(own_tag, |scope| drafts[scope].tag);
            let scope = segment.scope.map_or(u32::MAX, |s| s as u32);
            cutter.cut(&segment.range, |range, row| {
                let file = row.and_then(|row| self.infos.file(self.unit, u64::from(row.file)));
                let line = source_line(file, row);
                // For line 0 clang keeps the file of `#line` regions; in Rust the file is left over from some
                // inlined function.
                let tagging = file.filter(|_| line.is_some() || !self.infos.is_rust());
                let line_tag = tagging.and_then(|file| file.tag);
                push(out, Piece { scope, ..Piece::new(range, line, line_tag.or(scope_tag).or(module_tag)) });
            });
        }
    }

    /// Lines of code without a procedure entry: assembler, and with line tables only every procedure
    /// into which clang inlined nothing. What a unit states as its code bounds them: the row that its
    /// line table has for the padding behind its last procedure goes on over the code of others.
    pub(super) fn loose(&mut self, covered: &[Range<u64>]) -> Vec<Piece> {
        let mut out = Vec::new();
        let stated = self.inputs.debug.unit_ranges(self.unit);
        let stated = stated.map(|ranges| super::disjoint(ranges.iter()));
        // Rows follow each other.
        let mut after = 0;
        for row in self.rows {
            while covered.get(after).is_some_and(|r| r.end <= row.start) {
                after += 1;
            }
            if covered.get(after).is_some_and(|r| r.start < row.end) {
                continue;
            }
            let mut own = row.start..row.end;
            if let Some(stated) = &stated {
                let next = stated.get(stated.partition_point(|r| r.end <= row.start));
                let Some(around) = next.filter(|r| r.start < row.end) else {
                    continue;
                };
                own = own.start.max(around.start)..own.end.min(around.end);
            }
            let file = self.infos.file(self.unit, u64::from(row.file));
            push(&mut out, Piece::new(own, source_line(file, Some(row)), file.and_then(|file| file.tag)));
        }
        out
    }
}

/// The position of `id` in a sorted list of distinct numbers, mostly consecutive ones.
fn position(ids: &[usize], id: usize) -> Option<usize> {
    let guess = id.checked_sub(*ids.first()?)?;
    if ids.get(guess) == Some(&id) {
        return Some(guess);
    }
    ids.binary_search(&id).ok()
}

/// The line of a row; line 0 = the compiler gives the code no line.
fn source_line(file: Option<FileFacts>, row: Option<&Row>) -> Option<SourceLine> {
    let line = row?.line;
    let file = file?.path;
    (line > 0).then_some(SourceLine { file, line })
}

/// Marks a scope and those around it as holding code.
fn keep(drafts: &mut [Draft], scope: usize) {
    let mut next = Some(scope);
    while let Some(i) = next {
        if drafts[i].kept {
            return;
        }
        drafts[i].kept = true;
        next = drafts[i].parent;
    }
}

/// Renumbers the kept scopes. The lists of the result have no spare room: there are many.
fn finish(info: FunctionInfo, buffers: &mut OfFunction) -> Function {
    let OfFunction { drafts, numbers, scopes, pieces, .. } = buffers;
    numbers.clear();
    scopes.clear();
    for draft in drafts.iter() {
        if !draft.kept {
            numbers.push(None);
            continue;
        }
        numbers.push(Some(scopes.len() as u32));
        scopes.push(InlinedScope {
            parent: draft.parent.and_then(|p| numbers[p]),
            name: draft.info.name,
            declared: draft.info.declared,
            origin: draft.info.origin,
            site: draft.site,
        });
    }
    for piece in pieces.iter_mut() {
        let kept = piece.scope().and_then(|s| numbers[s as usize]);
        piece.scope = kept.unwrap_or(u32::MAX);
    }
    Function { info, scopes: scopes.as_slice().into(), pieces: pieces.as_slice().into() }
}

/// Appends a piece, or extends the last one when nothing but the address differs.
fn push(out: &mut Vec<Piece>, piece: Piece) {
    match out.last_mut() {
        Some(last)
            if last.end == piece.start
                && last.scope == piece.scope
                && last.line == piece.line
                && last.tag == piece.tag =>
        {
            last.end = piece.end;
        }
        _ => out.push(piece),
    }
}
