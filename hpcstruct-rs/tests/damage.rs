//! Damaged and hostile files: a typed error or a structure, never a panic, and bounded work.

use crate::common::{Folder, has_name, whole};
use hpcstruct_rs::{Options, StructError, Structure, analyse, analyse_bytes};
use std::path::Path;

const C: &str = r#"
#include <stdio.h>
static inline int twice(int x) { return x * 2; }
static inline int spread(int x) { int s = 0; for (int i = 0; i < x; i++) s += twice(i) ^ x; return s; }
int entry(int x) { switch (x & 3) { case 0: return spread(x); case 1: return twice(x); } return spread(x + 1); }
int main(int argc, char **argv) { (void)argv; printf("%d\n", entry(argc)); return 0; }
"#;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// What every result must satisfy.
fn check(structure: &Structure) {
    assert!(structure.spans.windows(2).all(|w| w[0].end <= w[1].start));
    assert!(structure.spans.iter().all(|s| s.start < s.end));
    for (i, scope) in structure.scopes.iter().enumerate() {
        assert!(scope.parent.is_none_or(|p| (p.0 as usize) < i));
    }
    let again = Structure::decode(&structure.encode()).expect("what we write is readable");
    assert_eq!(&again, structure);
}

fn options() -> Options {
    Options { threads: 1, ..Options::default() }
}

/// Analyses a damaged copy; tells whether it was still an ELF image.
fn survive(data: &[u8]) -> bool {
    match analyse_bytes("damaged", data, &options()) {
        Ok(structure) => {
            check(&structure);
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("damaged") && !text.contains('\n'), "{text}");
            false
        }
    }
}

/// Offset and size of each section that the analysis reads, by the section headers.
fn sections(data: &[u8]) -> Vec<(usize, usize)> {
    use object::{Object, ObjectSection};
    let file = object::File::parse(data).expect("undamaged");
    let read = |name: &str| name.starts_with(".debug_") || name == ".eh_frame" || name.contains("sym");
    file.sections()
        .filter(|s| s.name().is_ok_and(read))
        .filter_map(|s| s.file_range())
        .map(|(offset, size)| (offset as usize, size as usize))
        .filter(|(_, size)| *size > 0)
        .collect()
}

#[test]
fn flipped_bytes_in_every_section_never_panic() {
    let folder = Folder::new("damage-flip");
    folder.write("p.c", C);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut readable = 0;
    let mut total = 0;
    for flags in [["-O2", "-gdwarf-5"], ["-O2", "-gdwarf-4"], ["-O1", "-gdwarf-3"], ["-g", "-gz"]] {
        let original = std::fs::read(folder.gcc("p.c", "p", &flags)).expect("built");
        for (offset, size) in sections(&original) {
            for _ in 0..250 {
                let mut data = original.clone();
                for _ in 0..=random.below(4) {
                    data[offset + random.below(size)] = match random.below(3) {
                        0 => 0xff,
                        1 => 0,
                        _ => random.below(256) as u8,
                    };
                }
                total += 1;
                readable += usize::from(survive(&data));
            }
        }
    }
    assert!(total > 5000, "{total} mutants");
    assert_eq!(readable, total, "damage below the headers is never an error");
}

#[test]
fn flipped_header_bytes_and_truncations_never_panic() {
    let folder = Folder::new("damage-cut");
    folder.write("p.c", C);
    let original = std::fs::read(folder.gcc("p.c", "p", &["-O2", "-g"])).expect("built");
    let mut random = Random(0xd1b5_4a32_d192_ed03);
    let mut refused = 0;
    for at in 0..64 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut data = original.clone();
            data[at] = value;
            refused += usize::from(!survive(&data));
        }
    }
    let table = original.len() - 40 * 64;
    for _ in 0..1500 {
        let mut data = original.clone();
        data[table + random.below(40 * 64)] = random.below(256) as u8;
        refused += usize::from(!survive(&data));
    }
    for _ in 0..1500 {
        let length = random.below(original.len());
        refused += usize::from(!survive(&original[..length]));
    }
    assert!(refused > 1000, "only {refused} refused");
}

#[test]
fn each_kind_of_wrong_file_has_its_own_error() {
    let folder = Folder::new("damage-kinds");
    let error = |path: &Path| analyse(path, &options()).expect_err("refused");
    assert!(matches!(error(&folder.0.join("absent")), StructError::Read { .. }));
    assert!(matches!(error(&folder.0), StructError::Read { .. }));
    let script = folder.write("script", "#!/bin/sh\necho\n");
    assert!(matches!(error(&script), StructError::NotElf(_)));
    let empty = folder.write("empty", "");
    assert!(matches!(error(&empty), StructError::NotElf(_)));
    let cut = folder.write("cut", b"\x7fELF\x02\x01\x01\0");
    assert!(matches!(error(&cut), StructError::BadElf { .. }));
    folder.write("p.c", C);
    let object = folder.gcc("p.c", "p.o", &["-c"]);
    assert!(matches!(error(&object), StructError::NotLoadable { .. }));
    for path in [&script, &empty, &cut, &object] {
        let text = error(path).to_string();
        assert!(text.contains(": ") && text.contains(path.to_str().expect("UTF-8")), "{text}");
    }
}

