//! Which program is meant, and which versions of the packages it is locked to that can be replaced.
//!
//! Input: `cargo metadata`, which resolves as `cargo build` does and changes nothing that the build would not
//! change. Offline it fails if a dependency that only tests need was never fetched. Then the lock file names
//! the packages, and [`crate::marker`] finds out whether the program links them.

use crate::cli::{Build, Choice};
use crate::replacement::{self, Replacement};
use crate::toolchain::cargo;
pub(crate) use cargo_metadata::TargetKind as Kind;
use cargo_metadata::semver::Version;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use hpcrun_rs::Failure;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package that can be replaced, among a program's dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Locked {
    /// None.
    Absent,
    /// A version that can be replaced.
    Served(Version),
    /// Another version.
    Unserved(Version),
    /// Not the published package: a patched one, or one from this workspace.
    Foreign(Version),
}

/// The chosen program, as known before it is built.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) package: Package,
    pub(crate) kind: Kind,
    /// Its name.
    pub(crate) program: String,
    /// What it has of each of [`replacement::ALL`], of which rayon's is the first.
    pub(crate) locked: [Locked; 3],
    /// Cargo's target folder for this project.
    pub(crate) target_dir: PathBuf,
}

/// Asks cargo.
pub(crate) fn inspect(choice: &Choice, build: &Build, host: &str) -> Result<Project, Failure> {
    let manifest = manifest(build)?;
    let metadata = metadata(build, host, &manifest)?;
    let candidates = candidates(&metadata, choice.package.as_deref(), &manifest)?;
    let (package, kind, program) = choose(&candidates, choice, &metadata.workspace_packages())?;
    let locked = |replacement| match &metadata.resolve {
        Some(_) => Ok(linked(&metadata, &package.id, &kind, replacement)),
        None => lock_file(&metadata).map(|lock| locked(&lock, replacement)),
    };
    let [rayon, channel, tokio] = replacement::ALL.each_ref().map(locked);
    let locked = [rayon?, channel?, tokio?];
    let target_dir = match &build.target_dir {
        Some(dir) => std::path::absolute(dir)
            .map_err(|e| Failure::own(format!("--target-dir {}: {e}", dir.display())))?,
        None => metadata.target_directory.clone().into_std_path_buf(),
    };
    let package = package.clone();
    Ok(Project { package, kind, program, locked, target_dir })
}

/// The Cargo.toml that cargo would take.
fn manifest(build: &Build) -> Result<PathBuf, Failure> {
    let mut command = Command::new(cargo());
    command.args(["locate-project", "--message-format=plain"]);
    if let Some(path) = &build.manifest_path {
        command.args(["--manifest-path", path]);
    }
    let output = command.output().map_err(|e| Failure::own(format!("cannot run cargo: {e}")))?;
    if !output.status.success() {
        return Err(complaint(&String::from_utf8_lossy(&output.stderr)));
    }
    let path = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    Ok(PathBuf::from(path))
}

fn metadata(build: &Build, host: &str, manifest: &Path) -> Result<Metadata, Failure> {
    let mut command = MetadataCommand::new();
    let mut options = build.common();
    options.extend(["--filter-platform".to_owned(), host.to_owned()]);
    command.other_options(options).manifest_path(manifest);
    command.exec().or_else(|error| {
        let without_lock = |m: &Metadata| lock_file(m).is_err();
        match command.no_deps().exec() {
            Ok(metadata) if !without_lock(&metadata) => Ok(metadata),
            _ => Err(match error {
                cargo_metadata::Error::CargoMetadata { stderr } => complaint(&stderr),
                other => Failure::own(format!("cargo metadata: {other}")),
            }),
        }
    })
}

/// Cargo's own words, in one line.
fn complaint(text: &str) -> Failure {
    // Lines before it report progress.
    let start = text.find("error: ").map_or(0, |at| at + "error: ".len());
    let text = &text[start..];
    let words: Vec<&str> = text.split_whitespace().collect();
    Failure::own(words.join(" "))
}

fn lock_file(metadata: &Metadata) -> Result<String, Failure> {
    let path = metadata.workspace_root.join("Cargo.lock");
    std::fs::read_to_string(&path).map_err(|e| Failure::own(format!("{path}: {e}")))
}

/// The package of a lock file, which cargo writes one key a line.
fn locked(lock: &str, replacement: &Replacement) -> Locked {
    let name = format!("name = \"{}\"", replacement.package);
    let of_package = |text: &str| {
        let field = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name))?;
            Some(line.trim_start_matches(" = \"").trim_end_matches('"'))
        };
        let version = field("version").and_then(|v| Version::parse(v).ok())?;
        Some(judge(version, field("source"), replacement))
    };
    let packages = lock.split("[[package]]").filter(|p| p.lines().any(|l| l == name));
    best(packages.filter_map(of_package))
}

