//! Names as they are printed.

use crate::error::one_line;
use crate::model::code::Code;
use crate::model::tree::{Label, SourceLocation};

pub use crate::model::symbols::base_name;

/// `file.rs:12`; the line is left out when unknown.
pub fn location(code: &Code, at: SourceLocation) -> String {
    self::at(code.file(at.file), at.line)
}

/// The same of a path.
pub fn at(file: &str, line: u32) -> String {
    let file = one_line(base_name(file));
    match line {
        0 => file,
        line => format!("{file}:{line}"),
    }
}

/// A number of things: `1 core`, `2 cores`.
pub fn counted(n: u64, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

pub fn label(code: &Code, label: Label) -> String {
    match label {
        Label::Procedure(p) | Label::Inlined(p) => code.procedure(p).name.clone(),
        Label::Loop(r) | Label::Partial(r) => code.regions[r as usize].name.clone(),
        Label::Line(at) => location(code, at),
        Label::Module(m) => m.map_or("[no module]", |m| code.module(m)).to_owned(),
        Label::File(f) => f.map_or("[no file]", |f| code.file(f)).to_owned(),
        Label::ParallelLoop(l) => code.parallel_loop(l).name.clone(),
        Label::Pruned(1) => "1 context not shown".to_owned(),
        Label::Pruned(n) => format!("{n} contexts not shown"),
    }
}

/// The name of a node for a screen: on one line, without what steers a terminal.
pub fn shown(code: &Code, of: Label) -> String {
    one_line(&label(code, of))
}

/// Breaks a text into lines of at most `width` characters, at spaces; further lines are indented.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    const INDENT: &str = "    ";
    let mut lines: Vec<String> = Vec::new();
    let leading = text.len() - text.trim_start().len();
    let mut line = text[..leading].to_owned();
    let mut is_empty = true;
    for word in text.split_whitespace() {
        let length = line.chars().count() + usize::from(!is_empty) + word.chars().count();
        if length > width && !is_empty {
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines.iter().map(|line| middle(line, width)).collect()
}

/// Shortens a text to `width` characters by cutting out its middle.
pub fn middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    if width < 5 {
        return text.chars().take(width).collect();
    }
    let head = (width - 1) / 2;
    let tail = width - 1 - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_out_the_middle() {
        assert_eq!(middle("abcdefghij", 10), "abcdefghij");
        assert_eq!(middle("abcdefghijk", 10), "abcd…ghijk");
        assert_eq!(middle("äöüäöüäöü", 5), "äö…öü");
        assert_eq!(middle("abcdef", 3), "abc");
    }

    #[test]
    fn wraps_at_spaces() {
        assert_eq!(wrap("a bc def", 20), ["a bc def"]);
        assert_eq!(wrap("  1 s: one two three", 12), ["  1 s: one", "    two", "    three"]);
        assert_eq!(wrap("one abcdefghijkl", 8), ["one", "   …ijkl"]);
    }
}
