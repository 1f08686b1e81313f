//! Whose code a procedure is: its Rust crate, and its origin (user, runtime or system).
//!
//! Views fold by origin, and tags depend on it. Input: readable names ([`crate::names`]), source
//! paths, module paths. A trait implementation belongs to the crate of its self type, or to that of
//! the trait if the self type is std's or generic.

use crate::known::{self, Kind};
use crate::names::{Scheme, without_generics};
use hpc_formats::structure::Origin;
use std::borrow::Cow;

pub(crate) fn origin_of_crate(name: &str) -> Origin {
    known::origin(Kind::Crate, name).unwrap_or(Origin::User)
}

/// The origin of a source file: system, if it is one of the compilers' headers or libraries.
pub(crate) fn origin_of_file(path: &str) -> Option<Origin> {
    known::origin(Kind::Source, path)
}

/// A readable Rust name, taken apart at its leading angles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RustName<'n> {
    name: &'n str,
    angles: Option<Angles<'n>>,
}

/// `<Self as Trait>rest`, or `<Self>rest`.
#[derive(Clone, Copy, Debug)]
struct Angles<'n> {
    self_type: &'n str,
    of_trait: Option<&'n str>,
    rest: &'n str,
}

impl<'n> RustName<'n> {
    /// Of a readable name.
    pub(crate) fn new(name: &'n str) -> RustName<'n> {
        RustName { name, angles: split_angles(name) }
    }

    /// The path that owns it, without generic arguments:
    /// `<&mut a::T<u8> as b::Act>::act` gives `a::T::act`, `<u8 as b::Act>::act` gives `b::Act::act`.
    pub(crate) fn owner_path(&self) -> String {
        let mut out = String::with_capacity(self.name.len());
        let Some(angles) = self.angles else {
            if !dropped_type(self.name).is_some_and(|dropped| add_type_path(dropped, &mut out)) {
                add_without_generics(self.name, &mut out);
            }
            return out;
        };
        let has_own = add_type_path(angles.self_type, &mut out);
        let foreign = !has_own || origin_of_crate(root(&out)) == Origin::System;
        if let Some(of_trait) = angles.of_trait.filter(|_| foreign) {
            let own = out.len();
            if add_type_path(of_trait, &mut out) {
                out.drain(..own);
            }
        }
        if out.is_empty() {
            // An inherent method of a primitive or a slice is core's (or alloc's).
            out.push_str("core");
        }
        add_without_generics(angles.rest, &mut out);
        out
    }

    /// As users write it: `<a::T<u8>>::f` is `a::T<u8>::f`. Types that are no plain path
    /// (`<[u8]>::len`, `<dyn a::T>::f`) and trait methods keep their angles.
    pub(crate) fn display(&self) -> Cow<'n, str> {
        let inherent = self.angles.filter(|a| a.of_trait.is_none());
        let Some(Angles { self_type, rest, .. }) = inherent else {
            return Cow::Borrowed(self.name);
        };
        let path = self_type.split('<').next().unwrap_or(self_type);
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
        let starts = path.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if starts && path.chars().all(plain) {
            let mut shown = String::with_capacity(self.name.len());
            shown.push_str(self_type);
            shown.push_str(rest);
            Cow::Owned(shown)
        } else {
            Cow::Borrowed(self.name)
        }
    }
}

pub(crate) fn root(owner_path: &str) -> &str {
    first_colons(owner_path).map_or(owner_path, |at| &owner_path[..at])
}

/// Where the first `::` is. Names are short: a loop is faster than a general search.
pub(crate) fn first_colons(name: &str) -> Option<usize> {
    name.as_bytes().windows(2).position(|w| w == b"::")
}

/// What follows the last `::`; of `:::` the last two count.
fn last_segment(name: &str) -> &str {
    let last = name.as_bytes().windows(2).rposition(|w| w == b"::");
    last.map_or(name, |at| &name[at + 2..])
}

/// The type whose values a piece of drop glue drops: it is code of the type's crate, as its `Drop` is.
fn dropped_type(name: &str) -> Option<&str> {
    let generic = name.strip_prefix("core::ptr::drop_in_place")?;
    let dropped = generic.strip_prefix("::").unwrap_or(generic).strip_prefix('<')?;
    dropped.strip_suffix('>')
}

