//! One call of a hook: its arguments, in C or Fortran, and whom it tells.

use crate::job::{self, Job};
use crate::library::library;
use hpcrun_abi::{
    ABI_VERSION, CALL_NESTED, MESSAGES_SYMBOL, MessageTable, Messages, RemoteStrand, Site,
};
use std::ffi::c_int;
use std::ptr;
use std::sync::OnceLock;

/// The last parameter of a hook. By the System V ABI a structure of this size is passed in memory, behind the
/// arguments that the caller has put on the stack. There may be none, and nothing is read from it.
#[repr(C)]
pub struct Caller([usize; 3]);

impl Caller {
    /// The last byte of the call instruction, in a hook with so many other parameters.
    #[inline(always)]
    pub(crate) fn address(&self, parameters: usize) -> u64 {
        let stacked = parameters.saturating_sub(6) * size_of::<usize>();
        let address: u64;
        // SAFETY: reads the hook's return address, which lies below its parameters on the stack.
        unsafe {
            core::arch::asm!(
                "mov {address}, qword ptr [{parameters} - 8]",
                address = lateout(reg) address,
                parameters = in(reg) (&raw const self.0).addr() - stacked,
                options(nostack, preserves_flags, readonly)
            );
        }
        address.wrapping_sub(1)
    }
}

/// The arguments of a call: words, which in Fortran are all addresses.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) arguments: &'a [usize],
    pub(crate) fortran: bool,
    pub(crate) address: u64,
}

/// MPI's function, which gets all arguments.
pub(crate) trait Function: Fn(&[usize]) -> c_int {}

impl<F: Fn(&[usize]) -> c_int> Function for F {}

/// Most arguments of a function.
const MOST: usize = 12;

// What is unsafe here relies on the caller's arguments being those that MPI's function takes.
impl Call<'_> {
    /// A number among the arguments.
    #[inline]
    pub(crate) unsafe fn int(&self, index: usize) -> c_int {
        let argument = self.arguments[index];
        match self.fortran {
            false => argument as c_int,
            // SAFETY: the address of a number.
            true => unsafe { *ptr::with_exposed_provenance(argument) },
        }
    }

    /// A communicator among them.
    #[inline]
    pub(crate) unsafe fn comm(&self, index: usize) -> usize {
        match self.fortran {
            false => library().handle(self.arguments[index]),
            // SAFETY: as above.
            true => library().comm_of(unsafe { self.int(index) }),
        }
    }

    /// The communicator at an address among them.
    pub(crate) unsafe fn comm_at(&self, index: usize) -> usize {
        match self.fortran {
            // SAFETY: the address of a handle.
            false => unsafe { library().handle_at(self.arguments[index], 0) },
            // SAFETY: in Fortran, too.
            true => unsafe { self.comm(index) },
        }
    }

    /// A request of the array at an address among them.
    #[inline]
    pub(crate) unsafe fn request_at(&self, index: usize, at: usize) -> usize {
        let array = self.arguments[index];
        // SAFETY: an array of handles that has it.
        unsafe {
            match self.fortran {
                false => library().handle_at(array, at),
                true => library().request_of(*ptr::with_exposed_provenance::<c_int>(array).add(at)),
            }
        }
    }

    /// A number of the array at an address among them.
    pub(crate) unsafe fn int_at(&self, index: usize, at: usize) -> c_int {
        // SAFETY: an array of numbers that has it.
        unsafe { *ptr::with_exposed_provenance::<c_int>(self.arguments[index]).add(at) }
    }

    /// Calls MPI's function with room for `count` statuses in place of what the caller does not want, and
    /// then `read` with the statuses.
    pub(crate) fn with_statuses<R>(
        &self,
        index: usize,
        count: usize,
        real: &impl Function,
        read: impl FnOnce(c_int, *const c_int) -> R,
    ) -> R {
        let given = self.arguments[index];
        if !library().is_ignored(given, self.fortran) {
            let result = real(self.arguments);
            return read(result, ptr::with_exposed_provenance(given));
        }
        let (mut one, mut many) = ([0; 6], Vec::new());
        let statuses: &mut [c_int] = match count {
            0 | 1 => &mut one,
            _ => {
                many.resize(count * 6, 0);
                &mut many
            }
        };
        let mut arguments = [0; MOST];
        let arguments = &mut arguments[..self.arguments.len()];
        arguments.copy_from_slice(self.arguments);
        arguments[index] = statuses.as_mut_ptr().expose_provenance();
        let result = real(arguments);
        read(result, statuses.as_ptr())
    }
}

/// The profiler's functions; `None` if the process is not measured.
#[inline]
pub(crate) fn table() -> Option<&'static MessageTable> {
    static TABLE: OnceLock<Option<&'static MessageTable>> = OnceLock::new();
    *TABLE.get_or_init(|| {
        // SAFETY: the profiler's library exports this symbol with this type; its table is never freed.
        let table = unsafe {
            let symbol = libc::dlsym(libc::RTLD_DEFAULT, MESSAGES_SYMBOL.as_ptr());
            if symbol.is_null() {
                return None;
            }
            let messages = std::mem::transmute::<*mut libc::c_void, Messages>(symbol);
            messages(table as *const () as usize).as_ref()?
        };
        let is_known = table.version == ABI_VERSION && table.size as usize >= size_of_val(table);
        is_known.then_some(table)
    })
}

/// A call that is observed.
#[derive(Clone, Copy)]
pub(crate) struct Observed {
    pub(crate) table: &'static MessageTable,
    /// Where it is.
    pub(crate) site: Site,
}

impl Observed {
    /// The strand, for another process; of its savings, those that count.
    #[inline]
    pub(crate) fn export(&self, to: &mut RemoteStrand) {
        // SAFETY: a reference.
        unsafe { (self.table.export)(self.site, to) };
    }

    /// Has waited for another process.
    #[inline]
    pub(crate) fn import(&self, strand: &RemoteStrand) {
        // SAFETY: a reference.
        unsafe { (self.table.import)(strand, self.site) };
    }

    pub(crate) fn lose(&self, cause: u32) {
        (self.table.lose)(cause);
    }
}

/// Runs a call: `act` in a job that tracks its path, else MPI's function alone. A call that MPI makes itself,
/// within another one, is MPI's own.
#[inline]
pub(crate) fn observe(
    call: &Call<'_>,
    real: &impl Function,
    act: impl FnOnce(Observed, &'static Job) -> c_int,
) -> c_int {
    observe_any(call, real, |observed| match job::current() {
        Some(job) => act(observed, job),
        None => real(call.arguments),
    })
}

/// As [`observe`], in a job or not.
#[inline]
pub(crate) fn observe_any(
    call: &Call<'_>,
    real: &impl Function,
    act: impl FnOnce(Observed) -> c_int,
) -> c_int {
    let Some(table) = table() else {
        return real(call.arguments);
    };
    let site = (table.enter)(call.address);
    if site == CALL_NESTED {
        return real(call.arguments);
    }
    let result = act(Observed { table, site });
    (table.leave)(site);
    result
}
