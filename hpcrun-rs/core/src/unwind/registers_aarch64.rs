//! The AArch64 registers of a frame that framehop needs.

use framehop::aarch64::UnwindRegsAarch64;

/// Register values of one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    pub(super) ip: u64,
    pub(super) sp: u64,
    /// The frame pointer, x29.
    pub(super) fp: u64,
    /// The link register, x30: the return address of an interrupted function that has not saved it.
    pub(super) lr: u64,
}

/// The unwinder needs no other registers here.
pub(super) type Pointers = Registers;

impl Registers {
    /// Those at this point of the calling function, into which this function is inlined.
    #[inline(always)]
    pub fn here() -> Registers {
        let (ip, sp, fp): (u64, u64, u64);
        // SAFETY: reads three registers.
        unsafe {
            core::arch::asm!(
                "adr {0}, .",
                "mov {1}, sp",
                "mov {2}, x29",
                out(reg) ip,
                out(reg) sp,
                out(reg) fp,
                options(nomem, nostack, preserves_flags)
            );
        }
        Registers::new(ip, sp, fp)
    }

    /// Registers of a suspended frame, whose link register is saved.
    pub fn new(ip: u64, sp: u64, fp: u64) -> Registers {
        Registers { ip, sp, fp, lr: 0 }
    }

    /// Registers from a signal handler's context.
    pub fn from_context(context: &libc::ucontext_t) -> Registers {
        let machine = &context.uc_mcontext;
        Registers { ip: machine.pc, sp: machine.sp, fp: machine.regs[29], lr: machine.regs[30] }
    }

    /// Instruction pointer.
    #[inline]
    pub fn ip(&self) -> u64 {
        self.ip
    }

    /// Stack pointer.
    #[inline]
    pub fn sp(&self) -> u64 {
        self.sp
    }

    pub(super) fn of(registers: &Registers) -> Pointers {
        *registers
    }

    pub(super) fn for_framehop(self) -> UnwindRegsAarch64 {
        UnwindRegsAarch64::new(self.lr, self.sp, self.fp)
    }

    pub(super) fn from_framehop(ip: u64, registers: &UnwindRegsAarch64) -> Pointers {
        Registers { ip, sp: registers.sp(), fp: registers.fp(), lr: registers.lr() }
    }
}
