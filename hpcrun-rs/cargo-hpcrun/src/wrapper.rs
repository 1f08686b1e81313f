//! The compiler's wrapper: cargo runs it in place of rustc. It runs rustc, adds line tables where they are
//! missing, and compiles a replacement when cargo asks for a package that is to be replaced.
//!
//! Cargo resolves, locks and checks as always, and the user's files stay as they are. The replacement happens
//! where a crate's name, version and compiler options are final. The replacement is compiled with the
//! package's options: optimisation, panics, link-time optimisation, the user's flags. The crates it needs,
//! which the published one may be among, are compiled into the same folder.

use crate::replacement::{ALL, Change, Crate, EDITION, Replacement};
use hpcrun_rs::message;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Environment variable: the folder of the replacements' sources, empty if none is wanted. If it is set, this
/// program acts as the wrapper.
pub(crate) const ENV_REPLACEMENT: &str = "CARGO_HPCRUN_REPLACEMENT";
/// Environment variable: the packages that are replaced, as `NAME@VERSION`, with spaces between them.
pub(crate) const ENV_REPLACED: &str = "CARGO_HPCRUN_REPLACED";
/// Environment variable: the user's own wrapper, which this one runs.
pub(crate) const ENV_INNER: &str = "CARGO_HPCRUN_INNER_WRAPPER";

/// Runs the compiler: `arguments` are its path (or a further wrapper's) and its arguments.
pub(crate) fn main(folder: Option<&Path>, arguments: &[OsString]) -> ExitCode {
    let Some((compiler, arguments)) = arguments.split_first() else {
        message!("cargo-hpcrun: error: run as a compiler's wrapper without a compiler");
        return ExitCode::from(125);
    };
    let compiler =
        Compiler { inner: std::env::var_os(ENV_INNER).filter(|i| !i.is_empty()), path: compiler.clone() };
    let arguments = &with_lines(arguments);
    let variable = |name| std::env::var(name).unwrap_or_default();
    let package = format!("{}@{}", variable("CARGO_PKG_NAME"), variable("CARGO_PKG_VERSION"));
    let is_listed = variable(ENV_REPLACED).split(' ').any(|p| p == package);
    let crate_name = value_of(arguments, "--crate-name");
    let replacement = ALL.iter().find(|r| {
        is_listed && variable("CARGO_PKG_NAME") == r.package && crate_name.is_some_and(|n| n == r.top.name)
    });
    let (Some(folder), Some(replacement)) = (folder, replacement) else {
        return compiler.replace_us(arguments);
    };
    let patch = variable("CARGO_PKG_VERSION_PATCH").parse().unwrap_or(u64::MAX);
    let changed = match &replacement.change {
        Some(change) => match changed_copy(arguments, folder, change) {
            Some(root) => Some(root),
            None => return compiler.replace_us(arguments),
        },
        None => None,
    };
    for c in replacement.below {
        if let Err(text) = compiler.compile(&below(arguments, folder, c)) {
            message!("{text}");
            return ExitCode::FAILURE;
        }
    }
    let all = match changed {
        Some(root) => with_root(arguments, &root, replacement),
        None => in_place(arguments, folder, replacement, patch),
    };
    compiler.replace_us(&all)
}

/// A copy of the package's source with a change, in the folder of the compiled crate: its root file. `None`
/// if the source is not as expected.
fn changed_copy(arguments: &[OsString], folder: &Path, change: &Change) -> Option<PathBuf> {
    let root = groups(arguments).into_iter().find(|group| is_source(group))?;
    let root = Path::new(&root[0]);
    let source = root.parent()?;
    let text = fs::read_to_string(source.join(change.file)).ok()?;
    let text = change.apply(&text, folder)?;
    let suffix = codegen(arguments, "extra-filename").unwrap_or("");
    let copy = Path::new(value_of(arguments, "--out-dir")?).join(format!("hpcrun-source{suffix}"));
    copy_sources(source, &copy).and_then(|()| fs::write(copy.join(change.file), text)).ok()?;
    Some(copy.join(root.file_name()?))
}

fn copy_sources(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_sources(&entry.path(), &to)?,
            false => fs::write(to, fs::read(entry.path())?)?,
        }
    }
    Ok(())
}

