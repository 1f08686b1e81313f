//! From bytes to the transfers of control of each procedure.

mod aarch64;
pub(super) mod control_transfer;
pub(crate) mod loaded_image;
mod lsda;
pub(super) mod procedure_code;
mod sweep;
mod x86;

use crate::code::Architecture;
use loaded_image::LoadedImage;

/// The slot that the linkage stub at an address jumps through.
pub(super) fn stub(
    architecture: Architecture,
    memory: &LoadedImage<'_>,
    address: u64,
) -> Option<u64> {
    match architecture {
        Architecture::X86_64 => x86::stub(memory, address),
        Architecture::AArch64 => aarch64::stub(memory, address),
    }
}
