//! Instruction analysis: steps out of a frame without unwind information, such as hand-written assembly or
//! code of compilers that omit it.
//!
//! The analysis follows the machine code from the frame's instruction to the function's return. By the ABI,
//! the stack pointer points at the return address there, on every path through the function. So any one path
//! is enough. The analysis steps over calls, since they leave the stack as it was. It accepts a result only
//! if a call instruction ends right at the return address that it finds. When no path leads to such an
//! address, for instance because all go through a jump table, it does not guess: the unwind ends with a
//! counted cause.
//!
//! The words that the accepted path depends on are written to the read log. Words of failed paths are not:
//! every path that succeeds finds the same result.
//!
//! * [`x86`] decodes the effect of an instruction on the stack;
//! * [`machine`] tracks registers and stack along a path;
//! * this file chooses the paths.
//!
//! Async-signal-safe.

mod machine;
mod x86;

use super::code::{Code, LONGEST};
use super::registers::Registers;
use super::stack::StackReader;
use machine::Machine;
use x86::{Effect, FP, SP};

/// Maximal number of instructions decoded for one frame; the longest kernels have some thousands.
const MOST_INSTRUCTIONS: u32 = 8192;
/// Maximal number of distinct jump targets in a function.
const MOST_PLACES: usize = 64;
const MOST_ITEMS: usize = 6;

/// A path to follow: the next instruction, and the machine's state there.
#[derive(Clone, Copy)]
struct WorkItem {
    at: u64,
    machine: Machine,
}

/// The paths still to follow, and the limits of the analysis.
struct Worklist {
    /// A stack: the last item is followed next.
    items: [Option<WorkItem>; MOST_ITEMS],
    count: usize,
    /// Targets of jumps and branches seen so far.
    places: [u64; MOST_PLACES],
    places_count: usize,
    instructions: u32,
}

impl Worklist {
    fn new(first: WorkItem) -> Worklist {
        let mut items = [None; MOST_ITEMS];
        items[0] = Some(first);
        Worklist { items, count: 1, places: [0; MOST_PLACES], places_count: 0, instructions: 0 }
    }

    fn next(&mut self) -> Option<WorkItem> {
        self.count = self.count.checked_sub(1)?;
        self.items[self.count]
    }

    /// Records a jump target. False if it was known, or if there is no space for it.
    fn is_new(&mut self, place: u64) -> bool {
        if self.places[..self.places_count].contains(&place) {
            return false;
        }
        let Some(free) = self.places.get_mut(self.places_count) else {
            return false;
        };
        *free = place;
        self.places_count += 1;
        true
    }

    /// Adds a path that is followed next. When the list is full, drops the oldest path: those near the
    /// current branch are the likeliest to lead to a return.
    fn push(&mut self, item: WorkItem) {
        if self.count == MOST_ITEMS {
            self.items.copy_within(1.., 0);
            self.count -= 1;
        }
        self.items[self.count] = Some(item);
        self.count += 1;
    }

    /// Adds a path that is followed after all others. Drops it when the list is full.
    fn push_last(&mut self, item: WorkItem) {
        if self.count < MOST_ITEMS {
            self.items.copy_within(..MOST_ITEMS - 1, 1);
            self.items[0] = Some(item);
            self.count += 1;
        }
    }
}

/// Computes the registers in the caller, from the registers at an instruction of the function. `is_exact`:
/// the instruction was interrupted, rather than being the one after a call.
pub(super) fn caller(
    registers: Registers,
    is_exact: bool,
    code: &mut Code<'_>,
    stack: &mut StackReader,
) -> Option<Registers> {
    let mut worklist = Worklist::new(WorkItem { at: registers.ip(), machine: Machine::new(registers) });
    let mut after_call = !is_exact;
    while let Some(item) = worklist.next() {
        if let Some(caller) = follow(item, after_call, &mut worklist, code, stack) {
            return Some(caller);
        }
        after_call = false;
    }
    None
}

