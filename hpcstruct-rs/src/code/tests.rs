//! Loops in hand-assembled code, and any bytes as input.

use super::*;

/// (header, parent, irreducible) of every loop, addresses from the start of the code.
fn loops(code: &[u8]) -> Vec<(u64, Option<u32>, bool)> {
    const BASE: u64 = 0x40_0000;
    let found = loops_of_bytes(BASE, code);
    let loops = found.loops.iter();
    loops.map(|l| (l.header - BASE, l.parent, l.irreducible)).collect()
}

#[test]
fn a_loop_that_is_entered_in_its_middle_is_irreducible() {
    let code = [
        0x85, 0xff, // 0: test edi, edi
        0x74, 0x02, // 2: je 6
        0xff, 0xc0, // 4: inc eax
        0xff, 0xc1, // 6: inc ecx
        0x75, 0xfa, // 8: jne 4
        0xc3, // a: ret
    ];
    assert_eq!(loops(&code), [(4, None, true)]);
}

#[test]
fn code_after_a_trap_closes_no_loop() {
    let code = [
        0xff, 0xc0, // 0: inc eax
        0x0f, 0x0b, // 2: ud2
        0xeb, 0xfa, // 4: jmp 0, which nothing leads to
    ];
    assert_eq!(loops(&code), []);
}

/// The code from 0x1000 on is one loop, in this range, which begins with its header.
#[track_caller]
fn assert_one_loop(code: &[u8], range: Range<u64>) {
    let found = loops_of_bytes(0x1000, code);
    assert_eq!(found.loops.len(), 1, "{found:?}");
    assert_eq!(found.loops[0].header, range.start);
    let inside: Vec<_> = found.regions.iter().map(|r| r.range.clone()).collect();
    assert_eq!(inside, [range]);
}

#[test]
fn a_switch_in_a_loop_by_a_table_of_wide_differences() {
    let code = [
        0x48, 0x8d, 0x15, 0x1e, 0x00, 0x00, 0x00, // 0: lea rdx, [rip + 0x1e]  table at 25
        0x48, 0x83, 0xff, 0x01, // 7: cmp rdi, 1          header
        0x77, 0x15, // b: ja 22
        0x48, 0x8b, 0x04, 0xfa, // d: mov rax, [rdx + rdi * 8]
        0x48, 0x01, 0xd0, // 11: add rax, rdx
        0xff, 0xe0, // 14: jmp rax
        0xff, 0xc7, // 16: inc edi             case 0
        0xeb, 0xed, // 18: jmp 7
        0xff, 0xcf, // 1a: dec edi             case 1
        0xeb, 0xe9, // 1c: jmp 7
        0xcc, 0xcc, 0xcc, 0xcc, // 1e: padding
        0xc3, 0xcc, 0xcc, // 22: ret
        0xf1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // 25: 16 - 25
        0xf5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // 2d: 1a - 25
    ];
    assert_one_loop(&code, 0x1007..0x101e);
}

#[test]
fn room_for_a_patch_runs_into_its_procedure() {
    let code = [
        0xff, 0xc7, // 0: inc edi             header
        0xe8, 0x09, 0x00, 0x00, 0x00, // 2: call 10
        0x85, 0xff, // 7: test edi, edi
        0x75, 0xf5, // 9: jne 0
        0xc3, // b: ret
        0xcc, 0xcc, 0xcc, 0xcc, // c: padding
        0x90, 0x90, // 10: nop, nop
        0xc3, // 12: ret
    ];
    for ranges in
        [[0x1000..0x100c, 0x1010..0x1012].to_vec(), [0x1000..0x100c, 0x1010..0x1012, 0x1012..0x1013].to_vec()]
    {
        let returns = ranges.len() == 3;
        let found = of_procedures(ranges, &code);
        assert_eq!(found[0].loops.len(), usize::from(returns), "{found:?}");
    }
}

/// The loops of procedures that lie in these ranges, the code from 0x1000 on.
fn of_procedures(ranges: Vec<Range<u64>>, code: &[u8]) -> Vec<ProcedureLoops> {
    let layout = |range: Range<u64>| Layout::new(std::iter::once(range).collect(), 0);
    let wanted = ranges.into_iter().filter_map(layout).collect();
    let memory = LoadedImage::of_bytes(0x1000, code);
    Program::new(&memory, wanted).find_all()
}

#[test]
fn code_behind_a_call_that_never_returns_is_no_target_of_an_unknown_jump() {
    let code = [
        0x85, 0xff, // 0: test edi, edi
        0x74, 0x02, // 2: je 6
        0xff, 0xe0, // 4: jmp rax, a tail call
        0xe8, 0x02, 0x00, 0x00, 0x00, // 6: call d
        0xeb, 0xf7, // b: jmp 4
        0x0f, 0x0b, // d: ud2
    ];
    let found = of_procedures([0x1000..0x100d, 0x100d..0x100f].to_vec(), &code);
    assert!(found.iter().all(|p| p.loops.is_empty()));
}

#[test]
fn who_switches_stacks_comes_back() {
    let code = [
        0xff, 0xc7, // 0: inc edi             header
        0xe8, 0x09, 0x00, 0x00, 0x00, // 2: call 10
        0x85, 0xff, // 7: test edi, edi
        0x75, 0xf5, // 9: jne 0
        0xc3, // b: ret
        0xcc, 0xcc, 0xcc, 0xcc, // c: padding
        0x0f, 0x0b, // 10: ud2
    ];
    let loops_with = |name: &'static [u8]| {
        let layout = |range: Range<u64>| Layout::new(std::iter::once(range).collect(), 0);
        let wanted = [0x1000..0x100c, 0x1010..0x1012].into_iter().filter_map(layout).collect();
        let memory = LoadedImage::of_bytes(0x1000, &code);
        let named = vec![(0x1010, name)];
        let program = Program { named, ..Program::new(&memory, wanted) };
        program.find_all()[0].loops.len()
    };
    assert_eq!(loops_with(b"runtime.mcall"), 1);
    assert_eq!(loops_with(b"runtime.throw"), 0);
}

#[test]
fn any_bytes_are_code() {
    let mut source = fastrand::Rng::with_seed(1);
    let mut random = || source.u64(..);
    for round in 0..400 {
        let mut bytes: Vec<u8> = (0..random() % 2000).map(|_| random() as u8).collect();
        if round % 2 == 0 {
            // Many short branches.
            for b in bytes.iter_mut().step_by(2) {
                *b = 0x70 | (*b & 15);
            }
        }
        let end = bytes.len() as u64;
        let base = if round % 7 == 0 { u64::MAX - end } else { 0 };
        let found = loops_of_bytes(base, &bytes);
        for (i, found) in found.loops.iter().enumerate() {
            assert!(found.parent.is_none_or(|p| (p as usize) < i));
        }
        let mut after = base;
        for region in &found.regions {
            assert!(region.range.start >= after && region.range.end <= base + end);
            assert!((region.inner as usize) < found.loops.len());
            after = region.range.end;
        }
    }
}
