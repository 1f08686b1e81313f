//! The balanced loop in parallel regions of OpenMP, by the function that compilers call for one.

use crate::calibration::{Construct, Place, Row};
use crate::measure::balanced::Loop;
use std::ffi::{CStr, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::time::Duration;

/// A runtime, and what it is called on disk.
#[derive(Clone, Copy)]
pub(super) struct Runtime {
    pub(super) construct: Construct,
    names: &'static [&'static CStr],
    /// After this its workers sleep.
    pause: Duration,
}

/// The runtimes, those first whose workers spin for a shorter time.
pub(super) const LIBRARIES: [Runtime; 2] = [
    Runtime { construct: Construct::Libgomp, names: &[c"libgomp.so.1"], pause: Duration::from_millis(20) },
    // Its workers spin for KMP_BLOCKTIME, 200 ms.
    Runtime {
        construct: Construct::Libomp,
        names: &[c"libomp.so.5", c"libomp.so", c"libiomp5.so"],
        pause: Duration::from_millis(250),
    },
];

/// `GOMP_parallel`: each of a team of threads calls the function with the pointer.
type Parallel = unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);

/// A runtime that is loaded, until the process ends.
pub(super) struct Library {
    runtime: Runtime,
    parallel: Parallel,
}

impl Library {
    /// Loads it. The error says why not.
    pub(super) fn open(runtime: Runtime) -> Result<Library, &'static str> {
        // SAFETY: a NUL-terminated name. Loading runs the initialisers of a system library.
        let load = |name: &&CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handles = runtime.names.iter().map(load);
        let handle = handles.into_iter().find(|h| !h.is_null()).ok_or("is not installed")?;
        // SAFETY: a handle that is never closed, and a NUL-terminated name.
        let symbol = unsafe { libc::dlsym(handle, c"GOMP_parallel".as_ptr()) };
        if symbol.is_null() {
            return Err("has no GOMP_parallel");
        }
        // SAFETY: GCC's interface, which both runtimes export, fixes this type for the name.
        let parallel = unsafe { transmute::<*mut c_void, Parallel>(symbol) };
        Ok(Library { runtime, parallel })
    }

    pub(super) fn construct(&self) -> Construct {
        self.runtime.construct
    }

    /// Measures it on a number of threads.
    pub(super) fn measure(&self, balanced: &Loop, workers: u32) -> [Row; 2] {
        extern "C" fn part(balanced: *mut c_void) {
            // SAFETY: `measure` passes a loop that outlives the region, and `Loop` is `Sync`. Nothing here
            // panics.
            let balanced = unsafe { &*balanced.cast::<Loop>() };
            balanced.part();
        }
        let data = ptr::from_ref(balanced).cast_mut().cast::<c_void>();
        let kind = (self.runtime.construct, Place::Worker, workers);
        balanced.measure(kind, self.runtime.pause, || {
            // SAFETY: the function's contract: `part` may run on several threads at once with `data`, which
            // lives until the region, and so this call, ends. 0: no flags.
            unsafe { (self.parallel)(part, data, workers, 0) };
        })
    }
}
