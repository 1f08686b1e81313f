//! Which rayon-core a project has: every line of it, a patch, vendored, of tests alone, beside
//! work-stealing-rt itself, under another name.
//!
//! The versions of rayon-core that are not at hand are made from the one that is, by their number.

use crate::project::{JOIN_MAIN, Outcome, Project, assert_rooted, burnt, cached, logging_wrapper};
use hpcrun_tests::repository::metadata;
use hpcrun_tests::run::{Truth, is_long};
use hpcrun_tests::tools::{exclusive_cores, one_core, workspace};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_drop_in_may_be_the_projects_own_patch() {
    let _cores = one_core();
    let drop_in = workspace().join("work-stealing-rt/rayon-core");
    let project = Project::of(
        "patched",
        &format!(
            "[dependencies]\nrayon-core = \"1.13\"\n[patch.crates-io]\nrayon-core = {{ path = {drop_in:?} }}"
        ),
        JOIN_MAIN,
    )
    .locked();
    let outcome = project.run(&["-e", "cpu-time@1000"]).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    assert_rooted(&project.database("hpcrun-patched-database"), "patched");
}

/// Half of the work in tasks of work-stealing-rt's own, half in rayon's.
const BOTH_MAIN: &str = r#"
use rayon::prelude::*;
fn halves(n: u64) -> u64 {
    if n == 0 {
        return burn(n);
    }
    let (a, b) = work_stealing_rt::join_context(|_| halves(n - 1), |_| halves(n - 1));
    a.wrapping_add(b)
}
fn own() -> u64 {
    halves(9)
}
fn of_rayon() -> u64 {
    (0..512u32).into_par_iter().with_max_len(1).map(|n| burn(n.into())).reduce(|| 0, u64::wrapping_add)
}
fn main() {
    let sums = std::thread::scope(|scope| {
        let other = scope.spawn(own);
        (of_rayon(), other.join().unwrap())
    });
    println!("sums {sums:x?}");
}
"#;

#[test]
fn a_program_may_have_the_runtime_of_its_own_beside_rayon() {
    let _cores = one_core();
    let runtime = workspace().join("work-stealing-rt");
    let project = Project::of(
        "both",
        &format!(
            "[dependencies]\nrayon = \"1.11\"\nwork-stealing-rt = {{ path = {runtime:?} }}\n\
                 [profile.whole]\ninherits = \"release\"\nlto = \"fat\""
        ),
        BOTH_MAIN,
    )
    .locked();
    // The linker keeps one of two trampolines; with link-time optimisation the compiler does.
    let profiles: &[&str] = if is_long() { &["release", "whole"] } else { &["release"] };
    for profile in profiles.iter().copied() {
        let database = format!("of-{profile}");
        let arguments = ["--profile", profile, "-e", "cpu-time@1000", "-o", &database];
        let outcome = project.run(&arguments).succeed();
        assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
        let view = project.database(&database);
        assert_rooted(&view, "both");
        let (all, _) = burnt(&view, "both");
        for part in ["both::own", "both::of_rayon"] {
            let below = view.inclusive_under(&[part, "both::burn"], "work");
            let share = below / all;
            assert!((0.4..0.6).contains(&share), "{profile}: {part} has {share}");
        }
        // The sites of both copies are read once.
        let mut splits = Vec::new();
        view.walk(&mut |_, node| splits.extend(node.parallel_loop.as_ref().map(|l| l.splits)));
        assert_eq!(splits, [Some(511)], "{profile}");
    }
}

