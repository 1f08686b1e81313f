//! libc's own functions behind the interposed ones, found by `dlsym(RTLD_NEXT)` at first use.
//!
//! A look-up is idempotent: two threads that race store the same pointer.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A libc function, which is looked up once.
#[derive(Debug)]
pub(crate) struct Real {
    address: AtomicUsize,
    /// The address, once it is known that nobody measures what the function does.
    direct: AtomicUsize,
    name: &'static CStr,
    version: Option<&'static CStr>,
}

impl Real {
    /// The default version of `name`.
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real { address: AtomicUsize::new(0), direct: AtomicUsize::new(0), name, version: None }
    }

    /// A specific version of `name`, for functions with an older version that `dlsym` may prefer.
    pub(crate) const fn versioned(name: &'static CStr, version: &'static CStr) -> Real {
        Real {
            address: AtomicUsize::new(0),
            direct: AtomicUsize::new(0),
            name,
            version: Some(version),
        }
    }

    /// The function's address, if nobody measures what the function does and its hook has nothing to report.
    #[inline]
    pub(crate) fn direct(&self) -> Option<usize> {
        match self.direct.load(Ordering::Relaxed) {
            0 => self.find_direct(),
            address => Some(address),
        }
    }

    #[cold]
    fn find_direct(&self) -> Option<usize> {
        let address = crate::events::nobody_measures().then(|| self.address())?;
        self.direct.store(address, Ordering::Relaxed);
        Some(address)
    }

    /// The function's address. Aborts if libc lacks the function; a program that calls it could not have been
    /// linked.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            address => address,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        // SAFETY: name and version are NUL-terminated statics.
        let address = unsafe {
            let versioned = self.version.map_or(std::ptr::null_mut(), |v| {
                libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), v.as_ptr())
            });
            if versioned.is_null() {
                libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr())
            } else {
                versioned
            }
        } as usize;
        if address == 0 {
            let text = b"hpcrun-rs: libc lacks a function that the program calls\n";
            // SAFETY: writes a static text, and ends the process.
            unsafe {
                libc::write(2, text.as_ptr().cast(), text.len());
                libc::abort();
            }
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// The libc function as a callable of type `F`.
///
/// # Safety
/// `F` must be a function pointer type with the function's signature.
#[inline]
pub(crate) unsafe fn function<F: Copy>(real: &Real) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>()) };
    // SAFETY: the address of the function, as a pointer type for which the caller vouches.
    unsafe { std::mem::transmute_copy(&real.address()) }
}

/// A libc function: `real!(NAME: fn(types) -> type)`. Unsafe, since the signature is not checked.
macro_rules! real {
    ($name:literal : fn($($type:ty),* $(,)?) $(-> $result:ty)?) => {{
        static REAL: $crate::real::Real = $crate::real::Real::new($name);
        $crate::real::function::<unsafe extern "C" fn($($type),*) $(-> $result)?>(&REAL)
    }};
}
pub(crate) use real;
