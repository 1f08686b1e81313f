//! The repository's own rules: what CONTRIBUTING.md asks of every file, and the licences.

use hpcrun_tests::repository::{files, files_with, metadata, read};
use hpcrun_tests::tools::workspace;
use std::collections::BTreeSet;
use std::path::{Component, Path};

/// No source file is longer.
const MOST_LINES: usize = 800;
/// Columns of a line.
const LONGEST_LINE: usize = 110;

#[test]
fn every_source_file_opens_with_its_duty() {
    for path in files_with(&["rs"]) {
        let text = read(&path);
        assert!(text.starts_with("//! "), "{}: the first line is its duty, after //!", path.display());
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{}: {lines} lines, split it", path.display());
    }
}

/// Output, table rows and addresses in documents cannot be broken, nor can the sources of test programs in
/// string literals.
#[test]
fn lines_are_short() {
    for path in files_with(&["rs", "md"]) {
        let is_document = path.extension().is_some_and(|e| e == "md");
        let is_test = path.components().any(|c| c.as_os_str() == "tests");
        let mut is_output = false;
        for (number, line) in (1..).zip(read(&path).lines()) {
            is_output ^= is_document && line.starts_with("```");
            let may_be_long = match is_document {
                true => is_output || line.starts_with('|') || line.contains("://"),
                false => is_test && !line.trim_start().starts_with("//"),
            };
            let columns = line.chars().count();
            let place = format!("{}:{number}", path.display());
            assert!(may_be_long || columns <= LONGEST_LINE, "{place}: {columns} columns");
        }
    }
}

#[test]
fn every_file_of_tests_belongs_to_a_test_program() {
    let programs: [(&str, &[&str]); 2] =
        [("tests/tests", &["end_to_end", "repository"]), ("hpcstruct-rs/tests", &["all"])];
    let files = files_with(&["rs"]);
    for (folder, roots) in programs {
        let folder = Path::new(folder);
        let modules: String =
            roots.iter().map(|root| read(&folder.join(root).with_extension("rs"))).collect();
        for path in files.iter().filter(|p| p.parent() == Some(folder)) {
            let name = path.file_stem().and_then(|n| n.to_str()).expect("a name");
            assert!(
                roots.contains(&name) || modules.lines().any(|line| line == format!("mod {name};")),
                "{}: no test program has it as a module, so nothing runs it",
                path.display()
            );
        }
    }
}

/// For each library and command cargo builds a program with its tests, and libraries are read for examples:
/// the manifests say which have any.
#[test]
fn targets_are_tested_if_they_have_tests() {
    let sources = files_with(&["rs"]);
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let packages = packages.iter().filter(|p| p["source"].is_null());
    for target in packages.flat_map(|p| p["targets"].as_array().expect("targets")) {
        let kind = target["kind"][0].as_str().expect("a kind");
        if !["lib", "cdylib", "bin"].contains(&kind) {
            continue;
        }
        let root = Path::new(target["src_path"].as_str().expect("a path"));
        let root = root.strip_prefix(workspace()).expect("a file of ours");
        // A file without modules is all of its program.
        let is_module = |line: &str| line.ends_with(';') && line.contains("mod ");
        let folder = root.parent().filter(|_| read(root).lines().any(is_module));
        let own = sources.iter().filter(|f| f.starts_with(folder.unwrap_or(root)));
        let text: String = own.map(|file| read(file)).collect();
        let has_tests = text.contains("#[test]");
        assert_eq!(target["test"], has_tests, "{}: test", root.display());
        let opened = |mark: &str| text.matches(&format!("//{mark}")).count();
        let fences = opened("! ```") + opened("/ ```");
        let has_fences = fences > 2 * (opened("! ```text") + opened("/ ```text"));
        let has_examples = kind == "lib" && (has_fences || text.contains("cfg(doctest)"));
        assert_eq!(target["doctest"], has_examples, "{}: doctest", root.display());
    }
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    // In pieces, so that this file does not name them itself.
    let places = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["/tm", "p/t_"]].map(|p| p.concat());
    let text_files = files_with(&["rs", "md", "toml", "c", "h", "lock", "yml", "sh", "json", "txt"]);
    for path in text_files {
        let text = read(&path);
        for place in &places {
            assert!(!text.contains(place.as_str()), "{} names {place}", path.display());
        }
    }
}

#[test]
fn documents_cite_files_that_exist() {
    for path in files_with(&["md"]) {
        let text = read(&path);
        let folder = path.parent().unwrap_or(Path::new(""));
        for piece in text.split("](").skip(1) {
            let target = piece.split(')').next().unwrap_or("");
            let target = target.split('#').next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            assert!(
                workspace().join(folder).join(target).exists(),
                "{} cites {target}, which does not exist",
                path.display()
            );
        }
    }
}

#[test]
fn the_top_level_holds_what_it_should() {
    let top: BTreeSet<String> = files()
        .iter()
        .filter_map(|path| match path.components().next() {
            Some(Component::Normal(name)) if path.components().count() > 1 => {
                Some(name.to_string_lossy().into_owned())
            }
            _ => None,
        })
        .collect();
    for folder in ["hpcrun-rs", "hpcstruct-rs", "hpcprof-rs", "work-stealing-rt", "tests", "fixtures"] {
        assert!(top.contains(folder), "{folder} is missing");
    }
    let architecture = read(Path::new("ARCHITECTURE.md"));
    for folder in top.iter().filter(|name| !name.starts_with('.')) {
        assert!(architecture.contains(folder.as_str()), "ARCHITECTURE.md gives no reason for {folder}");
    }
    for file in
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "FORMATS.md", "LICENSE-MIT", "LICENSE-APACHE"]
    {
        assert!(workspace().join(file).is_file(), "{file} is missing");
    }
}

/// The licences that `deny.toml` allows.
fn allowed_licences() -> BTreeSet<String> {
    let text = read(Path::new("deny.toml"));
    let list = text.split("allow = [").nth(1).expect("deny.toml has an allow list");
    let list = list.split(']').next().expect("the list ends");
    let allowed: BTreeSet<String> = list.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(allowed.contains("MIT"), "{allowed:?}");
    allowed
}

/// Whether a licence expression can be met by the allowed ones. No licence in use nests its
/// alternatives, so that an expression is alternatives of conjunctions, or the other way round.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let plain = expression.replace('/', " OR ");
    let word = |text: &str| allowed.contains(text.trim_matches(|c: char| " ()".contains(c)));
    if let Some((any, rest)) = plain.strip_prefix('(').and_then(|p| p.split_once(')')) {
        let rest = rest.trim_start().trim_start_matches("AND ");
        return any.split(" OR ").any(word) && (rest.is_empty() || is_allowed(rest, allowed));
    }
    plain.split(" OR ").any(|alternative| alternative.split(" AND ").all(word))
}

#[test]
fn every_dependency_has_an_allowed_licence_and_comes_from_the_registry() {
    let allowed = allowed_licences();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 20, "dependencies are listed");
    for package in packages {
        let (name, version) = (&package["name"], &package["version"]);
        let licence = package["license"].as_str();
        let licence = licence.unwrap_or_else(|| panic!("{name} {version} states no licence"));
        assert!(is_allowed(licence, &allowed), "{name} {version}: {licence} is not allowed");
        if let Some(source) = package["source"].as_str() {
            assert!(source.starts_with("registry+"), "{name} {version} comes from {source}");
        }
    }
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = BTreeSet::from(["MIT", "Unicode-3.0"].map(str::to_owned));
    for good in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(MIT OR GPL-3.0) AND Unicode-3.0"] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR GPL-3.0) AND GPL-3.0", ""] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}
