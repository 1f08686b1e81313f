//! Where stock rayon-core's scheduler lies in the mapped modules: the code that the agent for an
//! uncooperative rayon goes by.
//!
//! Input: the symbol tables of modules, read outside the handler ([`learn`]). Output: [`find`],
//! async-signal-safe. Two kinds of code matter, and rayon-core 1.x keeps both out of line: the
//! loop in which a worker looks for a job (`WorkerThread::wait_until_cold`, and the `yield_now`
//! pair that programs may call), and the entry of a job (`Job::execute`, called through a
//! pointer). A module whose symbols were stripped, or that lacks either kind, teaches nothing.
//!
//! Invariant: a published list is immutable, sorted and never freed.

use hpc_formats::address::ModuleId;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef, elf};
use std::fs::File;
use std::hint::black_box;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a range of code is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// A worker without a job looks for one, sleeps, or waits.
    Scheduler,
    /// A job is entered.
    Task,
}

/// A range of code, absolute addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Range {
    start: u64,
    end: u64,
    role: Role,
}

static PUBLISHED: AtomicPtr<Vec<Range>> = AtomicPtr::new(ptr::null_mut());
static LEARNT: Mutex<Vec<(ModuleId, Vec<Range>)>> = Mutex::new(Vec::new());

/// The role of the code at an address, if it has one.
pub fn find(lookup: u64) -> Option<Role> {
    // SAFETY: null, or a leaked list (below).
    let ranges = unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }?;
    let after = ranges.partition_point(|r| r.start <= lookup);
    let range = ranges.get(after.checked_sub(1)?)?;
    (lookup < range.end).then_some(range.role)
}

/// Reads the symbols of a module that was mapped; whether they matter. Not async-signal-safe.
pub fn learn(id: ModuleId, path: &str, bias: u64) -> bool {
    let Some(ranges) = ranges_of(path, bias) else {
        return false;
    };
    let Ok(mut learnt) = LEARNT.try_lock() else {
        return false;
    };
    learnt.retain(|(known, _)| *known != id);
    learnt.push((id, ranges));
    publish(&learnt);
    true
}

/// A module is gone. Not async-signal-safe.
pub fn forget(id: ModuleId) {
    let Ok(mut learnt) = LEARNT.try_lock() else {
        return;
    };
    let before = learnt.len();
    learnt.retain(|(known, _)| *known != id);
    if learnt.len() != before {
        publish(&learnt);
    }
}

/// Modules with rayon in them are few and rarely change: an old list is left for handlers that
/// may still read it.
fn publish(learnt: &[(ModuleId, Vec<Range>)]) {
    let mut all: Vec<Range> = learnt.iter().flat_map(|(_, r)| r).copied().collect();
    all.sort_unstable();
    // The black box hides the allocation: LLVM 19 (Rust 1.85) would keep it in a global of its own and
    // shrink the atomic to a flag, whose load it then cannot translate.
    let list = black_box(Box::into_raw(Box::new(all)));
    PUBLISHED.store(list, Ordering::Release);
}

/// The ranges of a module's symbol table; `None` unless it has both roles.
fn ranges_of(path: &str, bias: u64) -> Option<Vec<Range>> {
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
    // Most programs have no rayon: one look at the names tells.
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

/// The role of a function by its mangled name, legacy or v0: both keep identifiers with their
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

fn contains(text: &[u8], part: &[u8]) -> bool {
    let Some(first) = part.first() else {
        return true;
    };
    let mut rest = text;
    while let Some(at) = rest.iter().position(|b| b == first) {
        rest = &rest[at..];
        if rest.starts_with(part) {
            return true;
        }
        rest = &rest[1..];
    }
    false
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
                "_ZN83_$LT$rayon_core..job..StackJob$LT$L$C$F$C$R$GT$$u20$as$u20$rayon_core..job..Job$GT$7execute17h0123456789abcdefE",
                Some(Role::Task),
            ),
            (
                "_RNvXs_NtCs3yRk2LxJZkM_10rayon_core3jobINtB4_7HeapJobNCNvC3app4mainE0ENtB4_3Job7executeC3app",
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
    fn a_program_without_rayon_teaches_nothing() {
        let this = std::env::current_exe().expect("a test has a file");
        let path = this.to_str().expect("its name is text");
        assert!(!learn(ModuleId(7), path, 0));
        assert!(!learn(ModuleId(7), "/no/such/file", 0));
        assert_eq!(find(0x1000), None);
    }
}
