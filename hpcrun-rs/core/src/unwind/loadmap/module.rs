//! A mapped module and its unwind information.

use crate::unwind::copies::Identity;
use hpc_formats::address::ModuleId;

/// Unwind sections of a module: mapped bytes, with link-time addresses.
#[derive(Clone, Copy, Debug)]
pub struct UnwindSections {
    /// `.eh_frame_hdr`.
    pub hdr: &'static [u8],
    /// Link-time address of `hdr`.
    pub hdr_address: u64,
    /// `.eh_frame`, and possibly what follows it in the mapping.
    pub eh_frame: &'static [u8],
    /// Link-time address of `eh_frame`.
    pub eh_frame_address: u64,
}

#[derive(Clone, Debug)]
pub struct Module {
    pub id: ModuleId,
    pub start: u64,
    pub end: u64,
    /// Load bias: mapped address minus link-time address.
    pub bias: u64,
    /// Path, or `[vdso]`.
    pub path: String,
    /// GNU build id, or empty.
    pub build_id: Vec<u8>,
    /// Its file when the module was first seen.
    pub file: Identity,
    pub sections: Option<UnwindSections>,
    /// The mapped bytes of its readable executable segments.
    pub code: Vec<&'static [u8]>,
}
