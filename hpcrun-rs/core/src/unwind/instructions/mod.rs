//! The caller of a frame without unwind information: hand-written assembly, which often has none,
//! and code of compilers that leave it out.
//!
//! One duty: find that caller by following the machine code from the frame's instruction to the
//! function's return. By the ABI, the stack pointer is at the return address there, whichever way the
//! function goes; so any one way will do, and calls on it are passed over, as they leave the stack
//! as it was. What the way finds is believed only if a call instruction ends right at the address that
//! lies there. Nothing is guessed where no way leads to such a place, as where all go through a table of jumps:
//! the walk ends, and is counted.
//! The words that a way depends on are noted for the next walk; not those of ways that came to nothing, as
//! all that lead out find the same.
//!
//! * [`x86`] tells what an instruction does to the stack;
//! * [`machine`] keeps registers and stack along a way;
//! * this file chooses the ways.
//!
//! Async-signal-safe.

mod machine;
mod x86;

use super::registers::Registers;
use super::stack::StackReader;
use machine::Machine;
use x86::Effect;

/// Most instructions that are looked at for one frame: the longest kernels have some thousands.
const MOST_INSTRUCTIONS: u32 = 8192;
/// Most places of a function that ways lead to.
const MOST_PLACES: usize = 64;
/// Most ways that are put off.
const MOST_WAYS: usize = 6;

/// The code of the modules.
pub(super) trait Code {
    /// The code from an address to the end of its segment; `None` outside of code.
    fn at(&mut self, address: u64) -> Option<&'static [u8]>;

    /// Whether there is unwind information for an address.
    fn is_described(&mut self, address: u64) -> bool;
}

/// A way through the function.
#[derive(Clone, Copy)]
struct WorkItem {
    at: u64,
    machine: Machine,
}

/// What is left to try.
struct Worklist {
    /// Put off until the way before has come to nothing.
    items: [Option<WorkItem>; MOST_WAYS],
    count: usize,
    /// Where a way has jumped to, or has been put off at.
    places: [u64; MOST_PLACES],
    places_count: usize,
    instructions: u32,
}

impl Worklist {
    fn new(first: WorkItem) -> Worklist {
        let mut items = [None; MOST_WAYS];
        items[0] = Some(first);
        Worklist {
            items,
            count: 1,
            places: [0; MOST_PLACES],
            places_count: 0,
            instructions: 0,
        }
    }

    fn next(&mut self) -> Option<WorkItem> {
        self.count = self.count.checked_sub(1)?;
        self.items[self.count]
    }

    /// Notes a place; false if it was known, or there is no space for it.
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

    /// One more to try. Without space the one put off first is dropped: the nearest to where ways part are
    /// the likeliest to lead on.
    fn push(&mut self, way: WorkItem) {
        if self.count == MOST_WAYS {
            self.items.copy_within(1.., 0);
            self.count -= 1;
        }
        self.items[self.count] = Some(way);
        self.count += 1;
    }

    /// One to try if all others come to nothing.
    fn push_last(&mut self, way: WorkItem) {
        if self.count < MOST_WAYS {
            self.items.copy_within(..MOST_WAYS - 1, 1);
            self.items[0] = Some(way);
            self.count += 1;
        }
    }
}

/// The registers in the caller of the function whose registers at an instruction are `registers`.
/// `is_exact`: the instruction was interrupted, rather than being the one after a call.
pub(super) fn caller(
    registers: Registers,
    is_exact: bool,
    code: &mut impl Code,
    stack: &mut StackReader<'_>,
) -> Option<Registers> {
    let mut ways = Worklist::new(WorkItem {
        at: registers.ip(),
        machine: Machine::new(registers),
    });
    let mut after_call = !is_exact;
    while let Some(way) = ways.next() {
        if let Some(caller) = follow(way, after_call, &mut ways, code, stack) {
            return Some(caller);
        }
        after_call = false;
    }
    None
}

/// Goes one way to its end. Where the way parts, it goes straight on, and puts the branch off.
fn follow(
    mut way: WorkItem,
    mut after_call: bool,
    ways: &mut Worklist,
    code: &mut impl Code,
    stack: &mut StackReader<'_>,
) -> Option<Registers> {
    let mut rest = code.at(way.at)?;
    loop {
        ways.instructions += 1;
        if ways.instructions > MOST_INSTRUCTIONS {
            return None;
        }
        let instruction = x86::decode(rest)?;
        let next = way.at + instruction.length as u64;
        let target = |distance: i32| next.wrapping_add_signed(i64::from(distance));
        let mut jump = None;
        match instruction.effect {
            Effect::Return(arguments) => return returned(&way.machine, arguments, code, stack),
            // Out of the function: what it jumps to returns in its place.
            Effect::JumpThrough => return returned(&way.machine, 0, code, stack),
            Effect::Jump(distance) => jump = Some(target(distance)),
            Effect::JumpTo(register) => jump = Some(way.machine.decide_by(register)?),
            Effect::Branch(distance) => {
                let place = target(distance);
                if ways.is_new(place) {
                    ways.push(WorkItem {
                        at: place,
                        machine: way.machine,
                    });
                }
            }
            // A call that does not return is the last before a gap. There are gaps before loops, too.
            Effect::Padding if after_call => {
                ways.push_last(WorkItem {
                    at: next,
                    machine: way.machine,
                });
                return None;
            }
            Effect::JumpAnywhere | Effect::Stop => return None,
            effect => way.machine.apply(effect, next, stack)?,
        }
        after_call = matches!(instruction.effect, Effect::Call(_));
        let Some(place) = jump else {
            way.at = next;
            rest = rest.get(instruction.length..)?;
            continue;
        };
        if code.is_described(place) {
            return returned(&way.machine, 0, code, stack);
        }
        if !ways.is_new(place) {
            return None;
        }
        way.at = place;
        rest = code.at(place)?;
    }
}

/// The caller, if the function returns with these registers and a call led into it.
fn returned(
    machine: &Machine,
    arguments: u16,
    code: &mut impl Code,
    stack: &mut StackReader<'_>,
) -> Option<Registers> {
    let caller = machine.caller(arguments, stack)?;
    follows_call(caller.ip(), code).then_some(caller)
}

/// Whether a call instruction ends at an address.
fn follows_call(address: u64, code: &mut impl Code) -> bool {
    const LONGEST: u64 = 7;
    let before = address.checked_sub(LONGEST).and_then(|at| code.at(at));
    let Some(bytes) = before.and_then(|b| b.first_chunk::<{ LONGEST as usize }>()) else {
        return false;
    };
    (0..=5).any(|from| {
        let candidate = &bytes[from..];
        matches!(candidate[0], 0xe8 | 0xff)
            && x86::decode(candidate)
                .is_some_and(|i| i.length == candidate.len() && matches!(i.effect, Effect::Call(_)))
    })
}
