//! Loops that wait for what another thread writes.
//!
//! Such a loop reads memory and writes none, calls nobody, and no register keeps a value from one turn to the
//! next: nothing that it does itself can end it. One that has `pause` says so. Only innermost loops of one
//! piece are looked at.

use super::loaded_image::LoadedImage;
use crate::code::ProcedureLoops;
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register};

/// A longer loop does more than wait.
const MOST_BYTES: u64 = 128;

/// Marks the loops that wait.
pub(crate) fn mark(found: &mut ProcedureLoops, memory: &LoadedImage<'_>) {
    // How many pieces of code each loop has, those of loops within it too.
    let mut pieces = vec![0_u32; found.loops.len()];
    found.regions.iter().for_each(|region| pieces[region.inner as usize] += 1);
    found.loops.iter().filter_map(|inner| inner.parent).for_each(|outer| pieces[outer as usize] += 2);
    for region in &found.regions {
        let (range, own) = (&region.range, &mut found.loops[region.inner as usize]);
        let length = range.end - range.start;
        if length <= MOST_BYTES && range.contains(&own.header) && pieces[region.inner as usize] == 1 {
            let bytes = memory.bytes(range.start).and_then(|bytes| bytes.get(..length as usize));
            own.spins = bytes.is_some_and(|bytes| spins(bytes, (own.header - range.start) as usize));
        }
    }
}

/// A turn begins at the header.
fn spins(bytes: &[u8], header: usize) -> bool {
    let (last, first) = bytes.split_at(header);
    let turn = [first, last].map(|bytes| Decoder::new(64, bytes, DecoderOptions::NONE));
    let mut factory = InstructionInfoFactory::new();
    let (mut kept, mut written, mut fresh): (Vec<Register>, Vec<Register>, Vec<Register>) =
        Default::default();
    let (mut reads, mut writes, mut pauses, mut branches) = (false, false, false, false);
    for instruction in turn.into_iter().flatten() {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => branches = true,
            _ => return false,
        }
        // A fence: `lock or` of zero.
        if instruction.has_lock_prefix()
            && instruction.mnemonic() == Mnemonic::Or
            && matches!(instruction.try_immediate(1), Ok(0))
        {
            continue;
        }
        pauses |= instruction.mnemonic() == Mnemonic::Pause;
        let info = factory.info(&instruction);
        let is_read =
            |access| !matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::NoMemAccess);
        let is_write =
            |access| !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        let registers =
            info.used_registers().iter().map(|used| (used.register().full_register(), used.access()));
        for (register, access) in registers {
            if is_read(access) && !fresh.contains(&register) {
                kept.push(register);
            }
            if is_write(access) {
                written.push(register);
            }
        }
        // What may be skipped does not replace the value before.
        fresh.extend(if branches { &[] } else { &written[..] });
        let exchanges = instruction.mnemonic() == Mnemonic::Xchg;
        for used in info.used_memory() {
            reads |= is_read(used.access());
            writes |= is_write(used.access()) && !exchanges;
        }
    }
    pauses || (reads && !writes && !kept.iter().any(|register| written.contains(register)))
}

#[cfg(test)]
mod tests {
    use crate::code::loops_of_bytes;

    fn waits(bytes: &[u8]) -> Vec<bool> {
        loops_of_bytes(0x1000, bytes).loops.iter().map(|found| found.spins).collect()
    }

    #[test]
    fn loops_that_only_another_thread_ends() {
        for (code, bytes, spins) in [
            ("mov eax,[rdi]; test eax,eax; je", &[0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa, 0xc3][..], true),
            ("cmp byte [rdi],0; je", &[0x80, 0x3f, 0x00, 0x74, 0xfb, 0xc3], true),
            ("pause; dec ecx; jne", &[0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa, 0xc3], true),
            (
                "lock or qword [rsp],0; cmp dword [rdi],1; je",
                b"\xf0\x48\x83\x0c\x24\0\x83\x3f\x01\x74\xf5\xc3",
                true,
            ),
            ("mov eax,1; xchg [rdi],eax; test; jne", b"\xb8\x01\0\0\0\x87\x07\x85\xc0\x75\xf5\xc3", true),
            ("jmp; pause; mov eax,[rdi]; test; je", b"\xeb\x02\xf3\x90\x8b\x07\x85\xc0\x74\xf8\xc3", true),
            // A search, a list, a count, a sum in memory, a call.
            ("inc rdi; cmp byte [rdi],0; jne", &[0x48, 0xff, 0xc7, 0x80, 0x3f, 0, 0x75, 0xf8, 0xc3], false),
            ("mov rdi,[rdi]; test; jne", &[0x48, 0x8b, 0x3f, 0x48, 0x85, 0xff, 0x75, 0xf8, 0xc3], false),
            ("dec ecx; jne", &[0xff, 0xc9, 0x75, 0xfc, 0xc3], false),
            ("inc dword [rdi]; jne", &[0xff, 0x07, 0x75, 0xfc, 0xc3], false),
            ("call rax; cmp byte [rdi],0; je", &[0xff, 0xd0, 0x80, 0x3f, 0, 0x74, 0xf9, 0xc3], false),
        ] {
            assert_eq!(waits(bytes), [spins], "{code}");
        }
        // mov eax,[rdi]; a loop: inc rdx; cmp rdx,rcx; jne; then cmp [rsi],eax; jne to the first.
        let nested = b"\x8b\x07\x48\xff\xc2\x48\x39\xca\x75\xf8\x39\x06\x75\xf2\xc3";
        assert_eq!(waits(nested), [false, false]);
    }
}
