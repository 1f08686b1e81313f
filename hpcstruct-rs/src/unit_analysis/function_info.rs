//! What is known of a procedure, inlined or not: readable name, owner, origin, tag.
//!
//! Input: entries of the debug information, or bare symbols. Invariant: equal inputs give equal
//! answers; caches only save time.

use crate::base::strings::Map;
use crate::dwarf::die_names::{Description, Text, describe};
use crate::dwarf::line_table::{self, Row};
use crate::dwarf::walk::Walked;
use crate::dwarf::{Debug, EntryRef};
use crate::names::crate_origin::{self, UnitCrate};
use crate::names::qualified::{self, Known};
use crate::names::{self, Scheme};
use crate::unit_analysis::classify::{Classifier, FileFacts, Linkage, NameFacts, OverheadTag};
use hpc_formats::structure::{Origin, SourceLine, StringId};

/// What is known of a procedure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionInfo {
    pub(crate) name: StringId,
    /// Name in the symbol table; only procedures with their own code have it.
    pub(crate) linkage: Option<StringId>,
    pub(crate) declared: Option<SourceLine>,
    pub(crate) origin: Origin,
    /// Its own tag: by path, declaring file or rule.
    pub(crate) tag: Option<OverheadTag>,
    pub(crate) owner: Option<StringId>,
    pub(crate) is_closure: bool,
}

/// Where the body of a procedure is written, by its line rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Body {
    pub(crate) file: FileFacts,
    pub(crate) line: u32,
}

/// The name of call operators.
const CALL: &str = "operator()";

/// What a lambda is called whose call operator has no linkage name: gcc gives it none where it is
/// inlined, but puts it in a type without a name. With line tables alone nothing tells it from the
/// call operator of a named type; both are `operator()` then.
const LAMBDA: &str = "{lambda}";

/// Larger file indices are not cached; real units have fewer files.
const MAX_OWN_FILES: usize = 1 << 20;

/// Builds the infos of one unit.
#[derive(Debug)]
pub(crate) struct FunctionInfos<'a, 'd> {
    debug: &'a Debug<'d>,
    /// What names and paths tell.
    pub(crate) classifier: &'a Classifier<'a>,
    language: UnitLanguage,
    unit: u32,
    memory: &'a mut UnitCache,
}

/// Caches of one unit; the memory is reused from unit to unit.
#[derive(Debug, Default)]
pub(crate) struct UnitCache {
    /// The unit's own files, by index; `None` = not looked up yet.
    own_files: Vec<Option<Option<FileFacts>>>,
    other_files: Map<(u32, u64), Option<FileFacts>>,
    /// FunctionInfos that an entry alone decides.
    known: Map<EntryRef, FunctionInfo>,
    /// FunctionInfos that are named by the file of the body.
    known_by_body: Map<(EntryRef, Option<Body>), FunctionInfo>,
    /// Files by their text in line tables. Units share many of them, so this is kept.
    written: Map<Box<[u8]>, FileFacts>,
    key: Vec<u8>,
}

impl<'a, 'd> FunctionInfos<'a, 'd> {
    /// For unit `unit`, `memory` is of an earlier one.
    pub(crate) fn new(
        debug: &'a Debug<'d>,
        unit: u32,
        classifier: &'a Classifier<'a>,
        memory: &'a mut UnitCache,
    ) -> Self {
        memory.own_files.clear();
        memory.other_files.clear();
        memory.known.clear();
        memory.known_by_body.clear();
        FunctionInfos { debug, classifier, language: unit_language(debug, unit), unit, memory }
    }

    /// Whether the unit is Rust's.
    pub(crate) fn is_rust(&self) -> bool {
        self.language.is_rust
    }

    #[inline]
    pub(crate) fn file(&mut self, unit: u32, file: u64) -> Option<FileFacts> {
        // The unit has its own line table.
        let is_own = unit == self.unit || self.debug.lines_of(unit) == self.unit;
        let own = usize::try_from(file).ok();
        let Some(index) = own.filter(|f| is_own && *f < MAX_OWN_FILES) else {
            return self.file_of_other(self.debug.lines_of(unit), file);
        };
        if let Some(Some(known)) = self.memory.own_files.get(index) {
            return *known;
        }
        let found = self.read_file(self.unit, file);
        if self.memory.own_files.len() <= index {
            self.memory.own_files.resize(index + 1, None);
        }
        self.memory.own_files[index] = Some(found);
        found
    }

