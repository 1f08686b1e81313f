//! A structure as HPCToolkit's own tools read it: the XML of its `hpcstruct`, version 4.9.
//!
//! Input: a structure, and what `load_module` knows beyond it. The elements (HPCToolkit,
//! `doc/dtd/hpc-structure.dtd`): load module `LM`, file `F`, procedure `P` with its entry
//! address, `A` for inlined calls, loop `L` with its first address, statement `S` with its
//! addresses. An inlined call is two `A`, the place of the call and the called procedure; `S`
//! and `L` of another file than their scope's, or of a line before it, are within one `A`, which
//! names the file.
//!
//! Invariants, which hpcprof's reader asks for: every span is in exactly one `S`; a procedure's
//! entry is one byte, and its own; no file's name is empty; nothing is written that XML forbids.

use crate::output::load_module::LoadModule;
use hpc_formats::structure::{ProcedureId, ScopeId, ScopeKind, SourceLine, Span, Structure};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The name of an `A` that only changes the file.
const GUARD: &str = "<inline>";

/// The XML text.
pub fn render(structure: &Structure, module: &LoadModule) -> String {
    let name = module.path.rsplit('/').next().unwrap_or_default();
    let unknown_file = format!("[{name}]");
    let mut writer = Writer {
        structure,
        module,
        unknown_file: &unknown_file,
        tree: Tree::new(structure),
        out: String::with_capacity(64 * structure.spans.len() + 1024),
        // Numbers begin at 2, as hpcstruct's do.
        next: 2,
    };
    writer.out.push_str("<?xml version=\"1.0\"?>\n");
    writer.out.push_str("<HPCToolkitStructure i=\"0\" version=\"4.9\" n=\"\">\n");
    writer.load_module();
    writer.out.push_str("</HPCToolkitStructure>\n");
    writer.out
}

/// What lies directly in a scope or a procedure.
#[derive(Clone, Debug, Default)]
struct Content {
    scopes: Vec<ScopeId>,
    spans: Vec<u32>,
}

/// Lines and loops of one scope and one file.
#[derive(Debug, Default)]
struct Group {
    /// The lowest line that is known; 0 when none is.
    first_line: u32,
    /// Address ranges by line.
    lines: BTreeMap<u32, Vec<(u64, u64)>>,
    loops: Vec<ScopeId>,
}

/// The lines and loops of one scope, by whether they need an `A` that names their file.
#[derive(Debug)]
struct Groups<'s> {
    /// File and line of the scope.
    around: (&'s str, u32),
    local: Group,
    guarded: BTreeMap<&'s str, Group>,
}

impl<'s> Groups<'s> {
    /// Where a line or a loop belongs. Readers before 2021 take a line before its scope's for the
    /// scope's own: such lines are guarded, too.
    fn of(&mut self, file: &'s str, line: u32) -> &mut Group {
        let (own_file, first) = self.around;
        if file == own_file && (line == 0 || line >= first) {
            return &mut self.local;
        }
        let group = self.guarded.entry(file).or_default();
        if line > 0 && (group.first_line == 0 || line < group.first_line) {
            group.first_line = line;
        }
        group
    }
}

#[derive(Debug)]
struct Tree {
    procedures: Vec<Content>,
    scopes: Vec<Content>,
    /// By scope, the first address of its code and of the scopes in it.
    starts: Vec<u64>,
}

impl Tree {
    fn new(structure: &Structure) -> Tree {
        let mut tree = Tree {
            procedures: vec![Content::default(); structure.procedures.len()],
            scopes: vec![Content::default(); structure.scopes.len()],
            starts: vec![u64::MAX; structure.scopes.len()],
        };
        for (span, i) in structure.spans.iter().zip(0u32..) {
            let content = match span.scope {
                Some(scope) => {
                    let start = &mut tree.starts[scope.0 as usize];
                    *start = span.start.min(*start);
                    &mut tree.scopes[scope.0 as usize]
                }
                None => &mut tree.procedures[span.procedure.0 as usize],
            };
            content.spans.push(i);
        }
        // Children come after their parents: one pass from the end carries the starts up.
        for (i, scope) in structure.scopes.iter().enumerate().rev() {
            if let Some(parent) = scope.parent {
                let start = tree.starts[i];
                let above = &mut tree.starts[parent.0 as usize];
                *above = start.min(*above);
            }
        }
        let scopes = structure.scopes.iter().zip(0u32..);
        // Nothing can be attributed to a scope without code.
        for (scope, i) in scopes.filter(|(_, i)| tree.starts[*i as usize] < u64::MAX) {
            let around = match scope.parent {
                Some(parent) => &mut tree.scopes[parent.0 as usize],
                None => &mut tree.procedures[scope.procedure.0 as usize],
            };
            around.scopes.push(ScopeId(i));
        }
        tree
    }
}

