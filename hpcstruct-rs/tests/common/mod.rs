//! Builds small programs for the tests and analyses them.
//!
//! Each test program is one function here, so that what a test expects can be read beside it.

use hpc_formats::structure::{Scope, ScopeKind, Span};
use hpcstruct_rs::{Options, Structure, analyse};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder that is removed when dropped.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// A new, empty folder.
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("hpcstruct-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("temporary folder");
        // The compilers record the path without symbolic links.
        Folder(std::fs::canonicalize(path).expect("exists"))
    }

    /// Writes a file into it.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("sub-folder");
        }
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Runs a tool in the folder and expects it to succeed.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(&self.0)
            .output()
            .unwrap_or_else(|e| panic!("{program} cannot be run: {e}"));
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Compiles `source` with gcc into `output`.
    pub(crate) fn gcc(&self, source: &str, output: &str, flags: &[&str]) -> PathBuf {
        let mut arguments = vec![source, "-o", output];
        arguments.extend(flags);
        self.run("gcc", &arguments);
        self.0.join(output)
    }

    /// Compiles the crate root `source` with rustc into `output`.
    pub(crate) fn rustc(&self, source: &str, output: &str, flags: &[&str]) -> PathBuf {
        let mut arguments = vec!["--edition", "2021", source, "-o", output];
        arguments.extend(flags);
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
        self.run(&rustc, &arguments);
        self.0.join(output)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Analyses everything with the default options.
pub(crate) fn whole(path: &Path) -> Structure {
    analyse(path, &Options::default()).expect("a readable module")
}

/// The readable names of a span's frames without loops, innermost first, the procedure last.
pub(crate) fn frames<'s>(structure: &'s Structure, span: &Span) -> Vec<&'s str> {
    let mut names: Vec<&str> = structure
        .scope_chain(span)
        .iter()
        .rev()
        .map(|id| &structure.scopes[id.0 as usize])
        .filter(|scope| scope.kind == ScopeKind::Inlined)
        .map(|scope| structure.string(scope.name))
        .collect();
    names.push(procedure_name(structure, span));
    names
}

/// The name of a span's procedure.
pub(crate) fn procedure_name<'s>(structure: &'s Structure, span: &Span) -> &'s str {
    structure.string(structure.procedures[span.procedure.0 as usize].name)
}

/// All spans of the procedures named `name`.
pub(crate) fn spans_of<'s>(structure: &'s Structure, name: &str) -> Vec<&'s Span> {
    let spans = structure.spans.iter();
    spans.filter(|s| procedure_name(structure, s) == name).collect()
}

/// The scopes named `name`.
pub(crate) fn scopes_named<'s>(structure: &'s Structure, name: &str) -> Vec<&'s Scope> {
    let scopes = structure.scopes.iter();
    scopes.filter(|s| structure.string(s.name) == name).collect()
}

/// Whether a procedure or scope of that name exists.
pub(crate) fn has_name(structure: &Structure, name: &str) -> bool {
    let procedure = structure.procedures.iter().any(|p| structure.string(p.name) == name);
    procedure || !scopes_named(structure, name).is_empty()
}

/// A C program: `main` calls `entry`, into which `twice` is inlined, with a loop.
pub(crate) const C: &str = r#"
#include <stdio.h>
volatile int sink;
static inline int twice(int x) { for (int i = 0; i < x; i++) sink += i; return x * 2; }
__attribute__((noinline)) static int entry(int x) { return twice(x) + 1; }
int main(int argc, char **argv) { (void)argv; printf("%d\n", entry(argc)); return 0; }
"#;

/// A Rust program with modules, generics, trait impls, closures and nested functions.
pub(crate) const NAMES_RS: &str = r#"
pub mod shapes {
    pub struct Ring<T>(pub T);
    pub trait Area {
        fn area(&self, n: u64) -> u64;
    }
    impl Area for Ring<u64> {
        #[inline(always)]
        fn area(&self, n: u64) -> u64 {
            let mut s = self.0;
            for i in 0..n {
                s = s.wrapping_mul(i ^ 3).wrapping_add(s >> 3);
            }
            s
        }
    }
    impl Area for u32 {
        #[inline(never)]
        fn area(&self, n: u64) -> u64 {
            let mut s = *self as u64;
            for i in 0..n {
                s = s.wrapping_mul(i ^ 7).wrapping_add(s >> 5);
            }
            s
        }
    }
    impl<T: Area> Ring<T> {
        #[inline(never)]
        pub fn outline(&self, n: u64) -> u64 {
            self.0.area(n) ^ 1
        }
    }
    pub mod helper {
        #[inline(always)]
        pub fn mixed(x: u64) -> u64 {
            (0..x & 7).map(|v| v * v ^ x).sum()
        }
    }
}
use shapes::Area;
#[inline(never)]
fn apply<F: Fn(u64) -> u64>(f: F, n: u64) -> u64 {
    let mut t = 0;
    for i in 0..n {
        t ^= f(i);
    }
    t
}
fn main() {
    let k = std::env::args().count() as u64;
    let ring = shapes::Ring(k);
    let a = apply(|i| shapes::helper::mixed(i).wrapping_add(ring.area(i)), 10 * k);
    let b = shapes::Ring(4u32).outline(10 * k);
    let c = apply(
        |i| {
            #[inline(never)]
            fn nested(a: u64) -> u64 {
                std::hint::black_box(a) * 3
            }
            nested(i)
        },
        k,
    );
    println!("{a} {b} {c}");
}
"#;
