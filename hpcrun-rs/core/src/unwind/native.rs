//! The stepper for x86-64 that guesses nothing.
//!
//! | frame | stepped by |
//! |---|---|
//! | of the usual form, nearly all | three registers and two distances (`unwind_rule`) |
//! | with other call frame information | gimli, over all registers (`cfi`) |
//! | without | its machine code, followed to the return (`instructions`) |
//!
//! A walk keeps all registers while only `cfi` or `instructions` have stepped. When `cfi` wants one that was given
//! up, the frames below are stepped again by `cfi`, from the start.
//!
//! Async-signal-safe after [`Native::new`].

use super::End;
use super::loadmap::{self, Located, Snapshot, UnwindSections};
use super::registers::{Pointers, Registers};
use super::stack::StackReader;
use super::stepper::{Callee, Method};
use super::{cfi, instructions};
use hpc_formats::loss::LossCause;

/// Frames without information that are left with all registers: parts of one kernel call each other with conventions of
/// their own. Then they are given up, so that a walk can go on in the way of the last one.
const MOST_ANALYSED: u32 = 4;

/// See the module's description.
pub(super) struct Native {
    cfi: Box<cfi::Context>,
    /// All registers, while only `cfi` and `instructions` have stepped.
    full: Option<Registers>,
    /// All registers at the start, or behind the last frame without information.
    start: Registers,
    /// Whether the instruction there was interrupted.
    start_exact: bool,
    /// Steps since.
    steps: u32,
    /// Frames without information left since the registers were last given up.
    analysed: u32,
    /// The last step left a frame without information.
    is_after_analysis: bool,
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
    }

    pub(super) fn classify(&mut self, sections: &UnwindSections, address: u64) -> Method {
        cfi::classify(sections, address, &mut self.cfi)
    }

    #[inline]
    pub(super) fn needs_more_registers(&self) -> bool {
        self.full.is_some()
    }

    #[inline]
    pub(super) fn step(
        &mut self,
        callee: &Callee<'_>,
        stack: &mut StackReader<'_>,
    ) -> Result<Pointers, End> {
        if let Method::Rule(rule) = callee.method {
            // From here on the walk depends on its position alone, and on the memory.
            self.full = None;
            self.analysed = 0;
            self.is_after_analysis = false;
            self.steps += 1;
            return rule.caller(callee.registers, stack);
        }
        self.step_unusual(callee, stack)
    }

    #[cold]
    #[inline(never)]
    fn step_unusual(
        &mut self,
        callee: &Callee<'_>,
        stack: &mut StackReader<'_>,
    ) -> Result<Pointers, End> {
        let caller = match callee.method {
            Method::None => return self.step_by_instructions(callee, stack),
            Method::SignalFrame => self.step_cfi(callee, stack).map_err(|end| match end {
                End::Root => End::Root,
                End::Broken(_) => End::Broken(LossCause::BadSignalFrame),
            }),
            _ => self.step_cfi(callee, stack),
        }?;
        self.steps += 1;
        Ok(caller)
    }

    /// Out of a frame without information, if its code leads there.
    fn step_by_instructions(
        &mut self,
        callee: &Callee<'_>,
        stack: &mut StackReader<'_>,
    ) -> Result<Pointers, End> {
        let mut code = ModuleCode {
            snapshot: callee.snapshot,
            cfi: &mut self.cfi,
        };
        let registers = self.full.unwrap_or_else(|| callee.registers.alone());
        let caller = instructions::caller(registers, callee.is_exact, &mut code, stack)
            .ok_or(End::Broken(LossCause::NoUnwindInfo))?;
        self.start = caller;
        self.start_exact = false;
        self.steps = 0;
        self.analysed += 1;
        self.is_after_analysis = true;
        self.full = (self.analysed <= MOST_ANALYSED).then_some(caller);
        Ok(Pointers::of(&caller))
    }

    /// Over all registers. When one is missing because frames below were stepped with three, those are
    /// stepped again here.
    fn step_cfi(
        &mut self,
        callee: &Callee<'_>,
        stack: &mut StackReader<'_>,
    ) -> Result<Pointers, End> {
        if std::mem::take(&mut self.is_after_analysis) {
            // A function of the ABI: it cannot go by what its callee might have changed.
            self.start.forget_volatile();
            self.full.iter_mut().for_each(Registers::forget_volatile);
        }
        let located = loadmap::locate(callee.snapshot, callee.lookup)
            .ok_or(End::Broken(LossCause::UnknownModule))?;
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
        stack: &mut StackReader<'_>,
    ) -> Result<Registers, End> {
        let sections = located.sections.as_ref();
        let sections = sections.ok_or(End::Broken(LossCause::NoUnwindInfo))?;
        let address = lookup.wrapping_sub(located.bias);
        cfi::step(sections, address, &mut self.cfi, &mut registers, stack)?;
        Ok(registers)
    }

    /// All registers of the callee, from the start.
    fn replay(
        &mut self,
        callee: &Callee<'_>,
        stack: &mut StackReader<'_>,
    ) -> Result<Registers, End> {
        // From here on the way depends on registers of the first frame.
        stack.invalidate();
        let mut registers = self.start;
        let mut exact = self.start_exact;
        for _ in 0..self.steps {
            let ip = registers.ip();
            let lookup = if exact { ip } else { ip.wrapping_sub(1) };
            let located = loadmap::locate(callee.snapshot, lookup)
                .ok_or(End::Broken(LossCause::UnknownModule))?;
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

/// The code of the modules in a snapshot.
struct ModuleCode<'a> {
    snapshot: &'a Snapshot,
    cfi: &'a mut cfi::Context,
}

impl instructions::Code for ModuleCode<'_> {
    fn at(&mut self, address: u64) -> Option<&'static [u8]> {
        loadmap::code_at(self.snapshot, address)
    }

    fn is_described(&mut self, address: u64) -> bool {
        let located = loadmap::locate(self.snapshot, address);
        located.is_some_and(|l| {
            l.sections.is_some_and(|sections| {
                let address = address.wrapping_sub(l.bias);
                cfi::classify(&sections, address, self.cfi) != Method::None
            })
        })
    }
}
