//! The modules of a load map in framehop's form.

use super::module::Module;
use framehop::{ExplicitModuleSectionInfo, MustNotAllocateDuringUnwind, Unwinder};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::UnwinderAarch64 as ArchUnwinder;
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::UnwinderX86_64 as ArchUnwinder;

type Modules = ArchUnwinder<&'static [u8], MustNotAllocateDuringUnwind>;

/// See the module's description.
pub(in super::super) struct FramehopModules(Modules);

impl FramehopModules {
    /// Not async-signal-safe.
    pub(super) fn of(modules: &[Module]) -> FramehopModules {
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
            unwinder.add_module(framehop::Module::new(String::new(), mapped, module.bias, info));
        }
        FramehopModules(unwinder)
    }

    pub(in super::super) fn unwinder(&self) -> &Modules {
        &self.0
    }
}
