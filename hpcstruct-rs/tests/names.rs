//! Names as users wrote them, whatever the debug level, the optimisation and the mangling.

use crate::common::{Folder, NAMES_RS, frames, has_name, procedure_name, spans_of, whole};
use hpc_formats::structure::{Origin, Procedure, ScopeKind};

#[test]
fn rust_procedures_are_qualified_at_every_debug_level() {
    let folder = Folder::new("names-levels");
    folder.write("shapes.rs", NAMES_RS);
    for debug in ["0", "line-tables-only", "1", "2"] {
        for level in ["0", "2"] {
            let flags = [format!("-Cdebuginfo={debug}"), format!("-Copt-level={level}")];
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let structure = whole(&folder.rustc("shapes.rs", "p", &flags));
            for name in [
                "shapes::main",
                "shapes::apply",
                "shapes::shapes::Ring<T>::outline",
                "<u32 as shapes::shapes::Area>::area",
            ] {
                let spans = spans_of(&structure, name);
                assert!(!spans.is_empty(), "no {name} at debug={debug} opt-level={level}");
                let procedure = &structure.procedures[spans[0].procedure.0 as usize];
                assert_eq!(procedure.origin, Origin::User);
                assert_eq!(procedure.tag, None);
            }
            for name in &structure.strings {
                assert!(!name.contains("{{"), "{name}");
            }
        }
    }
}

#[test]
fn closures_and_inlined_procedures_have_readable_names() {
    let folder = Folder::new("names-inlined");
    folder.write("shapes.rs", NAMES_RS);
    for debug in ["1", "2"] {
        let flags = [format!("-Cdebuginfo={debug}"), "-Copt-level=3".to_owned()];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let structure = whole(&folder.rustc("shapes.rs", "p", &flags));
        for name in [
            "shapes::main::{closure#0}",
            "shapes::main::{closure#1}",
            "shapes::main::{closure#1}::nested",
            "shapes::shapes::helper::mixed",
            "<shapes::shapes::Ring<u64> as shapes::shapes::Area>::area",
        ] {
            assert!(has_name(&structure, name), "no {name} at debug={debug}");
        }
        // The whole chain, innermost first, at some instruction.
        let chain = ["shapes::shapes::helper::mixed", "shapes::main::{closure#0}", "shapes::apply"];
        let found = structure.spans.iter().any(|span| {
            let frames = frames(&structure, span);
            frames.windows(3).any(|w| w == chain)
        });
        assert!(found, "mixed is not inside the closure inside apply");
    }
}

#[test]
fn inlined_names_without_namespaces_are_qualified_by_their_file() {
    let folder = Folder::new("names-tables");
    folder.write(
        "main.rs",
        "mod inner;\n#[inline(never)] fn run(n: u64) -> u64 { (0..n).map(inner::deep::twist).sum() }\nfn main() { println!(\"{}\", run(std::env::args().count() as u64 * 9)); }\n",
    );
    folder.write("inner/mod.rs", "pub mod deep;\n");
    folder.write(
        "inner/deep.rs",
        "#[inline(always)] pub fn twist(n: u64) -> u64 { (n ^ 3).wrapping_mul(n | 9).rotate_left(n as u32 & 7) }\n",
    );
    let flags = ["-Cdebuginfo=line-tables-only", "-Copt-level=2", "--crate-name", "app"];
    let structure = whole(&folder.rustc("main.rs", "p", &flags));
    assert!(has_name(&structure, "app::run"));
    assert!(has_name(&structure, "app::inner::deep::twist"));
    assert!(has_name(&structure, "core::intrinsics::rotate_left"));
}

/// Inlined async functions in a module, one of which begins with code that is inlined from the standard
/// library.
const ASYNC_RS: &str = r#"
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
mod net {
    pub async fn fetch(n: u64) -> u64 {
        let mut s = 0u64;
        for i in 0..n {
            s = s.wrapping_mul(i ^ 3).wrapping_add(std::hint::black_box(i));
            step(i).await;
        }
        s
    }
    pub async fn slow(n: u64) -> u64 {
        let mut s = 0u64;
        for i in 0..n {
            s = s.wrapping_mul(i ^ 5).wrapping_add(std::hint::black_box(i));
        }
        step(s).await;
        s
    }
    async fn step(i: u64) {
        super::Yield(i % 2 == 0).await
    }
}
struct Yield(bool);
impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, false) { Poll::Pending } else { Poll::Ready(()) }
    }
}
fn raw() -> RawWaker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(|_| raw(), |_| {}, |_| {}, |_| {});
    RawWaker::new(std::ptr::null(), &TABLE)
}
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = unsafe { Waker::from_raw(raw()) };
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut context) { return out; }
    }
}
fn main() {
    let n = std::env::args().count() as u64 * 10;
    let a = wait(net::fetch(n));
    let b = wait(async { let x = net::slow(n).await; x + net::fetch(n).await });
    println!("{a} {b} {}", [a, b].iter().map(|x| std::hint::black_box(*x) ^ 5).sum::<u64>());
}
"#;

