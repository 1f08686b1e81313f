//! `cargo xtask loop-oracle`: the loops that hpcstruct-rs finds in published C, C++ and Rust code,
//! beside LLVM's own.
//!
//! One duty: fetch the sources from crates.io (C libraries are packed in crates too), have clang
//! and rustc write assembly whose comments name LLVM's loops, at all levels and with link-time
//! optimisation, and hand it to hpcstruct-rs's test `loop_oracle`, which compares and prints. What is
//! not installed is said and left out. Everything lies under the target folder.

use crate::build::{self, cargo, copy, create, entries, remove, write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that carry the sources, and the features that this needs of them.
const MANIFEST: &str = r#"[package]
name = "app"
version = "0.0.0"
edition = "2021"
[lib]
crate-type = ["cdylib"]
[workspace]
[dependencies]
regex-automata = "=0.4.14"
serde_json = "=1.0.151"
png = "=0.18.1"
flate2 = "=1.1.11"
[build-dependencies]
zstd-sys = "=2.1.2"
libz-sys = "=1.1.19"
lua-src = "=551.1.0"
harfbuzz-sys = "=0.6.1"
"#;

/// What instantiates the generic code of the Rust crates.
const APP: &str = r#"
use std::io::Read;
#[no_mangle]
pub fn json(text: &str) -> usize {
    let value: Result<serde_json::Value, _> = serde_json::from_str(text);
    value.map_or(0, |v| serde_json::to_string_pretty(&v).map_or(0, |s| s.len()))
}
#[no_mangle]
pub fn find(pattern: &str, text: &str) -> usize {
    let meta = regex_automata::meta::Regex::new(pattern).map_or(0, |r| r.find_iter(text).count());
    let dense = regex_automata::dfa::regex::Regex::new(pattern);
    meta + dense.map_or(0, |r| r.find_iter(text).count())
}
#[no_mangle]
pub fn picture(bytes: &[u8]) -> usize {
    let Ok(mut reader) = png::Decoder::new(std::io::Cursor::new(bytes)).read_info() else { return 0 };
    let mut out = vec![0; reader.output_buffer_size().unwrap_or(0)];
    reader.next_frame(&mut out).map_or(0, |i| i.buffer_size())
}
#[no_mangle]
pub fn inflate(bytes: &[u8]) -> usize {
    let mut out = Vec::new();
    let mut plain = flate2::read::ZlibDecoder::new(bytes);
    let mut packed = flate2::read::GzEncoder::new(bytes, flate2::Compression::best());
    plain.read_to_end(&mut out).unwrap_or(0) + packed.read_to_end(&mut out).unwrap_or(0)
}
"#;

/// What instantiates a header-only C++ library that throws and catches.
const JSON: &str = r#"
#include <nlohmann/json.hpp>
#include <fstream>
#include <map>
using nlohmann::json;
std::size_t tables(const std::vector<std::string>& texts, std::map<std::string, int>& counts) {
    std::size_t good = 0;
    for (const auto& text : texts) {
        try {
            json parsed = json::parse(text);
            for (auto& item : parsed.items()) {
                counts[item.key()] += 1;
                good += item.value().dump(2).size();
            }
        } catch (const json::parse_error&) { continue; }
        catch (const std::exception& error) { good += std::string(error.what()).size(); }
    }
    return good;
}
"#;

/// A library of C or C++ sources.
struct Library {
    name: &'static str,
    /// Begins the name of the crate's folder.
    package: &'static str,
    /// Folders within, whose sources are compiled and whose headers are found.
    folders: &'static [&'static str],
    /// The only source, where not all are wanted.
    only: Option<&'static str>,
    flags: &'static [&'static str],
}

