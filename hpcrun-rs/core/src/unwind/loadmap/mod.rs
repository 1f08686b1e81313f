//! The load map: the address range and the unwind information of each module.
//!
//! A [`Snapshot`] is immutable and shared by all threads. [`refresh`] publishes a new one, outside the
//! handler, and the handler never waits for it: an address that lies in no module of the snapshot is looked
//! up with glibc's lock-free `_dl_find_object`. During a `dlclose` no cached information is used
//! ([`is_stable`]).
//!
//! Async-signal-safe: [`Pinned`], [`is_stable`], [`locate`], [`code_at`], [`is_entry_code`]. Not:
//! [`refresh`].

mod lock;
mod module;
mod scan;

use crate::maps::{self, Mapping};
use crate::system;
use crate::unwind::copies::Identity;
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::process::Remapped;
pub use lock::find as find_lock;
pub use module::{Module, UnwindSections};
use scan::LinkMap;
pub use scan::executable_path;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

pub struct Snapshot {
    generation: u32,
    /// The loader's version when the snapshot was taken (`scan::version_of`).
    version: u64,
    modules: Vec<Module>,
}

impl Snapshot {
    /// The number of this snapshot; part of the key of every cache.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    fn find(&self, address: u64) -> Option<&Module> {
        let after = self.modules.partition_point(|m| m.start <= address);
        let module = self.modules.get(after.checked_sub(1)?)?;
        (address < module.end).then_some(module)
    }
}

static CURRENT: AtomicPtr<Snapshot> = AtomicPtr::new(ptr::null_mut());
static UNSTABLE: AtomicU32 = AtomicU32::new(0);
static STALE: AtomicBool = AtomicBool::new(false);
static INVALID: AtomicBool = AtomicBool::new(false);
/// How often walks have met code in no module, about, and how often until [`remapped`] was last asked.
static OUTSIDE: AtomicU32 = AtomicU32::new(0);
static ASKED: AtomicU32 = AtomicU32::new(0);
static NEXT_ID: AtomicU16 = AtomicU16::new(1);
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);
/// `Snapshot::version` of the current snapshot.
static VERSION: AtomicU64 = AtomicU64::new(0);
static ENTRY: AtomicU64 = AtomicU64::new(0);
static INTERPRETER: AtomicU64 = AtomicU64::new(u64::MAX);

/// While this lives, [`refresh`] frees no snapshot.
pub struct Pinned(());

impl Pinned {
    /// # Safety
    /// As long as it lives, `quiescent` must be false in [`refresh`], or nobody may call it.
    pub const unsafe fn new() -> Pinned {
        Pinned(())
    }

    /// The current snapshot; `None` before the first [`refresh`].
    #[inline]
    pub fn snapshot(&self) -> Option<&Snapshot> {
        // SAFETY: `refresh` publishes the snapshot with Release ordering, and does not free it (above).
        unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
    }
}

/// Reads the current snapshot in a thread that is not busy; the writer's lock keeps the snapshot alive.
/// `None` if there is no snapshot, or if another thread holds the lock for a tenth of a second. Not
/// async-signal-safe.
pub fn with_current<T>(read: impl FnOnce(&Snapshot) -> T) -> Option<T> {
    let _writer = system::within(1000, || WRITER.try_lock().ok())?;
    // SAFETY: `refresh` frees with the lock held.
    unsafe { Pinned::new() }.snapshot().map(read)
}

/// Whether cached information about addresses is valid: no `dlclose` is in progress.
#[inline]
pub fn is_stable() -> bool {
    UNSTABLE.load(Ordering::Acquire) == 0
}

/// Whether the handler found a module outside the snapshot since the last [`refresh`].
#[inline]
pub fn is_stale() -> bool {
    STALE.load(Ordering::Relaxed)
}

/// Whether modules were loaded or unloaded since the last [`refresh`]. Not async-signal-safe.
pub fn is_outdated() -> bool {
    !lock::is_lost() && VERSION.load(Ordering::Relaxed) != scan::version()
}

