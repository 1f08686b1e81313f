//! Code that neither an unwind entry nor a symbol with a size describes, as assembly is. What a
//! procedure's name and extent must be is read off each program.

use crate::common::{Folder, procedure_name, whole};
use hpcstruct_rs::Structure;
use std::collections::BTreeMap;

/// Assembles `source`, strips the result with `flags`, and gives the bytes of each procedure, by name.
fn bytes_of(test: &str, source: &str, flags: &[&str]) -> (Structure, BTreeMap<String, u64>) {
    let folder = Folder::new(&format!("undescribed-{test}"));
    folder.write("p.s", source);
    let path = folder.gcc("p.s", "p.so", &["-nostdlib", "-shared", "-Wl,--no-gc-sections"]);
    if !flags.is_empty() {
        let mut arguments = flags.to_vec();
        arguments.push("p.so");
        folder.run("strip", &arguments);
    }
    let structure = whole(&path);
    let mut bytes = BTreeMap::new();
    for span in &structure.spans {
        let name = procedure_name(&structure, span).to_owned();
        *bytes.entry(name).or_insert(0) += span.end - span.start;
    }
    (structure, bytes)
}

const LABELS: &str = "
.text
.globl kernel
kernel:
 push %rbx
outer: mov $1000,%ecx
inner: dec %ecx
 jnz inner
 test %edi,%edi
 jz .Lslow
done: pop %rbx
 ret
.Lslow: nop
slow: jmp done
.globl second
second: call helper
 jmp 2f
1: dec %edi
2: test %edi,%edi
 jnz 1b
 ret
helper: ret
";

#[test]
fn labels_belong_to_the_procedure_around_them() {
    let (structure, bytes) = bytes_of("labels", LABELS, &[]);
    let names: Vec<&str> = bytes.keys().map(String::as_str).collect();
    assert_eq!(names, ["helper", "kernel", "second"]);
    assert_eq!((bytes["kernel"], bytes["second"], bytes["helper"]), (19, 14, 1));
    let loops = structure.scopes.iter().map(|scope| procedure_of(&structure, scope.procedure.0));
    assert_eq!(loops.collect::<Vec<_>>(), ["kernel", "second"]);
}

fn procedure_of(structure: &Structure, number: u32) -> &str {
    structure.string(structure.procedures[number as usize].name)
}

/// After `strip` only `f` has a name; `second` is called, `third`'s address is data, `fourth` is aligned.
const HIDDEN: &str = "
.text
.globl f
f: mov %edi,%eax
 test %eax,%eax
 jz .Lelse
 call .Lsecond
 ret
.Lelse: ret
.Lsecond: dec %edi
 jnz .Lsecond
 ret
.Lthird: shl %edi
 ret
.p2align 6
.Lfourth: dec %edi
 jnz .Lfourth
 jmp .Lend
.p2align 4
.Lend: ret
.data
.quad .Lthird
";

#[test]
fn a_symbol_without_a_size_has_the_code_that_control_reaches_from_it() {
    let (structure, bytes) = bytes_of("hidden", HIDDEN, &["-s"]);
    let text = structure.spans[0].start;
    let at = |offset: u64| format!("?{:#x}", text + offset);
    let expected = [
        ("f".to_owned(), 13),
        (at(13), 5),
        (at(18), 3),
        // Up to where the jump leads, alignment or not.
        (at(64), 17),
    ];
    assert_eq!(bytes, BTreeMap::from(expected));
}

#[test]
fn code_that_nothing_describes_is_named_by_its_address() {
    // A segment of its own, without a symbol, beside described code.
    let source = "
.text
.globl f
.type f,@function
f: ret
.size f,.-f
.section .hot,\"ax\",@progbits
 nop
.Lg: dec %edi
 jnz .Lg
 ret
.p2align 4,0xcc
 ret
.p2align 4
";
    let (structure, bytes) = bytes_of("gap", source, &["-s"]);
    let hot = structure.spans[1].start;
    let expected = [("f".to_owned(), 1), (format!("?{hot:#x}"), 5), (format!("?{:#x}", hot + 15), 1)];
    assert_eq!(bytes, BTreeMap::from(expected));
}

