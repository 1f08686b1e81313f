//! Debug information in a file of its own: found by build id or link, proven to belong.

use crate::common::{C, Folder, has_name, scopes_named, whole};
use hpc_formats::structure::ScopeKind;
use hpcstruct_rs::{Options, Structure, analyse};
use std::path::Path;

fn is_complete(structure: &Structure) -> bool {
    has_name(structure, "entry") && !scopes_named(structure, "twice").is_empty()
}

fn build(folder: &Folder, flags: &[&str]) -> std::path::PathBuf {
    folder.write("p.c", C);
    let path = folder.gcc("p.c", "p", flags);
    folder.run("objcopy", &["--only-keep-debug", "p", "p.debug"]);
    folder.run("objcopy", &["--strip-all", "--add-gnu-debuglink=p.debug", "p"]);
    path
}

fn with_folder(path: &Path, folder: &Path) -> Structure {
    let options = Options { debug_directories: vec![folder.to_owned()], ..Options::default() };
    analyse(path, &options).expect("analysed")
}

#[test]
fn by_link_beside_the_module_and_below_a_debug_folder() {
    let folder = Folder::new("separate-link");
    let path = build(&folder, &["-O2", "-g", "-Wl,--build-id=none"]);
    let structure = whole(&path);
    assert!(is_complete(&structure), "{:?}", structure.notes);
    assert!(structure.build_id.is_empty());

    std::fs::create_dir(folder.0.join(".debug")).expect("created");
    folder.run("mv", &["p.debug", ".debug/p.debug"]);
    assert!(is_complete(&whole(&path)));

    let root = folder.0.join("root");
    let below = root.join(folder.0.strip_prefix("/").expect("absolute"));
    std::fs::create_dir_all(&below).expect("created");
    std::fs::rename(folder.0.join(".debug/p.debug"), below.join("p.debug")).expect("moved");
    assert!(!is_complete(&whole(&path)));
    assert!(is_complete(&with_folder(&path, &root)));
}

#[test]
fn a_debug_file_with_another_checksum_is_not_taken() {
    let folder = Folder::new("separate-wrong");
    let path = build(&folder, &["-O2", "-g", "-Wl,--build-id=none"]);
    let mut data = std::fs::read(folder.0.join("p.debug")).expect("readable");
    let last = data.len() - 1;
    data[last] ^= 1;
    folder.write("p.debug", data);
    let structure = whole(&path);
    assert!(!is_complete(&structure));
    assert!(structure.notes.iter().any(|n| n.starts_with("stripped")));
}

#[test]
fn by_build_id() {
    let folder = Folder::new("separate-id");
    let path = build(&folder, &["-O2", "-g", "-Wl,--build-id=0xabcdef0123456789"]);
    let place = folder.0.join("store/.build-id/ab");
    std::fs::create_dir_all(&place).expect("created");
    std::fs::rename(folder.0.join("p.debug"), place.join("cdef0123456789.debug")).expect("moved");
    let structure = with_folder(&path, &folder.0.join("store"));
    assert!(is_complete(&structure), "{:?}", structure.notes);
    assert_eq!(structure.build_id, [0xab, 0xcd, 0xef, 1, 0x23, 0x45, 0x67, 0x89]);

    // A file in the right place that is another build's is left alone.
    folder.gcc("p.c", "other", &["-O1", "-g", "-Wl,--build-id=0x1111111111111111"]);
    std::fs::copy(folder.0.join("other"), place.join("cdef0123456789.debug")).expect("copied");
    assert!(!is_complete(&with_folder(&path, &folder.0.join("store"))));
}

#[test]
fn a_debug_file_by_itself_says_that_it_has_no_code() {
    let folder = Folder::new("separate-alone");
    let path = build(&folder, &["-O2", "-g", "-Wl,--build-id=0xabcdef0123456789"]);
    let is_told = |n: &String| n.contains("loops are missing") && n.contains("--debug-dir");
    let alone = whole(&folder.0.join("p.debug"));
    assert!(is_complete(&alone));
    let notes: Vec<_> = alone.notes.iter().filter(|n| is_told(n)).collect();
    assert!(matches!(notes.as_slice(), [n] if n.contains("abcdef0123456789")), "{:?}", alone.notes);
    let has_loops = |s: &Structure| s.scopes.iter().any(|s| s.kind == ScopeKind::Loop);
    assert!(!has_loops(&alone));
    // What the note says to do brings them.
    let program = whole(&path);
    assert!(has_loops(&program));
    assert!(!program.notes.iter().any(is_told), "{:?}", program.notes);
}
