//! The registers of a frame in DWARF numbering, with a mask of the known ones, and the three registers that
//! most frames need.

/// DWARF numbers of the x86-64 registers that the unwinder names.
pub mod number {
    pub const RBP: u16 = 6;
    pub const RSP: u16 = 7;
    /// Return address column: the instruction pointer.
    pub const RA: u16 = 16;
}

/// The three registers that suffice for nearly all frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pointers {
    pub ip: u64,
    pub sp: u64,
    /// Frame pointer register. 0 if unknown: no stack lies there, so a step from it fails.
    pub fp: u64,
}

impl Pointers {
    /// Takes the three from a register file.
    #[inline]
    pub(super) fn of(registers: &Registers) -> Pointers {
        Pointers { ip: registers.ip(), sp: registers.sp(), fp: registers.get(number::RBP).unwrap_or(0) }
    }

    /// A register file with only these known.
    pub(super) fn alone(self) -> Registers {
        Registers::new(self.ip, self.sp, self.fp)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Registers {
    values: [u64; 17],
    known: u32,
}

impl Registers {
    /// Those at this point of the calling function, into which this function is inlined.
    #[inline(always)]
    pub fn here() -> Registers {
        let (ip, sp, fp): (u64, u64, u64);
        // SAFETY: reads three registers.
        unsafe {
            core::arch::asm!(
                "lea {0}, [rip]",
                "mov {1}, rsp",
                "mov {2}, rbp",
                out(reg) ip,
                out(reg) sp,
                out(reg) fp,
                options(nomem, nostack, preserves_flags)
            );
        }
        Registers::new(ip, sp, fp)
    }

    /// A register file with only the three registers that most frames need.
    pub fn new(ip: u64, sp: u64, fp: u64) -> Registers {
        let mut r = Registers { values: [0; 17], known: 0 };
        r.set(number::RA, ip);
        r.set(number::RSP, sp);
        r.set(number::RBP, fp);
        r
    }

    /// All registers, from a signal handler's context.
    pub fn from_context(context: &libc::ucontext_t) -> Registers {
        const ORDER: [i32; 17] = [
            libc::REG_RAX,
            libc::REG_RDX,
            libc::REG_RCX,
            libc::REG_RBX,
            libc::REG_RSI,
            libc::REG_RDI,
            libc::REG_RBP,
            libc::REG_RSP,
            libc::REG_R8,
            libc::REG_R9,
            libc::REG_R10,
            libc::REG_R11,
            libc::REG_R12,
            libc::REG_R13,
            libc::REG_R14,
            libc::REG_R15,
            libc::REG_RIP,
        ];
        let mut values = [0; 17];
        for (value, index) in values.iter_mut().zip(ORDER) {
            *value = context.uc_mcontext.gregs[index as usize] as u64;
        }
        Registers { values, known: (1 << 17) - 1 }
    }

    /// The value of a register, if known.
    #[inline]
    pub fn get(&self, register: u16) -> Option<u64> {
        let value = *self.values.get(register as usize)?;
        (self.known >> register & 1 == 1).then_some(value)
    }

    /// Sets a register; ignores numbers outside this register file.
    #[inline]
    pub fn set(&mut self, register: u16, value: u64) {
        if let Some(slot) = self.values.get_mut(register as usize) {
            *slot = value;
            self.known |= 1 << register;
        }
    }

    #[inline]
    pub fn forget(&mut self, register: u16) {
        if (register as usize) < self.values.len() {
            self.known &= !(1 << register);
        }
    }

    /// Marks as unknown the registers that the System V ABI lets a callee change: rax, rdx, rcx, rsi, rdi, r8
    /// to r11.
    pub fn forget_volatile(&mut self) {
        for register in [0, 1, 2, 4, 5, 8, 9, 10, 11] {
            self.forget(register);
        }
    }

    #[inline]
    pub fn ip(&self) -> u64 {
        self.values[number::RA as usize]
    }

    #[inline]
    pub fn set_ip(&mut self, ip: u64) {
        self.set(number::RA, ip);
    }

    #[inline]
    pub fn sp(&self) -> u64 {
        self.values[number::RSP as usize]
    }

    #[inline]
    pub fn set_sp(&mut self, sp: u64) {
        self.set(number::RSP, sp);
    }
}
