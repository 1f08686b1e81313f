//! The caller of a frame without unwind information: hand-written assembly, which often has none.
//!
//! One duty: find that caller where the machine code proves it, and say nothing elsewhere. The word
//! in a place where the return address can lie is taken for it only if a call instruction ends
//! right there in the program's code, and that call leads to the very function that the frame is
//! in: to an address without unwind information, at or shortly before the frame's instruction. The
//! places, none of which can hold what an earlier call left behind:
//!
//! * the top of the stack, where the function has pushed nothing yet;
//! * the words above the frame pointer, where the function has set that up after pushing registers
//!   (System V ABI: at most six are saved). The word at the frame pointer is then the caller's.
//!
//! Async-signal-safe.

use super::stack::StackReader;

/// The most machine code, in bytes, between a function's beginning and an instruction in it.
const LONGEST_FUNCTION: u64 = 1 << 16;
/// Registers that a function may have saved above its frame pointer, that one included.
const MOST_SAVED: u64 = 6;
/// The farthest that the frame pointer can be above the stack pointer.
const LARGEST_FRAME: u64 = 1 << 20;

/// The registers of the caller that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) ip: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
}

/// The frame whose caller is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bare {
    /// Its look-up address.
    pub(super) lookup: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    /// It was interrupted, so that it may have pushed nothing yet.
    pub(super) is_exact: bool,
}

/// The caller of `frame`; `is_bare` tells whether there is code without unwind information at an
/// address.
pub(super) fn caller(
    frame: Bare,
    stack: &mut StackReader<'_>,
    mut is_bare: impl FnMut(u64) -> bool,
) -> Option<Caller> {
    let Bare { sp, fp, .. } = frame;
    let mut proved = |place: u64, stack: &mut StackReader<'_>| {
        let ip = stack.read(place)?;
        let target = call_target(ip, stack)?;
        let inside = frame.lookup.checked_sub(target)?;
        (inside < LONGEST_FUNCTION && is_bare(target)).then_some(ip)
    };
    if frame.is_exact {
        if let Some(ip) = proved(sp, stack) {
            return Some(Caller { ip, sp: sp + 8, fp });
        }
    }
    let is_frame_pointer = fp % 8 == 0 && fp.checked_sub(sp)? < LARGEST_FRAME;
    if !is_frame_pointer {
        return None;
    }
    let saved = stack.read(fp)?;
    (1..=MOST_SAVED).find_map(|words| {
        let place = fp + 8 * words;
        let ip = proved(place, stack)?;
        Some(Caller {
            ip,
            sp: place + 8,
            fp: saved,
        })
    })
}

/// Where the call leads that ends at `end`: `call rel32`, or `call [rip + disp32]`, which goes
/// through a table of addresses.
fn call_target(end: u64, stack: &mut StackReader<'_>) -> Option<u64> {
    let bytes = stack.read(end.checked_sub(8)?)?.to_le_bytes();
    let distance = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let target = end.wrapping_add_signed(i64::from(distance));
    match (bytes[2], bytes[3]) {
        (_, 0xe8) => Some(target),
        (0xff, 0x15) => stack.read(target),
        _ => None,
    }
}
