//! A profiler inside the program, by a clock that the test moves: lengths are exact on any machine. It knows
//! only lengths: a strand's word is its length and 1.
#![allow(dead_code, reason = "each test uses a part")]

use std::cell::Cell;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::SeqCst};

use hpcrun_abi::{ABI_VERSION, EDGE_WAKE, PATH_START, PathTable, SITE_SOURCE, Site, Strand};

thread_local! {
    static LENGTH: Cell<u64> = const { Cell::new(0) };
    static IS_PAUSED: Cell<bool> = const { Cell::new(false) };
    static PROCEDURE: Cell<u32> = const { Cell::new(0) };
}
static ACTIVE: AtomicU8 = AtomicU8::new(0);
/// Whether the tracking begins and ends outside of waits alone, so that each wait is told whole.
static IS_STEADY: AtomicBool = AtomicBool::new(true);
/// Strands that somebody has.
static LIVE: AtomicI64 = AtomicI64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static SPAN: AtomicU64 = AtomicU64::new(0);
static PROCEDURES: Mutex<Vec<(String, u64)>> = Mutex::new(Vec::new());
/// Of the merges that made a strand longer: site, edge.
static EDGES: Mutex<Vec<(Site, u32)>> = Mutex::new(Vec::new());

/// The calling thread is active for so long.
pub(crate) fn work(time: u64) {
    assert!(!IS_PAUSED.get() || !IS_STEADY.load(SeqCst), "activity in a wait");
    LENGTH.set(LENGTH.get() + time);
    if let Some(procedure) = PROCEDURE.get().checked_sub(1) {
        PROCEDURES.lock().unwrap()[procedure as usize].1 += time;
    }
}

/// The length of the calling thread's strand.
pub(crate) fn length() -> u64 {
    LENGTH.get()
}

/// Sets the length of a thread's strand that is given as active from its beginning.
pub(crate) fn begin_at(length: u64) {
    LENGTH.set(length);
}

pub(crate) fn steady(is_steady: bool) {
    IS_STEADY.store(is_steady, SeqCst);
}

pub(crate) fn track(is_active: bool) {
    ACTIVE.store(u8::from(is_active), SeqCst);
}

pub(crate) fn live() -> i64 {
    LIVE.load(SeqCst)
}

pub(crate) fn lost() -> u64 {
    LOST.load(SeqCst)
}

pub(crate) fn procedures() -> Vec<(String, u64)> {
    PROCEDURES.lock().unwrap().clone()
}

/// Lines and edges of the merges that made a strand longer.
pub(crate) fn edges() -> Vec<(u64, u32)> {
    let edges = EDGES.lock().unwrap();
    edges.iter().map(|(at, edge)| (at & !SITE_SOURCE, *edge)).collect()
}

fn made(length: u64) -> Strand {
    LIVE.fetch_add(1, SeqCst);
    length as Strand + 1
}

fn taken(strand: Strand) -> u64 {
    assert_ne!(strand, 0);
    LIVE.fetch_sub(1, SeqCst);
    strand as u64 - 1
}

extern "C" fn copy(_: Site) -> Strand {
    made(length())
}

unsafe extern "C" fn merge(strand: Strand, at: Site, edge: u32) {
    assert!(!IS_PAUSED.get() || !IS_STEADY.load(SeqCst), "a wait that never ends");
    assert_ne!(edge, EDGE_WAKE);
    if strand == 0 {
        return lose(0);
    }
    let other = taken(strand);
    if other > length() {
        LENGTH.set(other);
        EDGES.lock().unwrap().push((at, edge));
    }
}

unsafe extern "C" fn begin(spawned: Strand, _: Site) -> Strand {
    let left = made(length());
    LENGTH.set(if spawned == 0 { 0 } else { taken(spawned) });
    left
}

unsafe extern "C" fn end(left: Strand, _: Site) -> Strand {
    let ended = made(length());
    LENGTH.set(taken(left));
    ended
}

unsafe extern "C" fn end_and_merge(left: Strand, _: Site) {
    LENGTH.set(length().max(taken(left)));
}

unsafe extern "C" fn both(one: Strand, other: Strand) -> Strand {
    made(taken(one).max(taken(other)))
}

unsafe extern "C" fn share(strand: Strand) -> Strand {
    made(strand as u64 - 1)
}

unsafe extern "C" fn discard(strand: Strand) {
    taken(strand);
}

unsafe extern "C" fn finish(strand: Strand) {
    SPAN.fetch_max(taken(strand), SeqCst);
}

extern "C" fn publish(_: Site) {
    SPAN.fetch_max(length(), SeqCst);
}

extern "C" fn pause() {
    assert!(!IS_PAUSED.replace(true) || !IS_STEADY.load(SeqCst), "a wait in a wait");
}

extern "C" fn resume() {
    assert!(IS_PAUSED.replace(false) || !IS_STEADY.load(SeqCst), "the end of no wait");
}

extern "C" fn restart(_: Site) {
    LENGTH.set(0);
}

extern "C" fn enter(procedure: u32) -> u32 {
    PROCEDURE.replace(procedure)
}

unsafe extern "C" fn procedure(name: *const u8, length: usize) -> u32 {
    // SAFETY: the caller's promise.
    let name = unsafe { std::slice::from_raw_parts(name, length) };
    let name = std::str::from_utf8(name).expect("UTF-8");
    let mut all = PROCEDURES.lock().unwrap();
    let place = all.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
        all.push((name.to_owned(), 0));
        all.len() - 1
    });
    place as u32 + 1
}

unsafe extern "C" fn source(_: *const u8, _: usize, line: u32) -> Site {
    SITE_SOURCE | u64::from(line)
}

extern "C" fn lose(_: u32) {
    LOST.fetch_add(1, SeqCst);
}

extern "C" fn control(command: u32) {
    if command == PATH_START {
        SPAN.store(0, SeqCst);
    }
    track(command == PATH_START);
}

unsafe extern "C" fn report(buffer: *mut u8, size: usize) -> usize {
    let text = format!("{{\"span\":{}}}", SPAN.load(SeqCst));
    if text.len() <= size {
        // SAFETY: the buffer has room for it.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len()) };
    }
    text.len()
}

/// See [`hpcrun_abi::CriticalPath`].
#[unsafe(no_mangle)]
unsafe extern "C" fn hpcrun_critical_path() -> *const PathTable {
    static TABLE: PathTable = PathTable {
        size: size_of::<PathTable>() as u32,
        version: ABI_VERSION,
        active: &raw const ACTIVE,
        copy,
        fork: copy,
        merge,
        begin,
        end,
        end_and_merge,
        both,
        share,
        discard,
        finish,
        publish,
        pause,
        resume,
        restart,
        enter,
        procedure,
        source,
        lose,
        control,
        report,
    };
    &raw const TABLE
}
