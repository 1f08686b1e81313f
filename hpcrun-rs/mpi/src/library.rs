//! The MPI library that the program uses, known by its symbols alone. Handles are words: pointers in Open
//! MPI, 32-bit numbers in MPICH and what is compatible with it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A status is at most as large; Open MPI's is.
pub(crate) type Status = [c_int; 6];

/// Statuses that a function of MPI's has written.
#[derive(Clone, Copy)]
pub(crate) struct Statuses(*const c_int);

impl Statuses {
    pub(crate) fn at(address: usize) -> Statuses {
        Statuses(std::ptr::with_exposed_provenance(address))
    }

    pub(crate) fn nth(self, place: usize) -> Statuses {
        Statuses(self.0.wrapping_add(place * library().status))
    }

    /// Source and tag of the first.
    #[inline]
    pub(crate) fn source_and_tag(self) -> (c_int, c_int) {
        let source = self.0.wrapping_add(library().source);
        // SAFETY: it was written.
        unsafe { (*source, *source.add(1)) }
    }

    /// Whether the operation was cancelled.
    pub(crate) fn is_cancelled(self) -> bool {
        let mut flag: c_int = 0;
        pmpi!(Test_cancelled(self.0.expose_provenance(), at(&mut flag)));
        flag != 0
    }
}

/// What the two binary interfaces differ in.
#[derive(Debug)]
pub(crate) struct Library {
    is_open_mpi: bool,
    pub(crate) world: usize,
    pub(crate) own: usize,
    pub(crate) byte: usize,
    pub(crate) no_comm: usize,
    pub(crate) any_source: c_int,
    pub(crate) proc_null: c_int,
    /// Stands for a buffer of sends that is that of the receives; in C.
    pub(crate) in_place: usize,
    /// Kinds of topologies: grids, graphs.
    pub(crate) topologies: [c_int; 2],
    /// Stands for a status, or an array of them, that the caller does not want: in C; in Fortran, for one,
    /// for many, and by the module of Fortran 2008.
    ignore: [usize; 5],
    /// Of a status in integers: its size, and where the source is; the tag follows.
    status: usize,
    source: usize,
}

/// What a handle is of.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Comm,
    Request,
    Group,
    Window,
}

pub(crate) const ANY_TAG: c_int = -1;
pub(crate) const UNDEFINED: c_int = -32766;
pub(crate) const THREAD_MULTIPLE: c_int = 3;

/// A function of the library, which is looked up once.
#[derive(Debug)]
pub(crate) struct Real {
    name: &'static str,
    address: AtomicUsize,
}

impl Real {
    /// `name` ends in a zero. What is not of MPI's profiling interface is another library's of that name.
    pub(crate) const fn new(name: &'static str) -> Real {
        Real { name, address: AtomicUsize::new(0) }
    }

    /// Its address. Aborts if the library lacks it: then the program could not have called it either.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            address => address,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        let name = CStr::from_bytes_with_nul(self.name.as_bytes()).unwrap_or_default();
        let address = match self.name.starts_with("mpi_") {
            // SAFETY: as in `symbol`.
            true => unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize },
            false => symbol(name),
        };
        if address == 0 {
            eprintln!("hpcrun-rs: the MPI library lacks {}", self.name);
            std::process::abort();
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Calls a function of the MPI library, which runs. Its arguments, words, are as the function takes them:
/// what they point to lives until the operation is complete.
macro_rules! pmpi {
    ($name:ident($($argument:expr),*)) => {{
        static REAL: $crate::library::Real =
            $crate::library::Real::new(concat!("PMPI_", stringify!($name), "\0"));
        type Function = unsafe extern "C" fn($($crate::library::pmpi!(@word $argument)),*) -> c_int;
        // SAFETY: MPI's function of this name, with its arguments (see the macro).
        unsafe { std::mem::transmute::<usize, Function>(REAL.address())($($argument),*) }
    }};
    (@word $argument:expr) => { usize };
}
pub(crate) use pmpi;

/// A pointer as an argument.
pub(crate) fn at<T>(value: &mut T) -> usize {
    (&raw mut *value).expose_provenance()
}

/// The address of a function or variable of the library, which may have been loaded for another one alone, as
/// Python loads its modules. None of these names is interposed; of a variable, the program may have the copy
/// that counts.
fn symbol(name: &CStr) -> usize {
    // SAFETY: a name that ends in a zero.
    let known = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
    if known != 0 {
        return known;
    }
    let look = |library: CString| {
        // SAFETY: the library is loaded, and this keeps it so; the name ends in a zero.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
            if handle.is_null() {
                return 0;
            }
            libc::dlsym(handle, name.as_ptr()) as usize
        }
    };
    let mut found = loaded().into_iter().map(look);
    found.find(|address| *address != 0).unwrap_or(0)
}