/// The package's arguments for a copy of its source, whose places remain those of the package.
fn with_root(arguments: &[OsString], root: &Path, replacement: &Replacement) -> Vec<OsString> {
    let mut all = Vec::new();
    for group in groups(arguments) {
        match is_source(group) {
            true => {
                let folder = |path: &Path| path.parent().unwrap_or(path).as_os_str().to_owned();
                let mut places = folder(root);
                places.push("=");
                places.push(folder(Path::new(&group[0])));
                all.extend([root.as_os_str().to_owned(), "--remap-path-prefix".into(), places]);
            }
            false => all.extend(group.iter().cloned()),
        }
    }
    for name in replacement.top.uses {
        all.extend(external(arguments, name));
    }
    all
}

/// The arguments, with line tables for optimised crates that would have none.
///
/// The profile of a single package and RUSTFLAGS override the settings of the whole profile, and cargo strips
/// debug information that it takes for the standard library's. Crates without optimisation are, in a release
/// build, build scripts and macros.
fn with_lines(arguments: &[OsString]) -> Vec<OsString> {
    let is_optimised = codegen(arguments, "opt-level").is_some_and(|level| level != "0");
    if !is_optimised {
        return arguments.to_vec();
    }
    let has_lines = match codegen(arguments, "debuginfo") {
        Some(value) => !matches!(value, "0" | "none" | "line-directives-only"),
        None => arguments.iter().any(|a| a == "-g"),
    };
    let is_dropped = |group: &[OsString]| {
        codegen_value(group, "strip") == Some("debuginfo")
            || !has_lines && codegen_value(group, "debuginfo").is_some()
    };
    let mut all: Vec<OsString> = Vec::new();
    for group in groups(arguments).into_iter().filter(|g| !is_dropped(g)) {
        all.extend(group.iter().cloned());
    }
    if !has_lines {
        all.extend(["-C".into(), "debuginfo=1".into()]);
    }
    all
}

struct Compiler {
    inner: Option<OsString>,
    path: OsString,
}

impl Compiler {
    fn command(&self) -> Command {
        match &self.inner {
            Some(inner) => {
                let mut command = Command::new(inner);
                command.arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        }
    }

    /// Replaces this process by the compiler.
    fn replace_us(&self, arguments: &[OsString]) -> ExitCode {
        let mut command = self.command();
        let error = command.args(arguments).exec();
        message!("cargo-hpcrun: error: cannot run {}: {error}", command.get_program().to_string_lossy());
        ExitCode::from(125)
    }

    /// Compiles quietly; the compiler's messages are the error.
    fn compile(&self, arguments: &[OsString]) -> Result<(), String> {
        let output = self
            .command()
            .args(arguments)
            .output()
            .map_err(|e| format!("error: cannot run {}: {e}", self.path.to_string_lossy()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Options whose value is the next argument, as cargo writes them.
const WITH_VALUE: [&str; 13] = [
    "--crate-name",
    "--crate-type",
    "--cfg",
    "--check-cfg",
    "--extern",
    "--out-dir",
    "--target",
    "--cap-lints",
    "--edition",
    "-C",
    "-L",
    "-Z",
    "-l",
];

/// Arguments in groups: an option with its value, or one argument.
fn groups(arguments: &[OsString]) -> Vec<&[OsString]> {
    let mut all = Vec::new();
    let mut rest = arguments;
    while let Some(first) = rest.first() {
        let takes_value = WITH_VALUE.iter().any(|o| first == o) && rest.len() > 1;
        let (group, after) = rest.split_at(if takes_value { 2 } else { 1 });
        all.push(group);
        rest = after;
    }
    all
}

/// An option's name and value, of `--name=value` or of two arguments.
fn option(group: &[OsString]) -> (&[u8], &[u8]) {
    match group {
        [name, value] => (name.as_encoded_bytes(), value.as_encoded_bytes()),
        [one] => {
            let bytes = one.as_encoded_bytes();
            match bytes.iter().position(|b| *b == b'=') {
                Some(at) if bytes.starts_with(b"--") => (&bytes[..at], &bytes[at + 1..]),
                _ => (bytes, b""),
            }
        }
        _ => (b"", b""),
    }
}

fn value_of<'a>(arguments: &'a [OsString], name: &str) -> Option<&'a OsStr> {
    let mut pairs = arguments.windows(2);
    pairs.find(|p| p[0] == name).map(|p| p[1].as_os_str())
}

/// The value of `-C name=value`; the last one counts.
fn codegen<'a>(arguments: &'a [OsString], name: &str) -> Option<&'a str> {
    let groups = groups(arguments).into_iter();
    groups.rev().find_map(|group| codegen_value(group, name))
}

/// The value, if the group is `-C name=value` or `-Cname=value`.
fn codegen_value<'a>(group: &'a [OsString], name: &str) -> Option<&'a str> {
    let setting = match group {
        [c, value] if c == "-C" => value.to_str()?,
        [one] => one.to_str()?.strip_prefix("-C")?,
        _ => return None,
    };
    setting.strip_prefix(name)?.strip_prefix('=')
}