#[test]
fn with_line_tables_alone_async_functions_and_closures_are_named_by_the_function_around_them() {
    let folder = Folder::new("names-async");
    folder.write("app.rs", ASYNC_RS);
    let flags = ["-Cdebuginfo=line-tables-only", "-Copt-level=3"];
    let structure = whole(&folder.rustc("app.rs", "p", &flags));
    let is_own = |name: &str| name.contains("{async_") || name.starts_with("app::main::");
    let mut found: Vec<&str> = structure
        .scopes
        .iter()
        .map(|scope| structure.string(scope.name))
        .filter(|name| is_own(name))
        .collect();
    found.sort_unstable();
    found.dedup();
    let expected = [
        "app::main::{async_block#0}",
        "app::main::{closure#1}",
        "app::net::fetch::{async_fn#0}",
        "app::net::slow::{async_fn#0}",
        "app::net::step::{async_fn#0}",
    ];
    assert_eq!(found, expected);
}

#[test]
fn v0_names_show_their_generic_arguments() {
    let folder = Folder::new("names-v0");
    folder.write("shapes.rs", NAMES_RS);
    let flags = ["-Cdebuginfo=1", "-Copt-level=2", "-Csymbol-mangling-version=v0"];
    let structure = whole(&folder.rustc("shapes.rs", "p", &flags));
    assert!(has_name(&structure, "shapes::apply::<shapes::main::{closure#0}>"));
    assert!(has_name(&structure, "shapes::shapes::Ring<u32>::outline"));
}

/// A procedure whose symbol is that of a trait implementation, with and without a compiler's suffix.
const SUFFIXED_RS: &str = r#"
#[export_name = "_ZN66_$LT$rayon_core..job..StackJob$u20$as$u20$rayon_core..job..Job$GT$7execute17h375c44ad7482667aE.llvm.2623"]
pub extern "C" fn a(x: u64) -> u64 { (0..x).fold(1, |s, i| s ^ (i * s)) }
#[export_name = "_ZN57_$LT$alloc..vec..Vec$u20$as$u20$core..ops..drop..Drop$GT$4drop17h375c44ad7482667bE.2623"]
pub extern "C" fn b(x: u64) -> u64 { (0..x).fold(3, |s, i| s ^ (i * s)) }
"#;

#[test]
fn rust_names_with_a_suffix_keep_their_origin() {
    let folder = Folder::new("names-suffix");
    folder.write("p.rs", SUFFIXED_RS);
    let structure = whole(&folder.rustc("p.rs", "p.so", &["-O", "--crate-type", "cdylib"]));
    for (name, origin) in [
        ("<rayon_core::job::StackJob as rayon_core::job::Job>::execute", Origin::Runtime),
        ("<alloc::vec::Vec as core::ops::drop::Drop>::drop", Origin::System),
    ] {
        let is_it = |p: &&Procedure| structure.string(p.name) == name;
        let found = structure.procedures.iter().find(is_it);
        assert_eq!(found.unwrap_or_else(|| panic!("no {name}")).origin, origin, "{name}");
    }
}

const CALLS: &str = r#"
struct Add { int k; int operator()(int x) const { return x * k + 1; } };
__attribute__((noinline)) int f(int *a, int n, Add g) {
  int s = 0;
  auto mix = [&](int x) { return x ^ s; };
  for (int i = 0; i < n; i++) s ^= g(mix(a[i]));
  return s;
}
int main(int c, char **) { int a[3] = {c, 2, 3}; return f(a, 3, Add{c}); }
"#;

