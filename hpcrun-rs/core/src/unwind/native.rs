//! Steps from a frame to its caller. It does not guess.
//!
//! | frame | stepped by |
//! |---|---|
//! | with an unwind rule, nearly all | three registers and two distances (`unwind_rule`) |
//! | with other call frame information | gimli, over all registers (`cfi`) |
//! | without information | analysis of its machine code up to the return (`instructions`) |
//! | where that fails, generated code first | the frame pointer, if the code takes it for the frame's |
//! | none of these | the frame pointer, if nothing below it can be the return address |
//!
//! A step by a rule drops all registers but three. When `cfi` later needs another register, it repeats the
//! steps from the start over all registers.
//!
//! Async-signal-safe after [`Native::new`].

use super::End;
use super::code::Code;
use super::loadmap::{self, Located, Snapshot, UnwindSections};
use super::registers::{Pointers, Registers};
use super::rule_cache::Method;
use super::stack::StackReader;
use super::{cfi, code, instructions};
use hpc_formats::loss::LossCause;

/// Number of frames without information after which an unwind still keeps all registers. Functions of one
/// hand-written kernel call each other with conventions of their own, which need them. After more such frames
/// the registers are dropped, so that the backtrace cache can hit.
const MOST_ANALYSED: u32 = 4;

/// A frame whose caller is wanted.
pub(super) struct Callee<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) registers: Pointers,
    pub(super) lookup: u64,
    /// Whether the frame was interrupted, rather than being in a call.
    pub(super) is_exact: bool,
    pub(super) method: Method,
}

/// The state of one thread's unwind.
pub(super) struct Native {
    cfi: Box<cfi::Context>,
    /// All registers of the current frame. A step by a rule drops them, and so does a step out of a frame
    /// without information beyond the limit.
    full: Option<Registers>,
    /// All registers at the start of the unwind, or after the last frame without information.
    start: Registers,
    /// Whether `start` is an interrupted instruction.
    start_exact: bool,
    steps: u32,
    /// Number of frames without information since the last step by a rule.
    analysed: u32,
    /// Whether the last step left a frame without information.
    is_after_analysis: bool,
    window: Box<code::Copied>,
    /// Whether the window is of an earlier walk.
    is_stale: bool,
    /// The last instruction of this walk whose frame was found to have a frame pointer; 0: none.
    has_frame_pointer: u64,
}

impl Native {
    pub(super) fn new() -> Native {
        let nothing = Registers::new(0, 0, 0);
        Native {
            cfi: Box::new(cfi::Context::new_in()),
            full: None,
            start: nothing,
            start_exact: true,
            steps: 0,
            analysed: 0,
            is_after_analysis: false,
            window: Box::new(code::Copied::new()),
            is_stale: true,
            has_frame_pointer: 0,
        }
    }

    #[inline]
    pub(super) fn begin(&mut self, registers: &Registers) {
        self.full = Some(*registers);
        self.start = *registers;
        self.start_exact = true;
        self.steps = 0;
        self.analysed = 0;
        self.is_after_analysis = false;
        self.is_stale = true;
        self.has_frame_pointer = 0;
    }

    pub(super) fn classify(&mut self, sections: &UnwindSections, address: u64) -> Method {
        cfi::classify(sections, address, &mut self.cfi)
    }

    #[inline]
    pub(super) fn needs_more_registers(&self) -> bool {
        self.full.is_some()
    }

    #[inline]
    pub(super) fn step(&mut self, callee: &Callee<'_>, stack: &mut StackReader) -> Result<Pointers, End> {
        if let Method::Rule(rule) = callee.method {
            // From here on the unwind depends only on its position and on memory.
            self.full = None;
            self.analysed = 0;
            self.is_after_analysis = false;
            self.steps += 1;
            return rule.caller(callee.registers, stack);
        }
        self.step_without_rule(callee, stack)
    }

