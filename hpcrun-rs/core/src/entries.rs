//! The entries of a process image (`hpc_formats::process`), in memory until they are needed: its first
//! profile makes a file of its own. A process that ends without one adds them to a file that the short
//! processes of a host share, since making a file takes longer than many such a process.
//!
//! Async-signal-safe: [`Entries::make_file`].

use crate::sandbox::allows_files;
use crate::{memory, system};
use hpc_formats::loss::LossCause;
use std::cell::UnsafeCell;
use std::ffi::CString;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU8};

/// They are in memory.
const HELD: u8 = 0;
/// Somebody changes or writes them.
const BUSY: u8 = 1;
/// They are in the image's own file.
const MADE: u8 = 2;

#[derive(Debug)]
pub struct Entries {
    state: AtomicU8,
    /// The image's own file is to be made.
    is_wanted: AtomicBool,
    /// Who moves the state to [`BUSY`] has it alone.
    held: UnsafeCell<Vec<u8>>,
    own: CString,
    shared: CString,
}

// SAFETY: see `held`.
unsafe impl Sync for Entries {}

impl Entries {
    /// None yet, with the paths of both files.
    pub fn new(own: CString, shared: CString) -> Entries {
        Entries {
            state: AtomicU8::new(HELD),
            is_wanted: AtomicBool::new(false),
            held: UnsafeCell::default(),
            own,
            shared,
        }
    }

    /// Whether the image has a file of its own.
    pub fn has_file(&self) -> bool {
        self.state.load(SeqCst) == MADE
    }

    /// Adds entries. In the image's own file they are there at once.
    pub fn add(&self, entries: &[u8]) -> Result<(), LossCause> {
        if !self.take() {
            return append(&self.own, 0, entries);
        }
        // SAFETY: the state is ours.
        unsafe { &mut *self.held.get() }.extend_from_slice(entries);
        self.give_back()
    }

    /// Adds entries that must not be lost, even if the process is killed.
    pub fn add_now(&self, entries: &[u8]) -> Result<(), LossCause> {
        self.is_wanted.store(true, SeqCst);
        self.add(entries)
    }

    /// Adds the image's last entries, or those before an `exec`, which may fail. Without a file of its own,
    /// all go to the shared one.
    pub fn end(&self, entries: &[u8]) -> Result<(), LossCause> {
        if !self.take() {
            return append(&self.own, 0, entries);
        }
        // SAFETY: the state is ours.
        let held = unsafe { &mut *self.held.get() };
        held.extend_from_slice(entries);
        let added = append(&self.shared, libc::O_CREAT, held);
        self.give_back().and(added)
    }

    /// Makes the image's own file, unless there is one. Async-signal-safe. If the handler has interrupted
    /// who changes the entries, that one makes it.
    pub fn make_file(&self) -> Result<(), LossCause> {
        if self.has_file() {
            return Ok(());
        }
        self.is_wanted.store(true, SeqCst);
        self.make_wanted()
    }

    /// Moves the state to [`BUSY`]; false if the image has its own file. Waits for a tenth of a second at
    /// most: a signal handler may have interrupted who has it.
    fn take(&self) -> bool {
        for _ in 0..2000 {
            match self.state.compare_exchange(HELD, BUSY, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(MADE) => return false,
                Err(_) => system::sleep(50_000),
            }
        }
        false
    }

    fn give_back(&self) -> Result<(), LossCause> {
        self.state.store(HELD, SeqCst);
        self.make_wanted()
    }

    fn make_wanted(&self) -> Result<(), LossCause> {
        if !self.is_wanted.load(SeqCst) || self.state.compare_exchange(HELD, BUSY, SeqCst, SeqCst).is_err() {
            return Ok(());
        }
        // SAFETY: the state is ours.
        let held = unsafe { &*self.held.get() };
        let made = append(&self.own, libc::O_CREAT | libc::O_TRUNC, held);
        self.state.store(if made.is_ok() { MADE } else { HELD }, SeqCst);
        made
    }
}

/// Appends to a file with one write.
fn append(path: &CString, flags: i32, bytes: &[u8]) -> Result<(), LossCause> {
    if !allows_files() {
        return Err(LossCause::NoFile);
    }
    let flags = flags | libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let file = memory::open(path, flags).map_err(|_| LossCause::NoFile)?;
    let call = |number, at: usize, length| {
        // SAFETY: the descriptor is ours, and so many bytes are there.
        unsafe { system::call(number, [file as usize, at, length, 0, 0]) }
    };
    let size = call(libc::SYS_lseek, 0, libc::SEEK_END as usize).max(0) as usize;
    let mut left = bytes;
    while !left.is_empty() && memory::may_be_as_large(size + bytes.len()) {
        match call(libc::SYS_write, left.as_ptr() as usize, left.len()) {
            written @ 1.. => left = left.get(written as usize..).unwrap_or_default(),
            error if error == -(libc::EINTR as isize) => {}
            _ => break,
        }
    }
    system::close(file);
    if left.is_empty() { Ok(()) } else { Err(LossCause::DiskFull) }
}