/// Of several versions of a package, the one that can be replaced.
fn best(mut versions: impl Iterator<Item = Locked>) -> Locked {
    let Some(first) = versions.next() else {
        return Locked::Absent;
    };
    let is_served = |l: &Locked| matches!(l, Locked::Served(_));
    if is_served(&first) { first } else { versions.find(is_served).unwrap_or(first) }
}

/// The packages that cargo would choose among.
fn candidates<'a>(
    metadata: &'a Metadata,
    spec: Option<&str>,
    manifest: &Path,
) -> Result<Vec<&'a Package>, Failure> {
    let members = metadata.workspace_packages();
    if let Some(spec) = spec {
        let is_meant = |p: &&Package| spec == p.id.repr || is_of_name(spec, &p.name, &p.version.to_string());
        let found: Vec<&Package> = members.iter().copied().filter(is_meant).collect();
        if found.is_empty() {
            let names: Vec<&str> = members.iter().map(|p| p.name.as_str()).collect();
            return Err(Failure::own(format!(
                "-p {spec}: no such package in this workspace, which has {}",
                list(&names)
            )));
        }
        return Ok(found);
    }
    let current = members.iter().find(|p| p.manifest_path == manifest);
    let top = metadata.workspace_root.join("Cargo.toml");
    match current {
        Some(package) if package.manifest_path != top => Ok(vec![package]),
        _ if metadata.workspace_default_members.is_available() => Ok(metadata.workspace_default_packages()),
        Some(package) => Ok(vec![package]),
        None => Ok(members),
    }
}

/// Whether a specification `NAME`, `NAME@VERSION` or `NAME:VERSION` is of this package; a version
/// may lack its last parts.
fn is_of_name(spec: &str, name: &str, version: &str) -> bool {
    let Some(rest) = spec.strip_prefix(name) else {
        return false;
    };
    let of_version = |asked: &str| {
        let rest = version.strip_prefix(asked);
        rest.is_some_and(|r| r.is_empty() || r.starts_with('.'))
    };
    rest.is_empty() || rest.strip_prefix(['@', ':']).is_some_and(of_version)
}

fn choose<'a>(
    candidates: &[&'a Package],
    choice: &Choice,
    members: &[&Package],
) -> Result<(&'a Package, Kind, String), Failure> {
    let asked = [
        (Kind::Bin, &choice.bin),
        (Kind::Example, &choice.example),
        (Kind::Bench, &choice.bench),
        (Kind::Test, &choice.test),
    ];
    for (kind, name) in asked {
        if let Some(name) = name {
            return named(candidates, kind, name);
        }
    }
    let all = programs(candidates, &Kind::Bin);
    let mut defaults = candidates.iter().filter_map(|p| Some((*p, p.default_run.clone()?)));
    match (all.as_slice(), defaults.next(), defaults.next()) {
        ([(package, name)], ..) => Ok((package, Kind::Bin, (*name).to_owned())),
        (_, Some((package, name)), None) => Ok((package, Kind::Bin, name)),
        ([], ..) => Err(no_program(candidates, members)),
        (many, ..) => {
            let names: Vec<&str> = many.iter().map(|(_, name)| *name).collect();
            Err(Failure::own(format!("several programs: {}; choose one with --bin NAME", list(&names))))
        }
    }
}

/// Suggests other kinds of programs and other packages of the workspace.
fn no_program(candidates: &[&Package], members: &[&Package]) -> Failure {
    let mut choices = Vec::new();
    for kind in [Kind::Example, Kind::Bench, Kind::Test] {
        let found = programs(candidates, &kind).into_iter();
        choices.extend(found.map(|(_, name)| format!("--{kind} {name}")));
    }
    let packages = programs(members, &Kind::Bin).into_iter();
    let mut packages: Vec<String> = packages.map(|(p, _)| format!("-p {}", p.name)).collect();
    packages.dedup();
    choices.extend(packages);
    let names: Vec<&str> = choices.iter().map(String::as_str).collect();
    Failure::own(match names.as_slice() {
        [] => "there is no program here, and no example or benchmark; add a src/main.rs, or an \
         examples/NAME.rs and --example NAME"
            .to_owned(),
        names => format!("there is no program here; choose one with {}", list(names)),
    })
}

/// Programs of a kind: package and name.
fn programs<'a>(candidates: &[&'a Package], kind: &Kind) -> Vec<(&'a Package, &'a str)> {
    let of = |p: &'a Package| {
        let mine = p.targets.iter().filter(|t| t.kind.contains(kind));
        mine.map(move |t| (p, t.name.as_str()))
    };
    candidates.iter().copied().flat_map(of).collect()
}

