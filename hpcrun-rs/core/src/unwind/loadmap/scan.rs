//! Scans the modules that the dynamic linker has loaded: one [`Module`] for each, with its mapped unwind
//! information and code.
//!
//! Async-signal-safe: [`sections_at`]. Not: [`scan`].

use super::module::{Module, UnwindSections};
use crate::maps;
use crate::unwind::copies::Identity;
use hpc_formats::address::ModuleId;
use hpc_formats::process::text_of;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Finds `.eh_frame` by a mapped `.eh_frame_hdr` in the encoding that linkers produce (pcrel sdata4 pointer,
/// udata4 count, datarel sdata4 table).
///
/// # Safety
/// `hdr..limit` must be mapped, and must stay mapped while the module is loaded.
pub(super) unsafe fn sections_at(hdr: u64, limit: u64, bias: u64) -> Option<UnwindSections> {
    if hdr == 0 || hdr.checked_add(12)? > limit {
        return None;
    }
    // SAFETY: the 12 bytes lie in `hdr..limit`, which is mapped (the caller's promise).
    let head: [u8; 12] = unsafe { (hdr as *const [u8; 12]).read() };
    if head[..4] != [1, 0x1b, 0x03, 0x3b] {
        return None;
    }
    let word = |i: usize| i32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
    let eh_frame = (hdr + 4).wrapping_add_signed(i64::from(word(4)));
    let entries = u64::from(word(8) as u32);
    let hdr_len = entries.checked_mul(8)?.checked_add(12)?;
    if hdr.checked_add(hdr_len)? > limit || eh_frame >= limit {
        return None;
    }
    // SAFETY: as above; both ranges end at or before `limit`.
    unsafe {
        Some(UnwindSections {
            hdr: std::slice::from_raw_parts(hdr as *const u8, hdr_len as usize),
            hdr_address: hdr.wrapping_sub(bias),
            eh_frame: std::slice::from_raw_parts(eh_frame as *const u8, (limit - eh_frame) as usize),
            eh_frame_address: eh_frame.wrapping_sub(bias),
        })
    }
}

struct Scan {
    version: u64,
    vdso: u64,
    modules: Vec<Module>,
}

/// The loader's version (`version_of`), and the modules in order of address.
pub(super) fn scan() -> (u64, Vec<Module>) {
    let mut scan = Scan {
        version: 0,
        // SAFETY: reads the auxiliary vector.
        vdso: unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) },
        modules: Vec::new(),
    };
    // SAFETY: both get a pointer to our `scan`, and are called only before these calls return.
    unsafe {
        libc::dl_iterate_phdr(Some(visit), (&raw mut scan).cast());
        libc::dl_iterate_phdr(Some(visit_namespaces), (&raw mut scan).cast());
    }
    scan.modules.sort_by_key(|m| m.start);
    (scan.version, scan.modules)
}

/// Grows with each load and unload. glibc counts unloads as the loads less the modules, and the dynamic
/// linker as a module of each namespace: with several, the count is below zero.
fn version_of(info: &libc::dl_phdr_info) -> u64 {
    (info.dlpi_adds << 32) | u64::from(info.dlpi_subs as u32 ^ 1 << 31)
}

/// See [`version_of`].
pub(super) fn version() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        data: *mut libc::c_void,
    ) -> i32 {
        // SAFETY: both pointers are valid during the call, and `data` points to `version` below.
        unsafe { *data.cast::<u64>() = version_of(&*info) };
        1
    }
    let mut version = 0_u64;
    // SAFETY: `first` gets a pointer to our `version`, and is called only before this call returns.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut version).cast()) };
    version
}

/// Called by `dl_iterate_phdr` for each module.
unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    data: *mut libc::c_void,
) -> i32 {
    // SAFETY: both pointers are valid during the call (dl_iterate_phdr's contract), and `data` is the `Scan`
    // that `scan` passed. A panic (allocation failure) aborts: the library is built with panic=abort.
    let (info, scan) = unsafe { (&*info, &mut *data.cast::<Scan>()) };
    scan.version = version_of(info);
    scan.add(info);
    0
}

