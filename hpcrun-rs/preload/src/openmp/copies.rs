//! Which copy of a runtime a call is for. A process may have several: a program's own, and one beside each of
//! the packages of Python. Without us, the loader binds a call to the global copy if there is one, else to
//! the one that the caller's module depends on. So do we, by the call's return address.

use crate::real::real;
use hpcrun_core::threads;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of a runtime.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub(crate) address: usize,
    /// It is of a library that tells of its tasks itself: a libgomp that is LLVM's.
    pub(crate) tells: bool,
}

/// In an address: see [`Function::tells`].
const TELLS: usize = 1 << 63;

impl Function {
    fn unpack(word: usize) -> Option<Function> {
        (word != 0).then_some(Function { address: word & !TELLS, tells: word & TELLS != 0 })
    }
}

/// The number of calls, by return address, that are remembered.
const CALLS: usize = 1 << 10;

/// Calls of local copies: return address and name, and the function. Written in this order, the first last.
struct Call {
    key: AtomicUsize,
    function: AtomicUsize,
}

static LOCAL: [Call; CALLS] =
    [const { Call { key: AtomicUsize::new(0), function: AtomicUsize::new(0) } }; CALLS];

/// Forgets what modules call, because one of them is about to be unloaded.
pub(crate) fn forget() {
    for call in &LOCAL {
        call.key.store(0, Ordering::Relaxed);
    }
}

pub(crate) struct Entry {
    name: &'static CStr,
    /// The function of the global copy, once it was found.
    global: AtomicUsize,
}

impl Entry {
    pub(crate) const fn new(name: &'static CStr) -> Entry {
        Entry { name, global: AtomicUsize::new(0) }
    }

    #[inline]
    pub(crate) fn of_call(&self, return_address: usize) -> Function {
        match Function::unpack(self.global.load(Ordering::Relaxed)) {
            Some(function) => function,
            None => self.find(return_address),
        }
    }

    #[cold]
    fn find(&self, return_address: usize) -> Function {
        // SAFETY: a NUL-terminated name.
        let global = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if !global.is_null() {
            let word = pack(global);
            self.global.store(word, Ordering::Relaxed);
            return Function { address: word & !TELLS, tells: word & TELLS != 0 };
        }
        let return_address = match is_ours(return_address) {
            true => region_call(),
            false => return_address,
        };
        let key = return_address ^ ptr::from_ref(self) as usize;
        let call = &LOCAL[(key >> 2) % CALLS];
        let function = call.function.load(Ordering::Acquire);
        if call.key.load(Ordering::Acquire) == key {
            if let Some(function) = Function::unpack(function) {
                return function;
            }
        }
        let word = local(self.name, return_address).map_or(0, pack);
        let Some(function) = Function::unpack(word) else { lacks(self.name) };
        call.key.store(0, Ordering::Release);
        call.function.store(word, Ordering::Release);
        call.key.store(key, Ordering::Release);
        function
    }
}

/// The return address of the region or task that the thread is in: its function has ended in a jump, so that
/// the call seems to come from us.
fn region_call() -> usize {
    let task = threads::current().map_or(ptr::null(), |thread| thread.task());
    // SAFETY: null, or the record of a task that this thread is in.
    unsafe { task.as_ref() }.map_or(0, |task| task.id.get())
}

fn pack(function: *mut c_void) -> usize {
    let tells = local(c"__kmpc_fork_call", function as usize).is_some();
    function as usize | if tells { TELLS } else { 0 }
}

/// The function that the module at an address finds in itself and the libraries that it depends on.
fn local(name: &CStr, address: usize) -> Option<*mut c_void> {
    let path = module_of(address)?;
    // SAFETY: the library stays, as it has code that calls or is called, or is one that this depends on.
    let function = unsafe {
        let module = libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if module.is_null() {
            return None;
        }
        let function = libc::dlsym(module, name.as_ptr());
        real!(c"dlclose": fn(*mut c_void) -> c_int)(module);
        function
    };
    (!function.is_null()).then_some(function)
}

/// The path of the module at an address.
pub(crate) fn module_of(address: usize) -> Option<&'static CStr> {
    // SAFETY: `Dl_info` is plain data, which dladdr fills; the path lives as long as the module, which stays.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(address as *const c_void, &mut info) != 0;
        (found && !info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname))
    }
}

/// Whether an address is in this library.
pub(crate) fn is_ours(address: usize) -> bool {
    let (start, end): (usize, usize);
    // SAFETY: takes two addresses that the linker knows.
    unsafe {
        core::arch::asm!(
            ".hidden __ehdr_start",
            ".hidden _end",
            "lea {}, [rip + __ehdr_start]",
            "lea {}, [rip + _end]",
            out(reg) start,
            out(reg) end,
            options(nomem, nostack, preserves_flags)
        );
    }
    (start..end).contains(&address)
}

#[cold]
fn lacks(name: &CStr) -> ! {
    let text = b"hpcrun-rs: no library has the function that the program calls: ";
    // SAFETY: writes texts, and ends the process.
    unsafe {
        libc::write(2, text.as_ptr().cast(), text.len());
        libc::write(2, name.as_ptr().cast(), name.count_bytes());
        libc::write(2, b"\n".as_ptr().cast(), 1);
        libc::abort()
    }
}
