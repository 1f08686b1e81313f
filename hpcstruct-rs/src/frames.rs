//! What is known of a procedure, inlined or not: readable name, owner, origin, tag.
//!
//! Input: entries of the debug information, or bare symbols. Invariant: equal inputs give equal
//! frames, whatever was asked before (the memory of answers only saves time).

use crate::dwarf::describe::{Description, describe};
use crate::dwarf::lines;
use crate::dwarf::walk::Walked;
use crate::dwarf::{Debug, EntryRef};
use crate::names::{self, Scheme};
use crate::owner::{self, UnitCrate};
use crate::rules::Rules;
use crate::strings::Strings;
use crate::tags;
use hpc_formats::structure::{Origin, SourceLine, StringId};
use std::collections::HashMap;

/// What the load module's own path tells about all its code.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleFacts {
    /// Origin of everything in it.
    pub(crate) origin: Option<Origin>,
    /// Category of everything in it that has no nearer tag.
    pub(crate) category: Option<String>,
}

impl ModuleFacts {
    /// From the module's path.
    pub(crate) fn new(path: &str, rules: &Rules) -> ModuleFacts {
        ModuleFacts {
            origin: owner::origin_of_module(path),
            category: rules.module(path).map(str::to_owned),
        }
    }
}

/// A procedure's facts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Readable name.
    pub(crate) name: StringId,
    /// Name in the symbol table.
    pub(crate) linkage: StringId,
    /// Where it is declared.
    pub(crate) declared: Option<SourceLine>,
    /// Whose code it is.
    pub(crate) origin: Origin,
    /// Its own tag: by path, declaring file or rule.
    pub(crate) tag: Option<StringId>,
    /// The Rust crate that owns it.
    pub(crate) owner: Option<StringId>,
    /// Whether it is a closure.
    pub(crate) is_closure: bool,
}

/// Procedures that the linker and the C start-up code bring along.
const START_UP: [&str; 13] = [
    "_start",
    "_init",
    "_fini",
    "__libc_start_main",
    "__libc_csu_init",
    "__libc_csu_fini",
    "deregister_tm_clones",
    "register_tm_clones",
    "__do_global_dtors_aux",
    "frame_dummy",
    "_dl_relocate_static_pie",
    "__libc_start_call_main",
    "[plt]",
];

/// File indices from here on are not remembered; no unit has so many.
const MAX_OWN_FILES: usize = 1 << 20;

/// Builds frames for one unit (or for bare symbols), into one string table.
#[derive(Debug)]
pub(crate) struct Frames<'a, 'd> {
    debug: &'a Debug<'d>,
    rules: &'a Rules,
    module: &'a ModuleFacts,
    /// Crate of the unit, when it is Rust's.
    unit_crate: Option<UnitCrate>,
    /// Whether the unit is Rust's.
    pub(crate) is_rust: bool,
    /// Strings of the frames and paths.
    pub(crate) strings: Strings,
    /// Interned paths of the unit's own files, by index; `None` = not asked for yet.
    own_files: Vec<Option<Option<StringId>>>,
    /// The unit.
    unit: Option<u32>,
    /// Frames that an entry alone decides.
    known: HashMap<EntryRef, Frame>,
    /// Frames that are named by the file of the body.
    known_by_body: HashMap<(EntryRef, Option<StringId>), Frame>,
    /// Tags of files, by string; `None` = not asked for yet.
    file_tags: Vec<Option<Option<StringId>>>,
}

/// The names of a frame before they are interned.
struct Named {
    readable: String,
    linkage: String,
    scheme: Scheme,
}

impl<'a, 'd> Frames<'a, 'd> {
    /// For unit `unit`; `None` for code without debug information.
    pub(crate) fn new(
        debug: &'a Debug<'d>,
        unit: Option<u32>,
        rules: &'a Rules,
        module: &'a ModuleFacts,
    ) -> Self {
        let (is_rust, unit_crate) = unit.map_or((false, None), |u| unit_language(debug, u));
        Frames {
            debug,
            rules,
            module,
            unit_crate,
            is_rust,
            strings: Strings::default(),
            own_files: Vec::new(),
            unit,
            known: HashMap::new(),
            known_by_body: HashMap::new(),
            file_tags: Vec::new(),
        }
    }

