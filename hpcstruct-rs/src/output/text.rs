//! A readable form of a structure: procedure > inlined call or loop > spans.

use crate::TagUse;
use crate::input::debug_file::hex;
use hpc_formats::structure::{Procedure, ScopeKind, SourceLine, Span, Structure};
use std::fmt::Write as _;

/// One line per procedure, per entered scope and per span, indented by depth.
pub fn render(structure: &Structure) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "module {}", structure.module);
    let _ = writeln!(out, "build-id {}", hex(&structure.build_id));
    let _ = writeln!(
        out,
        "procedures {} scopes {} spans {}{}",
        structure.procedures.len(),
        structure.scopes.len(),
        structure.spans.len(),
        if structure.complete { "" } else { " (sampled procedures only)" }
    );
    for note in &structure.notes {
        let _ = writeln!(out, "note {note}");
    }
    tags(structure, &mut out);
    let mut lists: Vec<Vec<&Span>> = vec![Vec::new(); structure.procedures.len()];
    for span in &structure.spans {
        if let Some(list) = lists.get_mut(span.procedure.0 as usize) {
            list.push(span);
        }
    }
    for (p, spans) in structure.procedures.iter().zip(lists) {
        procedure(structure, p, &spans, &mut out);
    }
    out
}

/// What is tagged as overhead: a line for each category, then one for each mark or rule.
pub fn render_tags(structure: &Structure, uses: &[TagUse]) -> String {
    let mut out = String::new();
    let code: u64 = structure.spans.iter().map(|s| s.end - s.start).sum();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "module {}: {code} bytes of code", structure.module);
    if uses.is_empty() {
        let _ = writeln!(out, "nothing is tagged as overhead");
    }
    let mut rest = uses;
    while let Some(first) = rest.first() {
        let same = rest.partition_point(|u| u.category <= first.category);
        let (of_category, after) = rest.split_at(same);
        let bytes: u64 = of_category.iter().map(|u| u.bytes).sum();
        let _ = writeln!(
            out,
            "overhead:{} {bytes} bytes, {:.2} % of the code",
            first.category,
            100.0 * bytes as f64 / code.max(1) as f64
        );
        let mut of_category = of_category.to_vec();
        of_category.sort_by(|a, b| (b.bytes, &a.cause).cmp(&(a.bytes, &b.cause)));
        for tag in of_category {
            let _ = writeln!(out, "  {} bytes in {} procedures by {}", tag.bytes, tag.procedures, tag.cause);
        }
        rest = after;
    }
    out
}

/// Bytes of code per overhead category.
fn tags(structure: &Structure, out: &mut String) {
    let mut bytes = std::collections::BTreeMap::new();
    for span in &structure.spans {
        if let Some(tag) = span.tag {
            *bytes.entry(structure.string(tag)).or_insert(0) += span.end - span.start;
        }
    }
    for (category, bytes) in bytes {
        let _ = writeln!(out, "overhead:{category} {bytes} bytes");
    }
}

fn place(structure: &Structure, line: Option<SourceLine>) -> String {
    match line {
        None => "-".to_owned(),
        // A call that the compiler put together from several.
        Some(SourceLine { file, line: 0 }) => structure.string(file).to_owned(),
        Some(SourceLine { file, line }) => format!("{}:{line}", structure.string(file)),
    }
}

fn procedure(structure: &Structure, p: &Procedure, spans: &[&Span], out: &mut String) {
    let tag = p.tag.map_or("", |t| structure.string(t));
    let _ = writeln!(
        out,
        "\n{} [{}] {:?} {} {tag}",
        structure.string(p.name),
        structure.string(p.linkage_name),
        p.origin,
        place(structure, p.declared),
    );
    let mut open = Vec::new();
    for span in spans {
        let chain = structure.scope_chain(span);
        let common = open.iter().zip(&chain).take_while(|(a, b)| a == b).count();
        for (depth, scope) in chain.iter().enumerate().skip(common) {
            let Some(s) = structure.scopes.get(scope.0 as usize) else {
                continue;
            };
            let at = match s.kind {
                ScopeKind::Inlined => "called at",
                ScopeKind::Loop => "at",
            };
            let _ = writeln!(
                out,
                "{:indent$}> {} {:?} {at} {}",
                "",
                structure.string(s.name),
                s.origin,
                place(structure, s.site),
                indent = 2 + 2 * depth
            );
        }
        let _ = writeln!(
            out,
            "{:indent$}{:#x}-{:#x} {} {}",
            "",
            span.start,
            span.end,
            place(structure, span.line),
            span.tag.map_or("", |t| structure.string(t)),
            indent = 2 + 2 * chain.len()
        );
        open = chain;
    }
}
