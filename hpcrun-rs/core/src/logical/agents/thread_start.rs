//! The outermost frame of a thread whose creation was observed, of a coroutine, and of a goroutine.
//!
//! Go puts the address behind the first instruction of `runtime.goexit` at the end of each goroutine's stack.
//! Any thread may run a goroutine, so it is the program's.

use super::roles::Role;
use super::symbols;
use crate::logical::walk::Walk;
use crate::unwind::stack_ends;
use hpc_formats::address::ModuleId;

const OF_THREAD: u8 = 0;
const OF_PROGRAM: u8 = 1;

/// Declares the return addresses of the call that enters a thread's start routine, and of a routine that
/// `makecontext` has put on a stack of its own.
pub fn set_returns(addresses: [u64; 2]) {
    addresses.iter().for_each(|address| stack_ends::add(*address, OF_THREAD));
}

/// Declares where the stacks of a module's goroutines end. Not async-signal-safe.
pub(super) fn scan(path: &str, bias: u64) {
    let is_end =
        |name: &[u8]| matches!(name, b"runtime.goexit" | b"runtime.goexit.abi0").then_some(Role::Support);
    let found = symbols::ranges_of(path, bias, b"runtime.goexit", is_end).unwrap_or_default();
    found.iter().for_each(|function| stack_ends::add(function.start + 1, OF_PROGRAM));
}

pub(super) fn owns(lookup: u64, _: ModuleId) -> Option<u8> {
    stack_ends::at(lookup.wrapping_add(1))
}

pub(super) fn step(walk: &mut Walk<'_>, tag: u8) {
    match tag {
        OF_PROGRAM => walk.entry(),
        _ => walk.root(),
    }
}