/// As the kernel's build leaves a module: not linked, and without a `main`.
const MODULE: &str = r#"
#define IN(s) __attribute__((section(s), used))
IN(".modinfo") static const char licence[] = "license=GPL";
extern int printk(const char *, ...);
extern volatile int shared;
static int table[64];
__attribute__((noinline)) static int sum(int n) {
  int s = 0;
  for (int i = 0; i < n; i++) s += table[i & 63] ^ shared;
  return s;
}
IN(".init.text") int init_module(void) {
  for (int i = 0; i < 64; i++) table[i] = shared;
  return printk("%d\n", sum(shared));
}
"#;

#[test]
fn a_kernel_module_is_refused_with_a_remedy_that_works() {
    let folder = Folder::new("damage-module");
    folder.write("m.c", MODULE);
    let path = folder.gcc("m.c", "m.ko", &["-c", "-O2", "-g", "-ffreestanding"]);
    let error = analyse(&path, &options()).expect_err("refused");
    assert!(matches!(error, StructError::KernelModule(_)));
    let text = error.to_string();
    let (_, remedy) = text.split_once("with ld ").expect("a command");
    let (arguments, _) = remedy.split_once(',').expect("its end");
    let arguments: Vec<&str> = arguments.split(' ').collect();
    assert_eq!(arguments.last().copied(), path.to_str());
    folder.run("ld", &arguments);
    let structure = analyse(&folder.0.join("module.elf"), &options()).expect("analysed");
    for name in ["sum", "init_module"] {
        let is_it = |p: &hpc_formats::structure::Procedure| structure.string(p.name) == name;
        let procedure = structure.procedures.iter().position(is_it);
        let loops = structure.scopes.iter().filter(|scope| {
            scope.kind == hpc_formats::structure::ScopeKind::Loop
                && Some(scope.procedure.0 as usize) == procedure
        });
        assert_eq!(loops.count(), 1, "{name}");
    }
}

#[test]
fn files_without_section_headers_keep_their_unwind_entries() {
    let folder = Folder::new("damage-sections");
    folder.write("p.c", C);
    let mut data = std::fs::read(folder.gcc("p.c", "p", &["-O2", "-s"])).expect("built");
    let whole = analyse_bytes("p", &data, &options()).expect("analysed");
    // e_shoff, e_shnum and e_shstrndx of the ELF header.
    data[0x28..0x30].fill(0);
    data[0x3c..0x40].fill(0);
    let bare = analyse_bytes("p", &data, &options()).expect("analysed");
    let starts = |s: &Structure| -> Vec<u64> {
        let named = s.procedures.iter().enumerate();
        let unnamed = named.filter(|(_, p)| s.string(p.name).starts_with('?'));
        unnamed
            .filter_map(|(i, _)| s.spans.iter().find(|x| x.procedure.0 as usize == i))
            .map(|x| x.start)
            .collect()
    };
    assert!(starts(&whole).len() >= 2);
    for start in starts(&whole) {
        assert!(starts(&bare).contains(&start), "{start:#x} is lost");
    }
}

#[test]
fn split_debug_information_that_is_lost_is_said() {
    let folder = Folder::new("damage-split");
    folder.write("p.c", C);
    let path = folder.gcc("p.c", "p", &["-O2", "-g", "-gsplit-dwarf"]);
    folder.run("sh", &["-c", "rm *.dwo"]);
    let structure = whole(&path);
    assert!(has_name(&structure, "entry"));
    assert!(structure.notes.iter().any(|n| n.contains(".dwo")), "{:?}", structure.notes);
}

/// A file of a few kilobytes with a section that claims, and decompresses to, `size` bytes of zeros.
fn bomb(folder: &Folder, size: usize) -> std::path::PathBuf {
    use object::{Object, ObjectSection};
    use std::io::Write as _;
    let mut packed = [1u32, 0].map(u32::to_le_bytes).concat();
    packed.extend([size as u64, 1].map(u64::to_le_bytes).concat());
    let mut zeros = flate2::write::ZlibEncoder::new(packed, flate2::Compression::best());
    for _ in 0..size >> 20 {
        zeros.write_all(&[0; 1 << 20]).expect("compressed");
    }
    folder.write("zeros", zeros.finish().expect("compressed"));
    folder.write("p.c", C);
    let path = folder.gcc("p.c", "p", &["-O2"]);
    folder.run("objcopy", &["--add-section", ".debug_info=zeros", "p"]);
    let mut data = std::fs::read(&path).expect("built");
    let file = object::File::parse(&*data).expect("undamaged");
    let index = file.section_by_name(".debug_info").expect("added").index().0;
    let headers = u64::from_le_bytes(data[0x28..0x30].try_into().expect("eight bytes")) as usize;
    // The upper flags, of which the fourth bit says that the section is compressed.
    data[headers + 64 * index + 9] |= 8;
    std::fs::write(&path, data).expect("written");
    path
}

#[test]
fn a_small_file_that_would_fill_the_memory_is_said_and_left_out() {
    let folder = Folder::new("damage-bomb");
    let structure = whole(&bomb(&folder, 256 << 20));
    let said = |n: &String| n.contains(".debug_info") && n.contains("claim to hold 268435456;");
    assert!(structure.notes.iter().any(said), "{:?}", structure.notes);
    assert!(has_name(&structure, "entry"));
    // As much as real files hold is decompressed, whatever it is.
    let small = whole(&bomb(&folder, 16 << 20));
    assert!(!small.notes.iter().any(|n| n.contains("claim")), "{:?}", small.notes);
}