/// Workers of one copy that are blocked in the other's pool, and whatever else blocks them.
#[test]
fn what_a_worker_waits_for_in_the_other_copy_is_idleness() {
    let cores = one_core();
    let fixtures = workspace().join("fixtures/programs");
    let project = Project::new("blocked")
        .manifest(
            "blocked",
            &format!(
                "[dependencies]\nrayon = \"1.11\"\n\
                 hpcrun-fixtures = {{ path = {fixtures:?}, default-features = false }}"
            ),
        )
        .file("src/main.rs", include_str!("../../../fixtures/rayon/src/bin/blocked.rs"))
        .locked();
    project.run(&["build"]).succeed();
    drop(cores);
    // Its truths, idleness among them, are those of two cores that nobody else uses.
    let _cores = exclusive_cores();
    let arguments = ["-e", "cpu-time@1000", "--cores", "2", "-o", "copies-database"];
    let outcome = project.run(&arguments).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    let truths = Truth::all_in(&outcome.stdout);
    assert_eq!(truths.len(), 1, "{outcome:#?}");
    let view = project.database("copies-database");
    truths[0].assert_sites("two copies", &view, 1000, 0.03);
}

#[test]
fn rayon_core_may_have_another_name_and_be_in_build_scripts_and_macros() {
    let _cores = one_core();
    let sum = "cores::join(|| 20u64, || 22u64)";
    let core = "cores = { package = \"rayon-core\", version = \"1.12\" }";
    let package = |name: &str, lines: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\nedition = \"2018\"\n{lines}\n")
    };
    let of_macro = format!("[lib]\nproc-macro = true\n[dependencies]\n{core}");
    let of_program = format!(
        "[dependencies]\n{core}\nanswers = {{ path = \"answers\" }}\n[build-dependencies]\n{core}\n[workspace]"
    );
    let main = JOIN_MAIN.replace("rayon_core::", "cores::").replace(
        "fn main() {",
        "fn main() {\n    assert_eq!((answers::answer!(), env!(\"ANSWER\")), (42, \"42\"));",
    );
    let project = Project::new("renamed")
        .file("Cargo.toml", &package("renamed", &of_program))
        .main("src/main.rs", &main)
        .file(
            "build.rs",
            &format!("fn main() {{ let (a, b) = {sum}; println!(\"cargo:rustc-env=ANSWER={{}}\", a + b); }}"),
        )
        .file("answers/Cargo.toml", &package("answers", &of_macro))
        .file(
            "answers/src/lib.rs",
            &format!(
                "#[proc_macro]\npub fn answer(_: proc_macro::TokenStream) -> proc_macro::TokenStream {{\n    \
                 let (a, b) = {sum};\n    (a + b).to_string().parse().unwrap()\n}}\n"
            ),
        )
        .locked();
    let before = project.files();
    // With a target named, the crates of the build and those of the program are compiled apart.
    for options in [&[][..], &["--target", "x86_64-unknown-linux-gnu"]] {
        let database = format!("of-{}-database", options.len());
        let arguments = [&["-e", "cpu-time@1000", "-o", &database], options].concat();
        let outcome = project.run(&arguments).succeed();
        assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
        assert_rooted(&project.database(&database), "renamed");
    }
    assert_eq!(project.files(), before, "the user's files are untouched");
}

/// rayon-core and what it needs.
const CORE_PACKAGES: [&str; 4] = ["rayon-core", "crossbeam-deque", "crossbeam-epoch", "crossbeam-utils"];

/// Where cargo keeps a package that this workspace uses.
fn package_folder(name: &str) -> PathBuf {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|p| p["name"] == name);
    let package = package.unwrap_or_else(|| panic!("the workspace uses {name}"));
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    manifest.parent().expect("a manifest has a folder").into()
}

/// A project that has its dependencies in a folder of its own: rayon-core under another number.
fn vendored(test: &str, version: &str) -> Project {
    cached();
    let project = Project::of(test, &format!("[dependencies]\nrayon-core = \"={version}\""), JOIN_MAIN).file(
        ".cargo/config.toml",
        "[source.crates-io]\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = \"vendor\"\n",
    );
    for name in CORE_PACKAGES {
        let from = package_folder(name);
        let to = project.folder.join("vendor").join(name);
        copy(&from, &to);
        let text = fs::read_to_string(from.join("Cargo.toml")).expect("it is readable");
        if name == "rayon-core" {
            let line = text.lines().find(|l| l.starts_with("version = "));
            let line = line.expect("the package has a version");
            let other = text.replacen(line, &format!("version = \"{version}\""), 1);
            fs::write(to.join("Cargo.toml"), other).expect("it can be written");
        }
        fs::write(to.join(".cargo-checksum.json"), "{\"files\":{}}").expect("it can be written");
    }
    project.locked()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("it can be made");
    for entry in fs::read_dir(from).expect("the package is there") {
        let path = entry.expect("the folder is readable").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("it can be copied");
        }
    }
}

