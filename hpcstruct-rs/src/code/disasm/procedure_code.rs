//! The code of one procedure: transfers of control to offsets within it, or to other procedures.
//!
//! A procedure may lie in several ranges (hot and cold parts). Its *offsets* number the bytes of
//! all ranges in the order of their addresses. Invariants: control never falls from one range to
//! the next; every target is an offset of the procedure.

use super::control_transfer::{ControlTransfer, Within};
use super::loaded_image::LoadedImage;
use super::lsda;
use crate::symbols::unwind_table::Handler;
use std::ops::Range;

/// Longer procedures are left out.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// The ranges of a procedure, sorted and disjoint, and where it is entered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) ranges: Vec<Range<u64>>,
    /// Offset of each further range's first byte; the first one's is 0. Most have no more.
    further: Vec<u32>,
    /// Index of the range that is entered at its first byte.
    entry: usize,
}

impl Layout {
    /// Of sorted, disjoint ranges; `None` when they are too long. `entry` is the range with the
    /// procedure's entry.
    pub(crate) fn new(ranges: Vec<Range<u64>>, entry: usize) -> Option<Layout> {
        let mut further = Vec::with_capacity(ranges.len().saturating_sub(1));
        let mut total = 0u64;
        for (i, range) in ranges.iter().enumerate() {
            if i > 0 {
                further.push(total as u32);
            }
            total = total.checked_add(range.end.checked_sub(range.start)?)?;
            if total > MAX_BYTES {
                return None;
            }
        }
        (total > 0 && entry < ranges.len()).then_some(Layout { ranges, further, entry })
    }

    pub(crate) fn len(&self) -> u32 {
        self.ranges
            .last()
            .map_or(0, |range| self.offset_of(self.ranges.len() - 1) + (range.end - range.start) as u32)
    }

    /// Offset of a range's first byte.
    fn offset_of(&self, range: usize) -> u32 {
        range.checked_sub(1).map_or(0, |i| self.further[i])
    }

    /// Offsets of the ranges' first bytes.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = u32> {
        let first = (!self.ranges.is_empty()).then_some(0);
        first.into_iter().chain(self.further.iter().copied())
    }

    pub(crate) fn offset(&self, address: u64) -> Option<u32> {
        let i = match self.ranges.as_slice() {
            [_] => 0,
            many => many.partition_point(|r| r.end <= address),
        };
        let range = self.ranges.get(i)?;
        range.contains(&address).then(|| self.offset_of(i) + (address - range.start) as u32)
    }

    /// The address of an offset (of its last byte's successor for the length).
    pub(crate) fn address(&self, offset: u32) -> u64 {
        let i = self.further.partition_point(|o| *o <= offset);
        self.ranges[i].start + u64::from(offset - self.offset_of(i))
    }

    pub(crate) fn entry_offset(&self) -> u32 {
        self.offset_of(self.entry)
    }

    pub(crate) fn entry_address(&self) -> u64 {
        self.ranges[self.entry].start
    }
}

/// Where control goes after a [`Step`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// To the offset `target`.
    Jump,
    /// To the offset `target`, or on.
    Branch,
    /// Into the procedure `target`, at its entry, and back if that returns.
    Call,
    /// To the entry of the procedure `target`, for good.
    TailJump,
    /// To the entry of the procedure `target` for good, or on.
    TailBranch,
    /// To the targets of the table number `target`.
    Table,
    /// Somewhere: a jump whose targets are not known.
    Indirect,
    /// To the caller.
    Return,
    /// To the offset `target`, the handler of the exception that a call may throw, or on.
    Landing,
    /// Nowhere.
    Stop,
    /// On; nothing falls into it.
    Padding,
    /// The end of a range, where an instruction before it would fall through.
    End,
}

/// A transfer of control.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Offset one past the instruction.
    pub(crate) end: u32,
    /// What `kind` says it is.
    pub(crate) target: u32,
    pub(crate) length: u8,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'c> {
    /// In the order of offsets; nothing falls through the last step of a range.
    pub(crate) steps: &'c [Step],
    /// Targets of jump tables, as offsets.
    pub(crate) targets: &'c [u32],
    /// Jump tables, as ranges of `targets`.
    pub(crate) tables: &'c [Range<u32>],
}

