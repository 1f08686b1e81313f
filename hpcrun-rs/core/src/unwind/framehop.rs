//! The stepper that uses the crate framehop.
//!
//! Like the native stepper it needs call frame information for a module. When that information fails it falls
//! back to the frame pointer, and the cursor cannot tell this guess from a certain result. So it is the
//! default only where there is no other stepper.
//!
//! Async-signal-safe after [`Framehop::new`] and [`Modules::of`]: uses framehop's fixed storage.

use super::End;
use super::loadmap::{self, Module};
use super::registers::Pointers;
use super::stack::StackReader;
use super::stepper::{Callee, Method};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, MustNotAllocateDuringUnwind, Unwinder};
use hpc_formats::loss::LossCause;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwinderAarch64 as ArchUnwinder};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwinderX86_64 as ArchUnwinder};

/// The modules of a load map in framehop's form.
pub(super) struct Modules(ArchUnwinder<&'static [u8], MustNotAllocateDuringUnwind>);

impl Modules {
    /// Not async-signal-safe.
    pub(super) fn of(modules: &[Module]) -> Modules {
        let mut unwinder = ArchUnwinder::new();
        for module in modules {
            let Some(s) = &module.sections else { continue };
            let range = |from: u64, bytes: &[u8]| from..from + bytes.len() as u64;
            let info = ExplicitModuleSectionInfo {
                eh_frame_svma: Some(range(s.eh_frame_address, s.eh_frame)),
                eh_frame: Some(s.eh_frame),
                eh_frame_hdr_svma: Some(range(s.hdr_address, s.hdr)),
                eh_frame_hdr: Some(s.hdr),
                ..Default::default()
            };
            let mapped = module.start..module.end;
            unwinder.add_module(framehop::Module::new(
                String::new(),
                mapped,
                module.bias,
                info,
            ));
        }
        Modules(unwinder)
    }
}

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
        let unwinder = &modules.0;
        match unwinder.unwind_frame(address, &mut registers, &mut self.0, &mut read) {
            Ok(Some(ip)) => Ok(Pointers::from_framehop(ip, &registers)),
            Ok(None) => Err(End::Root),
            Err(_) => Err(End::Broken(LossCause::BadUnwindInfo)),
        }
    }
}