/// The parts of a name that begins with an angle; ` as ` counts at its own level of angles.
fn split_angles(name: &str) -> Option<Angles<'_>> {
    const AS: &str = " as ";
    let body = name.strip_prefix('<')?;
    let close = matching_angle(body)?;
    let (inside, rest) = (&body[..close], &body[close + 1..]);
    let is_as = |(i, b): &(usize, u8)| *b == b' ' && inside[*i..].starts_with(AS);
    let found = outside_of_angles(inside).find(is_as);
    Some(Angles {
        self_type: found.map_or(inside, |(at, _)| &inside[..at]),
        of_trait: found.map(|(at, _)| &inside[at + AS.len()..]),
        rest,
    })
}

/// The position of the `>` that closes an angle opened just before `text`.
fn matching_angle(text: &str) -> Option<usize> {
    outside_of_angles(text).find(|(_, b)| *b == b'>').map(|(i, _)| i)
}

/// The bytes of `text` that are in no angles, with their positions, and each `>` that closes none of its
/// angles. The arrow of a function type closes nothing.
fn outside_of_angles(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let (mut depth, mut before) = (0usize, b' ');
    text.bytes().enumerate().filter(move |(_, b)| {
        let is_arrow = std::mem::replace(&mut before, *b) == b'-';
        let is_outside = depth == 0 && *b != b'<' && !(*b == b'>' && is_arrow);
        match b {
            b'<' => depth += 1,
            b'>' if !is_arrow => depth = depth.saturating_sub(1),
            _ => {}
        }
        is_outside
    })
}

/// Appends the path that a type is named by; `false` for primitives and generic parameters.
fn add_type_path(mut text: &str, out: &mut String) -> bool {
    loop {
        let before = text;
        for prefix in ["&", "*const ", "*mut ", "mut ", "dyn ", "[", "(", "<"] {
            text = text.strip_prefix(prefix).unwrap_or(text).trim_start();
        }
        if text.starts_with('\'') {
            text = text.split_once(' ').map_or("", |(_, rest)| rest);
        }
        if text == before {
            break;
        }
    }
    let ends = |b: u8| matches!(b, b' ' | b',' | b';' | b')' | b']' | b'+');
    let end = text.bytes().position(ends).unwrap_or(text.len());
    let start = out.len();
    let path = match text.find('<') {
        Some(angle) if angle < end => text,
        _ => &text[..end],
    };
    add_without_generics(path, out);
    let is_path = first_colons(&out[start..]).is_some();
    if !is_path {
        out.truncate(start);
    }
    is_path
}

/// Appends a name without `<…>` and the `::` before it; `<impl Trait for T>` too.
fn add_without_generics(name: &str, out: &mut String) {
    let mut rest = name;
    while let Some(open) = rest.find('<') {
        out.push_str(rest[..open].trim_end_matches("::"));
        let Some(close) = matching_angle(&rest[open + 1..]) else {
            return;
        };
        rest = &rest[open + 1 + close + 1..];
    }
    out.push_str(rest);
}

/// Whether a frame is a closure: code that its caller passes in.
pub(crate) fn is_closure(name: &str, scheme: Scheme) -> bool {
    match scheme {
        Scheme::Rust | Scheme::Plain => name.ends_with('}') && last_segment(name).starts_with("{closure"),
        Scheme::Cpp => last_is_lambda(name) || name.ends_with("operator()"),
    }
}

/// Whether a C++ name is a lambda's (and not that of a template that takes one).
fn last_is_lambda(name: &str) -> bool {
    name.ends_with('}') && name.contains("{lambda")
}

/// The crate of a compilation unit, by the unit's name: root source file and crate name
/// (`src/main.rs/@/tool.4c2f…-cgu.0`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitCrate {
    /// Full path of the folder that holds the root source file, with a final slash.
    pub(crate) folder: String,
    /// File name of the root.
    pub(crate) root: String,
    pub(crate) name: String,
}

