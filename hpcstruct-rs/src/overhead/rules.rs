//! Rules that map procedures, load modules and source files to overhead categories.
//!
//! Input: a text of lines `KIND GLOB CATEGORY` (see `rules.txt`, the built-in ones). Invariant:
//! rules are tried in order and the first match decides; a user's file comes before the built-in
//! rules.

use crate::base::error::StructError;
use std::path::Path;

/// What the built-in rules are called in reports.
const BUILT_IN_NAME: &str = "built-in";
const BUILT_IN: &str = include_str!("rules.txt");
/// The category that leaves untagged.
const NONE: &str = "none";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Procedure,
    Module,
    File,
}

#[derive(Clone, Debug)]
struct Rule {
    kind: Kind,
    glob: String,
    category: String,
    /// The rule as it was written, and where.
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Match<'r> {
    pub(crate) category: &'r str,
    /// The rule in words.
    pub(crate) text: &'r str,
}

/// The index of a rule; of several rules that match, the smallest decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RuleNumber(u32);

/// An ordered list of rules.
#[derive(Clone, Debug)]
pub struct Rules {
    list: Vec<Rule>,
    /// For each kind and each first byte of a name, the rules that can match, in order.
    candidates: [Vec<Vec<u32>>; 3],
}

impl Rules {
    /// Pthreads, std's synchronisation and threads, parking_lot, crossbeam, rayon-core, libgomp,
    /// libomp, TBB.
    pub fn built_in() -> Rules {
        // The text is part of this crate; a test parses it without an error.
        Rules::new(parse(Path::new(BUILT_IN_NAME), BUILT_IN).unwrap_or_default())
    }

    /// The rules of the file at `path`, then the built-in ones.
    pub fn with_file(path: &Path) -> Result<Rules, StructError> {
        let text = std::fs::read_to_string(path).map_err(StructError::reading(path))?;
        let mut rules = parse(path, &text)?;
        rules.extend(Rules::built_in().list);
        Ok(Rules::new(rules))
    }

    /// No rules at all: only the tags in the code itself count.
    pub fn none() -> Rules {
        Rules::new(Vec::new())
    }

    /// The rules as they were written.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|rule| rule.text.as_str())
    }

    fn new(list: Vec<Rule>) -> Rules {
        let mut candidates = [(); 3].map(|()| vec![Vec::new(); 256]);
        for (rule, number) in list.iter().zip(0u32..) {
            let table: &mut Vec<Vec<u32>> = &mut candidates[rule.kind as usize];
            match rule.glob.bytes().next() {
                Some(first) if !matches!(first, b'*' | b'?') => {
                    table[usize::from(first)].push(number);
                }
                // An empty glob matches nothing that has a first byte.
                None => {}
                Some(_) => table.iter_mut().for_each(|l| l.push(number)),
            }
        }
        Rules { list, candidates }
    }

    /// The first rule for a procedure known by any of `names`.
    pub(crate) fn procedure_number(&self, names: &[&str]) -> Option<RuleNumber> {
        self.number(Kind::Procedure, names)
    }

    /// The rule for a load module, by its path or file name.
    pub(crate) fn module(&self, path: &str) -> Option<Match<'_>> {
        self.find(Kind::Module, &[path, path.rsplit('/').next().unwrap_or(path)])
    }

    pub(crate) fn file(&self, path: &str) -> Option<Match<'_>> {
        self.find(Kind::File, &[path])
    }

    fn find(&self, kind: Kind, names: &[&str]) -> Option<Match<'_>> {
        self.of_number(self.number(kind, names)?)
    }

    fn number(&self, kind: Kind, names: &[&str]) -> Option<RuleNumber> {
        let first = names.iter().filter_map(|name| self.first(kind, name));
        first.min().map(RuleNumber)
    }

    /// What the rule of that number says; `None` when it removes a tag.
    pub(crate) fn of_number(&self, number: RuleNumber) -> Option<Match<'_>> {
        let found = self.list.get(number.0 as usize)?;
        (found.category != NONE).then_some(Match { category: &found.category, text: &found.text })
    }

    /// The number of the first rule that matches `name`.
    fn first(&self, kind: Kind, name: &str) -> Option<u32> {
        let first = usize::from(*name.as_bytes().first()?);
        let mut numbers = self.candidates[kind as usize].get(first)?.iter().copied();
        numbers.find(|number| {
            let glob_of = |rule: &Rule| glob(rule.glob.as_bytes(), name.as_bytes());
            self.list.get(*number as usize).is_some_and(glob_of)
        })
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules::built_in()
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<Rule>, StructError> {
    let mut rules = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what| StructError::Rules { path: path.to_owned(), line: i + 1, what };
        // A glob may hold spaces (C++ templates), a kind and a category may not.
        let (kind, rest) = line.split_once(char::is_whitespace).ok_or(wrong("no glob"))?;
        let (glob, category) =
            rest.trim_start().rsplit_once(char::is_whitespace).ok_or(wrong("no category"))?;
        let kind = match kind {
            "procedure" => Kind::Procedure,
            "module" => Kind::Module,
            "file" => Kind::File,
            _ => return Err(wrong("unknown kind")),
        };
        rules.push(Rule {
            kind,
            glob: glob.trim_end().to_owned(),
            category: category.to_owned(),
            text: format!("rule `{line}` ({})", path.display()),
        });
    }
    Ok(rules)
}