impl Scan {
    /// Adds a module, unless it is known: the dynamic linker is in all namespaces.
    fn add(&mut self, info: &libc::dl_phdr_info) {
        if let Some(module) = describe(info, self.vdso) {
            if !self.modules.iter().any(|m| m.start == module.start) {
                self.modules.push(module);
            }
        }
    }
}

/// Called by `dl_iterate_phdr` for the executable: adds the modules of the namespaces that `dlmopen` has
/// made, which `dl_iterate_phdr` does not visit.
unsafe extern "C" fn visit_namespaces(
    program: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    data: *mut libc::c_void,
) -> i32 {
    // SAFETY: as in `visit`.
    unsafe { add_namespaces(&*program, &mut *data.cast::<Scan>()) };
    1
}

/// # Safety
/// The calling thread must hold the loader's lock, and `program` must describe the executable.
unsafe fn add_namespaces(program: &libc::dl_phdr_info, scan: &mut Scan) {
    const DT_NULL: u64 = 0;
    const DT_DEBUG: u64 = 21;
    // SAFETY: the loader's lists change only under its lock. The executable's dynamic section, which ends
    // with a null tag, points to them. A module's first mapped page is readable, and holds its headers.
    unsafe {
        let headers = std::slice::from_raw_parts(program.dlpi_phdr, usize::from(program.dlpi_phnum));
        let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else {
            return;
        };
        let mut tag = program.dlpi_addr.wrapping_add(dynamic.p_vaddr) as *const [u64; 2];
        while (*tag)[0] != DT_DEBUG && (*tag)[0] != DT_NULL {
            tag = tag.add(1);
        }
        let base = (*tag)[1] as *const Debug;
        if (*tag)[0] == DT_NULL || base.is_null() || (*base).version < 2 {
            return;
        }
        let mut space = (*base).next;
        while !space.is_null() {
            let mut map = (*space).modules;
            while !map.is_null() {
                if let Some((start, _)) = super::extent((*map).dynamic) {
                    let header = &*(start as *const object::elf::FileHeader64<object::Endianness>);
                    let at = start + header.e_phoff.get(object::Endianness::Little);
                    let count = header.e_phnum.get(object::Endianness::Little);
                    let mut info: libc::dl_phdr_info = std::mem::zeroed();
                    info.dlpi_addr = (*map).bias;
                    info.dlpi_name = (*map).name;
                    info.dlpi_phdr = at as *const libc::Elf64_Phdr;
                    info.dlpi_phnum = count;
                    if header.e_ident.magic == object::elf::ELFMAG {
                        scan.add(&info);
                    }
                }
                map = (*map).next;
            }
            space = (*space).next;
        }
    }
}

/// glibc's `struct r_debug_extended`: one namespace of modules.
#[repr(C)]
struct Debug {
    version: i32,
    modules: *const LinkMap,
    breakpoint: u64,
    state: i32,
    loader: u64,
    next: *const Debug,
}

/// The public part of glibc's `struct link_map`.
#[repr(C)]
pub(super) struct LinkMap {
    pub(super) bias: u64,
    name: *const libc::c_char,
    dynamic: u64,
    next: *const LinkMap,
}

/// Load bias of the dynamic linker.
pub(super) fn loader() -> Option<u64> {
    // SAFETY: the loader's own structure, whose field does not change after the start.
    unsafe {
        let debug = libc::dlsym(libc::RTLD_DEFAULT, c"_r_debug".as_ptr()).cast::<Debug>();
        (!debug.is_null()).then(|| (*debug).loader)
    }
}

