//! Rules that map procedures, load modules and source files to overhead categories.
//!
//! Input: a text of lines `KIND GLOB CATEGORY` (see `rules.txt`, the built-in ones). Invariant:
//! rules are tried in order and the first match decides; a user's file comes before the built-in
//! rules.

use crate::error::StructError;
use std::path::Path;

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
}

/// An ordered list of rules.
#[derive(Clone, Debug)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Pthreads, std's synchronisation and threads, parking_lot, crossbeam, rayon-core, libgomp,
    /// libomp, TBB.
    pub fn built_in() -> Rules {
        // The text is part of this crate; a test parses it without an error.
        Rules(parse(Path::new("rules.txt"), BUILT_IN).unwrap_or_default())
    }

    /// The rules of the file at `path`, then the built-in ones.
    pub fn with_file(path: &Path) -> Result<Rules, StructError> {
        let text = std::fs::read_to_string(path).map_err(|error| StructError::Read {
            path: path.to_owned(),
            error,
        })?;
        let mut rules = parse(path, &text)?;
        rules.extend(Rules::built_in().0);
        Ok(Rules(rules))
    }

    /// No rules at all: only the tags in the code itself count.
    pub fn none() -> Rules {
        Rules(Vec::new())
    }

    /// The category of a procedure known by any of `names`.
    pub fn procedure(&self, names: &[&str]) -> Option<&str> {
        self.find(Kind::Procedure, names)
    }

    /// The category of a load module, by its path or file name.
    pub fn module(&self, path: &str) -> Option<&str> {
        self.find(
            Kind::Module,
            &[path, path.rsplit('/').next().unwrap_or(path)],
        )
    }

    /// The category of a source file.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.find(Kind::File, &[path])
    }

    fn find(&self, kind: Kind, names: &[&str]) -> Option<&str> {
        let matches = |r: &&Rule| {
            r.kind == kind && names.iter().any(|n| glob(r.glob.as_bytes(), n.as_bytes()))
        };
        let found = self.0.iter().find(matches)?;
        (found.category != NONE).then_some(found.category.as_str())
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
        let wrong = |what| StructError::Rules {
            path: path.to_owned(),
            line: i + 1,
            what,
        };
        // A glob may hold spaces (C++ templates), a kind and a category may not.
        let (kind, rest) = line
            .split_once(char::is_whitespace)
            .ok_or(wrong("no glob"))?;
        let (glob, category) = rest
            .trim_start()
            .rsplit_once(char::is_whitespace)
            .ok_or(wrong("no category"))?;
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
            (
                "std::sys::sync::mutex::futex::Mutex::lock_contended",
                Some("sync"),
            ),
            ("std::thread::local::LocalKey::with", None),
            ("std::collections::hash::map::HashMap::get", None),
            ("rayon_core::join::join_context", Some("sched")),
            ("rayon::iter::plumbing::bridge", None),
            ("parking_lot_core::parking_lot::park", Some("sync")),
        ] {
            assert_eq!(rules.procedure(&[name]), category, "{name}");
        }
        assert_eq!(rules.module("/usr/lib/libgomp.so.1"), Some("sched"));
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
        assert_eq!(rules.procedure(&["pthread_create"]), None);
        assert_eq!(rules.procedure(&["pthread_join"]), Some("sync"));
        assert_eq!(rules.procedure(&["ns::T<a, b>::f"]), Some("x"));
        assert_eq!(rules.file("/w/vendor/z.c"), Some("vendor"));
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