    fn file_of_other(&mut self, unit: u32, file: u64) -> Option<FileFacts> {
        if let Some(known) = self.memory.other_files.get(&(unit, file)) {
            return *known;
        }
        let found = self.read_file(unit, file);
        self.memory.other_files.insert((unit, file), found);
        found
    }

    /// As [`Self::file`], without the cache; `unit` has the line table.
    fn read_file(&mut self, unit: u32, file: u64) -> Option<FileFacts> {
        let written = line_table::written(self.debug, unit, file)?;
        let UnitCache { written: known, key, .. } = &mut *self.memory;
        written.key(key);
        if let Some(found) = known.get(key.as_slice()) {
            return Some(*found);
        }
        let found = self.classifier.file(&written.path());
        known.insert(key.as_slice().into(), found);
        Some(found)
    }

    /// The cached info of an inlined procedure, if its body's file did not matter.
    pub(crate) fn known(&self, entry: EntryRef) -> Option<FunctionInfo> {
        self.memory.known.get(&entry).copied()
    }

    /// The info of the inlined procedure that an entry describes, if it has a mangled name and a
    /// declaration: then it does not matter where its body lies.
    pub(crate) fn without_body(&mut self, entry: EntryRef, walked: &Walked<'d>) -> Option<FunctionInfo> {
        let description = describe(self.debug, entry);
        let stated = self.linkage(&description)?;
        if matches!(stated, Linkage::Plain) {
            return None;
        }
        let (unit, file, line) = description.declared?;
        let declared = (self.file(unit, file)?, line);
        let path = || self.path_of(entry, &description, walked);
        let named = self.name(&description, Some(stated), path, None, None);
        let info = self.info(&named, Some(declared), None);
        self.memory.known.insert(entry, info);
        Some(info)
    }

