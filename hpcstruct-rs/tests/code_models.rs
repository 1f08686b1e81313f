//! One program compiled with options that change its code, not its loops: code models, mitigations, room for
//! patches, hooks, sections. What cannot be had here is named loudly.

use crate::common::{Folder, whole};
use hpc_formats::structure::{ScopeKind, Structure};
use std::collections::BTreeSet;
use std::process::Command;

/// A switch in a loop with loops in its cases, nested loops, and a loop of calls, one of which never returns.
const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
volatile int sink;
__attribute__((noinline)) static int nested(int n, const int *items)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sink += i;
        for (int j = 0; j < n; j++)
            sink += items[j];
        while (sink > i) {
            sink -= 3;
            sum++;
        }
    }
    return sum;
}
__attribute__((noinline)) static int machine(const unsigned char *code, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        switch (code[i]) {
        case 0: sum += 1; break;
        case 1: sum *= 3; break;
        case 2:
            for (int k = 0; k < sum; k++)
                sink ^= k;
            break;
        case 3: sum -= sink; break;
        case 4: sum = -sum; break;
        case 5:
            while (sink > 100)
                sink /= 2;
            break;
        case 6: sum |= 8; break;
        case 7: return sum;
        default: sink = i; break;
        }
        sum += 2;
    }
    return sum;
}
__attribute__((noinline, cold)) static void fail(int code)
{
    fprintf(stderr, "bad %d\n", code);
    exit(code);
}
int main(int argc, char **argv)
{
    int items[8] = { argc };
    int sum = 0;
    for (int round = 0; round < argc; round++) {
        sum += nested(argc & 7, items);
        sum += machine((const unsigned char *)argv[round], 8);
        if (sum == 12345)
            fail(round);
    }
    return sum & 1;
}
"#;

/// The loops of the program's procedures, each with those around it, outermost first.
fn nests(structure: &Structure) -> BTreeSet<(String, Vec<String>)> {
    let own = ["nested", "machine", "main"];
    let scopes = structure.scopes.iter();
    let loops = scopes.filter(|scope| scope.kind == ScopeKind::Loop);
    loops
        .filter_map(|found| {
            let procedure = &structure.procedures[found.procedure.0 as usize];
            let name = structure.string(procedure.name);
            let stem = name.split('.').next().unwrap_or(name);
            let mut around = vec![structure.string(found.name).to_owned()];
            let mut next = found.parent;
            while let Some(id) = next {
                let scope = &structure.scopes[id.0 as usize];
                if scope.kind == ScopeKind::Loop {
                    around.push(structure.string(scope.name).to_owned());
                }
                next = scope.parent;
            }
            around.reverse();
            own.contains(&stem).then(|| (stem.to_owned(), around))
        })
        .collect()
}

/// Whether a compiler is here and makes a program of the source with these options.
fn compiles(folder: &Folder, compiler: &str, flags: &[&str]) -> bool {
    let output = Command::new(compiler)
        .args(["-O2", "-g", "p.c", "-o", "p"])
        .args(flags)
        .current_dir(&folder.0)
        .output();
    let works = output.is_ok_and(|output| output.status.success());
    if !works {
        println!("SKIPPED: {compiler} {flags:?} makes no program here");
    }
    works
}

/// Compares the programs that `compiler` makes with the one that it makes without options.
fn compare(compiler: &str, cases: &[&[&str]]) {
    let folder = Folder::new(&format!("models-{compiler}"));
    folder.write("p.c", C);
    if !compiles(&folder, compiler, &[]) {
        return;
    }
    let plain = nests(&whole(&folder.0.join("p")));
    let of = |name: &str| plain.iter().filter(|(n, _)| n == name).count();
    let counts = ["nested", "machine", "main"].map(of);
    assert_eq!(counts, [3, 3, 1], "{compiler}: {plain:#?}");
    for flags in cases {
        if compiles(&folder, compiler, flags) {
            let found = nests(&whole(&folder.0.join("p")));
            assert_eq!(found, plain, "{compiler} {flags:?}");
        }
    }
}

#[test]
fn loops_are_those_of_the_plain_program() {
    if !cfg!(target_arch = "x86_64") {
        println!("SKIPPED: the compilers here make code of another machine");
        return;
    }
    let common: [&[&str]; 7] = [
        &["-mcmodel=large", "-fno-pic", "-no-pie"],
        &["-mcmodel=medium"],
        &["-fno-plt"],
        &["-ffunction-sections", "-Wl,--gc-sections"],
        &["-fpatchable-function-entry=16,8"],
        &["-fcf-protection=full"],
        &["-finstrument-functions"],
    ];
    let of_gcc: [&[&str]; 4] = [
        &["-mindirect-branch=thunk", "-mfunction-return=thunk", "-fcf-protection=none"],
        &["-mindirect-branch=thunk-inline", "-mfunction-return=thunk-inline", "-fcf-protection=none"],
        &["-pg", "-mfentry"],
        &["-fsplit-stack"],
    ];
    let of_clang: [&[&str]; 2] = [&["-fbasic-block-sections=all"], &["-mretpoline"]];
    compare("gcc", &[&common[..], &of_gcc].concat());
    compare("clang", &[&common[..], &of_clang].concat());
}
