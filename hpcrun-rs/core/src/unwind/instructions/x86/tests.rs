//! Tests of the decoder against iced-x86, an independent implementation of the same manuals.

use super::*;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind};

const IP: u64 = 0x10_0000_0000;

fn number(register: iced_x86::Register) -> Option<Register> {
    let is_general = register.is_gpr64();
    is_general.then(|| register.number() as Register)
}

/// Compares length, control transfer, stack pointer change and operands with the independent decoder. Returns
/// the length of a valid instruction.
fn check(code: &[u8]) -> Option<usize> {
    let full = Decoder::with_ip(64, code, IP, DecoderOptions::NONE).decode();
    let ours = decode(code);
    if full.code() == Code::INVALID {
        return None;
    }
    let Some(ours) = ours else {
        return Some(full.len());
    };
    let what = || format!("{:02x?}: {ours:?}, {:?}", &code[..full.len()], full.code());
    assert_eq!(ours.length, full.len(), "{}", what());
    let distance = || full.near_branch_target().wrapping_sub(full.next_ip()) as i32;
    let is_near = full.op0_kind() == OpKind::NearBranch64;
    let control = match full.flow_control() {
        FlowControl::Return if full.mnemonic() == Mnemonic::Ret => {
            let arguments = if full.op_count() == 1 { full.immediate16() } else { 0 };
            Some(Effect::Return(arguments))
        }
        FlowControl::UnconditionalBranch if is_near => Some(Effect::Jump(distance())),
        FlowControl::ConditionalBranch if is_near => Some(Effect::Branch(distance())),
        FlowControl::Call if is_near => Some(Effect::Call(Some(distance()))),
        _ => None,
    };
    if let Some(control) = control {
        assert_eq!(ours.effect, control, "{}", what());
        return Some(full.len());
    }
    if full.is_call_near_indirect() {
        assert_eq!(ours.effect, Effect::Call(None), "{}", what());
    }
    if full.is_privileged() || full.mnemonic() == Mnemonic::Uiret {
        return Some(full.len());
    }
    // The change of the stack pointer must be the one that the effect implies.
    let moved = full.stack_pointer_increment();
    match ours.effect {
        Effect::Push(_) => assert_eq!(moved, -8, "{}", what()),
        Effect::Pop(_) => assert_eq!(moved, 8, "{}", what()),
        Effect::Leave | Effect::Call(_) | Effect::Stop => {}
        _ => assert_eq!(moved, 0, "{}", what()),
    }
    let written = full.op0_register();
    let writes = !matches!(full.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt);
    match (ours.effect, full.mnemonic()) {
        (Effect::Copy { to, from }, Mnemonic::Mov) => {
            assert_eq!(Some(to), number(written), "{}", what());
            assert_eq!(Some(from), number(full.op1_register()), "{}", what());
        }
        (Effect::Load { to, .. }, Mnemonic::Mov) => {
            assert_eq!(Some(to), number(written), "{}", what());
            slot(&full, ours.effect, &what);
        }
        (Effect::Store { from, .. }, Mnemonic::Mov) => {
            assert_eq!(Some(from), number(full.op1_register()), "{}", what());
            slot(&full, ours.effect, &what);
        }
        (Effect::Address { to, .. }, Mnemonic::Lea) => {
            assert_eq!(Some(to), number(written), "{}", what());
            slot(&full, ours.effect, &what);
        }
        (Effect::Near(to, distance), Mnemonic::Lea) => {
            assert_eq!(Some(to), number(written), "{}", what());
            let place = full.next_ip().wrapping_add_signed(distance.into());
            assert_eq!(full.memory_displacement64(), place, "{}", what());
        }
        (Effect::JumpTo(to), Mnemonic::Jmp) => {
            assert_eq!(Some(to), number(written), "{}", what());
        }
        (Effect::Add(to, by), Mnemonic::Add) => {
            assert_eq!(Some(to), number(written), "{}", what());
            assert_eq!(by as i64 as u64, full.immediate(1), "{}", what());
        }
        (Effect::Add(to, by), Mnemonic::Sub) => {
            assert_eq!(Some(to), number(written), "{}", what());
            let by = by.wrapping_neg();
            assert_eq!(by as i64 as u64, full.immediate(1), "{}", what());
        }
        (Effect::And(to, mask), Mnemonic::And) => {
            assert_eq!(Some(to), number(written), "{}", what());
            assert_eq!(mask as i64 as u64, full.immediate(1), "{}", what());
        }
        (Effect::Copy { .. } | Effect::Load { .. } | Effect::Store { .. }, _) => {
            panic!("{}", what())
        }
        (
            Effect::Address { .. } | Effect::Near(..) | Effect::Add(..) | Effect::And(..) | Effect::JumpTo(_),
            _,
        ) => {
            panic!("{}", what())
        }
        (Effect::Push(r) | Effect::Pop(r), _) => {
            let register = if full.op_count() == 0 { None } else { number(written) };
            assert_eq!(r, register, "{}", what());
        }
        // In compiled code, every other write to the stack pointer must appear as `Change`.
        (effect, Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Or)
            if writes && number(written) == Some(SP) =>
        {
            assert_eq!(effect, Effect::Change(SP), "{}", what());
        }
        _ => {}
    }
    Some(full.len())
}