impl<'c> Code<'c> {
    /// Procedures that are called or jumped to, as often as they are.
    pub(crate) fn callees(self) -> impl Iterator<Item = u32> + 'c {
        let leaves = |s: &&Step| matches!(s.kind, Kind::Call | Kind::TailJump | Kind::TailBranch);
        self.steps.iter().filter(leaves).map(|s| s.target)
    }

    /// Whether any transfer could close a loop: a quick test, so that most procedures need no graph.
    pub(crate) fn may_loop(self) -> bool {
        self.steps.iter().any(|s| match s.kind {
            Kind::Jump | Kind::Branch | Kind::Landing => s.target < s.end,
            Kind::Table | Kind::Indirect => true,
            _ => false,
        })
    }
}

/// The code of several procedures, behind one another: there are many, and most are short.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    steps: Vec<Step>,
    targets: Vec<u32>,
    tables: Vec<Range<u32>>,
    /// Ends of each procedure's parts of these lists.
    ends: Vec<[usize; 3]>,
}

impl Chunk {
    /// The code of the procedure that was added as number `index`.
    pub(crate) fn get(&self, index: usize) -> Option<Code<'_>> {
        let before = index.checked_sub(1).map(|i| self.ends.get(i)).map_or(Some(&[0; 3]), |e| e)?;
        let end = self.ends.get(index)?;
        Some(Code {
            steps: &self.steps[before[0]..end[0]],
            targets: &self.targets[before[1]..end[1]],
            tables: &self.tables[before[2]..end[2]],
        })
    }

    /// Frees the spare room once everything is in it.
    pub(crate) fn finish(&mut self) {
        self.steps.shrink_to_fit();
        self.targets.shrink_to_fit();
        self.tables.shrink_to_fit();
    }
}

/// Whom a call or a jump out of the procedure reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Callee {
    /// A procedure that may turn out never to return.
    Procedure(u32),
    /// One that is known never to return.
    NeverReturns,
    /// One that returns, as far as is known.
    Returns,
}

/// Resolves calls: by the address called, or by the word that holds it.
pub(crate) trait Callees {
    fn direct(&self, address: u64) -> Callee;
    /// Of a call through the word at `slot`.
    fn through(&self, slot: u64) -> Callee;
    /// Whether a call may end with an exception.
    fn may_throw(&self, call: ControlTransfer) -> bool;
}

#[derive(Debug, Default)]
pub(crate) struct Scratch {
    code: super::Scratch,
    sites: Vec<lsda::Site>,
}

/// What code is read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a, 'd> {
    pub(crate) memory: &'a LoadedImage<'d>,
    /// Code with exception handlers, sorted, not overlapping.
    pub(crate) handlers: &'a [Handler],
}