/// The code of modules that is mapped once more, outside of them, if walks have met code in no module since
/// this was last asked. Not async-signal-safe.
pub fn remapped() -> Vec<Remapped> {
    let met = OUTSIDE.load(Ordering::Relaxed);
    if ASKED.swap(met, Ordering::Relaxed) == met {
        return Vec::new();
    }
    let code: Vec<Mapping> = maps::mappings().into_iter().filter(|m| m.is_code && m.inode != 0).collect();
    with_current(|snapshot| {
        let others = code.iter().filter(|m| snapshot.find(m.start).is_none());
        let again = others.filter_map(|other| {
            let (module, own) = code.iter().find_map(|own| {
                let is_same = (own.device, own.inode) == (other.device, other.inode);
                let is_there = (own.offset..own.offset + own.end - own.start).contains(&other.offset);
                Some((snapshot.find(own.start).filter(|_| is_same && is_there)?, own))
            })?;
            let place = own.start + (other.offset - own.offset);
            let (size, code) = (other.end - other.start, CodeAddress::new(module.id, place - module.bias));
            Some(Remapped { start: other.start, size, code })
        });
        again.collect()
    })
    .unwrap_or_default()
}

/// Marks the start of an unload, during which modules may vanish. Call [`end_unload`] after a refresh.
pub fn begin_unload() {
    UNSTABLE.fetch_add(1, Ordering::AcqRel);
}

/// Marks the end of an unload, which may have begun before a fork.
pub fn end_unload() {
    let _ = UNSTABLE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
}

/// What [`begin_fork`] holds; only the thread that forks uses it, since glibc lets one fork at a time.
struct Forking(UnsafeCell<Option<MutexGuard<'static, Writer>>>);
// SAFETY: see the structure.
unsafe impl Sync for Forking {}
static FORKING: Forking = Forking(UnsafeCell::new(None));

/// Before a fork: waits, for a tenth of a second at most, until no other thread changes the snapshot, since
/// the child would have it as it is at that moment for ever.
pub fn begin_fork() {
    lock::begin_fork();
    let writer = system::within(1000, || WRITER.try_lock().ok());
    // SAFETY: only this thread uses it now.
    unsafe { *FORKING.0.get() = writer };
}

/// After a fork, in the parent.
pub fn end_fork() {
    // SAFETY: as above.
    drop(unsafe { (*FORKING.0.get()).take() });
    lock::end_fork();
}

/// In a forked child: nobody unloads modules, and nobody has the locks.
pub fn enter_child() {
    // SAFETY: as above.
    drop(unsafe { (*FORKING.0.get()).take() });
    UNSTABLE.store(0, Ordering::Release);
    [&OUTSIDE, &ASKED].iter().for_each(|count| count.store(0, Ordering::Relaxed));
    lock::enter_child();
}

/// Makes the next [`refresh`] take a new snapshot, with a new generation, even if no module changed.
pub fn invalidate() {
    INVALID.store(true, Ordering::Release);
}

#[derive(Clone, Copy, Debug)]
pub struct Located {
    pub id: ModuleId,
    /// Load bias: mapped address minus link-time address.
    pub bias: u64,
    pub sections: Option<UnwindSections>,
    /// Whether the module is in the snapshot.
    pub registered: bool,
}

/// Notes that a walk has met code in no module. A hook is to look at it, now and then.
pub fn note_outside() {
    let met = OUTSIDE.load(Ordering::Relaxed).wrapping_add(1);
    OUTSIDE.store(met, Ordering::Relaxed);
    if met.is_power_of_two() {
        STALE.store(true, Ordering::Relaxed);
    }
}

pub fn locate(snapshot: &Snapshot, address: u64) -> Option<Located> {
    if is_stable() {
        if let Some(m) = snapshot.find(address) {
            return Some(Located { id: m.id, bias: m.bias, sections: m.sections, registered: true });
        }
    }
    let found = find_object(address)?;
    let known = snapshot.find(address).filter(|m| m.start == found.start && m.bias == found.bias);
    let id = match known {
        Some(m) => m.id,
        None => pending::id_for(snapshot.generation, found.start, found.bias)?,
    };
    STALE.store(true, Ordering::Relaxed);
    Some(Located { id, bias: found.bias, sections: found.sections, registered: false })
}

/// The first address of the function that has code at another one; `None` where nothing describes the code.
pub fn function_at(snapshot: &Snapshot, address: CodeAddress) -> Option<CodeAddress> {
    let modules = snapshot.modules.iter();
    let mut module = modules.filter(|m| m.id == address.module());
    let start = super::function_at(&module.next()?.sections?, address.offset())?;
    Some(CodeAddress::new(address.module(), start))
}

/// The code from an address to the end of its segment; `None` outside the modules of the snapshot.
pub fn code_at(snapshot: &Snapshot, address: u64) -> Option<&'static [u8]> {
    let module = snapshot.find(address).filter(|_| is_stable())?;
    module.code.iter().find_map(|segment| {
        let offset = address.checked_sub(segment.as_ptr() as u64)?;
        segment.get(offset as usize..).filter(|rest| !rest.is_empty())
    })
}

