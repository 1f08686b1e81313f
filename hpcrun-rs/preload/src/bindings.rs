//! The library's own calls of libc reach libc: not a function of the program, or of another preloaded
//! library, that happens to have the name.
//!
//! The dynamic linker binds a library's calls to the first symbol of the name, which is the program's. A
//! program may have an `open` or a `write` of its own, and other libraries change what the clocks say. So
//! entries of our global offset table that lead elsewhere are bound anew, to libc's function of this name, in
//! its default version. Memory that libc's own functions allocate is given back by the program's `free`, as
//! libc itself does. What a hook does for the program goes the program's way ([`crate::real`]).
//!
//! Called before anything else; until then nothing here calls another library but `dl_iterate_phdr`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::{ptr, slice};

/// Names of the libraries that libc consists of; before glibc 2.34 there were several.
const LIBC: [&[u8]; 4] = [b"libc.so.6", b"libpthread.so.0", b"libdl.so.2", b"librt.so.1"];
/// Functions that stay as they are: libc's own code calls them by name, too.
const OF_PROGRAM: [&[u8]; 4] = [b"malloc", b"calloc", b"realloc", b"free"];

const R_GLOB_DAT: u32 = 6;
const R_JUMP_SLOT: u32 = 7;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;

const STT_FUNC: u8 = 2;
/// The bit of a version's index that hides an old version.
const HIDDEN: u16 = 0x8000;

#[derive(Clone, Copy, Default)]
struct Module {
    bias: u64,
    /// Where its segments are.
    start: u64,
    end: u64,
    strings: u64,
    symbols: u64,
    relocations: (u64, u64),
    jumps: (u64, u64),
    hash: u64,
    versions: u64,
}

#[derive(Default)]
struct Found {
    own: Option<Module>,
    libc: [Option<Module>; LIBC.len()],
}

/// Binds the entries anew.
pub(crate) fn rebind() {
    let mut found = Found::default();
    // SAFETY: `visit` gets the address of `found`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    let Some(own) = found.own else { return };
    let libc = || found.libc.iter().flatten();
    for (at, size) in [own.relocations, own.jumps] {
        let count = size as usize / size_of::<libc::Elf64_Rela>();
        // SAFETY: the dynamic section says that so many relocations are there.
        let list = unsafe { table::<libc::Elf64_Rela>(at, count) };
        for relocation in list {
            if !matches!(relocation.r_info as u32, R_GLOB_DAT | R_JUMP_SLOT) {
                continue;
            }
            let slot = (own.bias + relocation.r_offset) as *mut u64;
            // SAFETY: the entry is in our mapped data.
            let bound = unsafe { slot.read() };
            let symbol = (relocation.r_info >> 32) as usize;
            let name = own.name(symbol);
            let is_right = libc().any(|m| (m.start..m.end).contains(&bound));
            if is_right || bound == 0 || OF_PROGRAM.contains(&name) {
                continue;
            }
            if let Some(function) = libc().find_map(|m| m.function(name)) {
                // SAFETY: an aligned entry of our table, which stays writable (`build.rs`).
                unsafe { slot.write_volatile(function) };
            }
        }
    }
}