#[test]
fn call_operators_are_lambdas_only_where_that_is_known() {
    let folder = Folder::new("names-calls");
    folder.write("p.cc", CALLS);
    let names = |compiler: &str, debug: &str| {
        folder.run(compiler, &["-O2", debug, "p.cc", "-o", "p"]);
        let structure = whole(&folder.0.join("p"));
        let inlined = structure.scopes.iter().filter(|scope| scope.kind == ScopeKind::Inlined);
        let mut names: Vec<String> = inlined.map(|scope| structure.string(scope.name).to_owned()).collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!(names("g++", "-g"), ["Add::operator()", "{lambda}"]);
    assert_eq!(names("g++", "-g1"), ["Add::operator()", "operator()"]);
    if std::process::Command::new("clang++").arg("--version").output().is_err() {
        println!("SKIPPED: clang++ is not installed; its call operators are not tested");
        return;
    }
    assert_eq!(names("clang++", "-g"), ["Add::operator()", "f(int*, int, Add)::$_0::operator()"]);
    assert_eq!(names("clang++", "-g1"), ["operator()"]);
}

/// Debug information by hand: the names that a procedure has there are both `own`, in `language`.
fn named_twice(symbol: &str, own: [&str; 2], language: u16) -> String {
    let [plain, linkage] = own;
    format!(
        ".text
.type \"{symbol}\",@function
\"{symbol}\":
.Lb: xor %eax,%eax
 ret
.Le: .size \"{symbol}\",.-\"{symbol}\"
.section .debug_abbrev,\"\",@progbits
.byte 1,0x11,1,0x11,1,0x12,1,3,8,0x13,5,0,0, 2,0x2e,0,3,8,0x6e,8,0x11,1,0x12,1,0,0, 0
.section .debug_info,\"\",@progbits
.long .Lend-.Lv
.Lv: .value 4
.long 0
.byte 8, 1
.quad .Lb
.quad .Le
.asciz \"x\"
.value {language}
.byte 2
.asciz \"{plain}\"
.asciz \"{linkage}\"
.quad .Lb
.quad .Le
.byte 0
.Lend:
"
    )
}

#[test]
fn the_name_that_tells_more_is_shown() {
    let folder = Folder::new("names-poor");
    for (symbol, own, language, shown) in [
        // As Crystal writes them.
        ("Person::new", ["new"; 2], 2, "Person::new"),
        ("Array(T)@List(T)#each", ["each"; 2], 2, "Array(T)@List(T)#each"),
        // As GHC does.
        ("Main_go16_info", ["c3jM", "Main_go16_info"], 0x18, "Main_go16_info"),
        // C's with a label, and gfortran's main program.
        ("other", ["own", "other"], 12, "own"),
        ("MAIN__", ["p", "MAIN__"], 8, "p"),
    ] {
        folder.write("p.s", named_twice(symbol, own, language));
        let path = folder.gcc("p.s", "p.so", &["-nostdlib", "-shared"]);
        let structure = whole(&path);
        let names: Vec<&str> = structure.procedures.iter().map(|p| structure.string(p.name)).collect();
        assert_eq!(names, [shown]);
    }
}

const CPP: &str = r#"
#include <cstdio>
namespace space {
template <class T> struct Box {
  T value;
  __attribute__((noinline)) T twice(T x) { return value * x + x; }
};
__attribute__((noinline)) int plain(int x, const char *) { return x ^ 5; }
}
extern "C" __attribute__((noinline)) int bare(int x) { return x * 7; }
static inline int folded(int x) { int s = 0; for (int i = 0; i < x; i++) s ^= i * x; return s; }
template <class F> __attribute__((noinline)) int call(F f, int n) { return f(n) + 1; }
int main(int argc, char **) {
  space::Box<int> b{argc};
  auto lambda = [&](int x) { return folded(x) + b.value; };
  auto apart = [&](int x) __attribute__((noinline)) { return folded(x) ^ b.value; };
  std::printf("%d %d %d %d %d\n", b.twice(argc), space::plain(argc, ""), bare(argc), lambda(argc), call(apart, 3));
}
"#;

#[test]
fn cpp_and_c_names() {
    let folder = Folder::new("names-cpp");
    folder.write("p.cc", CPP);
    folder.run("g++", &["-O2", "-g", "p.cc", "-o", "p"]);
    let structure = whole(&folder.0.join("p"));
    for name in ["space::Box<int>::twice", "space::plain", "bare", "folded", "main"] {
        assert!(has_name(&structure, name), "no {name}");
    }
    assert!(has_name(&structure, "{lambda}"), "inlined, without a linkage name");
    assert!(has_name(&structure, "main::{lambda(int)#2}"), "out of line");
}

#[test]
fn cold_parts_belong_to_their_procedure_with_and_without_debug_information() {
    let folder = Folder::new("names-cold");
    folder.write(
        "p.c",
        "#include <stdio.h>\n#include <stdlib.h>\n\
         __attribute__((cold, noinline)) void grave(int x) { fprintf(stderr, \"%d\\n\", x); }\n\
         __attribute__((noinline)) int entry(int x) { if (x == 12345) { grave(x); grave(x + 1); abort(); } return x * 3; }\n\
         int main(int argc, char **argv) { (void)argv; return entry(argc); }\n",
    );
    for debug in ["-g", "-g0"] {
        let path = folder.gcc("p.c", "p", &["-O2", debug]);
        let structure = whole(&path);
        let spans = spans_of(&structure, "entry");
        let ids: Vec<_> = spans.iter().map(|s| s.procedure).collect();
        assert!(ids.windows(2).all(|w| w[0] == w[1]), "entry is one procedure");
        let apart = spans.windows(2).any(|w| w[0].end + 16 < w[1].start);
        assert!(apart, "{debug}: gcc splits a cold part off, and it is entry's: {spans:?}");
        assert!(!structure.strings.iter().any(|s| s.ends_with(".cold")));
    }
}

#[test]
fn stripped_code_has_procedures_from_unwind_entries_and_a_remedy() {
    let folder = Folder::new("names-stripped");
    folder.write("p.c", "__attribute__((noinline)) int f(int x) { return x * 3; }\nint main(int c, char **v) { (void)v; return f(c); }\n");
    let with_symbols = whole(&folder.gcc("p.c", "p", &["-O1"]));
    let stripped = whole(&folder.gcc("p.c", "s", &["-O1", "-s"]));
    let start = spans_of(&with_symbols, "f")[0].start;
    let span = stripped.span_at(start).expect("covered");
    assert_eq!(span.start, start);
    assert_eq!(procedure_name(&stripped, span), format!("?{start:#x}"));
    assert!(stripped.notes[0].contains("CARGO_PROFILE_RELEASE_STRIP=none"));
    assert!(with_symbols.notes[0].starts_with("no debug information"));
    // Exported symbols survive stripping.
    let exported = whole(&folder.gcc("p.c", "l.so", &["-O1", "-s", "-shared", "-fPIC"]));
    assert!(has_name(&exported, "f"));
}

#[test]
fn origins_of_the_runtime_and_the_standard_library() {
    let folder = Folder::new("names-origins");
    folder.write(
        "work_stealing_rt.rs",
        "pub trait Job { fn run(&self) -> u64; }\npub struct Deque<T>(pub T);\nimpl<T: Fn() -> u64> Job for Deque<T> { #[inline(never)] fn run(&self) -> u64 { (self.0)() } }\n#[inline(never)] pub fn enter<J: Job>(job: &J) -> u64 { job.run() + 1 }\n",
    );
    folder.write(
        "main.rs",
        "use work_stealing_rt::*;\nstruct Mine;\nimpl Job for Mine { #[inline(never)] fn run(&self) -> u64 { std::hint::black_box(4) } }\nfn main() { let n = std::env::args().count() as u64; println!(\"{} {}\", enter(&Deque(move || n * 3)), enter(&Mine)); }\n",
    );
    folder.rustc("work_stealing_rt.rs", "libwork_stealing_rt.rlib", &["--crate-type", "rlib", "-g", "-O"]);
    let structure = whole(&folder.rustc(
        "main.rs",
        "p",
        &["-g", "-O", "--extern", "work_stealing_rt=libwork_stealing_rt.rlib"],
    ));
    let origin = |name: &str| {
        let found = structure.procedures.iter().find(|p| structure.string(p.name) == name);
        found.unwrap_or_else(|| panic!("no {name}")).origin
    };
    assert_eq!(origin("<work_stealing_rt::Deque<T> as work_stealing_rt::Job>::run"), Origin::Runtime);
    assert_eq!(origin("work_stealing_rt::enter"), Origin::Runtime);
    assert_eq!(origin("<main::Mine as work_stealing_rt::Job>::run"), Origin::User);
    assert_eq!(origin("main::main"), Origin::User);
    assert_eq!(origin("std::rt::lang_start_internal"), Origin::System);
    assert_eq!(origin("_start"), Origin::System);
}