impl UnitCrate {
    /// From a unit's name and compilation directory; `None` when the unit is not Rust's.
    pub(crate) fn parse(unit: &str, directory: &str) -> Option<UnitCrate> {
        let (file, generation) = unit.split_once("/@/")?;
        let path = if file.starts_with('/') { file.to_owned() } else { format!("{directory}/{file}") };
        let (folder, root) = path.rsplit_once('/')?;
        let name = match generation.split_once("-cgu.") {
            Some((named, _)) => named.split('.').next()?.to_owned(),
            // Incremental builds name units by a hash alone: go by the source file.
            None => crate_of_root(folder, root)?,
        };
        Some(UnitCrate { folder: format!("{folder}/"), root: root.to_owned(), name })
    }
}

/// Cargo's conventions: `src/main.rs` and `src/lib.rs` are the package's, others their own.
fn crate_of_root(folder: &str, root: &str) -> Option<String> {
    let stem = root.strip_suffix(".rs")?;
    let name = match (stem, folder.strip_suffix("/src")) {
        ("main" | "lib", Some(package)) => package.rsplit('/').next()?,
        ("main", None) => folder.rsplit('/').next()?,
        _ => stem,
    };
    Some(without_version(name).replace('-', "_"))
}

/// Drops the version of a registry folder: `serde-1.0.2` is `serde`.
fn without_version(folder: &str) -> &str {
    match folder.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => folder,
    }
}

/// The module path that a Rust source file has by convention (`crate::module`).
pub(crate) fn module_of_file(path: &str, unit: Option<&UnitCrate>) -> Option<String> {
    if let Some((_, library)) = path.split_once("/library/") {
        if origin_of_file(path).is_some() {
            let (krate, file) = library.split_once("/src/")?;
            let krate = krate.rsplit('/').next().unwrap_or(krate);
            return Some(join_module(krate, file));
        }
    }
    if let Some(unit) = unit {
        if let Some(file) = path.strip_prefix(unit.folder.as_str()) {
            if file == unit.root {
                return Some(unit.name.clone());
            }
            return Some(join_module(&unit.name, file));
        }
    }
    let (package, file) = path.rsplit_once("/src/")?;
    let package = without_version(package.rsplit('/').next()?).replace('-', "_");
    Some(join_module(&package, file))
}

fn join_module(krate: &str, file: &str) -> String {
    let file = file.strip_suffix(".rs").unwrap_or(file);
    let file = file.strip_suffix("/mod").unwrap_or(file);
    let mut out = krate.replace('-', "_");
    if !matches!(file, "lib" | "main" | "mod") {
        for segment in file.split('/') {
            out.push_str("::");
            out.push_str(segment);
        }
    }
    out
}