#[test]
fn the_line_1_12_is_served_with_vendored_sources_and_another_wrapper() {
    let _cores = one_core();
    let project = vendored("older", "1.12.1");
    let before = project.files();
    let (wrapper, log) = logging_wrapper(&project);
    let mut command = project.bare(&["-e", "cpu-time@1000", "--frozen"]);
    let outcome = Outcome::of(command.env("RUSTC_WRAPPER", &wrapper)).succeed();
    assert!(outcome.stderr.contains("rayon-core v1.12.1"), "{outcome:#?}");
    assert_rooted(&project.database("hpcrun-older-database"), "older");
    assert_eq!(project.files(), before, "the user's files are untouched");
    let log = fs::read_to_string(log).expect("the user's wrapper was run");
    let of = |name: &str| {
        let calls = log.lines().filter(|l| l.contains(&format!("--crate-name {name} ")));
        calls.collect::<Vec<_>>()
    };
    assert_eq!(of("work_stealing_rt").len(), 1, "{log}");
    assert!(of("rayon_core")[0].contains("work-stealing-rt/rayon-core/src/lib.rs"), "{log}");
}

#[test]
fn a_dependency_of_tests_that_was_never_fetched_does_not_matter_offline() {
    let _cores = one_core();
    let project = Project::of(
        "partial",
        "[dependencies]\nrayon-core = \"1.13\"\n[dev-dependencies]\nlibc = \"0.2\"",
        JOIN_MAIN,
    )
    .locked();
    // Cargo's home with the same index, but without the package libc.
    let home = project.folder.with_file_name("home");
    for name in CORE_PACKAGES {
        let source = package_folder(name);
        let [package, index, _, registry] = [0, 1, 2, 3].map(|n| source.ancestors().nth(n));
        let registry = registry.expect("REGISTRY/src/INDEX/PACKAGE");
        let file = |path: &Path| path.file_name().expect("a name").to_owned();
        let index = file(index.expect("a folder of an index"));
        let mut archive = file(package.expect("a package"));
        archive.push(".crate");
        let cache = home.join("registry/cache").join(&index);
        fs::create_dir_all(&cache).expect("it can be made");
        let from = registry.join("cache").join(&index).join(&archive);
        fs::copy(from, cache.join(archive)).expect("cargo keeps what it fetched");
        let link = home.join("registry/index");
        if !link.exists() {
            std::os::unix::fs::symlink(registry.join("index"), link).expect("it can be made");
        }
    }
    let before = project.files();
    let mut command = project.command(&["--offline", "-e", "cpu-time@1000"]);
    let outcome = Outcome::of(command.env("CARGO_HOME", &home)).succeed();
    assert_eq!(outcome.ours(), [""; 0], "nothing needs to be said");
    assert_rooted(&project.database("hpcrun-partial-database"), "partial");
    assert_eq!(project.files(), before, "the user's files are untouched");
}

#[test]
fn another_line_is_named_and_can_be_profiled_as_it_is() {
    let _cores = one_core();
    let project = vendored("eldest", "1.10.0");
    let before = project.files();
    project.run(&[]).assert_clear(&["1.10.0", "1.12 and 1.13", "--precise 1.13.0", "--no-patch"]);
    assert_eq!(project.files(), before, "the user's files are untouched");
    let outcome = project.run(&["--no-patch", "-q"]).succeed();
    assert!(outcome.stdout.contains("eldest::burn"), "{outcome:#?}");
}
