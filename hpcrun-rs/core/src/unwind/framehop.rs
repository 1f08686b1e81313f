//! The stepper that uses the crate framehop.
//!
//! Like the native stepper it needs call frame information for a module. When that information fails it falls
//! back to the frame pointer, and the cursor cannot tell this guess from a certain result. So it is the
//! default only where there is no other stepper.
//!
//! Async-signal-safe after [`Framehop::new`]: uses framehop's fixed storage.

use super::End;
use super::callee::{Callee, Method};
use super::loadmap;
use super::registers::Pointers;
use super::stack::StackReader;
use framehop::{FrameAddress, MustNotAllocateDuringUnwind, Unwinder};
use hpc_formats::loss::LossCause;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::CacheAarch64 as Cache;
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::CacheX86_64 as Cache;

/// framehop's cache, one per thread.
pub(super) struct Framehop(Box<Cache<MustNotAllocateDuringUnwind>>);

impl Framehop {
    pub(super) fn new() -> Framehop {
        Framehop(Box::new(Cache::new_in()))
    }

    #[cold]
    pub(super) fn step(
        &mut self,
        callee: &Callee<'_>,
        stack: &mut StackReader<'_>,
    ) -> Result<Pointers, End> {
        if callee.method == Method::None {
            return Err(End::Broken(LossCause::NoUnwindInfo));
        }
        // While modules are being unloaded, the sections of one may be unmapped already.
        let modules = callee.snapshot.framehop();
        let modules = modules.filter(|_| loadmap::is_stable());
        let modules = modules.ok_or(End::Broken(LossCause::UnknownModule))?;
        let ip = callee.registers.ip;
        let address = match callee.is_exact {
            true => FrameAddress::from_instruction_pointer(ip),
            false => FrameAddress::from_return_address(ip).ok_or(End::Root)?,
        };
        let mut registers = callee.registers.for_framehop();
        let mut read = |address| stack.read(address).ok_or(());
        let unwinder = modules.unwinder();
        match unwinder.unwind_frame(address, &mut registers, &mut self.0, &mut read) {
            Ok(Some(ip)) => Ok(Pointers::from_framehop(ip, &registers)),
            Ok(None) => Err(End::Root),
            Err(_) => Err(End::Broken(LossCause::BadUnwindInfo)),
        }
    }
}