    /// The interned path of a file of a unit.
    pub(crate) fn file(&mut self, unit: u32, file: u64) -> Option<StringId> {
        let own = usize::try_from(file)
            .ok()
            .filter(|f| Some(unit) == self.unit && *f < MAX_OWN_FILES);
        let Some(index) = own else {
            let path = lines::path(self.debug, unit, file)?;
            return Some(self.strings.id(&path));
        };
        if let Some(Some(known)) = self.own_files.get(index) {
            return *known;
        }
        let path = lines::path(self.debug, unit, file);
        let id = path.map(|path| self.strings.id(&path));
        if self.own_files.len() <= index {
            self.own_files.resize(index + 1, None);
        }
        self.own_files[index] = Some(id);
        id
    }

    /// The tag of a source file: by its name or by a rule.
    pub(crate) fn file_tag(&mut self, file: StringId) -> Option<StringId> {
        let index = file.0 as usize;
        if let Some(Some(known)) = self.file_tags.get(index) {
            return *known;
        }
        let path = self.strings.text(file);
        let category = tags::category_of_file(path).or_else(|| self.rules.file(path));
        let category = category.map(str::to_owned);
        let tag = category.map(|c| self.strings.id(&c));
        if self.file_tags.len() <= index {
            self.file_tags.resize(index + 1, None);
        }
        self.file_tags[index] = Some(tag);
        tag
    }

    /// The frame of an inlined procedure, when it was asked for before and its body's file did
    /// not matter.
    pub(crate) fn known(&self, entry: EntryRef) -> Option<Frame> {
        self.known.get(&entry).copied()
    }

    /// The frame that an entry describes. `symbol` is the symbol at its first address, when it
    /// has its own code; `body` the file in which its body lies.
    pub(crate) fn of_entry(
        &mut self,
        entry: EntryRef,
        walked: &Walked<'d>,
        symbol: Option<&str>,
        body: Option<StringId>,
    ) -> Frame {
        let key = (entry, body);
        if symbol.is_none() {
            let known = self.known(entry);
            if let Some(frame) = known.or_else(|| self.known_by_body.get(&key).copied()) {
                return frame;
            }
        }
        let description = describe(self.debug, entry);
        let declared = description.declared.and_then(|(unit, file, line)| {
            let file = self.file(unit, file)?;
            Some(SourceLine { file, line })
        });
        let path = match description.root {
            Some(root) if root.unit == entry.unit => walked.path_of(root.offset),
            _ => Vec::new(),
        };
        let named = self.name(&description, &path, symbol, body);
        let file = declared.map(|d| d.file).or(body);
        let frame = self.finish(named, declared, file);
        if symbol.is_none() {
            let by_entry_alone =
                declared.is_some() && (description.linkage.is_some() || !self.is_rust);
            if by_entry_alone {
                self.known.insert(entry, frame);
            } else {
                self.known_by_body.insert(key, frame);
            }
        }
        frame
    }

    /// The frame of a bare symbol.
    pub(crate) fn of_symbol(&mut self, symbol: &str) -> Frame {
        let stem = names::stem(symbol).name;
        let named = Named {
            readable: names::readable(stem).into_owned(),
            linkage: symbol.to_owned(),
            scheme: names::scheme(stem),
        };
        self.finish(named, None, None)
    }