const LIBRARIES: [Library; 4] = [
    Library {
        name: "zlib",
        package: "libz-sys-",
        folders: &["src/zlib"],
        only: None,
        flags: &["-D_LARGEFILE64_SOURCE=1"],
    },
    Library {
        name: "zstd",
        package: "zstd-sys-",
        folders: &[
            "zstd/lib/common",
            "zstd/lib/compress",
            "zstd/lib/decompress",
            "zstd/lib/dictBuilder",
        ],
        only: None,
        flags: &["-DZSTD_DISABLE_ASM"],
    },
    Library {
        name: "lua",
        package: "lua-src-",
        folders: &["lua-5.4.9"],
        only: None,
        flags: &["-DLUA_USE_LINUX"],
    },
    Library {
        name: "harfbuzz",
        package: "harfbuzz-sys-",
        folders: &["harfbuzz/src"],
        only: Some("harfbuzz.cc"),
        flags: &["-std=c++17", "-DHAVE_PTHREAD"],
    },
];

/// Lua's manual says of these that they never return; their declarations do not.
const NEVER: &str = "lua_error,luaL_error,luaL_argerror,luaL_typeerror";

const LEVELS: [&str; 4] = ["0", "1", "2", "3"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only what has this in its name
    #[arg(long, default_value = "")]
    only: String,
    /// Make the assembly, do not compare
    #[arg(long)]
    no_compare: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let place = build::target()?.join("loop-oracle");
    let assembly = place.join("assembly");
    remove(&assembly)?;
    let sources = fetch(&place)?;
    let wants = |name: &str| name.contains(&options.only);
    if runs("clang") {
        for library in LIBRARIES.iter().filter(|l| wants(l.name)) {
            of_library(library, &sources, &assembly)?;
        }
        if wants("nlohmann") {
            of_cpp_header(&place, &assembly)?;
        }
    } else {
        println!("clang is not installed: C and C++ are left out");
    }
    if wants("rust") {
        of_rust(&place, &assembly)?;
    }
    if options.no_compare {
        return Ok(());
    }
    build::run(
        cargo()
            .current_dir(build::workspace())
            .args(["test", "-q", "-p", "hpcstruct-rs", "--test", "all"])
            .args(["assembly_agrees_with_llvm", "--", "--nocapture"])
            .env("HPCSTRUCT_LOOP_ASSEMBLY", assembly)
            .env("HPCSTRUCT_LOOP_NEVER", NEVER),
    )
}

/// Whether a program is installed.
fn runs(program: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|o| o.status.success())
}

/// Writes the project and has cargo fetch what it names; returns the folder of the sources.
fn fetch(place: &Path) -> Result<PathBuf, String> {
    write(&place.join("Cargo.toml"), MANIFEST)?;
    write(&place.join("src/lib.rs"), APP)?;
    build::run(
        cargo()
            .current_dir(place)
            .args(["vendor", "-q", "--versioned-dirs", "sources"])
            .stdout(std::process::Stdio::null()),
    )?;
    Ok(place.join("sources"))
}

/// One library at all levels, and whole (linked as bitcode).
fn of_library(library: &Library, sources: &Path, assembly: &Path) -> Result<(), String> {
    let package = entries(sources)?.into_iter().find(|p| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(library.package)
    });
    let package = package.ok_or_else(|| format!("{} was not fetched", library.package))?;
    let folders: Vec<PathBuf> = library.folders.iter().map(|f| package.join(f)).collect();
    let mut files = Vec::new();
    for folder in &folders {
        let own = entries(folder)?.into_iter();
        files.extend(own.filter(|f| match library.only {
            Some(only) => f.ends_with(only),
            None => f.extension().is_some_and(|e| e == "c"),
        }));
    }
    let mut flags: Vec<String> = folders.iter().map(|f| format!("-I{}", f.display())).collect();
    flags.extend(library.flags.iter().map(|f| (*f).to_owned()));
    for level in LEVELS {
        let group = assembly.join(format!("{} -O{level}", library.name));
        compile_all(&files, &flags, &[&format!("-O{level}"), "-S"], "s", &group)?;
    }
    whole_program(library.name, &files, &flags, assembly)
}