/// Whether an address is in the code that starts a process: in the function at the executable's entry point,
/// whatever its unwind information says of a caller, or in code of the dynamic linker without any.
/// `function`: the link-time address of the function that has the address, if it has unwind information.
pub fn is_entry_code(lookup: u64, located: &Located, function: Option<u64>) -> bool {
    let entry = ENTRY.load(Ordering::Relaxed);
    match function {
        Some(start) => start.wrapping_add(located.bias) == entry,
        None => lookup.wrapping_sub(entry) < 64 || located.bias == INTERPRETER.load(Ordering::Relaxed),
    }
}

struct FoundObject {
    start: u64,
    bias: u64,
    sections: Option<UnwindSections>,
}

/// glibc's `struct dl_find_object` on x86-64.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: *mut u8,
    map_end: *mut u8,
    link_map: *const LinkMap,
    eh_frame: *const u8,
    reserved: [u64; 7],
}

/// The mapped addresses of the module that holds an address.
fn extent(address: u64) -> Option<(u64, u64)> {
    dl_find_object(address).map(|o| (o.map_start as u64, o.map_end as u64))
}

fn find_object(address: u64) -> Option<FoundObject> {
    let o = dl_find_object(address)?;
    let limit = o.map_end as u64;
    // SAFETY: the loader owns the link map, which is valid while the module is mapped, and so is what lies
    // between its bounds; it is mapped because one of our frames executes in it.
    unsafe {
        let bias = (*o.link_map).bias;
        Some(FoundObject {
            start: o.map_start as u64,
            bias,
            sections: scan::sections_at(o.eh_frame as u64, limit, bias),
        })
    }
}

fn dl_find_object(address: u64) -> Option<DlFindObject> {
    let function = FIND_OBJECT.load(Ordering::Relaxed);
    if function == 0 {
        return None;
    }
    // SAFETY: glibc's `_dl_find_object` (2.35 and newer) is async-signal-safe and fills the structure, whose
    // layout is part of its ABI.
    unsafe {
        type Function = unsafe extern "C" fn(*mut u8, *mut DlFindObject) -> i32;
        let function: Function = std::mem::transmute(function);
        let mut o: DlFindObject = std::mem::zeroed();
        (function(address as *mut u8, &mut o) == 0 && !o.link_map.is_null()).then_some(o)
    }
}

/// Ids of pending modules: those that the handler finds before a snapshot contains them.
mod pending {
    use super::{ModuleId, next_id};
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

    const SLOTS: usize = 256;
    struct Slot {
        /// generation << 32 | id; written last, with Release ordering, so that a reader sees the other
        /// fields.
        key: AtomicU64,
        start: AtomicU64,
        bias: AtomicU64,
        /// A refresh knows it. Written by the handler before `key`, then by refreshes only.
        is_taken: AtomicBool,
    }
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static TABLE: [Slot; SLOTS] = [const {
        Slot {
            key: AtomicU64::new(0),
            start: AtomicU64::new(0),
            bias: AtomicU64::new(0),
            is_taken: AtomicBool::new(false),
        }
    }; SLOTS];

