//! Interposed functions, and libc's own behind them, found by `dlsym(RTLD_NEXT)` at first use.
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
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real { address: AtomicUsize::new(0), direct: AtomicUsize::new(0), name, version: None }
    }

    /// A specific version of `name`, for functions with an older version that `dlsym` may prefer.
    pub(crate) const fn versioned(name: &'static CStr, version: &'static CStr) -> Real {
        Real { address: AtomicUsize::new(0), direct: AtomicUsize::new(0), name, version: Some(version) }
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
            if versioned.is_null() { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } else { versioned }
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

/// Where libc's function of an interposed one is kept: of another name or a version if they are given.
macro_rules! real_of {
    ($name:ident) => {
        $crate::real::Real::new($crate::real::terminated(concat!(stringify!($name), "\0")))
    };
    ($name:ident as $symbol:literal) => {
        $crate::real::Real::new($symbol)
    };
    ($name:ident at $version:literal) => {
        $crate::real::Real::versioned($crate::real::terminated(concat!(stringify!($name), "\0")), $version)
    };
}
pub(crate) use real_of;

/// A text that ends with a zero byte, as C has it.
pub(crate) const fn terminated(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!(),
    }
}

/// Interposes functions of libc, each with its own signature. The body has the parameters; the first name
/// before it calls libc's function with the same arguments, the second is libc's function.
macro_rules! interpose {
    ($(
        $(#[$attribute:meta])*
        $name:ident $(as $symbol:literal)? $(at $version:literal)?
            ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?:
        |$same:pat_param $(, $real:ident)?| $body:expr;
    )*) => { $(
        $(#[$attribute])*
        /// Interposed.
        ///
        /// # Safety
        /// As for libc's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            type Function = unsafe extern "C" fn($($type),*) $(-> $result)?;
            static REAL: $crate::real::Real = $crate::real::real_of!($name $(as $symbol)? $(at $version)?);
            let libc = || {
                // SAFETY: libc's function of this name and signature.
                unsafe { $crate::real::function::<Function>(&REAL) }
            };
            // SAFETY: the caller's promise: the arguments are right for libc's function.
            let $same = || unsafe { libc()($($argument),*) };
            $(let $real = libc();)?
            // SAFETY: the same; a body acts on the arguments as libc's function may.
            #[allow(unused_unsafe)]
            unsafe {
                $body
            }
        }
    )* };
}
pub(crate) use interpose;