#[test]
fn symbols_that_are_taken_away_leave_the_procedures() {
    // What has no unwind entries is cut as its symbols would cut it. Functions are aligned.
    let folder = Folder::new("undescribed-stripped");
    folder.write("shapes.c", C);
    let flags = ["-O2", "-fno-asynchronous-unwind-tables", "-falign-functions=16", "-shared", "-fPIC"];
    let path = folder.gcc("shapes.c", "p.so", &flags);
    let starts = |structure: &Structure| {
        let mut starts = BTreeMap::new();
        for span in &structure.spans {
            let first = starts.entry(span.procedure).or_insert(span.start);
            *first = span.start.min(*first);
        }
        let mut starts: Vec<u64> = starts.into_values().collect();
        starts.sort_unstable();
        starts
    };
    let truth = starts(&whole(&path));
    folder.run("strip", &["-s", "-R", ".dynsym", "p.so"]);
    assert_eq!(starts(&whole(&path)), truth);
    assert!(truth.len() > 8);
}

const C: &str = r#"
int table(int x) {
  switch (x) { case 0: return 7; case 1: return x * 3; case 2: return x - 9; case 3: return x / 5;
    case 4: return x ^ 77; case 5: return x << 3; case 6: return -x; }
  return 0;
}
int sum(const int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i]; return s; }
__attribute__((noinline)) static int inner(int x) { return x > 7 ? x * x : x + 1; }
int outer(int x) { return inner(x) + inner(x + 2); }
int tail(int x) { return inner(x * 3); }
int pointers(int (*f)(int), int x) { return f(x) + f(x + 1); }
int many(int x) { if (x & 1) return 1; while (x > 9) { if (x == 50) return 3; x = x / 2; } return x; }
"#;

/// Debug information by hand. The unit has `f` alone; the line of the padding behind it goes on.
const NEIGHBOUR: &str = "
.file 1 \"x.c\"
.text
.globl f
.type f,@function
f:
.Lb: .loc 1 5
 xor %eax,%eax
 ret
.Le: .size f,.-f
 .loc 1 278
.p2align 4
.globl g
.type g,@function
g: dec %edi
 ret
.size g,.-g
.section .debug_abbrev,\"\",@progbits
.byte 1,0x11,1,0x11,1,0x12,1,3,8,0x10,0x17,0,0, 2,0x2e,0,3,8,0x11,1,0x12,1,0,0, 0
.section .debug_info,\"\",@progbits
.long .Lend-.Lv
.Lv: .value 4
.long 0
.byte 8, 1
.quad .Lb
.quad .Le
.asciz \"x.c\"
.long 0
.byte 2
.asciz \"f\"
.quad .Lb
.quad .Le
.byte 0
.Lend:
";

#[test]
fn code_of_no_unit_takes_no_line_of_the_unit_before() {
    let folder = Folder::new("undescribed-neighbour");
    folder.write("p.s", NEIGHBOUR);
    let structure = whole(&folder.gcc("p.s", "p.so", &["-nostdlib", "-shared"]));
    let lines = |name: &str| -> Vec<Option<u32>> {
        let spans = structure.spans.iter().filter(|s| procedure_name(&structure, s) == name);
        spans.map(|s| s.line.map(|line| line.line)).collect()
    };
    assert_eq!(lines("f"), [Some(5)]);
    assert_eq!(lines("g"), [None]);
}

/// As glibc has it: the entry begins a byte before the symbol, which has no size.
const TRAMPOLINE: &str = "
.text
.globl f
.type f,@function
f: ret
.size f,.-f
.cfi_startproc
.cfi_signal_frame
.cfi_def_cfa rsp, 8
nop
__restore_rt: mov $15, %rax
syscall
.cfi_endproc
";

#[test]
fn code_that_returns_from_signal_handlers_has_its_name() {
    let folder = Folder::new("undescribed-trampoline");
    folder.write("p.s", TRAMPOLINE);
    let library = folder.gcc("p.s", "p.so", &["-nostdlib", "-shared"]);
    for is_stripped in [false, true] {
        if is_stripped {
            folder.run("strip", &["p.so"]);
        }
        let structure = whole(&library);
        let names: Vec<&str> = structure.spans.iter().map(|s| procedure_name(&structure, s)).collect();
        assert_eq!(names, ["f", "__restore_rt"], "{is_stripped}");
    }
}