    pub(super) fn find(generation: u32, start: u64, bias: u64) -> Option<ModuleId> {
        let n = (COUNT.load(Ordering::Acquire) as usize).min(SLOTS);
        TABLE[..n].iter().find_map(|slot| {
            let key = slot.key.load(Ordering::Acquire);
            let same = key >> 32 == u64::from(generation)
                && slot.start.load(Ordering::Relaxed) == start
                && slot.bias.load(Ordering::Relaxed) == bias;
            same.then_some(ModuleId(key as u16))
        })
    }

    /// Finds or assigns the id of a module. Two threads may assign two ids to one module. This is harmless:
    /// the next refresh writes both to the process file under the same path, or drops them with the module.
    pub(super) fn id_for(generation: u32, start: u64, bias: u64) -> Option<ModuleId> {
        if let Some(id) = find(generation, start, bias) {
            return Some(id);
        }
        let index = COUNT.fetch_add(1, Ordering::AcqRel) as usize;
        let slot = TABLE.get(index)?;
        let id = next_id()?;
        slot.start.store(start, Ordering::Relaxed);
        slot.bias.store(bias, Ordering::Relaxed);
        slot.is_taken.store(false, Ordering::Relaxed);
        slot.key.store(u64::from(generation) << 32 | u64::from(id.0), Ordering::Release);
        Some(id)
    }

    /// The ids that a module got since they were last taken, in a generation or the one before: a handler may
    /// still use the snapshot that was replaced.
    pub(super) fn take(generation: u32, start: u64, bias: u64) -> Vec<ModuleId> {
        let n = (COUNT.load(Ordering::Acquire) as usize).min(SLOTS);
        let same = |slot: &&Slot| {
            let of = (slot.key.load(Ordering::Acquire) >> 32) as u32;
            (of == generation || of == generation.wrapping_sub(1))
                && !slot.is_taken.load(Ordering::Relaxed)
                && slot.start.load(Ordering::Relaxed) == start
                && slot.bias.load(Ordering::Relaxed) == bias
        };
        TABLE[..n]
            .iter()
            .filter(same)
            .map(|slot| {
                slot.is_taken.store(true, Ordering::Relaxed);
                ModuleId(slot.key.load(Ordering::Relaxed) as u16)
            })
            .collect()
    }

    /// Makes room. Nobody may be using an old snapshot.
    pub(super) fn clear() {
        COUNT.store(0, Ordering::Release);
    }
}

fn next_id() -> Option<ModuleId> {
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    if id == 0 || id > ModuleId::MAX - 512 {
        NEXT_ID.store(ModuleId::MAX - 511, Ordering::Relaxed);
        return None;
    }
    Some(ModuleId(id))
}

#[derive(Debug, Default)]
pub struct Changes {
    /// Modules that are new, or have a further id.
    pub added: Vec<Module>,
    pub removed: Vec<ModuleId>,
}

impl Changes {
    fn add_ids(&mut self, module: &Module, ids: Vec<ModuleId>) {
        self.added.extend(ids.into_iter().map(|id| Module { id, ..module.clone() }));
    }
}

struct Writer {
    // Boxed, because readers hold references to the snapshots, which must not move with the vector.
    #[allow(clippy::vec_box)]
    retired: Vec<Box<Snapshot>>,
}

static WRITER: Mutex<Writer> = Mutex::new(Writer { retired: Vec::new() });