    fn path_of(&self, entry: EntryRef, description: &Description<'d>, walked: &Walked<'d>) -> Vec<&'d str> {
        let Some(root) = description.root.filter(|root| root.unit == entry.unit) else {
            return Vec::new();
        };
        let mut path = walked.path_of(self.debug, root.offset);
        let name = || description.name.and_then(|name| name.get(self.debug));
        if walked.is_in_unnamed(root.offset) && name() == Some(CALL) {
            path.push(LAMBDA);
        }
        path
    }

    /// The info of the inlined procedure that an entry describes; `body` is where its body lies, `rows`
    /// are the lines of its code.
    pub(crate) fn of_inlined<'r>(
        &mut self,
        entry: EntryRef,
        walked: &Walked<'d>,
        body: Option<Body>,
        rows: impl Iterator<Item = &'r Row>,
    ) -> FunctionInfo {
        let key = (entry, body);
        let known = self.known(entry);
        if let Some(info) = known.or_else(|| self.memory.known_by_body.get(&key).copied()) {
            return info;
        }
        let description = describe(self.debug, entry);
        let body = self.body_of_async(&description, body, rows);
        let info = self.of_description(entry, &description, walked, None, body);
        let by_entry_alone =
            info.declared.is_some() && (description.linkage.is_some() || !self.language.is_rust);
        if by_entry_alone {
            self.memory.known.insert(entry, info);
        } else {
            self.memory.known_by_body.insert(key, info);
        }
        info
    }

    /// Where the body of an async function or block lies. The first line of its code may be one of the
    /// standard library, whose code the compiler put there, but that library has no such functions.
    fn body_of_async<'r>(
        &mut self,
        description: &Description<'d>,
        body: Option<Body>,
        mut rows: impl Iterator<Item = &'r Row>,
    ) -> Option<Body> {
        let is_system = |file: FileFacts| file.origin == Some(Origin::System);
        let name = description.name.filter(|_| self.language.is_rust);
        let is_async = |name: &str| name.starts_with("{async_");
        match (body, name.and_then(|name| name.get(self.debug))) {
            (Some(stated), Some(name)) if is_system(stated.file) && is_async(name) => {
                let own = rows.find_map(|row| {
                    let file = self.file(self.unit, u64::from(row.file))?;
                    let line = row.line;
                    (line > 0 && !is_system(file)).then_some(Body { file, line })
                });
                own.or(body)
            }
            _ => body,
        }
    }

    /// The info of a procedure with code. `symbol` is the symbol at its first address, `body`
    /// where its body lies.
    pub(crate) fn of_procedure(
        &mut self,
        entry: EntryRef,
        walked: &Walked<'d>,
        symbol: Option<&str>,
        body: Option<Body>,
    ) -> FunctionInfo {
        let description = describe(self.debug, entry);
        let mut info = self.of_description(entry, &description, walked, symbol, body);
        let text = |text: Option<Text<'d>>| text.and_then(|t| t.get(self.debug));
        let mangled = |s: &&str| !matches!(self.classifier.linkage(s), Linkage::Plain);
        let linkage = text(description.linkage)
            .or_else(|| symbol.filter(mangled))
            .or_else(|| text(description.name))
            .or(symbol);
        info.linkage = Some(self.classifier.strings.id(linkage.unwrap_or("?")));
        info
    }

    fn of_description(
        &mut self,
        entry: EntryRef,
        description: &Description<'d>,
        walked: &Walked<'d>,
        symbol: Option<&str>,
        body: Option<Body>,
    ) -> FunctionInfo {
        let declared =
            description.declared.and_then(|(unit, file, line)| Some((self.file(unit, file)?, line)));
        let path = || self.path_of(entry, description, walked);
        let stated = self.linkage(description);
        let named = self.name(description, stated, path, symbol, body);
        self.info(&named, declared, body)
    }

    fn info(
        &self,
        named: &NameFacts,
        declared: Option<(FileFacts, u32)>,
        body: Option<Body>,
    ) -> FunctionInfo {
        let file = declared.map(|(file, _)| file).or(body.map(|b| b.file));
        let mut info = of_name(named, self.classifier.module.origin, file);
        info.declared = declared.map(|(file, line)| SourceLine { file: file.path, line });
        info
    }

    /// The classification of the linkage name that an entry states.
    fn linkage(&self, description: &Description<'d>) -> Option<Linkage> {
        Some(self.classifier.linkage(description.linkage?.get(self.debug)?))
    }

    fn name<'n>(
        &self,
        description: &Description<'d>,
        stated: Option<Linkage>,
        path: impl FnOnce() -> Vec<&'n str>,
        symbol: Option<&str>,
        body: Option<Body>,
    ) -> NameFacts {
        let read = |text: Option<Text<'d>>| text.and_then(|t| t.get(self.debug));
        let of_symbol = || symbol.map(|s| self.classifier.linkage(s));
        let mangled = |l: &Linkage| !matches!(l, Linkage::Plain);
        let linkage = stated.or_else(|| of_symbol().filter(mangled));
        let text = || {
            read(description.linkage)
                .or_else(|| symbol.filter(|_| linkage.is_some()))
                .or_else(|| read(description.name))
                .or(symbol)
                .unwrap_or("?")
        };
        let plain = || read(description.name);
        match &linkage {
            Some(Linkage::Whole(facts)) => *facts,
            Some(Linkage::Closure(readable)) => {
                let text = text();
                let plain = plain().unwrap_or(text);
                let numbered = self.number_closures(*readable, &path(), plain);
                self.classifier.named(&numbered, text, Scheme::Rust)
            }
            _ => {
                let text = text();
                let plain = plain().unwrap_or(text);
                let path = path();
                let known = Known { plain, path: &path, linkage: read(description.linkage) };
                let (readable, scheme) = self.plain_name(&known, symbol, body);
                self.classifier.named(&readable, text, scheme)
            }
        }
    }

    fn number_closures(&self, readable: StringId, path: &[&str], plain: &str) -> String {
        let number = |text: &str| names::number_closures(text, path, plain);
        self.classifier.strings.with(readable, number)
    }

    /// A Rust name of which debug information has only the last part (line tables alone). It is qualified
    /// by the file's module and, if the file's text is available, by the modules in it.
    fn rust_name(&self, plain: &str, body: Option<Body>) -> String {
        let name = names::without_generics(plain);
        let inner = body.and_then(|b| self.classifier.path_around(b.file.path, name, b.line));
        let within = inner.filter(|m| !m.is_empty());
        let qualified = within.map_or(name.to_string(), |m| format!("{m}::{name}"));
        let path = body.map_or(StringId(u32::MAX), |b| b.file.path);
        let qualify =
            |file: &str| crate_origin::qualify_by_file(&qualified, file, self.language.unit_crate.as_ref());
        self.classifier.strings.with(path, qualify)
    }

    /// The readable name of a procedure without a mangled name.
    fn plain_name(&self, known: &Known<'_>, symbol: Option<&str>, body: Option<Body>) -> (String, Scheme) {
        let Known { plain, path, .. } = *known;
        if self.language.is_rust {
            let name = if path.is_empty() {
                self.rust_name(plain, body)
            } else {
                let name = names::without_generics(plain);
                format!("{}::{name}", path.join("::"))
            };
            return (name, Scheme::Rust);
        }
        if path.last() == Some(&LAMBDA) {
            return (path.join("::"), Scheme::Cpp);
        }
        if self.language.has_labels_for_names {
            let name = known.linkage.or(symbol).unwrap_or(plain);
            return (name.to_owned(), Scheme::Plain);
        }
        // Crystal writes the whole name into the symbol table alone.
        let is_text = |s: &&str| path.is_empty() && !names::is_identifier(s);
        if let Some(text) = symbol.map(|s| names::stem(s).name).filter(is_text) {
            return (text.to_owned(), Scheme::Plain);
        }
        if let Some(name) = qualified::qualified(known, self.language.is_fortran) {
            return (name, Scheme::Plain);
        }
        // In the C library debug information has internal names (`__libc_write`), the symbol
        // table the ones that programs use.
        let of_system = self.classifier.module.origin == Some(Origin::System);
        let name = symbol.filter(|_| of_system).unwrap_or(plain);
        let name = qualified::of_symbol(names::stem(name).name);
        (name.into_owned(), Scheme::Plain)
    }
}

