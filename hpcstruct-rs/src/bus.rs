//! What happens when a mapped file becomes shorter while it is read: the kernel sends `SIGBUS`. Unsafe.
//!
//! Input: the mappings of files, while they last. Invariants: a fault in one of them is answered with
//! zeros, which every parser here takes as damage, and is noted, so that whoever reads can
//! say what happened; any other fault goes to whoever handled it before. The handler takes no lock and allocates
//! nothing; entries of the list are reused and never freed, so that it may walk the list at any time.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A mapping of a file, or room for one.
#[derive(Debug)]
struct Entry {
    /// Its first address; 0 = there is none here.
    start: AtomicUsize,
    /// One past its last address.
    end: AtomicUsize,
    is_taken: AtomicBool,
    /// Whether it was read where the file had ended.
    was_cut: AtomicBool,
    next: AtomicPtr<Entry>,
}

/// All entries.
static FIRST: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

/// Keeps a mapping guarded for as long as it lives; it must go before the mapping does.
#[derive(Debug)]
pub(crate) struct Guard(&'static Entry);

impl Guard {
    /// Guards the pages of `bytes`, a mapping of a file.
    pub(crate) fn new(bytes: &[u8]) -> Guard {
        install();
        let entry = free_entry().unwrap_or_else(add_entry);
        entry.was_cut.store(false, Ordering::Relaxed);
        let start = bytes.as_ptr() as usize;
        entry.end.store(start + bytes.len(), Ordering::Relaxed);
        // Publishes the end.
        entry.start.store(start, Ordering::Release);
        Guard(entry)
    }

    /// Whether the file ended before what was read of it.
    pub(crate) fn was_cut(&self) -> bool {
        self.0.was_cut.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Relaxed);
        // Whoever takes it next sees it empty.
        self.0.is_taken.store(false, Ordering::Release);
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    let mut next = FIRST.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: entries are leaked boxes that `add_entry` has published whole; they are shared and
        // never freed. Nothing here panics.
        let entry: &'static Entry = unsafe { next.as_ref() }?;
        next = entry.next.load(Ordering::Acquire);
        Some(entry)
    })
}

fn free_entry() -> Option<&'static Entry> {
    let take = |e: &&Entry| !e.is_taken.swap(true, Ordering::Acquire);
    entries().find(take)
}

fn add_entry() -> &'static Entry {
    let entry: &'static Entry = Box::leak(Box::new(Entry {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        is_taken: AtomicBool::new(true),
        was_cut: AtomicBool::new(false),
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    let mut first = FIRST.load(Ordering::Relaxed);
    loop {
        entry.next.store(first, Ordering::Relaxed);
        let new = ptr::from_ref(entry).cast_mut();
        match FIRST.compare_exchange_weak(first, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return entry,
            Err(now) => first = now,
        }
    }
}

/// The action that was there before.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: it is written once, inside of `INSTALLED`, before the handler that reads it is in place.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));
static INSTALLED: Once = Once::new();

fn install() {
    INSTALLED.call_once(|| {
        // SAFETY: `BEFORE` is written here alone, and read only by the handler, which the second call puts in
        // place. The structures are plain data for which zero is a value; the handler is a function of the
        // signature that SA_SIGINFO asks for. Nothing here panics.
        unsafe {
            let before = (*BEFORE.0.get()).as_mut_ptr();
            if libc::sigaction(libc::SIGBUS, ptr::null(), before) != 0 {
                return;
            }
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_fault as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            // Without it the signal does what it did before.
            let _ = libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
        }
    });
}

extern "C" fn on_fault(
    _signal: libc::c_int,
    information: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel hands out a valid record, in which SIGBUS has an address; the calls are of
    // the system alone; `BEFORE` was written before this handler was in place. Nothing panics.
    unsafe {
        let error = *libc::__errno_location();
        let is_answered = answer((*information).si_addr() as usize);
        *libc::__errno_location() = error;
        if !is_answered {
            // The instruction is run again and faults again, for whoever was here before.
            let before = (*BEFORE.0.get()).as_ptr();
            libc::sigaction(libc::SIGBUS, before, ptr::null_mut());
        }
    }
}

/// Puts zeros where a guarded mapping has no file any more; whether `address` is in one.
fn answer(address: usize) -> bool {
    let is_in = |entry: &&Entry| {
        let start = entry.start.load(Ordering::Acquire);
        start != 0 && (start..entry.end.load(Ordering::Relaxed)).contains(&address)
    };
    let Some(entry) = entries().find(is_in) else {
        return false;
    };
    entry.was_cut.store(true, Ordering::Relaxed);
    // SAFETY: no failure is possible that matters; nothing panics.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let start = address & !(page - 1);
    let length = entry.end.load(Ordering::Relaxed) - start;
    // SAFETY: the pages belong to a mapping of ours, which lives: the thread that reads it is in this
    // handler. They have no content any more, and what is put there in one step can be read as before.
    // The owner unmaps the range as a whole, whatever it consists of.
    let zeros = unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            length,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    zeros != libc::MAP_FAILED
}