    #[cold]
    #[inline(never)]
    fn step_without_rule(&mut self, callee: &Callee<'_>, stack: &mut StackReader) -> Result<Pointers, End> {
        let caller = match callee.method {
            Method::None | Method::Generated => return self.step_by_instructions(callee, stack),
            Method::SignalFrame => self.step_cfi(callee, stack).map_err(|end| match end {
                End::Root => End::Root,
                End::Broken(_) => End::Broken(LossCause::BadSignalFrame),
            }),
            _ => self.step_cfi(callee, stack),
        }?;
        self.steps += 1;
        Ok(caller)
    }

    /// Whether a call instruction ends at an address, so that it may be one to return to.
    #[cold]
    pub(super) fn follows_call(&mut self, snapshot: &Snapshot, address: u64) -> bool {
        self.code(snapshot).follows_call(address)
    }

    /// The code as it is now.
    fn code<'a>(&'a mut self, snapshot: &'a Snapshot) -> Code<'a> {
        if std::mem::take(&mut self.is_stale) {
            self.window.forget();
        }
        Code { snapshot, cfi: &mut self.cfi, window: &mut self.window }
    }

    /// Steps out of a frame without information, by analysis of its instructions, or by its frame pointer if
    /// they lead to no return.
    fn step_by_instructions(
        &mut self,
        callee: &Callee<'_>,
        stack: &mut StackReader,
    ) -> Result<Pointers, End> {
        let snapshot = callee.snapshot;
        let mut registers = self.full.unwrap_or_else(|| callee.registers.alone());
        let is_generated = callee.method == Method::Generated;
        let mut caller = None;
        if is_generated {
            // Recursions have one instruction again and again.
            let is_known = self.has_frame_pointer == callee.registers.ip;
            caller = by_frame_pointer(callee, is_known, &mut self.code(snapshot), stack);
        }
        if caller.is_some() {
            self.has_frame_pointer = callee.registers.ip;
            // It has told all that it can, so the registers of inner frames are of no more use.
            self.analysed = MOST_ANALYSED;
        } else {
            caller = instructions::caller(registers, callee.is_exact, &mut self.code(snapshot), stack);
        }
        if caller.is_none() && self.full.is_none() && self.steps > 0 {
            // It may need a register that inner frames have kept.
            registers = self.replay(callee, stack)?;
            caller = instructions::caller(registers, callee.is_exact, &mut self.code(snapshot), stack);
        }
        if caller.is_none() && !is_generated {
            caller = by_frame_pointer(callee, false, &mut self.code(snapshot), stack);
        }
        if caller.is_none() {
            caller = without_return(callee, registers, &mut self.code(snapshot), stack);
        }
        let caller = caller.ok_or(End::Broken(LossCause::NoUnwindInfo))?;
        self.start = caller;
        self.start_exact = false;
        self.steps = 0;
        self.analysed += 1;
        self.is_after_analysis = true;
        self.full = (self.analysed <= MOST_ANALYSED).then_some(caller);
        Ok(Pointers::of(&caller))
    }

    /// Steps over all registers. When one is missing because a rule stepped an inner frame, repeats the steps
    /// since `start`.
    fn step_cfi(&mut self, callee: &Callee<'_>, stack: &mut StackReader) -> Result<Pointers, End> {
        if std::mem::take(&mut self.is_after_analysis) {
            // The caller follows the ABI, so it does not rely on registers that its callee may change.
            self.start.forget_volatile();
            self.full.iter_mut().for_each(Registers::forget_volatile);
        }
        let located =
            loadmap::locate(callee.snapshot, callee.lookup).ok_or(End::Broken(LossCause::UnknownModule))?;
        let full = self.full.unwrap_or_else(|| callee.registers.alone());
        let mut caller = self.step_located(&located, callee.lookup, full, stack);
        let bad = End::Broken(LossCause::BadUnwindInfo);
        if caller.as_ref().is_err_and(|end| *end == bad) && self.steps > 0 {
            let full = self.replay(callee, stack)?;
            caller = self.step_located(&located, callee.lookup, full, stack);
        }
        let caller = caller?;
        self.full = Some(caller);
        Ok(Pointers::of(&caller))
    }

