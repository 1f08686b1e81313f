//! Finds calls in the Rust source of the measured program, so that a view can show what the user wrote.
//!
//! Input: a path and a line from debug information. The file may be absent or newer than the
//! program. Nothing here fails, and nothing is guessed: a call that is not found has no text.

use hpcstruct_rs::rust_source::{Token, read, tokens};
use std::collections::HashMap;
use std::path::Path;

/// Source files, each read once.
#[derive(Debug, Default)]
pub struct SourceFiles(HashMap<String, Option<Vec<Token>>>);

/// A call in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallChain {
    /// The chain of calls that ends with it.
    pub chain: String,
    /// Whether another call of its line has the same chain.
    pub has_twin: bool,
}

impl SourceFiles {
    /// The chain of calls that ends with the call of `method` on `line` of a file, without its
    /// receiver and the insides of its arguments: `par_iter().map(..).sum()`. The chain begins with a method
    /// that has one of the prefixes `starts`, else with a function: `walk_tree(..).for_each(..)`.
    ///
    /// Of several such calls it is the one at the column, which is that of the method's name or, with older
    /// compilers, of the expression's start. 0 means unknown: then it is the first.
    pub fn call_chain(
        &mut self,
        path: &str,
        (line, column): (u32, u32),
        method: &str,
        starts: &[&str],
    ) -> Option<CallChain> {
        let read = || Some(tokens(&read(Path::new(path))?));
        let file = self.0.entry(path.to_owned()).or_insert_with(read);
        find(file.as_deref()?, (line, column), method, starts)
    }
}

fn find(
    tokens: &[Token],
    (line, column): (u32, u32),
    method: &str,
    starts: &[&str],
) -> Option<CallChain> {
    let from = tokens.partition_point(|t| t.line < line);
    let on_line = tokens[from..].iter().take_while(|t| t.line == line).count();
    let is_named = |at: &usize| tokens[*at].text == method;
    let named = (from..from + on_line).filter(is_named);
    let mut chains = Vec::new();
    for at in named.filter(|at| with_arguments(tokens, *at).is_some()) {
        chains.push((tokens[at].column, chain(tokens, at, starts)));
    }
    let is_there = |found: &&(u32, _)| found.0 >= column;
    let (at, found) = chains.iter().find(is_there).or(chains.first())?;
    let chain = found.clone()?;
    let is_twin =
        |(other, text): &(u32, Option<String>)| other != at && text.as_ref() == Some(&chain);
    Some(CallChain {
        has_twin: chains.iter().any(is_twin),
        chain,
    })
}

/// The chain that ends with the call at `last`.
fn chain(tokens: &[Token], last: usize, starts: &[&str]) -> Option<String> {
    let mut parts = vec![with_arguments(tokens, last)?];
    let mut at = last;
    while let Some(name) = call_before(tokens, at) {
        parts.push(with_arguments(tokens, name)?);
        at = name;
    }
    parts.reverse();
    let is_start = |part: &String| starts.iter().any(|start| part.starts_with(start));
    let start = parts.iter().rposition(is_start).unwrap_or(0);
    Some(parts[start..].join("."))
}

/// What may stand before a bracket without being called.
const KEYWORDS: [&str; 11] = [
    "as", "await", "break", "else", "if", "in", "match", "move", "mut", "return", "while",
];

/// The call that the receiver of the call at `name` is: the position of its name.
fn call_before(tokens: &[Token], name: usize) -> Option<usize> {
    let text = |i: usize| tokens.get(i).map(|t| t.text.as_str());
    let dot = name.checked_sub(1).filter(|i| text(*i) == Some("."))?;
    let mut at = dot.checked_sub(1)?;
    if text(at) == Some("?") {
        at = at.checked_sub(1)?;
    }
    if text(at) != Some(")") {
        return None;
    }
    let open = matching(tokens, at, ("(", ")"))?;
    let mut before = open.checked_sub(1)?;
    if text(before) == Some(">") {
        let angle = matching(tokens, before, ("<", ">"))?;
        before = angle.checked_sub(3)?;
        if text(angle - 1) != Some(":") || text(angle - 2) != Some(":") {
            return None;
        }
    }
    let word = text(before)?;
    let is_name = word.starts_with(|c: char| c.is_alphabetic() || c == '_');
    (is_name && !KEYWORDS.contains(&word)).then_some(before)
}

/// The position of the bracket that the one at `close` closes.
fn matching(tokens: &[Token], close: usize, (open, closing): (&str, &str)) -> Option<usize> {
    let mut depth = 0_usize;
    for i in (0..=close).rev() {
        if tokens[i].text == closing {
            // The arrow of a function type closes nothing.
            let arrow = closing == ">" && i > 0 && matches!(tokens[i - 1].text.as_str(), "-" | "=");
            depth += usize::from(!arrow);
        } else if tokens[i].text == open {
            depth -= 1;
            if depth == 0 {
                return Some(i);
            }
        }
    }
    None
}

