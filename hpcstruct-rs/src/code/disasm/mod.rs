//! From bytes to the transfers of control of each procedure.

mod aarch64;
pub(super) mod control_transfer;
pub(crate) mod loaded_image;
mod lsda;
pub(super) mod procedure_code;
mod sweep;
mod x86;

use crate::code::Architecture;
use control_transfer::{Decoded, Within};
use loaded_image::LoadedImage;

/// What is reused from range to range.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    x86: x86::Scratch,
    /// What the last [`decode`] found.
    pub(super) decoded: Decoded,
}

impl Scratch {
    /// Addresses that the code of the last range loads into registers.
    pub(super) fn loaded(&self) -> impl Iterator<Item = u64> {
        self.x86.loaded()
    }
}

/// Decodes `bytes`, which lie at `address`, with `all` that follows; forgets what was before.
pub(super) fn decode(
    architecture: Architecture,
    memory: &LoadedImage<'_>,
    (bytes, all, address): (&[u8], &[u8], u64),
    within: Within<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { x86, decoded } = scratch;
    decoded.start(bytes.len());
    match architecture {
        Architecture::X86_64 => {
            x86::decode(sweep::Range { bytes, all, address }, memory, within, x86, decoded);
        }
        Architecture::AArch64 => aarch64::decode(bytes, address, memory, within, decoded),
    }
}

/// Bytes at the start of `bytes` that only fill space up to aligned code.
pub(super) fn padding(architecture: Architecture, bytes: &[u8]) -> usize {
    match architecture {
        Architecture::X86_64 => sweep::padding(bytes),
        Architecture::AArch64 => aarch64::padding(bytes),
    }
}

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