    fn name(
        &self,
        description: &Description<'d>,
        path: &[&str],
        symbol: Option<&str>,
        body: Option<StringId>,
    ) -> Named {
        let mangled = |s: &&str| names::scheme(names::stem(s).name) != Scheme::Plain;
        let linkage = description
            .linkage
            .or(symbol.filter(mangled))
            .or(description.name)
            .or(symbol)
            .unwrap_or("?");
        let plain = description.name.unwrap_or(linkage);
        let stem = names::stem(linkage).name;
        let scheme = names::scheme(stem);
        let readable = match scheme {
            Scheme::Rust => {
                let readable = names::readable(stem);
                if readable.contains("{closure}") {
                    names::number_closures(&readable, path, plain)
                } else {
                    readable.into_owned()
                }
            }
            Scheme::Cpp => names::readable(stem).into_owned(),
            Scheme::Plain if !path.is_empty() => {
                let name = if self.is_rust {
                    names::without_generics(plain)
                } else {
                    plain
                };
                format!("{}::{name}", path.join("::"))
            }
            Scheme::Plain if self.is_rust => {
                let file = body.map_or("", |b| self.strings.text(b));
                owner::qualify_by_file(plain, file, self.unit_crate.as_ref())
            }
            // C++ gives the call operators of inlined lambdas no linkage name.
            Scheme::Plain if plain == "operator()" => "{lambda}".to_owned(),
            // In the C library debug information has internal names (`__libc_write`), the symbol
            // table the ones that programs use.
            Scheme::Plain if self.module.origin == Some(Origin::System) => {
                names::stem(symbol.unwrap_or(plain)).name.to_owned()
            }
            Scheme::Plain => names::stem(plain).name.to_owned(),
        };
        let scheme = match scheme {
            Scheme::Plain if self.is_rust => Scheme::Rust,
            Scheme::Plain if readable == "{lambda}" => Scheme::Cpp,
            other => other,
        };
        Named {
            readable,
            linkage: linkage.to_owned(),
            scheme,
        }
    }

    fn finish(
        &mut self,
        named: Named,
        declared: Option<SourceLine>,
        file: Option<StringId>,
    ) -> Frame {
        let Named {
            readable,
            linkage,
            scheme,
        } = named;
        let owner_path = match scheme {
            Scheme::Rust => owner::owner_path(&readable),
            _ => readable.clone(),
        };
        let has_owner = scheme == Scheme::Rust && owner_path.contains("::");
        let file_origin = file.and_then(|f| owner::origin_of_file(self.strings.text(f)));
        let own_origin = match scheme {
            Scheme::Rust if has_owner => owner::origin_of_crate(owner::root(&owner_path)),
            Scheme::Cpp => owner::origin_of_cpp(&readable),
            _ if START_UP.contains(&readable.as_str()) => Origin::System,
            _ => Origin::User,
        };
        let origin = self
            .module
            .origin
            .unwrap_or(match (own_origin, file_origin) {
                (Origin::User, Some(origin)) => origin,
                (own, _) => own,
            });
        let by_path = (scheme == Scheme::Rust)
            .then(|| tags::category_of_path(&owner_path))
            .flatten();
        let tag = match by_path {
            Some(category) => Some(self.strings.id(category)),
            None => file.and_then(|f| self.file_tag(f)),
        };
        let display = match scheme {
            Scheme::Rust => owner::display_name(&readable),
            _ => readable.as_str().into(),
        };
        let tag = tag.or_else(|| {
            let category = self.rules.procedure(&[&display, &owner_path, &linkage])?;
            Some(self.strings.id(category))
        });
        Frame {
            is_closure: owner::is_closure(&readable, scheme),
            owner: has_owner.then(|| self.strings.id(owner::root(&owner_path))),
            name: self.strings.id(&display),
            linkage: self.strings.id(&linkage),
            declared,
            origin,
            tag,
        }
    }
}

/// Whether a unit is Rust's, and its crate.
fn unit_language(debug: &Debug<'_>, unit: u32) -> (bool, Option<UnitCrate>) {
    let Some(unit) = debug.units.get(unit as usize) else {
        return (false, None);
    };
    let text = |r: Option<crate::dwarf::Reader<'_>>| {
        r.map_or(String::new(), |r| {
            String::from_utf8_lossy(r.slice()).into_owned()
        })
    };
    let unit_crate = UnitCrate::parse(&text(unit.name), &text(unit.comp_dir));
    let mut entries = unit.entries();
    let language = match entries.next_dfs() {
        Ok(Some((_, root))) => root.attr_value(gimli::DW_AT_language).ok().flatten(),
        _ => None,
    };
    let stated = matches!(
        language,
        Some(gimli::AttributeValue::Language(gimli::DW_LANG_Rust))
    );
    (stated || unit_crate.is_some(), unit_crate)
}