fn named<'a>(
    candidates: &[&'a Package],
    kind: Kind,
    name: &str,
) -> Result<(&'a Package, Kind, String), Failure> {
    let all = programs(candidates, &kind);
    let found: Vec<&(&Package, &str)> = all.iter().filter(|(_, n)| *n == name).collect();
    match found.as_slice() {
        [(package, _)] => Ok((package, kind, name.to_owned())),
        [] => {
            let names: Vec<&str> = all.iter().map(|(_, n)| *n).collect();
            Err(Failure::own(format!("--{kind} {name}: no such target; there is {}", list(&names))))
        }
        many => {
            let names: Vec<&str> = many.iter().map(|(p, _)| p.name.as_str()).collect();
            Err(Failure::own(format!("--{kind} {name} is in {}; choose with -p", list(&names))))
        }
    }
}

/// The most names that a message lists.
const MOST_NAMES: usize = 20;

fn list(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        _ if names.len() <= MOST_NAMES => names.join(", "),
        _ => {
            let (first, more) = names.split_at(MOST_NAMES);
            format!("{} and {} more", first.join(", "), more.len())
        }
    }
}

/// The version of a package that a program links, by the graph of dependencies.
fn linked(metadata: &Metadata, package: &PackageId, kind: &Kind, replacement: &Replacement) -> Locked {
    let Some(resolve) = &metadata.resolve else {
        return Locked::Absent;
    };
    let mut versions = Vec::new();
    let mut seen = BTreeSet::new();
    let mut open = vec![package];
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let found = &metadata[id];
        if found.name == replacement.package {
            let source = found.source.as_ref().map(|s| s.repr.as_str());
            versions.push(judge(found.version.clone(), source, replacement));
        }
        let Some(node) = resolve.nodes.iter().find(|n| n.id == *id) else {
            continue;
        };
        for dependency in &node.deps {
            let is_linked = dependency.dep_kinds.iter().any(|d| match d.kind {
                DependencyKind::Normal => true,
                DependencyKind::Development => id == package && *kind != Kind::Bin,
                _ => false,
            });
            if is_linked {
                open.push(&dependency.pkg);
            }
        }
    }
    best(versions.into_iter())
}

/// Decides by version and source, as cargo writes them.
fn judge(version: Version, source: Option<&str>, replacement: &Replacement) -> Locked {
    let is_published = source.is_some_and(|s| s.starts_with("registry+") || s.starts_with("sparse+"));
    if !is_published {
        Locked::Foreign(version)
    } else if is_served(&version, replacement) {
        Locked::Served(version)
    } else {
        Locked::Unserved(version)
    }
}

fn is_served(version: &Version, replacement: &Replacement) -> bool {
    let (major, minors, patch) = &replacement.served;
    let is_of_line = version.major == *major && minors.contains(&version.minor);
    version.pre.is_empty() && is_of_line && version.patch >= *patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::RAYON;

    #[test]
    fn long_lists_are_cut_and_say_so() {
        assert_eq!(list(&[]), "none");
        assert_eq!(list(&["a", "b"]), "a, b");
        let many = ["x"; MOST_NAMES + 3];
        assert!(list(&many[..MOST_NAMES]).ends_with("x, x"));
        assert!(list(&many).ends_with("x, x and 3 more"));
    }

    #[test]
    fn a_package_is_named_with_as_much_of_its_version_as_one_likes() {
        for (spec, is_meant) in [
            ("a-b", true),
            ("a-b@1", true),
            ("a-b@1.20", true),
            ("a-b:1.20.3", true),
            ("a-b@1.2", false),
            ("a-b@1.20.3.4", false),
            ("a-b@", false),
            ("a", false),
            ("a-b-c", false),
        ] {
            assert_eq!(is_of_name(spec, "a-b", "1.20.3"), is_meant, "{spec}");
        }
    }

    #[test]
    fn a_lock_file_tells_the_version_and_the_source() {
        let lock = |version: &str, source: &str| {
            format!(
                "version = 4\n\n[[package]]\nname = \"rayon\"\nversion = \"1.9.0\"\n\
                 dependencies = [\n \"rayon-core\",\n]\n\n[[package]]\nname = \"rayon-core\"\n\
                 version = \"{version}\"\n{source}checksum = \"00\"\n"
            )
        };
        let registry = "source = \"registry+https://example.org/index\"\n";
        let version = |text| Version::parse(text).expect("a version");
        let served = locked(&lock("1.12.1", registry), &RAYON);
        assert_eq!(served, Locked::Served(version("1.12.1")));
        let unserved = locked(&lock("1.11.0", registry), &RAYON);
        assert_eq!(unserved, Locked::Unserved(version("1.11.0")));
        let foreign = locked(&lock("1.13.0", ""), &RAYON);
        assert_eq!(foreign, Locked::Foreign(version("1.13.0")));
        assert_eq!(locked("version = 4\n", &RAYON), Locked::Absent);
    }
}
