//! Finds calls and directives in the source of the measured program, so that a view can show what the user
//! wrote.
//!
//! Input: a path and a line from debug information. The file may be absent, or newer than the program: then
//! it is not read. Nothing here fails, and nothing is guessed: a call that is not found has no text.

use hpcstruct_rs::rust_source::{Token, read, tokens};
use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

/// Source files, each read once.
#[derive(Debug, Default)]
pub struct SourceFiles {
    tokens: HashMap<String, Option<Vec<Token>>>,
    /// When files were changed last.
    changed: HashMap<String, Option<SystemTime>>,
    texts: HashMap<String, Option<String>>,
}

/// A call in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallChain {
    /// The chain of calls that ends with it.
    pub chain: String,
    /// Whether another call of its line has the same chain.
    pub has_twin: bool,
}

impl SourceFiles {
    fn changed(&mut self, path: &str) -> Option<SystemTime> {
        let look = || std::fs::metadata(path).and_then(|known| known.modified()).ok();
        *self.changed.entry(path.to_owned()).or_insert_with(look)
    }

    /// Whether a file has been changed after a module was made of it, or is gone.
    fn is_newer(&mut self, path: &str, module: Option<&str>) -> bool {
        let built = module.and_then(|module| self.changed(module));
        built.is_some_and(|built| self.changed(path).is_none_or(|changed| changed > built))
    }

    /// The text of a file that a module was made of, or why it cannot be shown.
    pub fn whole(&mut self, module: Option<&str>, path: &str) -> Result<String, &'static str> {
        if !Path::new(path).is_file() {
            return Err("there is no such file here");
        }
        if self.is_newer(path, module) {
            return Err("the file was changed after the program was built");
        }
        read(Path::new(path)).ok_or("the file cannot be read as text")
    }

    /// The chain of calls that ends with the call of `method` on `line` of a file, without its
    /// receiver and the insides of its arguments: `par_iter().map(..).sum()`. The chain begins with a method
    /// that has one of the prefixes `starts`, else with a function: `walk_tree(..).for_each(..)`.
    ///
    /// `None` if the file has been changed after the module that was made of it.
    ///
    /// Of several such calls it is the one at the column, which is that of the method's name or, with older
    /// compilers, of the expression's start. 0 means unknown: then it is the first.
    pub fn call_chain(
        &mut self,
        module: Option<&str>,
        (path, line, column): (&str, u32, u32),
        method: &str,
        starts: &[&str],
    ) -> Option<CallChain> {
        if self.is_newer(path, module) {
            return None;
        }
        let read = || Some(tokens(&read(Path::new(path))?));
        let file = self.tokens.entry(path.to_owned()).or_insert_with(read);
        find(file.as_deref()?, (line, column), method, starts)
    }

    /// The directive at `line` of a file of C, C++ or Fortran that begins with `start`: `omp parallel for`;
    /// and its line. A compiler may name a line above it, where the function begins. `None` as above.
    pub fn directive(
        &mut self,
        module: Option<&str>,
        (path, line): (&str, u32),
        start: &str,
    ) -> Option<(String, u32)> {
        if self.is_newer(path, module) {
            return None;
        }
        let read = || read(Path::new(path));
        let file = self.texts.entry(path.to_owned()).or_insert_with(read);
        let lines = (line..).zip(file.as_deref()?.lines().skip(line.checked_sub(1)? as usize));
        lines.take(3).find_map(|(line, text)| Some((directive_in(text, start)?, line)))
    }
}

fn directive_in(line: &str, start: &str) -> Option<String> {
    let words = line.trim_end_matches(['\\', '&']).split_whitespace();
    let line = words.collect::<Vec<_>>().join(" ");
    let marks = ["#pragma ", "# pragma ", "!$", "c$", "*$"];
    let lower = line.to_lowercase();
    let mark = marks.iter().find(|mark| lower.starts_with(**mark))?;
    let directive = lower.strip_prefix(mark)?;
    directive.starts_with(start).then(|| line[mark.len()..].to_owned())
}

