//! Columns of the calls that begin parallel loops: two on one line have them, one alone does not.

use crate::common::{Folder, spans_of, whole};
use hpcstruct_rs::Structure;

/// What stands for the library of parallel iterators; `HOW` says whether its procedures are inlined.
const LIBRARY: &str = "
use std::hint::black_box;
pub trait ParallelIterator: Sized {
    fn part(self) -> u64;
    #[inline(HOW)]
    fn sum(self) -> u64 { black_box(self.part()) }
}
pub struct Items<const N: usize>(pub [u64; N]);
impl<const N: usize> ParallelIterator for Items<N> {
    #[inline(never)]
    fn part(self) -> u64 { black_box(self.0).iter().sum() }
}
";

/// `twins` has two loops on a line, `same` two of one type, `alone` one, and so has each of its instances.
const PROGRAM: &str = "
use rayon::{Items, ParallelIterator};
#[inline(never)]
fn twins() -> u64 {
    Items([1; 3]).sum() + Items([1; 4]).sum()
}
#[inline(never)]
fn same() -> u64 {
    Items([1; 3]).sum() + Items([2; 3]).sum()
}
#[inline(never)]
fn alone<const N: usize>() -> u64 {
    Items([3; N]).sum()
}
fn main() {
    std::process::exit((twins() + same() + alone::<5>() + alone::<6>()) as i32 & 1);
}
";

fn program(folder: &Folder, how: &str, level: &str) -> Structure {
    let names = [
        format!("rayon-{how}-{level}.rs"),
        format!("librayon-{how}-{level}.rlib"),
        format!("app-{how}-{level}.rs"),
        format!("app-{how}-{level}"),
    ];
    let [library, rlib, source, output] = names.each_ref().map(String::as_str);
    folder.write(library, LIBRARY.replace("HOW", how));
    folder.write(source, PROGRAM);
    let flags = ["-g", "-C", &format!("opt-level={level}"), "-C", "codegen-units=1"];
    let as_library = ["--crate-type", "rlib", "--crate-name", "rayon"];
    folder.rustc(library, rlib, &[&as_library[..], &flags].concat());
    let with_library = ["--extern", &format!("rayon={rlib}"), "--crate-name", "app"];
    whole(&folder.rustc(source, output, &[&with_library[..], &flags].concat()))
}

/// Columns of `sum` calls in the procedures of this name: of inlined ones, and of others.
fn columns(structure: &Structure, name: &str) -> [Vec<u32>; 2] {
    let spans = spans_of(structure, name);
    let sum = "rayon::ParallelIterator::sum";
    let scopes = structure.columns.scopes.iter().filter(|(id, _)| {
        let scope = &structure.scopes[id.0 as usize];
        let procedure = &structure.procedures[scope.procedure.0 as usize];
        structure.string(scope.name) == sum && structure.string(procedure.name) == name
    });
    let calls = structure.columns.calls.iter().filter(|(address, _)| {
        let is_here = |s: &&hpc_formats::structure::Span| s.start <= *address && *address < s.end;
        spans.iter().copied().any(|s| is_here(&s))
    });
    let mut found =
        [scopes.map(|(_, column)| *column).collect::<Vec<_>>(), calls.map(|(_, column)| *column).collect()];
    for columns in &mut found {
        columns.sort_unstable();
        columns.dedup();
    }
    found
}

#[test]
fn inlined_calls_of_one_line_have_columns() {
    let folder = Folder::new("columns-inlined");
    let structure = program(&folder, "always", "2");
    for name in ["app::twins", "app::same"] {
        let [scopes, _] = columns(&structure, name);
        assert_eq!(scopes.len(), 2, "{name}: {scopes:?}");
    }
    let alone = columns(&structure, "app::alone");
    assert_eq!(alone, [Vec::new(), Vec::new()], "one loop in two instances");
}

#[test]
fn calls_out_of_line_of_one_line_have_columns() {
    let folder = Folder::new("columns-called");
    for level in ["0", "2"] {
        let structure = program(&folder, "never", level);
        for name in ["app::twins", "app::same"] {
            let [scopes, calls] = columns(&structure, name);
            assert_eq!(scopes, [], "{name} at level {level}");
            assert_eq!(calls.len(), 2, "{name} at level {level}: {calls:?}");
        }
        let alone = columns(&structure, "app::alone");
        assert_eq!(alone, [Vec::new(), Vec::new()], "at level {level}");
    }
}