struct Writer<'s> {
    structure: &'s Structure,
    module: &'s LoadModule,
    /// The name of a file that is not known: hpcstruct's is the module's, in brackets.
    unknown_file: &'s str,
    tree: Tree,
    out: String,
    next: u64,
}

impl<'s> Writer<'s> {
    fn load_module(&mut self) {
        self.open("LM");
        self.text("n", &self.module.path);
        self.out.push_str(" has-calls=\"0\" v=\"{}\">\n");
        let mut files: BTreeMap<&str, Vec<(u64, ProcedureId)>> = BTreeMap::new();
        for (start, id) in self.entries() {
            let (file, _) = self.place_of(id);
            files.entry(file).or_default().push((start, id));
        }
        for (file, procedures) in files {
            self.open("F");
            self.text("n", file);
            self.out.push_str(">\n");
            for (start, id) in procedures {
                self.procedure(file, start, id);
            }
            self.out.push_str("</F>\n");
        }
        self.out.push_str("</LM>\n");
    }

    /// Procedures with code, by their first addresses.
    fn entries(&self) -> Vec<(u64, ProcedureId)> {
        let mut seen = vec![false; self.structure.procedures.len()];
        let spans = self.structure.spans.iter();
        let first = |s: &&Span| !std::mem::replace(&mut seen[s.procedure.0 as usize], true);
        spans.filter(first).map(|s| (s.start, s.procedure)).collect()
    }