fn find(tokens: &[Token], (line, column): (u32, u32), method: &str, starts: &[&str]) -> Option<CallChain> {
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
    let is_twin = |(other, text): &(u32, Option<String>)| other != at && text.as_ref() == Some(&chain);
    Some(CallChain { has_twin: chains.iter().any(is_twin), chain })
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
const KEYWORDS: [&str; 11] =
    ["as", "await", "break", "else", "if", "in", "match", "move", "mut", "return", "while"];

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
    Some(if empty { format!("{name}()") } else { format!("{name}(..)") })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTS: [&str; 2] = ["par_", "into_par_iter"];

    fn chain_at(text: &str, line: u32, method: &str) -> Option<String> {
        Some(find(&tokens(text), (line, 0), method, &STARTS)?.chain)
    }

    #[test]
    fn a_file_that_was_changed_after_the_build_is_not_quoted() {
        let folder = tempfile::tempdir().expect("a directory");
        let [module, source] = ["program", "main.rs"].map(|name| folder.path().join(name));
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        std::fs::write(&module, "").expect("a file");
        std::fs::write(&source, "a.par_iter().sum();\n#pragma omp parallel").expect("a file");
        let quoted = |seconds: u64| {
            let changed = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000 + seconds);
            let file = std::fs::File::options().write(true).open(&source).expect("opens");
            file.set_modified(changed).expect("a time");
            let built = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_001);
            let file = std::fs::File::options().write(true).open(&module).expect("opens");
            file.set_modified(built).expect("a time");
            let place = (&*text(&source), 1, 0);
            let (mut files, module) = (SourceFiles::default(), text(&module));
            let chain = files.call_chain(Some(&module), place, "sum", &STARTS).is_some();
            let directive = files.directive(Some(&module), (place.0, 2), "omp ").is_some();
            assert_eq!(chain, directive);
            chain
        };
        assert_eq!([0, 1, 2].map(quoted), [true, true, false]);
    }

    #[test]
    fn chains_are_cut_from_one_line_or_several() {
        let one = "let x: u64 = v.par_iter().map(|x| x + f(x, \")\")).sum();\n";
        let same = "let sum: u64 = v.par_iter().sum::<u64>(); let max = sum;\n";
        let several = "
            self.items[0]   // a comment with .sum()
                .into_par_iter()
                .with_min_len(8)
                /* nested /* comment */ ) */
                .filter_map(|x: &'a Foo| { let c = ')'; let q = '\\''; x.get::<u8>(c, q)? })
                .collect::<Result<Vec<Box<dyn Fn(u8) -> u8>>, _>>()
        ";
        let filtered = "into_par_iter().with_min_len(..).filter_map(..)";
        for (text, line, method, chain) in [
            (one, 1, "sum", "par_iter().map(..).sum()"),
            (same, 1, "sum", "par_iter().sum()"),
            (several, 7, "collect", &format!("{filtered}.collect()")),
            (several, 6, "filter_map", filtered),
        ] {
            assert_eq!(chain_at(text, line, method).as_deref(), Some(chain));
        }
    }

    #[test]
    fn a_chain_begins_with_the_first_call_of_its_receiver() {
        let nested = "rows.par_iter().for_each(|r| r.par_chunks(2).for_each(g));";
        let split = "let n = iter::split::<_, F>(a, f).count();";
        for (text, method, chain) in [
            ("v.par_sort_by(|a, b| b.cmp(a));", "par_sort_by", "par_sort_by(..)"),
            ("return (a + b).map(f).sum();", "sum", "map(..).sum()"),
            (split, "count", "split(..).count()"),
            ("all(x)?.par_iter().count();", "count", "par_iter().count()"),
            ("iter.map(f).for_each(g);", "for_each", "map(..).for_each(..)"),
            (nested, "for_each", "par_iter().for_each(..)"),
        ] {
            assert_eq!(chain_at(text, 1, method).as_deref(), Some(chain), "{text}");
        }
        for text in [
            "let sum = 1;",
            "\nv.sum()",
            "v.product()",
            "f(\"v.par_iter().sum()\")",
            "r#\"v.par_iter().sum()\"#",
        ] {
            assert_eq!(chain_at(text, 1, "sum"), None, "{text}");
        }
    }

    #[test]
    fn any_text_has_tokens() {
        for text in ["\"", "r#", "r#\"", "b'", "'", "/*", "'\\", "ä.b()", "\\", "b\"\\"] {
            for line in 0..3 {
                let _ = chain_at(text, line, "b");
            }
        }
    }
}