    fn step_located(
        &mut self,
        located: &Located,
        lookup: u64,
        mut registers: Registers,
        stack: &mut StackReader,
    ) -> Result<Registers, End> {
        let sections = located.sections.as_ref();
        let sections = sections.ok_or(End::Broken(LossCause::NoUnwindInfo))?;
        let address = lookup.wrapping_sub(located.bias);
        cfi::step(sections, address, &mut self.cfi, &mut registers, stack)?;
        Ok(registers)
    }

    /// Computes all registers of the callee from `start`.
    fn replay(&mut self, callee: &Callee<'_>, stack: &mut StackReader) -> Result<Registers, End> {
        // From here on the unwind depends on registers that no `Position` holds.
        stack.words.invalidate();
        let mut registers = self.start;
        let mut exact = self.start_exact;
        for _ in 0..self.steps {
            let ip = registers.ip();
            let lookup = if exact { ip } else { ip.wrapping_sub(1) };
            let located =
                loadmap::locate(callee.snapshot, lookup).ok_or(End::Broken(LossCause::UnknownModule))?;
            exact = located.sections.as_ref().is_some_and(|s| {
                let address = lookup.wrapping_sub(located.bias);
                self.classify(s, address) == Method::SignalFrame
            });
            registers = self.step_located(&located, lookup, registers, stack)?;
        }
        let target = (callee.registers.sp, callee.registers.ip);
        match (registers.sp(), registers.ip()) == target {
            true => Ok(registers),
            false => Err(End::Broken(LossCause::BadUnwindInfo)),
        }
    }
}

/// The caller of a frame whose code shows that it has a frame pointer, as most generated code has.
fn by_frame_pointer(
    callee: &Callee<'_>,
    is_known: bool,
    code: &mut Code<'_>,
    stack: &mut StackReader,
) -> Option<Registers> {
    let Pointers { ip, sp, fp } = callee.registers;
    let at = fp.checked_add(8).filter(|_| fp >= sp && fp - sp < LARGEST_FRAME && fp % 8 == 0)?;
    let follows = code.follows_call(stack.peek(at)?);
    (follows && (is_known || instructions::has_frame_pointer(ip, code))).then_some(())?;
    Some(Registers::new(stack.read(at)?, at + 8, stack.read(fp)?))
}

/// The largest frame, in bytes, of code without information.
const LARGEST_FRAME: u64 = 1 << 20;
/// The largest frame, in bytes, that is searched for a return address.
const LARGEST_SEARCHED: u64 = 4096;

/// The caller of code whose instructions lead to no return, as in interpreters and generated code; `None`
/// unless a call ends there.
///
/// The return address is beside the frame pointer, if the frame has set it up. If it has not, the return
/// address lies below. So nothing below may be one. An instruction that cannot be read is no code: it was
/// just called.
fn without_return(
    callee: &Callee<'_>,
    registers: Registers,
    code: &mut Code<'_>,
    stack: &mut StackReader,
) -> Option<Registers> {
    let Pointers { ip, sp, fp } = callee.registers;
    let mut caller = registers;
    let at = if code.at(ip).is_some() {
        if fp < sp || fp - sp > LARGEST_SEARCHED || (fp | sp) % 8 != 0 {
            return None;
        }
        for below in (sp..fp).step_by(8) {
            let word = stack.read(below)?;
            let is_in_stack = word.wrapping_sub(sp) < 1 << 20;
            if !is_in_stack && code.follows_call(word) {
                return None;
            }
        }
        caller = Registers::new(0, 0, stack.read(fp)?);
        fp.checked_add(8)?
    } else if callee.is_exact {
        sp
    } else {
        return None;
    };
    let ip = stack.read(at)?;
    caller.set_ip(ip);
    caller.set_sp(at + 8);
    code.follows_call(ip).then_some(caller)
}
