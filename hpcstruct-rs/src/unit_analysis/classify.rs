//! Classifies names, source files and the load module, once for all units.
//!
//! A name has a readable form, an owner crate, an origin and tags; a file has an origin and a tag.
//! Invariant: equal inputs give equal answers, whichever thread asked first; caches only save time.

use crate::base::strings::{Interner, SharedMap};
use crate::known::{self, Kind};
use crate::names::crate_origin::{self, RustName};
use crate::names::qualified;
use crate::names::rust_source::{self, Functions};
use crate::names::{self, Scheme};
use crate::overhead::marks;
use crate::overhead::rules::{Rule, RuleNumber, Rules};
use hpc_formats::structure::{Origin, StringId};
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// An overhead tag: the number of a [`TagText`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct OverheadTag(pub(crate) NonZeroU32);

impl OverheadTag {
    /// Where a list by tags has its own.
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// What a tag means and where it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TagText {
    pub(crate) category: StringId,
    /// The mark or the rule that gave it, in words.
    pub(crate) cause: StringId,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NameFacts {
    /// The name to show.
    pub(crate) name: StringId,
    pub(crate) owner: Option<StringId>,
    /// Whose code it is, going by the name.
    pub(crate) origin: Origin,
    /// The tag that its module path gives it.
    pub(crate) path_tag: Option<OverheadTag>,
    /// The tag that a rule gives it.
    pub(crate) rule_tag: Option<OverheadTag>,
    pub(crate) is_closure: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Linkage {
    /// It is not mangled.
    Plain,
    /// Everything.
    Whole(NameFacts),
    /// A readable Rust name whose closures have no numbers.
    Closure(StringId),
}

/// [`Linkage`] before the rules for the linkage name itself.
#[derive(Clone, Copy, Debug)]
enum Demangled {
    Plain,
    Whole(Classified),
    Closure(StringId),
}

/// The classification of a readable name, without rules, and the first rule that matches.
#[derive(Clone, Copy, Debug)]
struct Classified {
    facts: NameFacts,
    rule: Option<RuleNumber>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileFacts {
    pub(crate) path: StringId,
    /// Its tag, by its name or by a rule.
    pub(crate) tag: Option<OverheadTag>,
    /// Whose code it holds, if the path determines it.
    pub(crate) origin: Option<Origin>,
}

/// What the load module's own path says about all its code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModuleFacts {
    /// Origin of everything in it.
    pub(crate) origin: Option<Origin>,
    /// Tag of everything in it that has no nearer one.
    pub(crate) tag: Option<OverheadTag>,
}

/// The classifications of one analysis, shared by its threads.
#[derive(Debug)]
pub(crate) struct Classifier<'a> {
    rules: &'a Rules,
    pub(crate) strings: Interner,
    /// Of the load module.
    pub(crate) module: ModuleFacts,
    /// Mangled names without hash and suffixes.
    by_stem: SharedMap<String, Demangled>,
    by_name: SharedMap<(StringId, Scheme), Classified>,
    files: SharedMap<StringId, FileFacts>,
    functions: SharedMap<StringId, Option<Arc<Functions>>>,
    /// When the load module was built; `None` when it is no file.
    built: Option<SystemTime>,
    /// Tags by their numbers from 1; there are few.
    tags: Mutex<Vec<TagText>>,
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

impl<'a> Classifier<'a> {
    /// For the load module at `path`.
    pub(crate) fn new(path: &str, rules: &'a Rules) -> Self {
        let mut facts = Classifier {
            rules,
            strings: Interner::default(),
            module: ModuleFacts::default(),
            by_stem: SharedMap::default(),
            by_name: SharedMap::default(),
            files: SharedMap::default(),
            functions: SharedMap::default(),
            built: changed(Path::new(path)),
            tags: Mutex::default(),
        };
        facts.module = ModuleFacts {
            origin: known::origin_of_module(path),
            tag: rules.module(path).map(|rule| facts.tag_of_rule(rule)),
        };
        facts
    }

    fn tag_of_rule(&self, rule: &Rule) -> OverheadTag {
        self.tag(&rule.category, &rule.text)
    }

    fn tag(&self, category: &str, cause: &str) -> OverheadTag {
        let text = TagText { category: self.strings.id(category), cause: self.strings.id(cause) };
        let mut tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tags.iter().position(|t| *t == text);
        let number = known.unwrap_or_else(|| {
            tags.push(text);
            tags.len() - 1
        });
        OverheadTag(NonZeroU32::MIN.saturating_add(number as u32))
    }

    /// The meanings of tags, by their numbers from 1.
    pub(crate) fn tag_texts(&self) -> Vec<TagText> {
        let tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        tags.clone()
    }

    /// The strings alone.
    pub(crate) fn into_strings(self) -> Interner {
        self.strings
    }

    /// Classifies the linkage name `symbol`.
    pub(crate) fn linkage(&self, symbol: &str) -> Linkage {
        // Cheaper than a look-up: most symbols of C are plain.
        if !symbol.starts_with("_Z") && !symbol.starts_with("_R") {
            return Linkage::Plain;
        }
        let stem = names::stem(symbol).name;
        // Most instances of a generic procedure differ in their hashes alone.
        let key = names::without_hash(stem);
        self.with_linkage(self.by_stem.get_or(key, || self.demangle(stem)), symbol)
    }

    fn with_linkage(&self, demangled: Demangled, symbol: &str) -> Linkage {
        match demangled {
            Demangled::Plain => Linkage::Plain,
            Demangled::Closure(readable) => Linkage::Closure(readable),
            Demangled::Whole(judged) => Linkage::Whole(self.with_rule(judged, symbol)),
        }
    }

    fn demangle(&self, stem: &str) -> Demangled {
        let (scheme, readable) = names::readable(stem);
        match scheme {
            Scheme::Plain => Demangled::Plain,
            Scheme::Rust if readable.contains("{closure}") => Demangled::Closure(self.strings.id(&readable)),
            _ => Demangled::Whole(self.classify(&readable, scheme)),
        }
    }

    /// Classifies a procedure by its readable name and its linkage name.
    pub(crate) fn named(&self, readable: &str, linkage: &str, scheme: Scheme) -> NameFacts {
        let key = (self.strings.id(readable), scheme);
        let judged = self.by_name.get_or(&key, || self.classify(readable, scheme));
        self.with_rule(judged, linkage)
    }

    /// Classifies a bare symbol.
    pub(crate) fn symbol(&self, symbol: &str) -> NameFacts {
        // Symbols of Rust's v0 scheme have no common hash and come once: not cached.
        let linkage = if symbol.starts_with("_R") {
            self.with_linkage(self.demangle(names::stem(symbol).name), symbol)
        } else {
            self.linkage(symbol)
        };
        match linkage {
            Linkage::Whole(facts) => facts,
            Linkage::Closure(readable) => {
                let readable = self.strings.with(readable, str::to_owned);
                self.named(&readable, symbol, Scheme::Rust)
            }
            Linkage::Plain => {
                let name = qualified::of_symbol(names::stem(symbol).name);
                self.with_rule(self.classify(&name, Scheme::Plain), symbol)
            }
        }
    }

    /// Decides between the rules for the readable name and those for the linkage name.
    fn with_rule(&self, judged: Classified, linkage: &str) -> NameFacts {
        let by_linkage = self.rules.procedure_number(&[linkage]);
        let first = judged.rule.into_iter().chain(by_linkage).min();
        let rule = first.and_then(|number| self.rules.of_number(number));
        NameFacts { rule_tag: rule.map(|rule| self.tag_of_rule(rule)), ..judged.facts }
    }

    fn classify(&self, readable: &str, scheme: Scheme) -> Classified {
        let rust = (scheme == Scheme::Rust).then(|| RustName::new(readable));
        let owner_path = match &rust {
            Some(name) => Cow::Owned(name.owner_path()),
            None => Cow::Borrowed(readable),
        };
        let has_owner = scheme == Scheme::Rust && crate_origin::first_colons(&owner_path).is_some();
        let origin = match scheme {
            Scheme::Rust if has_owner => crate_origin::origin_of_crate(crate_origin::root(&owner_path)),
            Scheme::Cpp => known::origin(Kind::Cpp, readable).unwrap_or(Origin::User),
            // Debug information may have C++'s names without mangled ones.
            _ => known::origin(Kind::Symbol, readable)
                .or_else(|| known::origin(Kind::Cpp, readable))
                .unwrap_or(Origin::User),
        };
        let by_path = (scheme == Scheme::Rust).then(|| marks::category_of_path(&owner_path)).flatten();
        let display = rust.as_ref().map_or_else(|| readable.into(), |name| name.display());
        // Of C++ only runtimes have an owner: one may run what another does, as TBB C++'s algorithms.
        let is_owned = has_owner || (scheme == Scheme::Cpp && origin == Origin::Runtime);
        let facts = NameFacts {
            name: self.strings.id(&display),
            owner: is_owned.then(|| self.strings.id(crate_origin::root(&owner_path))),
            origin,
            path_tag: by_path.map(|category| self.tag(category, "module path `parallel_overhead`")),
            rule_tag: None,
            is_closure: crate_origin::is_closure(readable, scheme),
        };
        Classified { facts, rule: self.rules.procedure_number(&[&display, &owner_path]) }
    }

    /// The modules around a function in its Rust source file; the function is identified by its name and
    /// a line of its body. `None` if the file is missing or newer than the build.
    pub(crate) fn path_around(&self, path: StringId, name: &str, line: u32) -> Option<String> {
        let built = self.built?;
        let read = || {
            let path = self.strings.with(path, str::to_owned);
            let path = Path::new(&path);
            let is_older = path.is_absolute() && changed(path)? <= built;
            let text = rust_source::read(path).filter(|_| is_older)?;
            Some(Arc::new(Functions::new(&text)))
        };
        let functions = self.functions.get_or(&path, read)?;
        functions.path_around(name, line).map(Cow::into_owned)
    }

    pub(crate) fn file(&self, path: &str) -> FileFacts {
        let id = self.strings.id(path);
        self.files.get_or(&id, || {
            let marked = marks::mark_of_file(path).map(|(category, mark)| self.tag(category, mark));
            let rule = || self.rules.file(path).map(|rule| self.tag_of_rule(rule));
            FileFacts { path: id, tag: marked.or_else(rule), origin: crate_origin::origin_of_file(path) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_source_has_is_the_systems() {
        let rules = Rules::built_in();
        let facts = Classifier::new("/opt/program", &rules);
        for name in ["_start", "frame_dummy", "[plt]", "__rust_try"] {
            assert_eq!(facts.symbol(name).origin, Origin::System, "{name}");
        }
        assert_eq!(facts.symbol("try").origin, Origin::User);
    }
}