/// Takes a new snapshot if modules were loaded or unloaded since the last one.
///
/// `quiescent` tells whether no thread is inside the profiler; if so, replaced snapshots are freed. Not
/// async-signal-safe.
pub fn refresh(quiescent: impl FnOnce() -> bool) -> Changes {
    if lock::is_lost() {
        return Changes::default();
    }
    find_symbols();
    STALE.store(false, Ordering::Relaxed);
    let has_one = !CURRENT.load(Ordering::Relaxed).is_null();
    if has_one && !INVALID.load(Ordering::Acquire) && !is_outdated() {
        return Changes::default();
    }
    let (version, mut modules) = scan::scan();
    // The scan takes glibc's loader lock, so it comes before our lock: a program may call dlopen from its own
    // dl_iterate_phdr callback. We do not wait for our lock: its holder does the same work, and in a child
    // that was forked while another thread held it, nobody will release it.
    let Ok(mut writer) = WRITER.try_lock() else {
        STALE.store(true, Ordering::Relaxed);
        return Changes::default();
    };
    // SAFETY: the lock is held, and what is retired below is not used any more when it is freed.
    let pinned = unsafe { Pinned::new() };
    let old = pinned.snapshot();
    let invalid = INVALID.swap(false, Ordering::AcqRel);
    if !invalid && old.is_some_and(|s| s.version >= version) {
        return Changes::default();
    }
    VERSION.store(version, Ordering::Relaxed);
    let mut changes = assign_ids(&mut modules, old);
    let generation = old.map_or(1, |s| s.generation.wrapping_add(1).max(1));
    let next = Box::into_raw(Box::new(Snapshot { generation, version, modules }));
    let previous = CURRENT.swap(next, Ordering::AcqRel);
    if !previous.is_null() {
        // SAFETY: `previous` came from Box::into_raw above, and the swap has unpublished it, so we own it. It
        // is freed only below, at quiescence.
        writer.retired.push(unsafe { Box::from_raw(previous) });
    }
    std::sync::atomic::fence(Ordering::SeqCst);
    if quiescent() {
        // What handlers have found since the ids were assigned; the next refresh would not ask for it.
        if let Some(now) = pinned.snapshot() {
            for m in &now.modules {
                changes.add_ids(m, pending::take(generation, m.start, m.bias));
            }
        }
        writer.retired.clear();
        pending::clear();
    }
    changes
}

fn assign_ids(modules: &mut [Module], old: Option<&Snapshot>) -> Changes {
    let mut changes = Changes::default();
    let generation = old.map_or(0, |s| s.generation);
    for m in modules.iter_mut() {
        let same = |o: &&Module| o.start == m.start && o.bias == m.bias && o.path == m.path;
        if let Some(known) = old.and_then(|s| s.modules.iter().find(same)) {
            (m.id, m.file) = (known.id, known.file);
            changes.add_ids(m, pending::take(generation, m.start, m.bias));
            continue;
        }
        m.file = Identity::at(&m.path);
        let ids = pending::take(generation, m.start, m.bias);
        let ids = if ids.is_empty() { vec![next_id().unwrap_or(ModuleId::UNKNOWN)] } else { ids };
        m.id = ids[0];
        changes.add_ids(m, ids);
    }
    for o in old.map_or(&[][..], |s| &s.modules) {
        if !modules.iter().any(|m| m.id == o.id) {
            changes.removed.push(o.id);
        }
    }
    changes
}

fn find_symbols() {
    if ENTRY.load(Ordering::Relaxed) != 0 {
        return;
    }
    // SAFETY: dlsym and getauxval with constant arguments, called outside the handler.
    unsafe {
        let f = libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr());
        FIND_OBJECT.store(f as usize, Ordering::Relaxed);
        INTERPRETER.store(scan::loader().unwrap_or(u64::MAX), Ordering::Relaxed);
        ENTRY.store(libc::getauxval(libc::AT_ENTRY), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handler that still uses the snapshot before may draw an id when the new one is there.
    #[test]
    fn an_id_that_a_handler_draws_late_is_written_by_the_next_refresh() {
        refresh(|| true);
        let (generation, module) = {
            // SAFETY: this test alone refreshes.
            let pinned = unsafe { Pinned::new() };
            let snapshot = pinned.snapshot().expect("just taken");
            (snapshot.generation, snapshot.modules[0].clone())
        };
        invalidate();
        refresh(|| false);
        let id = pending::id_for(generation, module.start, module.bias).expect("there is room");
        invalidate();
        let changes = refresh(|| true);
        let is_it = |m: &Module| m.id == id && m.path == module.path;
        assert!(changes.added.iter().any(is_it), "{changes:?}");
        invalidate();
        assert!(!refresh(|| true).added.iter().any(is_it), "once");
    }
}
