//! Rust source text: its tokens, and the modules around its functions.
//!
//! Any text is input: what is not closed ends with the text. Invariant: nothing is guessed; a
//! function is found by its name and a line of its body together, or not at all.

use ra_ap_rustc_lexer::TokenKind::{BlockComment, LineComment, Whitespace};
use ra_ap_rustc_lexer::tokenize;
use std::borrow::Cow;
use std::path::Path;

/// Larger files are not read.
const MOST_BYTES: u64 = 8 << 20;

/// A token of Rust source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Line that it begins on, from 1.
    pub line: u32,
    /// Bytes of that line before it, plus one.
    pub column: u32,
    /// As it is written.
    pub text: String,
}

/// The text of a source file, unless it is huge, or none.
pub fn read(path: &Path) -> Option<String> {
    let size = std::fs::metadata(path).ok().filter(|m| m.is_file())?.len();
    (size <= MOST_BYTES).then(|| std::fs::read_to_string(path).ok())?
}

/// The tokens of a text, without comments; a literal is one token. Unclosed ones end the text.
pub fn tokens(text: &str) -> Vec<Token> {
    let (mut at, mut line, mut line_start) = (0, 1, 0);
    let mut out = Vec::new();
    for token in tokenize(text) {
        let piece = &text[at..at + token.len as usize];
        if !matches!(token.kind, Whitespace | LineComment { .. } | BlockComment { .. }) {
            out.push(Token { line, column: (at - line_start) as u32 + 1, text: piece.to_owned() });
        }
        line += piece.bytes().filter(|b| *b == b'\n').count() as u32;
        if let Some(last) = piece.rfind('\n') {
            line_start = at + last + 1;
        }
        at += piece.len();
    }
    out
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Function {
    name: String,
    first: u32,
    last: u32,
    /// Modules around it in this file, outermost first: `a::b`.
    modules: String,
}

/// The functions of a source file, in its order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Functions(Vec<Function>);

/// What a brace encloses.
enum Block {
    Module,
    /// Its index.
    Function(usize),
    Other,
}

impl Functions {
    /// Of a file's text.
    pub(crate) fn new(text: &str) -> Functions {
        let tokens = tokens(text);
        let word = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
        let is_name = |i: usize| word(i).starts_with(|c: char| c.is_alphabetic() || c == '_');
        let mut functions: Vec<Function> = Vec::new();
        let mut modules: Vec<&str> = Vec::new();
        let mut blocks: Vec<Block> = Vec::new();
        // What the next brace encloses: the position of `mod` or `fn`, and how many brackets are
        // open there.
        let mut pending: Option<(usize, u32)> = None;
        let mut brackets = 0_u32;
        for (i, token) in tokens.iter().enumerate() {
            match token.text.as_str() {
                "mod" | "fn" if is_name(i + 1) => pending = Some((i, brackets)),
                "(" | "[" => brackets += 1,
                ")" | "]" => brackets = brackets.saturating_sub(1),
                ";" if pending.is_some_and(|p| p.1 == brackets) => pending = None,
                "{" => blocks.push(match pending.take() {
                    Some((at, _)) if word(at) == "mod" => {
                        modules.push(word(at + 1));
                        Block::Module
                    }
                    Some((at, _)) => {
                        functions.push(Function {
                            name: word(at + 1).to_owned(),
                            first: tokens[at].line,
                            last: u32::MAX,
                            modules: modules.join("::"),
                        });
                        Block::Function(functions.len() - 1)
                    }
                    None => Block::Other,
                }),
                "}" => match blocks.pop() {
                    Some(Block::Module) => {
                        modules.pop();
                    }
                    Some(Block::Function(index)) => functions[index].last = token.line,
                    _ => {}
                },
                _ => {}
            }
        }
        Functions(functions)
    }

    /// The path in this file of what surrounds the innermost function that has `line` and is called
    /// `name`: its modules. What surrounds a closure or the body of an async function (`{closure#0}`,
    /// `{async_fn#0}`) is the innermost function, with its modules.
    pub(crate) fn path_around(&self, name: &str, line: u32) -> Option<Cow<'_, str>> {
        let is_closure = name.starts_with('{');
        // In the order of their first lines: the innermost one is among the last that begin before.
        let before = self.0.partition_point(|f| f.first <= line);
        let mut around = self.0[..before].iter().filter(|f| line <= f.last);
        let found = around.rfind(|f| is_closure || f.name == name)?;
        Some(match (is_closure, found.modules.as_str()) {
            (false, modules) => Cow::Borrowed(modules),
            (true, "") => Cow::Borrowed(&found.name),
            (true, modules) => Cow::Owned(format!("{modules}::{}", found.name)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
fn plain(x: [u8; 4]) -> u8 { x[0] }
mod outer {
    // mod nothing {
    pub mod inner {
        impl<T> S<T> {
            pub fn method(&self) -> char {
                let f = |a| { a };
                '}'
            }
        }
        trait T { fn required(&self) -> [u8; 2]; fn given(&self) -> &'static str { \"{\" } }
    }
    fn after<'a, F: Fn(u8) -> u8>(f: F) {
        fn nested() {
        }
        nested()
    }
}
mod elsewhere;
fn last() {}
";

    #[test]
    fn functions_are_found_by_name_and_line() {
        let functions = Functions::new(TEXT);
        let around = |name, line| functions.path_around(name, line);
        let found = |path: &'static str| Some(Cow::Borrowed(path));
        assert_eq!(around("plain", 2), found(""));
        assert_eq!(around("method", 9), found("outer::inner"));
        assert_eq!(around("{closure#0}", 8), found("outer::inner::method"));
        assert_eq!(around("{async_fn#0}", 16), found("outer::nested"));
        assert_eq!(around("{closure#1}", 2), found("plain"));
        assert_eq!(around("{closure#0}", 20), None);
        assert_eq!(around("given", 12), found("outer::inner"));
        assert_eq!(around("after", 17), found("outer"));
        assert_eq!(around("nested", 16), found("outer"));
        assert_eq!(around("last", 21), found(""));
        for (name, line) in [("method", 17), ("required", 12), ("other", 9), ("after", 20)] {
            assert_eq!(around(name, line), None, "{name} {line}");
        }
    }

    #[test]
    fn any_text_has_functions() {
        for text in ["mod a {", "}}}", "fn", "fn f(", "mod { fn f {", "mod a; }", "fn f() { mod"] {
            let functions = Functions::new(text);
            assert_eq!(functions.path_around("g", 1), None);
        }
        let open = Functions::new("mod a { fn f() {");
        assert_eq!(open.path_around("f", 1), Some(Cow::Borrowed("a")));
    }
}
