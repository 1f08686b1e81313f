//! How the profiler is found, and how a function that it interposes knows its caller.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use crate::ABI_VERSION;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// A symbol of the process; null if no object has it.
#[cold]
pub fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a NUL-terminated name. A null handle searches every object of the process.
    unsafe { dlsym(ptr::null_mut(), name.as_ptr()) }
}

/// The table, if it is there and is one of those that the caller knows.
///
/// # Safety
/// Null, or a table of this crate, which stays and is at least as long as its own size says.
pub unsafe fn known<T>(table: *const T) -> Option<&'static T> {
    // SAFETY: each table begins with its size and its version (the caller's promise).
    let [size, version] = unsafe { *table.cast::<[u32; 2]>().as_ref()? };
    let is_known = version == ABI_VERSION && size as usize >= size_of::<T>();
    // SAFETY: it has all of the fields (the caller's promise).
    is_known.then(|| unsafe { &*table })
}

/// The last parameter of a function that stands for another one. By the System V ABI a structure of three or
/// more words is passed in memory, behind the arguments that the caller has put on the stack. There may be
/// none, and nothing is read from it.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Stacked<const WORDS: usize = 3>(pub [usize; WORDS]);

#[cfg(target_arch = "x86_64")]
impl<const WORDS: usize> Stacked<WORDS> {
    /// The return address of a function with so many other parameters, all of them words.
    #[inline(always)]
    pub fn return_address(&self, parameters: usize) -> usize {
        const IN_REGISTERS: usize = 6;
        let stacked = parameters.saturating_sub(IN_REGISTERS) * size_of::<usize>();
        let address: usize;
        // SAFETY: reads the function's return address, which lies below its parameters on the stack.
        unsafe {
            core::arch::asm!(
                "mov {address}, qword ptr [{parameters} - 8]",
                address = lateout(reg) address,
                parameters = in(reg) (&raw const self.0).addr() - stacked,
                options(nostack, preserves_flags, readonly)
            );
        }
        address
    }
}