/// The readable name of a Rust procedure that debug information names by its plain name alone
/// (line-tables-only): qualified by the source file's module.
pub(crate) fn qualify_by_file(name: &str, path: &str, unit: Option<&UnitCrate>) -> String {
    let name = without_generics(name);
    match module_of_file(path, unit) {
        Some(module) => format!("{module}::{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impl_belongs_to_its_self_type_or_else_to_the_trait() {
        for (name, owner) in [
            ("a::b::c", "a::b::c"),
            ("a::T<u8>::f", "a::T::f"),
            ("a::run::<b::main::{closure#0}>", "a::run"),
            ("<a::T<u8> as b::Act>::act", "a::T::act"),
            ("<&mut a::T as core::fmt::Debug>::fmt", "a::T::fmt"),
            ("<u32 as a::Act>::act", "a::Act::act"),
            ("<F as rayon_core::job::Job>::execute", "rayon_core::job::Job::execute"),
            ("<alloc::vec::Vec<a::T> as b::Act>::act", "b::Act::act"),
            ("<alloc::boxed::Box<F> as core::ops::FnOnce<A>>::call_once", "core::ops::FnOnce::call_once"),
            ("<[u64]>::sort_unstable", "core::sort_unstable"),
            ("<work_stealing_rt::Pool>::install::<u8>", "work_stealing_rt::Pool::install"),
            ("<fn(u8) -> u8 as a::Act<b::X>>::act", "a::Act::act"),
            ("<dyn a::Shape as b::Act>::act", "a::Shape::act"),
            ("a::x::<impl core::convert::AsRef<a::S> for str>::as_ref", "a::x::as_ref"),
            ("core::ptr::drop_in_place::<a::T<b::U>>", "a::T"),
            ("core::ptr::drop_in_place<&mut a::T>", "a::T"),
            ("core::ptr::drop_in_place<[u8; 4]>", "core::ptr::drop_in_place"),
            ("<(a::T, u8) as b::Act>::act", "a::T::act"),
            ("<a::T<fn() -> u8> as b::Act>::act", "a::T::act"),
        ] {
            assert_eq!(RustName::new(name).owner_path(), owner, "{name}");
        }
    }

    #[test]
    fn inherent_methods_are_shown_as_users_write_them() {
        for (name, shown) in [
            ("<a::T<u8>>::f::<b::U>", "a::T<u8>::f::<b::U>"),
            ("<u64>::rotate_left", "u64::rotate_left"),
            ("<[u8]>::len", "<[u8]>::len"),
            ("<a::T as b::U>::f", "<a::T as b::U>::f"),
            ("<a::T<<u8 as b::U>::V>>::f", "a::T<<u8 as b::U>::V>::f"),
            ("a::f", "a::f"),
            ("<&a::T>::f", "<&a::T>::f"),
            ("<broken", "<broken"),
        ] {
            assert_eq!(RustName::new(name).display(), shown);
        }
    }

    #[test]
    fn unbalanced_names_do_not_fail() {
        for name in ["<", "<a", "a<b", ">", "<<>", "a::<", "<a as >::b", "-><->", "<->"] {
            let _ = RustName::new(name).owner_path();
        }
        assert_eq!(RustName::new("").owner_path(), "");
    }

    #[test]
    fn origins() {
        let origin = |name| origin_of_crate(root(&RustName::new(name).owner_path()));
        assert_eq!(origin("<u8 as core::fmt::Debug>::fmt"), Origin::System);
        assert_eq!(origin("<work_stealing_rt::job::J<F> as x::Y>::z"), Origin::Runtime);
        assert_eq!(origin("app::work_stealing_rt::f"), Origin::User);
    }

    #[test]
    fn closures_and_lambdas() {
        assert!(is_closure("a::f::{closure#0}", Scheme::Rust));
        assert!(!is_closure("a::run::<a::f::{closure#0}>", Scheme::Rust));
        assert!(!is_closure("a::f::{closure#0}::nested", Scheme::Rust));
        assert!(is_closure("main::{lambda(int)#1}", Scheme::Cpp));
        assert!(is_closure("{lambda}", Scheme::Cpp));
        assert!(is_closure("Functor::operator()", Scheme::Cpp));
        assert!(!is_closure("call<main::{lambda(int)#1}>", Scheme::Cpp));
    }

    #[test]
    fn files_name_modules() {
        let unit = UnitCrate::parse("a.rs/@/tool.4c2f-cgu.0", "/w").expect("a Rust unit");
        assert_eq!(unit.name, "tool");
        let module = |path| module_of_file(path, Some(&unit));
        assert_eq!(module("/w/a.rs").as_deref(), Some("tool"));
        assert_eq!(module("/w/x/y.rs").as_deref(), Some("tool::x::y"));
        assert_eq!(module("/w/x/mod.rs").as_deref(), Some("tool::x"));
        assert_eq!(module("/rustc/59807616e/library/core/src/num/mod.rs").as_deref(), Some("core::num"));
        assert_eq!(
            module("/r/registry/src/index/serde-json-1.0.3/src/de.rs").as_deref(),
            Some("serde_json::de")
        );
        assert_eq!(module("/elsewhere/z.rs"), None);
        let incremental = UnitCrate::parse("src/main.rs/@/4jq9x1", "/w/my-tool");
        assert_eq!(incremental.expect("a Rust unit").name, "my_tool");
        assert_eq!(UnitCrate::parse("main.c", "/w"), None);
    }
}