/// Follows one path to its end. At a branch, it continues with the next instruction and adds the target to
/// the worklist.
fn follow(
    mut item: WorkItem,
    mut after_call: bool,
    worklist: &mut Worklist,
    code: &mut Code<'_>,
    stack: &mut StackReader,
) -> Option<Registers> {
    let mut rest = code.at(item.at)?;
    loop {
        worklist.instructions += 1;
        if worklist.instructions > MOST_INSTRUCTIONS {
            return None;
        }
        let instruction = x86::decode(rest)?;
        let next = item.at + instruction.length as u64;
        let target = |distance: i32| next.wrapping_add_signed(i64::from(distance));
        let mut jump = None;
        match instruction.effect {
            Effect::Return(arguments) => return returned(&item.machine, arguments, code, stack),
            // A tail call: the function that it jumps to returns in its place.
            Effect::JumpThrough => return returned(&item.machine, 0, code, stack),
            Effect::Jump(distance) => jump = Some(target(distance)),
            Effect::JumpTo(register) => jump = Some(item.machine.decide_by(register)?),
            Effect::Branch(distance) => {
                let place = target(distance);
                if worklist.is_new(place) {
                    worklist.push(WorkItem { at: place, machine: item.machine });
                }
            }
            // Padding after a call may mean that the call does not return; but compilers also align loops.
            Effect::Padding if after_call => {
                worklist.push_last(WorkItem { at: next, machine: item.machine });
                return None;
            }
            Effect::JumpAnywhere | Effect::Stop => return None,
            effect => item.machine.apply(effect, next, stack)?,
        }
        after_call = matches!(instruction.effect, Effect::Call(_));
        let Some(place) = jump else {
            item.at = next;
            rest = rest.get(instruction.length..)?;
            if rest.len() < LONGEST {
                rest = code.at(next)?;
            }
            continue;
        };
        if code.is_described(place) {
            return returned(&item.machine, 0, code, stack);
        }
        if !worklist.is_new(place) {
            return None;
        }
        item.at = place;
        rest = code.at(place)?;
    }
}

/// The caller's registers if the function returns here; `None` if no call instruction precedes the return
/// address.
fn returned(
    machine: &Machine,
    arguments: u16,
    code: &mut Code<'_>,
    stack: &mut StackReader,
) -> Option<Registers> {
    let caller = machine.caller(arguments, stack)?;
    code.follows_call(caller.ip()).then_some(caller)
}

/// Whether the frame pointer is that of the frame at an instruction: on a path from there, which does not set
/// it, the stack pointer gets its value, and a pop or the return follows.
pub(super) fn has_frame_pointer(ip: u64, code: &mut Code<'_>) -> bool {
    let mut places = [ip; 4 * MOST_PLACES];
    let (mut next, mut known, mut instructions) = (0, 1, 0);
    while next < known {
        let (mut at, mut is_restored) = (places[next], false);
        next += 1;
        while let Some(instruction) = code.at(at).and_then(x86::decode) {
            instructions += 1;
            at += instruction.length as u64;
            let effect = instruction.effect;
            let (is_over, distance) = match effect {
                Effect::Pop(_) | Effect::Return(_) if is_restored => return true,
                _ if instructions > MOST_INSTRUCTIONS => return false,
                Effect::Jump(distance) => (true, Some(distance)),
                Effect::Branch(distance) => (false, Some(distance)),
                Effect::Return(_) | Effect::JumpThrough | Effect::JumpTo(_) | Effect::JumpAnywhere => break,
                Effect::Stop | Effect::Pop(Some(FP)) | Effect::Near(FP, _) | Effect::Change(FP) => break,
                Effect::Copy { to: FP, .. } | Effect::Load { to: FP, .. } => break,
                Effect::Address { to: FP, .. } | Effect::Add(FP, _) | Effect::And(FP, _) => break,
                _ => (false, None),
            };
            is_restored = matches!(effect, Effect::Leave | Effect::Copy { to: SP, from: FP });
            let place = distance.map(|d| at.wrapping_add_signed(d.into()));
            if let Some(place) = place.filter(|p| known < places.len() && !places[..known].contains(p)) {
                places[known] = place;
                known += 1;
            }
            if is_over {
                break;
            }
        }
    }
    false
}

/// Whether these bytes are a call instruction, as a whole.
pub(super) fn is_call(bytes: &[u8]) -> bool {
    matches!(bytes[0], 0xe8 | 0xff)
        && x86::decode(bytes).is_some_and(|i| i.length == bytes.len() && matches!(i.effect, Effect::Call(_)))
}
