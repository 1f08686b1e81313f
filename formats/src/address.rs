//! Normalised code addresses: (load module, offset), independent of where a module was mapped.

use std::fmt;

/// Index of a load module in its process's load map; 0 is no module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ModuleId(pub u16);

impl ModuleId {
    /// The pseudo-module of code that lies in no mapped file; offsets are absolute addresses.
    pub const UNKNOWN: ModuleId = ModuleId(0xffff);
    /// The largest id that a load map may hand out.
    pub const MAX: u16 = 0xfffe;
}

/// A code address for look-up: the sampled instruction, or the last byte of a call instruction, which is the
/// return address minus one. The unwinder subtracts the one. Zero means none.
///
/// Upper 16 bits: [`ModuleId`]; lower 48 bits: the address as the module states it (its own
/// virtual address, before relocation).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct CodeAddress(pub u64);

impl CodeAddress {
    /// No address: the empty half of a note.
    pub const NONE: CodeAddress = CodeAddress(0);
    const OFFSET_MASK: u64 = (1 << 48) - 1;

    /// Combines a module and the address that the module itself states; bits above 48 are cut.
    #[inline]
    pub const fn new(module: ModuleId, offset: u64) -> Self {
        CodeAddress((module.0 as u64) << 48 | (offset & Self::OFFSET_MASK))
    }

    #[inline]
    pub const fn module(self) -> ModuleId {
        ModuleId((self.0 >> 48) as u16)
    }

    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & Self::OFFSET_MASK
    }

    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for CodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.module().0, self.offset())
    }
}
