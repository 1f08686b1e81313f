//! Files: the load module, what lies beside it, and the measurements that name it.

pub(crate) mod address_filter;
pub(crate) mod debug_file;
#[allow(unsafe_code)]
pub(crate) mod file_bytes;
pub(crate) mod image;
pub mod measurements;
mod mini_debug_info;
#[allow(unsafe_code)]
pub mod sigbus;
pub(crate) mod vdso;