/// Whether a group names the crate's root file.
fn is_source(group: &[OsString]) -> bool {
    let (name, _) = option(group);
    group.len() == 1 && !name.starts_with(b"-") && name.ends_with(b".rs")
}

/// The compiled file of a crate that the replacement needs: beside the package's, with the same suffix.
fn artifact(arguments: &[OsString], name: &str) -> PathBuf {
    let folder = value_of(arguments, "--out-dir").unwrap_or(OsStr::new("."));
    let ending = codegen(arguments, "extra-filename").unwrap_or("");
    Path::new(folder).join(format!("lib{name}{ending}.rlib"))
}

/// `--extern name=file`.
fn external(arguments: &[OsString], name: &str) -> [OsString; 2] {
    let mut value = OsString::from(format!("{name}="));
    value.push(artifact(arguments, name));
    ["--extern".into(), value]
}

/// The package's arguments, with the replacement crate's source, edition and dependencies.
fn in_place(arguments: &[OsString], folder: &Path, replacement: &Replacement, patch: u64) -> Vec<OsString> {
    let mut all = Vec::new();
    for group in groups(arguments) {
        if is_source(group) {
            all.push(folder.join(replacement.top.root).into_os_string());
        } else if !matches!(option(group).0, b"--edition" | b"--cap-lints") {
            all.extend(group.iter().cloned());
        }
    }
    all.push(format!("--edition={EDITION}").into());
    all.extend(["--cap-lints".into(), "allow".into()]);
    for name in replacement.top.uses {
        all.extend(external(arguments, name));
    }
    if let Some((_, cfg)) = replacement.before_patch.filter(|(first, _)| patch < *first) {
        all.extend(["--cfg".into(), cfg.into()]);
    }
    all
}

/// The arguments for a crate that the replacement needs, derived from the package's.
fn below(arguments: &[OsString], folder: &Path, c: &Crate) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec![
        "--crate-name".into(),
        c.name.into(),
        "--emit=metadata,link".into(),
        "--cap-lints".into(),
        "allow".into(),
    ];
    let is_published = c.root.is_empty();
    if !is_published {
        all.push(format!("--edition={EDITION}").into());
        all.push(folder.join(c.root).into());
    }
    for feature in c.features {
        all.extend(["--cfg".into(), format!("feature=\"{feature}\"").into()]);
    }
    for name in c.uses {
        all.extend(external(arguments, name));
    }
    for group in groups(arguments) {
        let (name, value) = option(group);
        let is_dropped = match name {
            b"--crate-name" | b"--emit" | b"--cap-lints" | b"--check-cfg" => true,
            // Cargo would take this crate's messages for the package's.
            b"--error-format" | b"--json" | b"--diagnostic-width" => true,
            b"--extern" => !c.given.iter().any(|n| has_name(value, n)),
            _ if is_published => false,
            b"--edition" => true,
            b"--cfg" => value.starts_with(b"feature="),
            _ => is_source(group),
        };
        if !is_dropped {
            all.extend(group.iter().cloned());
        }
    }
    all
}

