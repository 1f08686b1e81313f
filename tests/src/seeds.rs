//! Real files of every kind that is parsed, made here by our tools and the C compiler: what mutants
//! begin with.
//!
//! Each function makes the files of one kind or two; [`of_all_targets`] has them by the fuzz targets
//! (`fuzz/`) that take them. They are small, so that mutants are many.

use crate::elf;
use crate::run::Spec;
use crate::tools::{c_program, check, folder, tool, workspace};
use std::path::PathBuf;
use std::process::Command;

/// Profiles, process files and traces.
pub fn of_measurement(name: &str) -> [Vec<Vec<u8>>; 3] {
    let measured = Spec::fixture(name, "phases").arguments(&["60"]).rate(1000).trace("64K").succeed();
    ["hpcprofile", "hpcproc", "hpctrace"].map(|kind| read_all(&measured.files(kind)))
}

/// The structure of a library.
pub fn structures(name: &str) -> Vec<Vec<u8>> {
    let file = folder(name).join("library.hpcstruct");
    check(tool("hpcstruct-rs").arg(c_program("library.so")).arg("-o").arg(&file));
    read_all(&[file])
}

/// A library with debug information, as all others here are built.
pub fn library() -> Vec<u8> {
    read_all(&[c_program("library.so")]).remove(0)
}

/// Machine code, and all else in a file taken for it.
pub fn code(library: &[u8]) -> Vec<Vec<u8>> {
    library.chunks(1 << 13).map(<[u8]>::to_vec).collect()
}

/// Debug information alone.
pub fn debug_information(libraries: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let packed: Vec<_> = libraries.iter().map(|bytes| elf::pack(bytes)).collect();
    assert!(packed[0].len() > 200, "the library has debug information");
    packed
}

/// The same library in all versions of debug information, compressed, stripped, at several levels.
pub fn libraries(name: &str) -> Vec<Vec<u8>> {
    let forms: [&[&str]; 7] = [
        &["-O2", "-g", "-gdwarf-5"],
        &["-O2", "-g", "-gdwarf-4"],
        &["-O3", "-g", "-gdwarf-3"],
        &["-O0", "-g"],
        &["-O2", "-g", "-gz"],
        &["-O2", "-g", "-fdebug-types-section"],
        &["-O1", "-s"],
    ];
    let place = folder(name);
    let build = |(number, flags): (usize, &&[&str])| {
        let path = place.join(format!("{number}.so"));
        check(
            Command::new("cc")
                .current_dir(workspace().join("fixtures/c"))
                .args(["-shared", "-fPIC", "library.c", "-o"])
                .arg(&path)
                .args(*flags),
        );
        path
    };
    let paths: Vec<PathBuf> = forms.iter().enumerate().map(build).collect();
    read_all(&paths)
}

/// The fuzz targets, each with its seeds.
pub fn of_all_targets() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let [profiles, processes, traces] = of_measurement("seeds");
    let libraries = libraries("seeds-libraries");
    vec![
        ("profile", profiles),
        ("process", processes),
        ("trace", traces),
        ("structure", structures("seeds-structure")),
        ("code", libraries.iter().flat_map(|l| code(l)).collect()),
        ("debug_information", debug_information(&libraries)),
        ("analyse", libraries),
    ]
}

/// The contents of files.
pub fn read_all(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    let read = |path: &PathBuf| std::fs::read(path).expect("the file is readable");
    paths.iter().map(read).collect()
}
