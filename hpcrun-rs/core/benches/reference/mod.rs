//! The crate framehop as a reference: an independent unwinder whose walks are compared with ours.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, MustNotAllocateDuringUnwind, Unwinder};
use hpcrun_core::unwind::registers::number;
use hpcrun_core::unwind::{Registers, StackBounds, loadmap};

/// An unwinder that knows these modules, and its cache.
pub(crate) struct Framehop {
    unwinder: UnwinderX86_64<&'static [u8], MustNotAllocateDuringUnwind>,
    cache: CacheX86_64<MustNotAllocateDuringUnwind>,
}

impl Framehop {
    pub(crate) fn new(modules: &[loadmap::Module]) -> Framehop {
        let mut unwinder = UnwinderX86_64::new();
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
            let range = module.start..module.end;
            unwinder.add_module(Module::new(String::new(), range, module.bias, info));
        }
        Framehop { unwinder, cache: CacheX86_64::new_in() }
    }

    /// Calls `visit` with the look-up address of each frame of the calling thread's stack.
    pub(crate) fn walk(&mut self, registers: Registers, bounds: StackBounds, mut visit: impl FnMut(u64)) {
        let mut read = |a: u64| {
            if a >= bounds.low && a + 8 <= bounds.high {
                // SAFETY: the word is within the calling thread's own stack.
                Ok(unsafe { (a as *const u64).read() })
            } else {
                Err(())
            }
        };
        let fp = registers.get(number::RBP).unwrap_or(0);
        let mut r = UnwindRegsX86_64::new(registers.ip(), registers.sp(), fp);
        let mut address = FrameAddress::from_instruction_pointer(registers.ip());
        visit(registers.ip());
        let (unwinder, cache) = (&self.unwinder, &mut self.cache);
        while let Ok(Some(ip)) = unwinder.unwind_frame(address, &mut r, cache, &mut read) {
            let Some(caller) = FrameAddress::from_return_address(ip) else {
                break;
            };
            address = caller;
            visit(ip - 1);
        }
    }
}
