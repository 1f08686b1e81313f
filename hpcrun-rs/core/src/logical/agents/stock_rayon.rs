//! Finds stock rayon-core's scheduler in a module. This rayon does not cooperate with the profiler.
//!
//! Input: the module's symbol table, read outside the handler. Two kinds of functions matter, and rayon-core
//! 1.x never inlines them: the loop in which a worker searches for a job (`WorkerThread::wait_until_cold`,
//! and the `yield_now` pair that programs may call), and the entry of a job (`Job::execute`, called through a
//! pointer). A stripped module, or one that lacks either kind, has no ranges.

use super::roles::{Range, Role};
use hpc_formats::process::bytes_of;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef, elf};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;

/// The ranges from a module's symbol table; `None` unless it has both roles.
pub(super) fn ranges_of(path: &str, bias: u64) -> Option<Vec<Range>> {
    let path = OsString::from_vec(bytes_of(path));
    let file = ReadCache::new(File::open(path).ok()?);
    let header = elf::FileHeader64::<Endianness>::parse(&file).ok()?;
    let ranges = symbol_ranges(header, &file, bias)?;
    let has = |role| ranges.iter().any(|r: &Range| r.role == role);
    (has(Role::Scheduler) && has(Role::Task)).then_some(ranges)
}

fn symbol_ranges<'d, R: ReadRef<'d>>(
    header: &elf::FileHeader64<Endianness>,
    file: R,
    bias: u64,
) -> Option<Vec<Range>> {
    let endian = header.endian().ok()?;
    let sections = header.section_headers(endian, file).ok()?;
    let table = sections
        .iter()
        .find(|s| s.sh_type(endian) == elf::SHT_SYMTAB)?;
    let names = sections.get(table.sh_link(endian) as usize)?;
    let names = names.data(endian, file).ok()?;
    // Most programs have no rayon: one search of the names rules it out.
    if !contains(names, b"15wait_until_cold") {
        return None;
    }
    let symbols = table
        .data_as_array::<elf::Sym64<Endianness>, R>(endian, file)
        .ok()?;
    let ranges = symbols.iter().filter_map(|symbol| {
        let name = names.get(symbol.st_name(endian) as usize..)?;
        let name = &name[..name.iter().position(|b| *b == 0)?];
        let start = symbol.st_value(endian).wrapping_add(bias);
        let size = symbol.st_size(endian);
        (symbol.st_type() == elf::STT_FUNC && size > 0).then_some(())?;
        Some(Range {
            start,
            end: start.checked_add(size)?,
            role: role_of(name)?,
        })
    });
    Some(ranges.collect())
}

/// The role of a function by its mangled name. Both manglings (legacy and v0) contain identifiers with their
/// lengths.
fn role_of(name: &[u8]) -> Option<Role> {
    if !contains(name, b"rayon_core") {
        return None;
    }
    let any = |parts: &[&[u8]]| parts.iter().any(|p| contains(name, p));
    if any(&[b"..job..Job$GT$7execute", b"3Job7execute"]) {
        Some(Role::Task)
    } else if any(&[
        b"12WorkerThread15wait_until_cold",
        b"11thread_pool9yield_now",
        b"11thread_pool11yield_local",
    ]) {
        Some(Role::Scheduler)
    } else {
        None
    }
}

/// Searches with libc's vectorised memmem, because string tables take megabytes.
fn contains(text: &[u8], part: &[u8]) -> bool {
    let (text_start, part_start) = (text.as_ptr().cast(), part.as_ptr().cast());
    // SAFETY: memmem reads only within the two slices, which we borrow during the call.
    !unsafe { libc::memmem(text_start, text.len(), part_start, part.len()) }.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rayons_functions_are_known_in_both_manglings() {
        for (name, role) in [
            (
                "_ZN10rayon_core8registry12WorkerThread15wait_until_cold17h8d1af91c0b2c5a0eE",
                Some(Role::Scheduler),
            ),
            (
                "_RNvMs5_NtCs3yRk2LxJZkM_10rayon_core8registryNtB5_12WorkerThread15wait_until_cold",
                Some(Role::Scheduler),
            ),
            (
                "_ZN10rayon_core11thread_pool9yield_now17h0123456789abcdefE",
                Some(Role::Scheduler),
            ),
            (
                "_ZN83_$LT$rayon_core..job..StackJob$LT$L$C$F$C$R$GT$$u20$as$u20$\
                 rayon_core..job..Job$GT$7execute17h0123456789abcdefE",
                Some(Role::Task),
            ),
            (
                "_RNvXs_NtCs3yRk2LxJZkM_10rayon_core3jobINtB4_7HeapJobNCNvC3app4mainE0E\
                 NtB4_3Job7executeC3app",
                Some(Role::Task),
            ),
            (
                "_ZN10rayon_core4join12join_context17h0123456789abcdefE",
                None,
            ),
            ("_ZN3app3Job7execute17h0123456789abcdefE", None),
        ] {
            assert_eq!(role_of(name.as_bytes()), role, "{name}");
        }
    }

    #[test]
    fn parts_are_found_wherever_they_are() {
        assert!(contains(b"aab", b"ab"));
        assert!(contains(b"ab", b"ab"));
        assert!(!contains(b"a", b"ab"));
        assert!(!contains(b"", b"ab"));
    }

    #[test]
    fn a_program_without_rayon_has_no_ranges() {
        let this = std::env::current_exe().expect("a test has a file");
        let path = this.to_str().expect("its name is text");
        assert_eq!(ranges_of(path, 0), None);
        assert_eq!(ranges_of("/no/such/file", 0), None);
    }
}