/// Decodes the code of a procedure and adds it to a chunk.
pub(crate) fn translate(
    source: Source<'_, '_>,
    layout: &Layout,
    callees: &impl Callees,
    scratch: &mut Scratch,
    code: &mut Chunk,
) {
    let Source { memory, handlers } = source;
    let (first_step, first_target) = (code.steps.len(), code.targets.len());
    let first_table = code.tables.len();
    for (range, base) in layout.ranges.iter().zip(layout.offsets()) {
        let length = (range.end - range.start) as usize;
        let all = memory.bytes(range.start).unwrap_or(&[]);
        let bytes = &all[..all.len().min(length)];
        let decoded = &mut scratch.code;
        let within = Within(&layout.ranges);
        let range_of_code = super::Range { bytes, all, address: range.start };
        super::decode(range_of_code, memory, within, decoded);
        let decoded = &decoded.decoded;
        lsda::read(memory, handlers, range, &mut scratch.sites);
        let mut sites = scratch.sites.iter().peekable();
        for transfer in &decoded.transfers {
            if transfer.flow.is_call() && !scratch.sites.is_empty() {
                // The unwinder, too, looks for the call's last byte.
                let last = range.start + u64::from(transfer.end) - 1;
                while sites.next_if(|s| s.end <= last).is_some() {}
                let site = sites.peek().filter(|s| s.start <= last);
                let pad = site.and_then(|s| layout.offset(s.pad));
                // Compilers join call sites over calls that throw nothing.
                if let Some(pad) = pad.filter(|_| callees.may_throw(transfer.flow)) {
                    code.steps.push(Step {
                        end: base + transfer.end,
                        target: pad,
                        length: transfer.length,
                        kind: Kind::Landing,
                    });
                }
            }
            let (kind, target) = match transfer.flow {
                ControlTransfer::Table { first, count } => {
                    let read = &decoded.targets[first as usize..(first + count) as usize];
                    let from = code.targets.len();
                    code.targets.extend(read.iter().filter_map(|t| layout.offset(*t)));
                    let number = code.tables.len() - first_table;
                    let place = |at: usize| (at - first_target) as u32;
                    code.tables.push(place(from)..place(code.targets.len()));
                    (Kind::Table, number as u32)
                }
                other => match step(other, layout, callees) {
                    Some(step) => step,
                    None => continue,
                },
            };
            code.steps.push(Step { end: base + transfer.end, target, length: transfer.length, kind });
        }
        let end = base + length as u32;
        match code.steps[first_step..].last() {
            Some(last) if last.end == end && !falls_through(last.kind) => {}
            _ => {
                // Room for a patch in front of a procedure may have its own symbol.
                let is_room = scratch.code.decoded.transfers.is_empty();
                let next = is_room.then(|| callees.direct(range.end));
                let (kind, target) = match next {
                    Some(Callee::Procedure(next)) => (Kind::TailJump, next),
                    _ => (Kind::End, 0),
                };
                code.steps.push(Step { end, target, length: 0, kind });
            }
        }
    }
    code.ends.push([code.steps.len(), code.targets.len(), code.tables.len()]);
}

/// Whether control may go on after a step.
pub(crate) fn falls_through(kind: Kind) -> bool {
    matches!(kind, Kind::Branch | Kind::Call | Kind::TailBranch | Kind::Landing | Kind::Padding)
}

/// `None` if control flow does not change: calls that return, branches to procedures that return.
fn step(flow: ControlTransfer, layout: &Layout, callees: &impl Callees) -> Option<(Kind, u32)> {
    let inside = |address| layout.offset(address);
    Some(match flow {
        ControlTransfer::Jump(to) => match inside(to) {
            Some(offset) => (Kind::Jump, offset),
            None => tail(callees.direct(to)),
        },
        ControlTransfer::Branch(to) => match inside(to) {
            Some(offset) => (Kind::Branch, offset),
            None => match callees.direct(to) {
                Callee::Procedure(p) => (Kind::TailBranch, p),
                // What does not return is left by the other way.
                Callee::NeverReturns => return None,
                Callee::Returns => (Kind::TailBranch, u32::MAX),
            },
        },
        // A call of the procedure itself returns if the procedure does.
        ControlTransfer::Call(to) if to == layout.entry_address() => return None,
        ControlTransfer::Call(to) => call(callees.direct(to))?,
        ControlTransfer::CallThrough(slot) => call(callees.through(slot))?,
        ControlTransfer::CallAnywhere => return None,
        ControlTransfer::JumpThrough(slot) => tail(callees.through(slot)),
        ControlTransfer::Indirect | ControlTransfer::Table { .. } => (Kind::Indirect, 0),
        ControlTransfer::Return => (Kind::Return, 0),
        ControlTransfer::Stop => (Kind::Stop, 0),
        ControlTransfer::Padding => (Kind::Padding, 0),
    })
}

fn tail(callee: Callee) -> (Kind, u32) {
    match callee {
        Callee::Procedure(p) => (Kind::TailJump, p),
        Callee::NeverReturns => (Kind::Stop, 0),
        Callee::Returns => (Kind::Return, 0),
    }
}

fn call(callee: Callee) -> Option<(Kind, u32)> {
    match callee {
        Callee::Procedure(p) => Some((Kind::Call, p)),
        Callee::NeverReturns => Some((Kind::Stop, 0)),
        Callee::Returns => None,
    }
}
