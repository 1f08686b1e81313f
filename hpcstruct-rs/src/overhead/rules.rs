//! Rules that map procedures, load modules and source files to overhead categories.
//!
//! Input: a text of lines `KIND GLOB CATEGORY`, and the built-in rules, which are part of the table of what
//! is known. Invariant: rules are tried in order and the first match decides; a user's file comes before the
//! built-in rules.

use crate::base::error::StructError;
use crate::known::globs::Globs;
use crate::known::{self, Kind};
use std::path::Path;

/// The category that leaves untagged.
const NONE: &str = "none";

/// What a rule says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rule {
    pub(crate) category: String,
    /// The rule as it was written, and where.
    pub(crate) text: String,
}

/// The index of a procedure's rule; of several rules that match, the smallest decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RuleNumber(u32);

/// Ordered lists of rules; none by default: only the tags in the code itself count.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    procedures: Globs<Rule>,
    modules: Globs<Rule>,
    files: Globs<Rule>,
}

impl Rules {
    /// Pthreads, std's synchronisation and threads, parking_lot, crossbeam, rayon-core, libgomp,
    /// libomp, TBB.
    pub fn built_in() -> Rules {
        Rules::default().and_built_in()
    }

    /// The rules of the file at `path`, then the built-in ones.
    pub fn with_file(path: &Path) -> Result<Rules, StructError> {
        let text = std::fs::read_to_string(path).map_err(StructError::reading(path))?;
        let mut rules = Rules::default();
        for (i, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what| StructError::Rules { path: path.to_owned(), line: i + 1, what };
            // A glob may hold spaces (C++ templates), a kind and a category may not.
            let (kind, rest) = line.split_once(char::is_whitespace).ok_or(wrong("no glob"))?;
            let (glob, category) =
                rest.trim_start().rsplit_once(char::is_whitespace).ok_or(wrong("no category"))?;
            let list = Kind::from_name(kind).and_then(|kind| rules.of_kind(kind));
            let text = format!("rule `{line}` ({})", path.display());
            let rule = Rule { category: category.to_owned(), text };
            list.ok_or(wrong("unknown kind"))?.push(glob.trim_end(), rule);
        }
        Ok(rules.and_built_in())
    }

    fn and_built_in(mut self) -> Rules {
        for (kind, category, glob) in known::facts() {
            if let Some(list) = self.of_kind(kind) {
                let text = format!("rule `{} {glob} {category}` (built-in)", kind.name());
                list.push(glob, Rule { category: category.to_owned(), text });
            }
        }
        self
    }

    fn of_kind(&mut self, kind: Kind) -> Option<&mut Globs<Rule>> {
        match kind {
            Kind::Procedure => Some(&mut self.procedures),
            Kind::Module => Some(&mut self.modules),
            Kind::File => Some(&mut self.files),
            _ => None,
        }
    }

    /// The rules as they were written.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let all = [&self.procedures, &self.modules, &self.files].into_iter();
        all.flat_map(|list| list.values().map(|rule| rule.text.as_str()))
    }

    /// The first rule for a procedure known by any of `names`.
    pub(crate) fn procedure_number(&self, names: &[&str]) -> Option<RuleNumber> {
        let first = names.iter().filter_map(|name| self.procedures.first(name));
        first.min().map(RuleNumber)
    }

    /// The rule for a load module, by its path or file name.
    pub(crate) fn module(&self, path: &str) -> Option<&Rule> {
        let names = [path, path.rsplit('/').next().unwrap_or(path)];
        let first = names.iter().filter_map(|name| self.modules.first(name)).min()?;
        tagging(self.modules.get(first)?)
    }

    pub(crate) fn file(&self, path: &str) -> Option<&Rule> {
        tagging(self.files.get(self.files.first(path)?)?)
    }

    /// What the rule of that number says; `None` when it removes a tag.
    pub(crate) fn of_number(&self, number: RuleNumber) -> Option<&Rule> {
        tagging(self.procedures.get(number.0)?)
    }
}

fn tagging(rule: &Rule) -> Option<&Rule> {
    (rule.category != NONE).then_some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_rules_know_the_usual_suspects() {
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
            let found = number.and_then(|n| rules.of_number(n)).map(|m| m.category.as_str());
            assert_eq!(found, category, "{name}");
        }
        let gomp = rules.module("/usr/lib/libgomp.so.1").map(|m| m.text.as_str());
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
        let category = |found: Option<&Rule>| found.map(|rule| rule.category.clone());
        let procedure = |name| category(rules.of_number(rules.procedure_number(&[name])?));
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
