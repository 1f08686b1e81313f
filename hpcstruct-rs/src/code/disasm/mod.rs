//! From bytes to the transfers of control of each procedure.

pub(super) mod control_transfer;
pub(crate) mod loaded_image;
mod lsda;
pub(super) mod procedure_code;
pub(super) mod spin;
mod sweep;
mod x86;

pub(super) use sweep::{Range, padding};
pub(super) use x86::{Scratch, decode, stub};