/// A table of a module; empty at address 0.
///
/// # Safety
/// So many entries must be there, and the module must stay loaded.
unsafe fn table<'a, T>(at: u64, count: usize) -> &'a [T] {
    match at == 0 {
        true => &[],
        // SAFETY: the caller's promise; the module stays loaded.
        false => unsafe { slice::from_raw_parts(at as *const T, count) },
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker describes a loaded module, whose headers and name are mapped; `found` is
    // `rebind`'s local.
    let (module, name, found) = unsafe {
        let info = &*info;
        let headers = slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
        let name = match info.dlpi_name.is_null() {
            true => &[][..],
            false => CStr::from_ptr(info.dlpi_name).to_bytes(),
        };
        (Module::new(info.dlpi_addr, headers), name, &mut *found.cast::<Found>())
    };
    if (module.start..module.end).contains(&(rebind as *const () as u64)) {
        found.own = Some(module);
    }
    let file = name.rsplit(|b| *b == b'/').next().unwrap_or(name);
    if let Some(i) = LIBC.iter().position(|n| *n == file) {
        found.libc[i].get_or_insert(module);
    }
    0
}

impl Module {
    /// # Safety
    /// The headers must be those of a module that is loaded at `bias`.
    unsafe fn new(bias: u64, headers: &[libc::Elf64_Phdr]) -> Module {
        let mut module = Module { bias, start: u64::MAX, ..Module::default() };
        let mut dynamic = ptr::null::<[i64; 2]>();
        for header in headers {
            let at: Range<u64> = bias + header.p_vaddr..bias + header.p_vaddr + header.p_memsz;
            match header.p_type {
                libc::PT_LOAD => {
                    module.start = module.start.min(at.start);
                    module.end = module.end.max(at.end);
                }
                libc::PT_DYNAMIC => dynamic = at.start as *const [i64; 2],
                _ => {}
            }
        }
        while !dynamic.is_null() {
            // SAFETY: the dynamic section is mapped, and ends with a zero.
            let [tag, value] = unsafe { dynamic.read() };
            // The dynamic linker may have added the bias, or not.
            let value = value as u64;
            let address = if value < bias { value + bias } else { value };
            match tag {
                0 => break,
                DT_STRTAB => module.strings = address,
                DT_SYMTAB => module.symbols = address,
                DT_RELA => module.relocations.0 = address,
                DT_RELASZ => module.relocations.1 = value,
                DT_JMPREL => module.jumps.0 = address,
                DT_PLTRELSZ => module.jumps.1 = value,
                DT_GNU_HASH => module.hash = address,
                DT_VERSYM => module.versions = address,
                _ => {}
            }
            dynamic = dynamic.wrapping_add(1);
        }
        module
    }

    fn symbol(&self, index: usize) -> &libc::Elf64_Sym {
        // SAFETY: callers pass indices from the module's own tables.
        unsafe { &*(self.symbols as *const libc::Elf64_Sym).add(index) }
    }

    fn name(&self, index: usize) -> &[u8] {
        let name = self.strings + u64::from(self.symbol(index).st_name);
        // SAFETY: names in the string table end with a zero.
        unsafe { CStr::from_ptr(name as *const c_char).to_bytes() }
    }

    /// Whether a symbol is an old version of its name.
    fn is_hidden(&self, index: usize) -> bool {
        // SAFETY: the table has an entry for each symbol.
        self.versions != 0 && unsafe { (self.versions as *const u16).add(index).read() } & HIDDEN != 0
    }

    /// The address of a function that the module defines, in the default version.
    fn function(&self, name: &[u8]) -> Option<u64> {
        let hash = name.iter().fold(5381_u32, |h, b| h.wrapping_mul(33).wrapping_add((*b).into()));
        let header = self.hash as *const u32;
        if header.is_null() || self.symbols == 0 {
            return None;
        }
        // SAFETY: the table is: count of buckets, first symbol, words of the filter, shift, the filter, the
        // buckets, and a hash for each symbol from the first on, whose lowest bit ends a bucket.
        unsafe {
            let [buckets, first, filter] = [0, 1, 2].map(|i| header.add(i).read() as usize);
            let bucket = header.add(4 + 2 * filter);
            let mut index = bucket.add(hash as usize % buckets.max(1)).read() as usize;
            if index < first {
                return None;
            }
            loop {
                let entry = bucket.add(buckets + index - first).read();
                if entry | 1 == hash | 1 && self.is_function(index, name) {
                    return Some(self.bias + self.symbol(index).st_value);
                }
                if entry & 1 == 1 {
                    return None;
                }
                index += 1;
            }
        }
    }

    fn is_function(&self, index: usize, name: &[u8]) -> bool {
        let symbol = self.symbol(index);
        symbol.st_info & 0xf == STT_FUNC
            && symbol.st_shndx != 0
            && !self.is_hidden(index)
            && self.name(index) == name
    }
}