/// The loaded files that may be MPI libraries.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
        // SAFETY: the linker's information, and the vector below.
        unsafe {
            let name = CStr::from_ptr((*info).dlpi_name);
            let file = name.to_bytes().rsplit(|byte| *byte == b'/').next();
            let is_mpi = |file: &[u8]| file.starts_with(b"libmpi") || file.starts_with(b"libpmpi");
            if file.is_some_and(is_mpi) {
                (*all.cast::<Vec<CString>>()).push(name.to_owned());
            }
        }
        0
    }
    let mut all: Vec<CString> = Vec::new();
    // SAFETY: the function gets the vector, and does not panic but for want of memory.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut all).cast()) };
    all
}

/// The library of this process. Called when a hook is, so there is one.
pub(crate) fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // Of these variables, which MPI's standard names, the values are known once MPI has started.
        let ignore = |name| match symbol(name) {
            0 => usize::MAX,
            // SAFETY: a variable that holds a pointer.
            address => unsafe { *std::ptr::with_exposed_provenance::<usize>(address) },
        };
        let [one, many] = [ignore(c"MPI_F_STATUS_IGNORE"), ignore(c"MPI_F_STATUSES_IGNORE")];
        let modern = [c"MPIR_F08_MPI_STATUS_IGNORE_OBJ", c"MPIR_F08_MPI_STATUSES_IGNORE_OBJ"];
        let [modern_one, modern_many] = modern.map(|name| symbol(name).max(1));
        match symbol(c"ompi_mpi_comm_world") {
            0 => Library {
                is_open_mpi: false,
                world: 0x4400_0000,
                own: 0x4400_0001,
                byte: 0x4c00_010d,
                no_comm: 0x0400_0000,
                any_source: -2,
                proc_null: -1,
                in_place: usize::MAX,
                topologies: [2, 1],
                ignore: [1, one, many, modern_one, modern_many],
                status: 5,
                source: 2,
            },
            world => Library {
                is_open_mpi: true,
                world,
                own: symbol(c"ompi_mpi_comm_self"),
                byte: symbol(c"ompi_mpi_byte"),
                no_comm: symbol(c"ompi_mpi_comm_null"),
                any_source: -1,
                proc_null: -2,
                in_place: 1,
                topologies: [1, 2],
                ignore: [0, one, many, one, many],
                status: 6,
                source: 0,
            },
        }
    })
}

impl Library {
    /// A handle among C's arguments.
    #[inline]
    pub(crate) fn handle(&self, argument: usize) -> usize {
        if self.is_open_mpi { argument } else { argument & 0xffff_ffff }
    }

    /// The handle at a place in an array of C's.
    ///
    /// # Safety
    /// The array has it.
    #[inline]
    pub(crate) unsafe fn handle_at(&self, array: usize, index: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            match self.is_open_mpi {
                true => *std::ptr::with_exposed_provenance::<usize>(array).add(index),
                false => *std::ptr::with_exposed_provenance::<u32>(array).add(index) as usize,
            }
        }
    }

    /// The handle of Fortran's number.
    pub(crate) fn handle_of(&self, kind: Kind, number: c_int) -> usize {
        static REAL: [Real; 4] = [
            Real::new("PMPI_Comm_f2c\0"),
            Real::new("PMPI_Request_f2c\0"),
            Real::new("PMPI_Group_f2c\0"),
            Real::new("PMPI_Win_f2c\0"),
        ];
        match self.is_open_mpi {
            // SAFETY: MPI's function, of a number to a pointer.
            true => unsafe {
                let address = REAL[kind as usize].address();
                std::mem::transmute::<usize, unsafe extern "C" fn(c_int) -> usize>(address)(number)
            },
            false => number as u32 as usize,
        }
    }

    /// Whether an argument says that a status is not wanted.
    #[inline]
    pub(crate) fn is_ignored(&self, status: usize, fortran: bool) -> bool {
        match fortran {
            false => status == self.ignore[0],
            true => self.ignore[1..].contains(&status),
        }
    }
}
