//! Overhead tags in all forms, at every optimisation level: by `#line` file name, Rust source
//! file, Rust module path and rules.

use crate::common::{Folder, frames, spans_of, whole};
use hpc_formats::structure::{Span, Structure};
use hpcstruct_rs::{Options, Rules, analyse};
use std::collections::BTreeSet;

fn tag<'s>(structure: &'s Structure, span: &Span) -> &'s str {
    span.tag.map_or("", |t| structure.string(t))
}

/// The categories of all code of a procedure.
fn categories<'s>(structure: &'s Structure, procedure: &str) -> BTreeSet<&'s str> {
    let spans = spans_of(structure, procedure);
    assert!(!spans.is_empty(), "no procedure {procedure}");
    spans.iter().map(|s| tag(structure, s)).collect()
}

/// The categories of code inside a frame (a procedure or an inlined scope) of that name.
fn categories_inside<'s>(structure: &'s Structure, name: &str) -> BTreeSet<&'s str> {
    let spans = structure.spans.iter();
    let inside = spans.filter(|s| frames(structure, s).contains(&name));
    let found: BTreeSet<&str> = inside.map(|s| tag(structure, s)).collect();
    assert!(!found.is_empty(), "no code in {name}");
    found
}

fn set<const N: usize>(list: [&'static str; N]) -> BTreeSet<&'static str> {
    list.into()
}

const C: &str = r#"
#include <stdatomic.h>
#include <stdio.h>
static atomic_long word;
volatile long sink;
#line 1 "hpctoolkit:parallel-overhead:sync"
static inline __attribute__((always_inline)) void acquire(void) {
    while (atomic_exchange(&word, 1)) { __builtin_ia32_pause(); }
}
__attribute__((noinline)) void release(void) { atomic_store(&word, 0); sink = 3; }
#line 13 "c.c"
__attribute__((noinline)) long work(long n) {
    long s = 0;
    for (long i = 0; i < n; i++) {
        s += i * 3;
#line 1 "hpctoolkit:parallel-overhead"
        acquire();
        sink = s ^ 77;
#line 20 "c.c"
        s ^= sink;
    }
    release();
    return s;
}
__attribute__((noinline)) long clean(long n) { long s = n; for (long i = 0; i < n; i++) s ^= i * sink; return s; }
int main(int argc, char **argv) { (void)argv; printf("%ld %ld\n", work(argc * 10), clean(argc)); return 0; }
"#;

#[test]
fn c_line_directives_at_every_level() {
    let folder = Folder::new("tags-c");
    folder.write("c.c", C);
    let levels = [
        &["-g", "-O0"][..],
        &["-g", "-O1"],
        &["-g", "-O2"],
        &["-g", "-O3"],
        &["-g", "-O2", "-flto"],
        &["-gdwarf-3", "-O2"],
        &["-g1", "-O0"],
        &["-g1", "-O1"],
        &["-g1", "-O2"],
        &["-g1", "-O3"],
    ];
    let mut runs: Vec<(&str, &[&str])> = levels.iter().map(|flags| ("gcc", *flags)).collect();
    if std::process::Command::new("clang").arg("--version").output().is_ok() {
        let without_lto = levels.iter().filter(|f| !f.contains(&"-flto"));
        runs.extend(without_lto.map(|flags| ("clang", *flags)));
        // Clang's link-time optimisation needs LLVM's linker, or a plugin.
        let lld = std::process::Command::new("ld.lld").arg("--version").output();
        if lld.is_ok() {
            runs.push(("clang", &["-g", "-O2", "-flto", "-fuse-ld=lld"]));
            runs.push(("clang", &["-g1", "-O3", "-flto", "-fuse-ld=lld"]));
        } else {
            eprintln!("SKIPPED: ld.lld is not installed; clang's marks after linking are not tested");
        }
    } else {
        eprintln!("SKIPPED: clang is not installed; its marks are not tested");
    }
    for (compiler, flags) in runs {
        let arguments = [&["c.c", "-o", "p"], flags].concat();
        folder.run(compiler, &arguments);
        let structure = whole(&folder.0.join("p"));
        let flags = (compiler, flags);
        assert_eq!(categories(&structure, "release"), set(["sync"]), "{flags:?}");
        let own = categories(&structure, "work");
        assert_eq!(own, set(["", "other", "sync"]), "{flags:?}");
        assert_eq!(categories_inside(&structure, "acquire"), set(["sync"]), "{flags:?}");
        assert_eq!(categories(&structure, "clean"), set([""]), "{flags:?}");
        let release = spans_of(&structure, "release")[0].procedure;
        let whole_tag = structure.procedures[release.0 as usize].tag;
        assert_eq!(whole_tag.map(|t| structure.string(t)), Some("sync"), "{flags:?}");
    }
}

const RUST_MAIN: &str = r#"
use std::sync::atomic::{AtomicU64, Ordering};
pub mod parallel_overhead;
static A: AtomicU64 = AtomicU64::new(0);
/// A module path alone, in a file of another name.
pub mod inner {
    pub mod parallel_overhead {
        pub mod alloc {
            #[inline(always)]
            pub fn by_path(a: &std::sync::atomic::AtomicU64) -> u64 {
                a.swap(5, std::sync::atomic::Ordering::SeqCst)
            }
            #[inline(always)]
            pub fn with<F: FnOnce() -> u64>(f: F) -> u64 {
                super::super::super::A.fetch_add(11, std::sync::atomic::Ordering::SeqCst) ^ f()
            }
        }
        #[inline(always)]
        pub fn direct(a: &std::sync::atomic::AtomicU64) -> u64 {
            a.fetch_sub(2, std::sync::atomic::Ordering::SeqCst)
        }
    }
}
#[inline(never)]
fn by_file(n: u64) -> u64 {
    let mut t = n;
    for i in 0..n { t ^= parallel_overhead::sync::take(&A).wrapping_mul(i); }
    t
}
#[inline(never)]
fn by_path(n: u64) -> u64 {
    let mut t = n;
    for i in 0..n { t ^= inner::parallel_overhead::alloc::by_path(&A).wrapping_mul(i); }
    t
}
#[inline(never)]
fn direct(n: u64) -> u64 {
    let mut t = n;
    for i in 0..n { t ^= inner::parallel_overhead::direct(&A).wrapping_mul(i); }
    t
}
#[inline(never)]
fn closure_again(n: u64) -> u64 {
    inner::parallel_overhead::alloc::with(|| {
        let mut t = n;
        for i in 0..n { t = t.wrapping_mul(i | 3).wrapping_add(t >> 7) ^ std::hint::black_box(i); }
        t
    })
}
#[inline(never)]
fn clean(n: u64) -> u64 {
    let mut t = n;
    for i in 0..n { t = t.wrapping_mul(i | 3) ^ A.load(Ordering::Relaxed); }
    t
}
fn main() {
    let n = std::env::args().count() as u64 * 5;
    println!("{} {} {} {} {} {}", by_file(n), by_path(n), direct(n), closure_again(n), clean(n),
        parallel_overhead::sync::outlined(n));
}
"#;

const RUST_SYNC: &str = r#"
use std::sync::atomic::{AtomicU64, Ordering};
#[inline(always)]
pub fn take(a: &AtomicU64) -> u64 { a.fetch_add(1, Ordering::SeqCst) }
#[inline(never)]
pub fn outlined(n: u64) -> u64 { (0..n).map(|i| i ^ std::hint::black_box(n)).sum() }
"#;

fn rust_sources(folder: &Folder) {
    folder.write("app.rs", RUST_MAIN);
    folder.write("parallel_overhead/mod.rs", "pub mod sync;\n");
    folder.write("parallel_overhead/sync.rs", RUST_SYNC);
}

/// All levels; in the optimised ones the tagged functions are inlined.
const LEVELS: [&[&str]; 5] = [
    &["-Copt-level=0"],
    &["-Copt-level=1"],
    &["-Copt-level=2"],
    &["-Copt-level=3"],
    &["-Copt-level=3", "-Clto=fat", "-Ccodegen-units=1"],
];

/// All forms in one program. With line tables only, the module form needs the source.
fn check_rust_forms(structure: &Structure, has_paths: bool, inlined: bool, flags: &[&str]) {
    let of = |name| categories(structure, name);
    assert!(of("app::by_file").contains("sync"), "{flags:?}");
    assert!(of("app::by_file").contains(""), "{flags:?}");
    let outlined = of("app::parallel_overhead::sync::outlined");
    assert_eq!(outlined, set(["sync"]), "{flags:?}");
    assert_eq!(of("app::clean"), set([""]), "{flags:?}");
    if !has_paths {
        return;
    }
    assert_eq!(of("app::by_path"), set(["", "alloc"]), "{flags:?}");
    assert_eq!(of("app::direct"), set(["", "other"]), "{flags:?}");
    // A closure that tagged code runs is user work again, wherever it is inlined.
    if inlined {
        // Line tables do not tell which function a closure is in, the source does.
        let inside = categories_inside(structure, "app::closure_again::{closure#0}");
        assert_eq!(inside, set([""]), "{flags:?}");
        assert!(of("app::closure_again").contains("alloc"), "{flags:?}");
    }
}

fn rust_forms(debug: &str, levels: &[&[&str]]) {
    let folder = Folder::new(&format!("tags-{debug}"));
    rust_sources(&folder);
    let debug_flag = format!("-Cdebuginfo={debug}");
    for level in levels {
        let flags: Vec<&str> = level.iter().copied().chain([debug_flag.as_str()]).collect();
        let structure = whole(&folder.rustc("app.rs", "p", &flags));
        let inlined = level != &["-Copt-level=0"];
        check_rust_forms(&structure, true, inlined, &flags);
        if debug == "line-tables-only" {
            // With line tables only modules are read in the source files; not in ones that
            // changed after the build.
            let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
            let source = std::fs::File::options().write(true).open(folder.0.join("app.rs"));
            let source = source.expect("writable");
            let before = source.metadata().and_then(|m| m.modified()).expect("a time");
            source.set_modified(later).expect("set");
            let structure = whole(&folder.0.join("p"));
            check_rust_forms(&structure, false, inlined, &flags);
            source.set_modified(before).expect("set");
        }
    }
}

#[test]
fn rust_forms_with_line_tables_only() {
    rust_forms("line-tables-only", &LEVELS);
}

#[test]
fn rust_forms_with_limited_debug_information() {
    rust_forms("1", &LEVELS);
}

#[test]
fn rust_forms_with_full_debug_information() {
    rust_forms("2", &[LEVELS[0], LEVELS[3]]);
}

const LIBRARY: &str = r#"
pub mod parallel_overhead {
    pub mod sched {
        #[inline(always)]
        pub fn run<F: FnOnce(u64) -> u64>(f: F, n: u64) -> u64 {
            let before = super::super::plain(n);
            let r = f(before);
            r ^ super::super::plain(r)
        }
    }
}
#[inline(always)]
fn plain(n: u64) -> u64 { (n ^ 0x55).rotate_left(std::hint::black_box(n) as u32 & 31) }
"#;

const USER: &str = r#"
#[inline(always)]
fn task(n: u64) -> u64 { let mut t = n; for i in 0..n { t = t.wrapping_mul(i | 3) ^ std::hint::black_box(i); } t }
#[inline(never)]
fn spawn(n: u64) -> u64 { runtime::parallel_overhead::sched::run(task, n) }
fn main() { println!("{}", spawn(std::env::args().count() as u64 * 7)); }
"#;

#[test]
fn a_function_of_another_crate_that_the_runtime_runs_is_user_work() {
    let folder = Folder::new("tags-crate");
    folder.write("runtime.rs", LIBRARY);
    folder.write("user.rs", USER);
    for level in [LEVELS[2], LEVELS[4]] {
        let mut flags = level.to_vec();
        flags.push("-Cdebuginfo=1");
        let library: Vec<&str> = ["--crate-type", "rlib"]
            .into_iter()
            .chain(flags.iter().copied().filter(|f| !f.contains("lto")))
            .collect();
        folder.rustc("runtime.rs", "libruntime.rlib", &library);
        let user: Vec<&str> =
            ["--extern", "runtime=libruntime.rlib"].into_iter().chain(flags.iter().copied()).collect();
        let structure = whole(&folder.rustc("user.rs", "p", &user));
        // The runtime's own helper, in no tagged module, is covered by its tagged caller.
        assert_eq!(categories_inside(&structure, "runtime::plain"), set(["sched"]), "{user:?}");
        assert_eq!(categories_inside(&structure, "user::task"), set([""]), "{user:?}");
    }
}

#[test]
fn rules_tag_procedures_files_and_modules() {
    let folder = Folder::new("tags-rules");
    rust_sources(&folder);
    let path = folder.rustc("app.rs", "p", &["-Cdebuginfo=1", "-O"]);
    let with = |text: &str| {
        let rules = folder.write("rules", text);
        let options = Options { rules: Rules::with_file(&rules).expect("parses"), ..Options::default() };
        analyse(&path, &options).expect("analysed")
    };
    let structure = with("procedure app::clean idle\n");
    assert_eq!(categories(&structure, "app::clean"), set(["idle"]));
    // The innermost tag wins over the rule for the whole procedure.
    let structure = with("procedure app::by_file mine\n");
    assert_eq!(categories(&structure, "app::by_file"), set(["mine", "sync"]));
    let structure = with("file */app.rs source\n");
    assert_eq!(categories(&structure, "app::clean"), set(["source"]));
    let structure = with("module */p everything\n");
    assert_eq!(categories(&structure, "app::clean"), set(["everything"]));
    assert!(categories(&structure, "app::by_file").contains("sync"));
}

#[test]
fn std_synchronisation_is_tagged_by_the_built_in_rules() {
    let folder = Folder::new("tags-std");
    folder.write(
        "locks.rs",
        "use std::sync::Mutex;\nstatic M: Mutex<u64> = Mutex::new(0);\n#[inline(never)] fn locked(n: u64) -> u64 { let mut g = M.lock().unwrap(); for i in 0..n { *g = g.wrapping_mul(i | 3) ^ std::hint::black_box(i); } *g }\nfn main() { println!(\"{}\", locked(std::env::args().count() as u64)); }\n",
    );
    let structure = whole(&folder.rustc("locks.rs", "p", &["-Cdebuginfo=1", "-O"]));
    assert_eq!(categories(&structure, "locks::locked"), set(["", "sync"]));
    let contended = structure.procedures.iter().find(|p| structure.string(p.name).contains("lock_contended"));
    let tag = contended.expect("std keeps it out of line").tag;
    assert_eq!(tag.map(|t| structure.string(t)), Some("sync"));
}

#[test]
fn sampled_addresses_select_their_procedures_and_change_nothing_in_them() {
    let folder = Folder::new("tags-sampled");
    rust_sources(&folder);
    let path = folder.rustc("app.rs", "p", &["-Cdebuginfo=1", "-O"]);
    let all = whole(&path);
    assert!(all.complete);
    let address = spans_of(&all, "app::by_file")[1].start;
    let options = Options { addresses: Some(vec![address, 0xdead_beef_0000]), ..Options::default() };
    let some = analyse(&path, &options).expect("analysed");
    assert!(!some.complete);
    let names: BTreeSet<&str> = some.procedures.iter().map(|p| some.string(p.name)).collect();
    assert_eq!(names, set(["app::by_file"]));
    let view = |s: &Structure| -> Vec<String> {
        let spans = spans_of(s, "app::by_file");
        let line = |span: &&Span| span.line.map(|l| (s.string(l.file).to_owned(), l.line));
        spans
            .iter()
            .map(|x| format!("{:#x} {:#x} {:?} {:?} {}", x.start, x.end, frames(s, x), line(x), tag(s, x)))
            .collect()
    };
    assert_eq!(view(&some), view(&all));
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let folder = Folder::new("tags-threads");
    rust_sources(&folder);
    let path = folder.rustc("app.rs", "p", &["-Cdebuginfo=1", "-O"]);
    let with = |threads| {
        let options = Options { threads, ..Options::default() };
        analyse(&path, &options).expect("analysed").encode()
    };
    let one = with(1);
    assert!(one == with(2) && one == with(7), "results differ");
}