/// Compiles each file into `group`.
fn compile_all(
    files: &[PathBuf],
    flags: &[String],
    more: &[&str],
    extension: &str,
    group: &Path,
) -> Result<(), String> {
    create(group)?;
    for file in files {
        let name = file.file_stem().unwrap_or_default();
        let output = group.join(name).with_extension(extension);
        build::run(
            Command::new("clang")
                .args(["-fPIC", "-w", "-fno-addrsig"])
                .args(flags)
                .args(more)
                .arg(file)
                .arg("-o")
                .arg(output),
        )?;
    }
    Ok(())
}

/// Link-time optimisation by LLVM's own tools: all files in one module, optimised as a whole.
fn whole_program(
    name: &str,
    files: &[PathBuf],
    flags: &[String],
    assembly: &Path,
) -> Result<(), String> {
    if !["llvm-link", "opt", "llc"].iter().all(|tool| runs(tool)) {
        println!("llvm-link, opt or llc is not installed: {name} as a whole is left out");
        return Ok(());
    }
    let bitcode = assembly.with_file_name("bitcode").join(name);
    remove(&bitcode)?;
    compile_all(files, flags, &["-O2", "-emit-llvm", "-c"], "bc", &bitcode)?;
    let group = assembly.join(format!("{name} -O3 LTO"));
    create(&group)?;
    let (linked, best) = (bitcode.join("all.linked"), bitcode.join("all.best"));
    let parts = entries(&bitcode)?;
    build::run(Command::new("llvm-link").args(parts).arg("-o").arg(&linked))?;
    build::run(Command::new("opt").args(["-O3", "-o"]).arg(&best).arg(&linked))?;
    build::run(
        Command::new("llc")
            .args(["-O3", "-relocation-model=pic", "-o"])
            .arg(group.join("all.s"))
            .arg(&best),
    )
}

/// C++ with exceptions, where the headers are installed.
fn of_cpp_header(place: &Path, assembly: &Path) -> Result<(), String> {
    let file = place.join("json.cc");
    write(&file, JSON)?;
    let check = Command::new("clang++").args(["-fsyntax-only", "-w"]).arg(&file).output();
    if !check.is_ok_and(|o| o.status.success()) {
        println!("nlohmann/json.hpp is not installed: C++ with exceptions is left out");
        return Ok(());
    }
    for level in LEVELS {
        let group = assembly.join(format!("nlohmann json -O{level}"));
        let more = [&format!("-O{level}"), "-S", "-std=c++17"];
        compile_all(std::slice::from_ref(&file), &[], &more, "s", &group)?;
    }
    Ok(())
}

/// The Rust crates at all levels, and with fat link-time optimisation.
fn of_rust(place: &Path, assembly: &Path) -> Result<(), String> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let cases = LEVELS.map(|level| (level, "off"));
    for (level, lto) in cases.into_iter().chain([("3", "fat")]) {
        let target = place.join(format!("rust-{level}-{lto}"));
        build::run(
            cargo()
                .current_dir(place)
                .args(["build", "-q", "--release", "--lib", "--target", TARGET])
                .env("CARGO_TARGET_DIR", &target)
                .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", level)
                .env("CARGO_PROFILE_RELEASE_LTO", lto)
                .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
                // The comments are an unstable option of every release.
                .env("RUSTC_BOOTSTRAP", "1")
                .env("RUSTFLAGS", "--emit=asm -Zverbose-asm -Crelocation-model=pic"),
        )?;
        let suffix = if lto == "fat" { " LTO" } else { "" };
        let group = assembly.join(format!("rust crates -O{level}{suffix}"));
        create(&group)?;
        for file in entries(&target.join(TARGET).join("release/deps"))? {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // With link-time optimisation the program has everything.
            let wanted = name.ends_with(".s") && (lto == "off" || name.starts_with("app"));
            if wanted {
                copy(&file, &group.join(&*name))?;
            }
        }
    }
    Ok(())
}