/// `name()` or `name(..)`, as the call at `name` has arguments or not; `None` when it is no call.
fn with_arguments(tokens: &[Token], name: usize) -> Option<String> {
    let mut at = name + 1;
    let text = |i: usize| tokens.get(i).map(|t| t.text.as_str());
    if text(at) == Some(":") && text(at + 1) == Some(":") && text(at + 2) == Some("<") {
        let mut depth = 0_usize;
        at += 2;
        loop {
            match text(at)? {
                "<" => depth += 1,
                ">" if !matches!(text(at - 1), Some("-" | "=")) => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 {
                break;
            }
        }
    }
    if text(at) != Some("(") {
        return None;
    }
    let empty = text(at + 1)? == ")";
    let name = &tokens[name].text;
    Some(if empty {
        format!("{name}()")
    } else {
        format!("{name}(..)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTS: [&str; 2] = ["par_", "into_par_iter"];

    fn chain_at(text: &str, line: u32, method: &str) -> Option<String> {
        Some(find(&tokens(text), (line, 0), method, &STARTS)?.chain)
    }

    #[test]
    fn calls_of_one_line_are_told_apart_by_their_columns() {
        let text =
            "a.par_iter().map(f).sum() + b.par_chunks(2).map(g).sum() + c.par_iter().map(h).sum();";
        let tokens = tokens(text);
        let at = |column| find(&tokens, (1, column), "sum", &STARTS).expect("a call");
        let names: Vec<u32> = (1..)
            .zip(text.as_bytes().windows(4))
            .filter(|(_, word)| *word == b"sum(")
            .map(|(column, _)| column)
            .collect();
        let [first, second, third] = names[..] else {
            panic!("three calls: {names:?}");
        };
        for (column, chain, has_twin) in [
            (0, "par_iter().map(..).sum()", true),
            (first, "par_iter().map(..).sum()", true),
            (second, "par_chunks(..).map(..).sum()", false),
            (third, "par_iter().map(..).sum()", true),
            // Where the second expression starts.
            (first + 8, "par_chunks(..).map(..).sum()", false),
            (1000, "par_iter().map(..).sum()", true),
        ] {
            let expected = CallChain {
                chain: chain.to_owned(),
                has_twin,
            };
            assert_eq!(at(column), expected, "column {column}");
        }
    }

    #[test]
    fn chains_are_cut_from_one_line_or_several() {
        let one = "let x: u64 = v.par_iter().map(|x| x + f(x, \")\")).sum();\n";
        assert_eq!(
            chain_at(one, 1, "sum").as_deref(),
            Some("par_iter().map(..).sum()")
        );
        let same = "let sum: u64 = v.par_iter().sum::<u64>(); let max = sum;\n";
        assert_eq!(
            chain_at(same, 1, "sum").as_deref(),
            Some("par_iter().sum()")
        );
        let several = "
            self.items[0]   // a comment with .sum()
                .into_par_iter()
                .with_min_len(8)
                /* nested /* comment */ ) */
                .filter_map(|x: &'a Foo| { let c = ')'; let q = '\\''; x.get::<u8>(c, q)? })
                .collect::<Result<Vec<Box<dyn Fn(u8) -> u8>>, _>>()
        ";
        assert_eq!(
            chain_at(several, 7, "collect").as_deref(),
            Some("into_par_iter().with_min_len(..).filter_map(..).collect()")
        );
        assert_eq!(
            chain_at(several, 6, "filter_map").as_deref(),
            Some("into_par_iter().with_min_len(..).filter_map(..)")
        );
    }

    #[test]
    fn what_is_no_such_call_has_no_chain() {
        assert_eq!(chain_at("let sum = 1;\n", 1, "sum"), None);
        assert_eq!(chain_at("v.sum()\n", 2, "sum"), None);
        assert_eq!(chain_at("v.product()\n", 1, "sum"), None);
        assert_eq!(chain_at("f(\"v.par_iter().sum()\")", 1, "sum"), None);
        assert_eq!(chain_at("r#\"v.par_iter().sum()\"#", 1, "sum"), None);
    }

    #[test]
    fn receivers_other_than_calls_are_left_out() {
        assert_eq!(
            chain_at("v.par_sort_by(|a, b| b.cmp(a));", 1, "par_sort_by").as_deref(),
            Some("par_sort_by(..)")
        );
        assert_eq!(
            chain_at("return (a + b).map(f).sum();", 1, "sum").as_deref(),
            Some("map(..).sum()")
        );
        assert_eq!(
            chain_at("let n = iter::split::<_, F>(a, f).count();", 1, "count").as_deref(),
            Some("split(..).count()")
        );
        assert_eq!(
            chain_at("all(x)?.par_iter().count();", 1, "count").as_deref(),
            Some("par_iter().count()")
        );
        assert_eq!(
            chain_at("iter.map(f).for_each(g);", 1, "for_each").as_deref(),
            Some("map(..).for_each(..)")
        );
        assert_eq!(
            chain_at(
                "rows.par_iter().for_each(|r| r.par_chunks(2).for_each(g));",
                1,
                "for_each"
            )
            .as_deref(),
            Some("par_iter().for_each(..)")
        );
    }

    #[test]
    fn any_text_has_tokens() {
        for text in [
            "\"", "r#", "r#\"", "b'", "'", "/*", "'\\", "ä.b()", "\\", "b\"\\",
        ] {
            for line in 0..3 {
                let _ = chain_at(text, line, "b");
            }
        }
    }
}