/// Whether `text` matches `pattern` (`*` and `?`). Linear in practice: one point of return.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(b) if *b == b'?' || *b == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    retry = Some((after_star, from + 1));
                    p = after_star;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        let matches = |p: &str, t: &str| glob(p.as_bytes(), t.as_bytes());
        assert!(matches("pthread_*", "pthread_mutex_lock"));
        assert!(matches("a*b*c", "axxbyybc"));
        assert!(matches("?b", "ab"));
        assert!(matches("*", ""));
        assert!(!matches("pthread_*", "my_pthread_x"));
        assert!(!matches("a", "ab"));
        assert!(!matches("ab", "a"));
        assert!(!matches("?", ""));
        let hard = "a".repeat(4000);
        assert!(!matches("*a*a*a*a*b", &hard));
    }

    #[test]
    fn the_built_in_rules_parse_and_know_the_usual_suspects() {
        assert!(parse(Path::new("rules.txt"), BUILT_IN).is_ok());
        let rules = Rules::built_in();
        for (name, category) in [
            ("pthread_mutex_lock", Some("sync")),
            ("pthread_create", Some("sched")),
            ("pthread_getspecific", None),
            ("sem_timedwait", Some("sync")),
            ("std::sync::poison::mutex::Mutex::lock", Some("sync")),
            ("std::sys::sync::mutex::futex::Mutex::lock_contended", Some("sync")),
            ("std::thread::local::LocalKey::with", None),
            ("std::collections::hash::map::HashMap::get", None),
            ("rayon_core::join::join_context", Some("sched")),
            ("rayon::iter::plumbing::bridge", None),
            ("parking_lot_core::parking_lot::park", Some("sync")),
        ] {
            let number = rules.procedure_number(&[name]);
            let found = number.and_then(|n| rules.of_number(n)).map(|m| m.category);
            assert_eq!(found, category, "{name}");
        }
        let gomp = rules.module("/usr/lib/libgomp.so.1").map(|m| m.text);
        assert_eq!(gomp, Some("rule `module libgomp.so* sched` (built-in)"));
        assert_eq!(rules.module("/usr/lib/libc.so.6"), None);
    }

    #[test]
    fn a_user_file_comes_first_and_its_errors_name_the_line() {
        let folder = std::env::temp_dir().join(format!("hpcstruct-rules-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("temporary folder");
        let path = folder.join("rules");
        std::fs::write(
            &path,
            "# mine\n\nprocedure pthread_create none\nfile */vendor/*.c vendor\nprocedure ns::T<a, b>::* x\n",
        )
        .expect("written");
        let rules = Rules::with_file(&path).expect("parses");
        let category = |found: Option<Match<'_>>| found.map(|m| m.category.to_owned());
        let procedure = |name| category(rules.find(Kind::Procedure, &[name]));
        assert_eq!(procedure("pthread_create"), None);
        assert_eq!(procedure("pthread_join").as_deref(), Some("sync"));
        assert_eq!(procedure("ns::T<a, b>::f").as_deref(), Some("x"));
        assert_eq!(category(rules.file("/w/vendor/z.c")).as_deref(), Some("vendor"));
        for (text, place) in [
            ("procedure\n", ":1: no glob"),
            ("# x\nprocedure f\n", ":2: no category"),
            ("proc f x\n", ":1: unknown kind"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = Rules::with_file(&path).expect_err("refused").to_string();
            assert!(error.contains(place), "{error}");
        }
        assert!(Rules::with_file(&folder.join("absent")).is_err());
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
