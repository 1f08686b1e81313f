//! Exact evaluation of call frame information over the full register file, with gimli.
//!
//! Classifies an address once (does an unwind rule describe its frame?), and steps the frames that no rule
//! describes. Async-signal-safe: all storage is fixed.

use super::End;
use super::loadmap::UnwindSections;
use super::registers::{Registers, number};
use super::rule_cache::Method;
use super::stack::StackReader;
use super::unwind_rule::UnwindRule;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, Evaluation, EvaluationResult,
    FrameDescriptionEntry, LittleEndian, Location, Register, RegisterRule, UnwindExpression, UnwindSection,
    UnwindTableRow, Value,
};
use hpc_formats::loss::LossCause;

/// rbx, rbp, r12 to r15.
const CALLEE_SAVED: [u16; 6] = [3, number::RBP, 12, 13, 14, 15];

type Bytes = EndianSlice<'static, LittleEndian>;
type Row = UnwindTableRow<usize, Storage>;
/// Scratch space for the evaluation of one frame's table.
pub(super) type Context = gimli::UnwindContext<usize, Storage>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage;

impl gimli::UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

impl gimli::EvaluationStorage<Bytes> for Storage {
    type Stack = [Value; 16];
    type ExpressionStack = [(Bytes, Bytes); 1];
    type Result = [gimli::Piece<Bytes>; 1];
}

fn bases(sections: &UnwindSections) -> BaseAddresses {
    BaseAddresses::default().set_eh_frame_hdr(sections.hdr_address).set_eh_frame(sections.eh_frame_address)
}

/// The frame description entry for a link-time address.
fn find_fde(
    sections: &UnwindSections,
    address: u64,
) -> Option<(EhFrame<Bytes>, BaseAddresses, FrameDescriptionEntry<Bytes>)> {
    let bases = bases(sections);
    let header = EhFrameHdr::new(sections.hdr, LittleEndian).parse(&bases, 8).ok()?;
    let table = header.table()?;
    let mut eh_frame = EhFrame::new(sections.eh_frame, LittleEndian);
    eh_frame.set_address_size(8);
    let pointer = table.lookup(address, &bases).ok()?;
    let offset = table.pointer_to_offset(pointer).ok()?;
    let fde = eh_frame.fde_from_offset(&bases, offset, EhFrame::cie_from_offset).ok()?;
    fde.contains(address).then_some((eh_frame, bases, fde))
}

/// The first link-time address of the function that has code at another one.
pub(super) fn function_at(sections: &UnwindSections, address: u64) -> Option<u64> {
    find_fde(sections, address).map(|(_, _, fde)| fde.initial_address())
}

/// Finds the method for the frames at a link-time address.
pub(super) fn classify(sections: &UnwindSections, address: u64, context: &mut Context) -> Method {
    let Some((eh_frame, bases, fde)) = find_fde(sections, address) else {
        return Method::None;
    };
    let Ok(row) = fde.unwind_info_for_address(&eh_frame, &bases, context, address) else {
        return Method::None;
    };
    match row.register(gimli::X86_64::RA) {
        _ if fde.is_signal_trampoline() => Method::SignalFrame,
        RegisterRule::Undefined => Method::Root,
        RegisterRule::Offset(-8) => rule_of(row).map_or(Method::Cfi, Method::Rule),
        _ => Method::Cfi,
    }
}

/// The unwind rule for a row with the return address directly below the CFA; `None` if the row has another
/// form.
fn rule_of(row: &Row) -> Option<UnwindRule> {
    let saved_fp = match row.register(gimli::X86_64::RBP) {
        RegisterRule::Undefined | RegisterRule::SameValue => None,
        RegisterRule::Offset(offset) => Some(offset),
        _ => return None,
    };
    match *row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match register {
            gimli::X86_64::RSP => UnwindRule::new(false, offset, saved_fp),
            gimli::X86_64::RBP => UnwindRule::new(true, offset, saved_fp),
            _ => None,
        },
        CfaRule::Expression(_) => None,
    }
}

/// Steps one frame: `registers` become those of the caller.
///
/// `address` is the frame's look-up address at link time.
pub(super) fn step(
    sections: &UnwindSections,
    address: u64,
    context: &mut Context,
    registers: &mut Registers,
    stack: &mut StackReader,
) -> Result<(), End> {
    let bad = End::Broken(LossCause::BadUnwindInfo);
    let (eh_frame, bases, fde) = find_fde(sections, address).ok_or(End::Broken(LossCause::NoUnwindInfo))?;
    let encoding = fde.cie().encoding();
    let row = fde.unwind_info_for_address(&eh_frame, &bases, context, address).map_err(|_| bad)?;
    let mut eval = Evaluator { eh_frame: &eh_frame, encoding, registers, stack };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let base = eval.registers.get(register.0).ok_or(bad)?;
            base.wrapping_add_signed(*offset)
        }
        CfaRule::Expression(e) => eval.expression(e, None).ok_or(bad)?,
    };
    let mut caller = *eval.registers;
    caller.set(number::RSP, cfa);
    for register in 0..=number::RA {
        let rule = row.register(Register(register));
        match rule {
            RegisterRule::Undefined if register == number::RA => return Err(End::Root),
            // gimli does not distinguish "undefined" from "not mentioned". By the System V ABI, a register
            // that is not mentioned is unchanged if it is callee-saved, and lost otherwise.
            RegisterRule::Undefined if CALLEE_SAVED.contains(&register) => {}
            RegisterRule::Undefined if register == number::RSP => {}
            _ => match eval.rule(&rule, register, cfa) {
                Some(value) => caller.set(register, value),
                None if register == number::RA || register == number::RSP => {
                    return Err(End::Broken(LossCause::UnreadableStack));
                }
                None => caller.forget(register),
            },
        }
    }
    *registers = caller;
    Ok(())
}

struct Evaluator<'a> {
    eh_frame: &'a EhFrame<Bytes>,
    encoding: gimli::Encoding,
    registers: &'a Registers,
    stack: &'a mut StackReader,
}

impl Evaluator<'_> {
    fn rule(&mut self, rule: &RegisterRule<usize>, register: u16, cfa: u64) -> Option<u64> {
        match rule {
            RegisterRule::Undefined => None,
            RegisterRule::SameValue => self.registers.get(register),
            RegisterRule::Offset(o) => self.stack.read(cfa.wrapping_add_signed(*o)),
            RegisterRule::ValOffset(o) => Some(cfa.wrapping_add_signed(*o)),
            RegisterRule::Register(r) => self.registers.get(r.0),
            RegisterRule::Expression(e) => {
                let at = self.expression(e, Some(cfa))?;
                self.stack.read(at)
            }
            RegisterRule::ValExpression(e) => self.expression(e, Some(cfa)),
            RegisterRule::Constant(value) => Some(*value),
            _ => None,
        }
    }

    fn expression(&mut self, e: &UnwindExpression<usize>, initial: Option<u64>) -> Option<u64> {
        let bytes = e.get(self.eh_frame).ok()?.0;
        let mut eval: Evaluation<Bytes, Storage> = Evaluation::new_in(bytes, self.encoding);
        eval.set_max_iterations(64);
        if let Some(value) = initial {
            eval.set_initial_value(value);
        }
        let mut result = eval.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = self.registers.get(register.0)?;
                    eval.resume_with_register(Value::Generic(value)).ok()?
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    let value = self.stack.read(address)?;
                    eval.resume_with_memory(Value::Generic(value)).ok()?
                }
                _ => return None,
            };
        }
        match eval.as_result().last()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }
}