/// The info of a name whose body lies in `file`; where it is declared is left open.
fn of_name(named: &NameFacts, module: Option<Origin>, file: Option<FileFacts>) -> FunctionInfo {
    let by_file = file.and_then(|f| f.origin);
    let origin = module.unwrap_or(match (named.origin, by_file) {
        (Origin::User, Some(origin)) => origin,
        (own, _) => own,
    });
    FunctionInfo {
        name: named.name,
        linkage: None,
        declared: None,
        origin,
        tag: named.path_tag.or(file.and_then(|f| f.tag)).or(named.rule_tag),
        owner: named.owner,
        is_closure: named.is_closure,
    }
}

/// The info of a bare symbol whose body lies in `file`, where that is known.
pub(crate) fn of_symbol(classifier: &Classifier<'_>, symbol: &str, file: Option<FileFacts>) -> FunctionInfo {
    let mut info = of_name(&classifier.symbol(symbol), classifier.module.origin, file);
    info.linkage = Some(classifier.strings.id(symbol));
    info
}

#[derive(Debug, Default)]
struct UnitLanguage {
    is_rust: bool,
    /// The crate of a unit of Rust.
    unit_crate: Option<UnitCrate>,
    is_fortran: bool,
    /// Haskell: plain names are the compiler's labels (`c3jM`).
    has_labels_for_names: bool,
}

fn unit_language(debug: &Debug<'_>, unit: u32) -> UnitLanguage {
    // A split unit's head is divided: the folder is with the line table, the rest with the entries.
    let of = |number: u32| debug.units.get(number as usize);
    let (Some(unit), Some(lines)) = (of(debug.entries_of(unit)), of(unit)) else {
        return UnitLanguage::default();
    };
    let text = |r: Option<crate::dwarf::Reader<'_>>| {
        r.map_or(String::new(), |r| String::from_utf8_lossy(r.slice()).into_owned())
    };
    let directory = lines.comp_dir.or(unit.comp_dir);
    let unit_crate = UnitCrate::parse(&text(unit.name), &text(directory));
    let mut entries = unit.entries();
    let stated = match entries.next_dfs() {
        Ok(Some((_, root))) => root.attr_value(gimli::DW_AT_language).ok().flatten(),
        _ => None,
    };
    let is = |language| stated == Some(gimli::AttributeValue::Language(language));
    let fortran = [
        gimli::DW_LANG_Fortran77,
        gimli::DW_LANG_Fortran90,
        gimli::DW_LANG_Fortran95,
        gimli::DW_LANG_Fortran03,
        gimli::DW_LANG_Fortran08,
    ];
    UnitLanguage {
        is_rust: is(gimli::DW_LANG_Rust) || unit_crate.is_some(),
        unit_crate,
        has_labels_for_names: is(gimli::DW_LANG_Haskell),
        is_fortran: fortran.into_iter().any(is),
    }
}