/// Whether the value of `--extern`, `[options:]name=file`, names the crate `name`.
fn has_name(value: &[u8], name: &str) -> bool {
    let end = value.iter().position(|b| *b == b'=').unwrap_or(value.len());
    let full = &value[..end];
    let start = full.iter().rposition(|b| *b == b':').map_or(0, |p| p + 1);
    &full[start..] == name.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replacement::{CHANNEL, RAYON};

    fn arguments() -> Vec<OsString> {
        "--crate-name rayon_core --edition=2021 /r/rayon-core-1.13.0/src/lib.rs \
         --error-format=json --json=diagnostic-rendered-ansi,artifacts --crate-type lib \
         --emit=dep-info,metadata,link -C opt-level=3 -C panic=abort -C linker-plugin-lto \
         --cfg feature=\"web_spin_lock\" --cfg special --check-cfg cfg(docsrs,test) \
         -C metadata=88d3 -C extra-filename=-e3ea --out-dir /t/deps -L dependency=/t/deps \
         --extern crossbeam_deque=/t/deps/libcrossbeam_deque-e0.rmeta \
         --extern noprelude:crossbeam_utils=/t/deps/libcrossbeam_utils-e4.rmeta \
         --extern wasm_sync=/t/deps/libwasm_sync-e5.rmeta --cap-lints warn -Ctarget-cpu=native"
            .split_whitespace()
            .map(OsString::from)
            .collect()
    }

    fn text(arguments: &[OsString]) -> String {
        let words: Vec<_> = arguments.iter().map(|a| a.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn optimised_crates_have_line_tables() {
        let of = |line: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            text(&with_lines(&arguments))
        };
        for (given, expected) in [
            ("-C opt-level=3 x.rs", "-C opt-level=3 x.rs -C debuginfo=1"),
            ("-C opt-level=s -C debuginfo=2 -Cdebuginfo=0 x.rs", "-C opt-level=s x.rs -C debuginfo=1"),
            (
                "-C debuginfo=0 -C opt-level=3 -Cdebuginfo=line-tables-only",
                "-C debuginfo=0 -C opt-level=3 -Cdebuginfo=line-tables-only",
            ),
            ("-C opt-level=3 -g", "-C opt-level=3 -g"),
            ("-C opt-level=3 -C strip=debuginfo x.rs", "-C opt-level=3 x.rs -C debuginfo=1"),
            ("-C opt-level=3 -g -C strip=symbols", "-C opt-level=3 -g -C strip=symbols"),
            ("-C debuginfo=0 build.rs", "-C debuginfo=0 build.rs"),
            ("-C opt-level=0 x.rs", "-C opt-level=0 x.rs"),
            ("-vV", "-vV"),
        ] {
            assert_eq!(of(given), expected);
        }
    }

    #[test]
    fn the_crates_below_share_its_code_generation() {
        let all = text(&below(&arguments(), Path::new("/s"), &RAYON.below[1]));
        for part in [
            "--crate-name work_stealing_rt --emit=metadata,link",
            "--edition=2024 /s/work-stealing-rt/src/lib.rs",
            "--cfg feature=\"context\"",
            "--cfg special",
            "--crate-type lib",
            "-C opt-level=3 -C panic=abort -C linker-plugin-lto",
            "-C metadata=88d3 -C extra-filename=-e3ea --out-dir /t/deps -L dependency=/t/deps",
            "--extern crossbeam_deque=/t/deps/libcrossbeam_deque-e0.rmeta",
            "--extern noprelude:crossbeam_utils=/t/deps/libcrossbeam_utils-e4.rmeta",
            "--extern hpcrun_abi=/t/deps/libhpcrun_abi-e3ea.rlib",
            "-Ctarget-cpu=native",
        ] {
            assert!(all.contains(part), "{part} in {all}");
        }
        for part in ["json", "web_spin", "wasm_sync", "check-cfg", "rayon"] {
            assert!(!all.contains(part), "{part} in {all}");
        }
        let all = text(&below(&arguments(), Path::new("/s"), &RAYON.below[0]));
        assert!(!all.contains("--extern"), "{all}");
    }

    #[test]
    fn an_older_patch_of_a_package_is_told_so() {
        for (patch, is_told) in [(15, true), (16, false)] {
            let all = text(&in_place(&arguments(), Path::new("/s"), &CHANNEL, patch));
            assert_eq!(all.contains("--cfg never_is_not_const"), is_told, "{all}");
        }
    }
}