fn slot(full: &iced_x86::Instruction, effect: Effect, what: &dyn Fn() -> String) {
    use Effect::{Address, Load, Store};
    let (Load { from: slot, .. } | Store { to: slot, .. } | Address { of: slot, .. }) = effect else {
        return;
    };
    let base = number(full.memory_base());
    let plain = full.memory_index() == iced_x86::Register::None;
    let expected =
        base.filter(|_| plain).map(|base| Slot { base, displacement: full.memory_displacement64() as i32 });
    assert_eq!(slot, expected, "{}", what());
}

/// Decodes the code of this test and of libc, one instruction after the other.
#[test]
fn real_code_is_read_as_by_an_independent_decoder() {
    use object::{Object as _, ObjectSection as _};
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let libc = maps.lines().filter_map(|l| l.split_whitespace().nth(5));
    let libc = libc.into_iter().find(|path| path.contains("/libc.so")).expect("libc");
    let this = std::env::current_exe().expect("a path");
    for path in [this, libc.into()] {
        let data = std::fs::read(path).expect("readable");
        let elf = object::read::elf::ElfFile64::<object::LittleEndian>::parse(&*data);
        let elf = elf.expect("an ELF file");
        let text = elf.section_by_name(".text").expect("code");
        let code = text.data().expect("in the file");
        let (mut at, mut known, mut all) = (0, 0, 0);
        while at < code.len() {
            let rest = &code[at..code.len().min(at + 16)];
            let length = check(rest).unwrap_or(1);
            known += u32::from(decode(rest).is_some());
            all += 1;
            at += length;
        }
        assert!(all > 100_000, "only {all} instructions");
        assert!(known * 1000 > all * 999, "{known} of {all}");
    }
}

/// Decodes all opcodes of all maps, with many operands and the usual prefixes.
#[test]
fn all_forms_are_read_as_by_an_independent_decoder() {
    let legacy: [&[u8]; 8] = [&[], &[0x66], &[0xf2], &[0xf3], &[0x67], &[0x64], &[0x66, 0xf0], &[0x66, 0x66]];
    let rex: [&[u8]; 6] = [&[], &[0x41], &[0x48], &[0x4f], &[0x4a], &[0x48, 0x41]];
    let mut heads: Vec<Vec<u8>> = Vec::new();
    for prefix in legacy {
        for rex in rex {
            for map in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]] {
                heads.push([prefix, rex, map].concat());
            }
        }
    }
    for map in 1..=10 {
        for rest in [0x78, 0x7d, 0xf9, 0x81] {
            heads.push(vec![0xc4, 0xe0 | map, rest]);
            heads.push(vec![0xc4, map, rest]);
            heads.push(vec![0x8f, 0xe0 | map, rest]);
        }
        for (second, third) in [(0x7c, 0x48), (0xfd, 0x28), (0x7e, 0xcb), (0x7f, 0x18)] {
            heads.push(vec![0x62, 0xf0 | map & 7, second, third]);
            heads.push(vec![0x62, 0x10 | map & 7, second, third]);
        }
    }
    heads.extend([vec![0xc5, 0xf8], vec![0xc5, 0x7d], vec![0xc5, 0xfb]]);
    let mut valid = 0_u32;
    for head in heads {
        let step = if head.len() < 2 { 1 } else { 5 };
        for opcode in 0..=255_u8 {
            for modrm in (0..=255_u8).step_by(step) {
                let mut code = [0x24; 20];
                code[..head.len()].copy_from_slice(&head);
                code[head.len()] = opcode;
                code[head.len() + 1] = modrm;
                code[head.len() + 2] = modrm.wrapping_mul(37);
                valid += u32::from(check(&code[..15]).is_some());
            }
        }
    }
    assert!(valid > 1 << 20, "{valid}");
}