    /// The name of a source file; hpcprof refuses an empty one.
    fn file(&self, line: SourceLine) -> &'s str {
        match self.structure.string(line.file) {
            "" => self.unknown_file,
            name => name,
        }
    }

    /// Where a procedure is declared, else its first code that lies directly in it.
    fn place_of(&self, id: ProcedureId) -> (&'s str, u32) {
        let declared = self.structure.procedures[id.0 as usize].declared;
        let content = &self.tree.procedures[id.0 as usize];
        match declared.or_else(|| self.first_line(content)) {
            Some(line) => (self.file(line), line.line),
            None => (self.unknown_file, 0),
        }
    }

    fn procedure(&mut self, file: &'s str, start: u64, id: ProcedureId) {
        let procedure = &self.structure.procedures[id.0 as usize];
        let name = self.structure.string(procedure.name);
        let linkage = self.structure.string(procedure.linkage_name);
        self.open("P");
        self.text("n", name);
        if linkage != name {
            self.text("ln", linkage);
        }
        let (_, line) = self.place_of(id);
        self.number("l", line);
        let entry = *self.module.entries.get(&id).unwrap_or(&start);
        self.ranges(&[(entry, entry + 1)]);
        self.out.push_str(">\n");
        let content = std::mem::take(&mut self.tree.procedures[id.0 as usize]);
        self.content((file, line), &content);
        self.out.push_str("</P>\n");
    }

    /// What lies directly in a procedure, an inlined procedure or a loop, which is at `around`.
    fn content(&mut self, around: (&'s str, u32), content: &Content) {
        let groups = self.groups(around, content);
        self.lines(&groups.local);
        for (file, group) in groups.guarded {
            self.alien(file, group.first_line, GUARD);
            self.lines(&group);
            for scope in group.loops {
                self.scope(file, scope);
            }
            self.out.push_str("</A>\n");
        }
        for scope in groups.local.loops {
            self.scope(around.0, scope);
        }
        for scope in &content.scopes {
            if self.structure.scopes[scope.0 as usize].kind == ScopeKind::Inlined {
                self.scope(around.0, *scope);
            }
        }
    }

    /// What lies directly in a scope at `around`, by where it belongs.
    fn groups(&self, around: (&'s str, u32), content: &Content) -> Groups<'s> {
        let mut groups = Groups { around, local: Group::default(), guarded: BTreeMap::new() };
        let place = |place: Option<SourceLine>| match place {
            Some(line) => (self.file(line), line.line),
            None => (around.0, 0),
        };
        for i in &content.spans {
            let span = &self.structure.spans[*i as usize];
            let (file, line) = place(span.line);
            let lines = &mut groups.of(file, line).lines;
            let ranges = lines.entry(line).or_default();
            ranges.push((span.start, span.end));
        }
        for id in &content.scopes {
            let scope = &self.structure.scopes[id.0 as usize];
            if scope.kind == ScopeKind::Loop {
                let (file, line) = place(scope.site);
                groups.of(file, line).loops.push(*id);
            }
        }
        groups
    }

    fn lines(&mut self, group: &Group) {
        for (line, ranges) in &group.lines {
            self.open("S");
            self.number("l", *line);
            self.ranges(ranges);
            self.out.push_str("/>\n");
        }
    }

    fn scope(&mut self, file: &'s str, id: ScopeId) {
        let structure = self.structure;
        let scope = &structure.scopes[id.0 as usize];
        let content = std::mem::take(&mut self.tree.scopes[id.0 as usize]);
        let start = self.tree.starts[id.0 as usize];
        let place = |line: Option<SourceLine>| match line {
            Some(line) => (self.file(line), line.line),
            None => (file, 0),
        };
        let (site_file, site_line) = place(scope.site);
        match scope.kind {
            ScopeKind::Inlined => {
                let declared = scope.declared.or_else(|| self.first_line(&content));
                let (own_file, own_line) = match declared {
                    Some(_) => place(declared),
                    None => (site_file, 0),
                };
                self.alien(site_file, site_line, "");
                self.alien(own_file, own_line, structure.string(scope.name));
                self.content((own_file, own_line), &content);
                self.out.push_str("</A>\n</A>\n");
            }
            ScopeKind::Loop => {
                self.open("L");
                self.number("l", site_line);
                self.text("f", site_file);
                self.ranges(&[(start, start + 1)]);
                self.out.push_str(">\n");
                self.content((site_file, 0), &content);
                self.out.push_str("</L>\n");
            }
        }
    }

    fn first_line(&self, content: &Content) -> Option<SourceLine> {
        let spans = content.spans.iter();
        let mut lines = spans.map(|i| self.structure.spans[*i as usize].line);
        lines.find(Option::is_some).flatten()
    }

    fn alien(&mut self, file: &str, line: u32, name: &str) {
        self.open("A");
        self.number("l", line);
        self.text("f", file);
        self.text("n", name);
        self.out.push_str(" v=\"{}\">\n");
    }

    /// Begins an element with its number.
    fn open(&mut self, element: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.out, "<{element} i=\"{}\"", self.next);
        self.next += 1;
    }

    fn number(&mut self, name: &str, value: u32) {
        let _ = write!(self.out, " {name}=\"{value}\"");
    }

    fn text(&mut self, name: &str, value: &str) {
        let _ = write!(self.out, " {name}=\"");
        escape(value, &mut self.out);
        self.out.push('"');
    }

    /// Address ranges; those that touch become one.
    fn ranges(&mut self, ranges: &[(u64, u64)]) {
        self.out.push_str(" v=\"{");
        for (i, touching) in ranges.chunk_by(|a, b| a.1 == b.0).enumerate() {
            let separator = if i > 0 { " " } else { "" };
            let (start, end) = (touching[0].0, touching[touching.len() - 1].1);
            let _ = write!(self.out, "{separator}[{start:#x}-{end:#x})");
        }
        self.out.push_str("}\"");
    }
}

/// Writes `text` as an attribute's value; what XML has no way to say becomes U+FFFD.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' => out.push(' '),
            ..'\u{20}' | '\u{fffe}' | '\u{ffff}' => out.push(char::REPLACEMENT_CHARACTER),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_forbids_is_replaced() {
        let mut out = String::new();
        escape("a<b>&\"'\u{1}\n\u{ffff}é\u{fffe}\u{fffd}ｏ日", &mut out);
        let expected = "a&lt;b&gt;&amp;&quot;&apos;\u{fffd} \u{fffd}é\u{fffd}\u{fffd}ｏ日";
        assert_eq!(out, expected);
    }
}