fn describe(info: &libc::dl_phdr_info, vdso: u64) -> Option<Module> {
    if info.dlpi_phdr.is_null() {
        return None;
    }
    // SAFETY: the loader owns the program headers, which are valid while the module is loaded.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let bias = info.dlpi_addr;
    let loads = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let start = bias.wrapping_add(loads().map(|h| h.p_vaddr).min()?);
    let end = bias.wrapping_add(loads().map(|h| h.p_vaddr + h.p_memsz).max()?);
    let sections = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME).and_then(|h| {
        let segment = loads().find(|l| h.p_vaddr >= l.p_vaddr && h.p_vaddr < l.p_vaddr + l.p_memsz)?;
        let limit = bias.wrapping_add(segment.p_vaddr + segment.p_memsz);
        // SAFETY: the range lies in a mapped segment of the module.
        unsafe { sections_at(bias.wrapping_add(h.p_vaddr), limit, bias) }
    });
    let code = loads()
        .filter(|h| h.p_flags & (libc::PF_R | libc::PF_W | libc::PF_X) == libc::PF_R | libc::PF_X)
        .map(|h| {
            // SAFETY: a readable segment without write permission, mapped while the module is loaded. A
            // reader unwinds a stack with a frame in this module, or in a function that such a frame calls.
            unsafe {
                let at = bias.wrapping_add(h.p_vaddr) as *const u8;
                std::slice::from_raw_parts(at, h.p_filesz as usize)
            }
        })
        .collect();
    let build_id = headers
        .iter()
        .filter(|h| h.p_type == libc::PT_NOTE)
        .find_map(|h| {
            // SAFETY: note segments are mapped while the module is loaded, and the loader holds its lock
            // here.
            let bytes = unsafe {
                let at = bias.wrapping_add(h.p_vaddr) as *const u8;
                std::slice::from_raw_parts(at, h.p_memsz as usize)
            };
            build_id_in(bytes)
        })
        .unwrap_or_default();
    Some(Module {
        id: ModuleId(0),
        start,
        end,
        bias,
        path: module_path(info, start, vdso != 0 && (start..end).contains(&vdso)),
        build_id,
        file: Identity::default(),
        sections,
        code,
    })
}

fn module_path(info: &libc::dl_phdr_info, start: u64, is_vdso: bool) -> String {
    if is_vdso {
        return "[vdso]".to_owned();
    }
    // SAFETY: a NUL-terminated string of the loader, or null.
    let name =
        unsafe { if info.dlpi_name.is_null() { &[][..] } else { CStr::from_ptr(info.dlpi_name).to_bytes() } };
    if name.is_empty() {
        return executable_path();
    }
    if !name.starts_with(b"/") {
        // Relative to the folder in which the program was at that time.
        if let Some(mapping) = maps::at(start).filter(|m| m.inode != 0) {
            return text_of(mapping.path.as_os_str().as_bytes());
        }
    }
    text_of(name)
}

/// The path of the running executable. A dynamic linker that was told to start it is not the executable.
pub fn executable_path() -> String {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(find_executable).clone()
}

fn find_executable() -> String {
    // SAFETY: reads the auxiliary vector.
    let (base, headers) = unsafe { (libc::getauxval(libc::AT_BASE), libc::getauxval(libc::AT_PHDR)) };
    let told = || maps::at(headers).filter(|m| m.inode != 0).map(|m| m.path);
    let path = if base == 0 { told() } else { std::fs::read_link("/proc/self/exe").ok() };
    let Some(path) = path else {
        return "[executable]".to_owned();
    };
    // So the kernel says that the file has gone since.
    let path = path.as_os_str().as_bytes();
    text_of(path.strip_suffix(b" (deleted)").unwrap_or(path))
}

/// Finds `NT_GNU_BUILD_ID` in a note segment.
fn build_id_in(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let word = |i: usize| {
            let b = notes.get(i..i + 4)?;
            Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
        };
        let (name_len, len, kind) = (word(0)?, word(4)?, word(8)?);
        let data_at = 12usize.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let data = notes.get(data_at..data_at.checked_add(len)?)?;
        if kind == 3 && notes.get(12..16) == Some(&b"GNU\0"[..]) {
            return Some(data.to_vec());
        }
        notes = notes.get(data_at.checked_add(len.checked_next_multiple_of(4)?)?..)?;
    }
}
