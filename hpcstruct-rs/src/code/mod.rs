//! From machine code to loops, without debug information.
//!
//! The pipeline, in `Program::find`:
//! 1. `disasm` decodes every wanted procedure once into transfers of control;
//! 2. `cfg::noreturn` finds the procedures that never return, and asks for further procedures to be
//!    decoded where the answer depends on them;
//! 3. `cfg` builds the control flow graph of each procedure and finds its loops.
//!
//! Invariants: any bytes are input; time and memory are bounded by the size of the code; the
//! result does not depend on the number of threads, nor on which other procedures are wanted.

mod cfg;
pub(crate) mod disasm;
pub(crate) mod undescribed;

use crate::base::parallel;
use crate::base::strings::Map;
use crate::symbols::unwind_table::Handler;
use cfg::finder::Finder;
use cfg::noreturn;
use disasm::control_transfer::ControlTransfer;
use disasm::loaded_image::{LoadedImage, Word};
pub(crate) use disasm::procedure_code::Layout;
use disasm::procedure_code::{self as unit, Callee, Callees, Chunk, Code};
use std::ops::Range;

/// Whether the code of an ELF file can be read.
pub(crate) fn is_readable(file: &object::File<'_>) -> bool {
    object::Object::architecture(file) == object::Architecture::X86_64
}

/// Whether a section of this name holds linkage stubs.
pub(crate) fn is_stub_section(name: &str) -> bool {
    name.starts_with(".plt") || name == ".iplt"
}

/// A loop of a procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// Address of its header, the block that every iteration begins with. For an irreducible loop: the
    /// block that a search from the procedure's entry meets first.
    pub header: u64,
    /// The loop around it, an index smaller than its own.
    pub parent: Option<u32>,
    /// Whether it can be entered elsewhere than at its header.
    pub irreducible: bool,
    /// Whether it only waits for what another thread writes.
    pub spins: bool,
    /// Where [`ProcedureLoops::controls`] has its own.
    controls: Range<u32>,
}

/// Code of one innermost loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Addresses.
    pub range: Range<u64>,
    /// The loop, an index into [`ProcedureLoops::loops`].
    pub inner: u32,
}

/// The loops of a procedure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcedureLoops {
    /// Address of its entry.
    pub entry: u64,
    /// Loops, outer ones before inner ones.
    pub loops: Vec<Loop>,
    /// Code that lies in loops, by address; code between regions is in none.
    pub regions: Vec<Region>,
    /// Addresses of branches, loop by loop.
    controls: Vec<u64>,
}

impl ProcedureLoops {
    /// Addresses of branches that leave a loop or go back to its header; some of them, ascending.
    pub fn controls_of(&self, found: &Loop) -> &[u64] {
        let range = found.controls.start as usize..found.controls.end as usize;
        self.controls.get(range).unwrap_or(&[])
    }
}

/// Finds the loops in the bytes of one procedure that is entered at its first byte, `address`.
pub fn loops_of_bytes(address: u64, bytes: &[u8]) -> ProcedureLoops {
    let memory = LoadedImage::of_bytes(address, bytes);
    let end = address.checked_add(bytes.len() as u64);
    let layout = end.and_then(|end| Layout::new(std::iter::once(address..end).collect(), 0));
    let program = Program::new(&memory, layout.into_iter().collect());
    program.find_all().pop().unwrap_or_default()
}

/// The code of a module, cut into procedures.
#[derive(Debug)]
pub(crate) struct Program<'a, 'd> {
    pub(crate) memory: &'a LoadedImage<'d>,
    /// Ranges of linkage stubs (`.plt`), sorted.
    pub(crate) stubs: &'a [Range<u64>],
    /// Code with exception handlers, sorted, not overlapping.
    pub(crate) handlers: &'a [Handler],
    /// Procedures whose loops are wanted; their ranges do not overlap.
    pub(crate) wanted: Vec<Layout>,
    /// Further procedures, sorted; they overlap neither each other nor the wanted ones.
    pub(crate) others: Vec<Range<u64>>,
    pub(crate) named: Vec<(u64, &'d [u8])>,
    /// By wanted procedure, whether calls of it are to be reported. May be shorter: the rest is not.
    pub(crate) noted: Vec<bool>,
    pub(crate) threads: usize,
}

/// What is found in wanted procedures.
pub(crate) struct Findings {
    /// The loops of all wanted procedures in order, in parts as they were found.
    pub(crate) loops: Vec<Vec<ProcedureLoops>>,
    /// Calls of noted procedures, in the order of the callers.
    pub(crate) calls: Vec<Call>,
}

/// A call of a wanted procedure by another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    /// Address of the call's last byte.
    pub(crate) last: u64,
    /// The number of the procedure that is called.
    pub(crate) callee: u32,
}

/// Bytes of code that one job decodes or analyses.
const JOB_BYTES: u64 = 1 << 17;

impl<'a, 'd> Program<'a, 'd> {
    /// Of procedures about which nothing else is known.
    pub(crate) fn new(memory: &'a LoadedImage<'d>, wanted: Vec<Layout>) -> Self {
        Program {
            memory,
            stubs: &[],
            handlers: &[],
            wanted,
            others: Vec::new(),
            named: Vec::new(),
            noted: Vec::new(),
            threads: 1,
        }
    }

    pub(crate) fn find_all(self) -> Vec<ProcedureLoops> {
        self.find().loops.into_iter().flatten().collect()
    }

    /// The loops of every wanted procedure, and noted calls.
    pub(crate) fn find(mut self) -> Findings {
        let mut units = std::mem::take(&mut self.wanted);
        let wanted = units.len();
        let single = |range: &Range<u64>| Layout::new(vec![range.clone()], 0).unwrap_or_default();
        units.extend(self.others.iter().map(single));
        let mut analysis = Analysis {
            by_entry: by_entry(&units),
            program: &self,
            wanted,
            by_name: ByName::default(),
            units,
        };
        analysis.by_name = analysis.known_by_name();
        let codes = analysis.decode();
        let known = std::mem::take(&mut analysis.by_name.never_return);
        let returning = self.named.iter().filter(|(_, name)| noreturn::known_to_return(name));
        let returning: Vec<u32> =
            returning.filter_map(|(address, _)| analysis.entered_at(*address)).collect();
        let procedure = |i: usize| {
            let is_open = !returning.contains(&(i as u32));
            Some((&analysis.units[i], codes.get(i).filter(|_| is_open)?))
        };
        let never = noreturn::settle(analysis.units.len(), procedure, known, self.threads);
        let jobs = jobs(&analysis.units[..wanted]);
        let calls = noted_calls(&analysis.units[..wanted], &codes, &self.noted);
        let loops = parallel::run_with(jobs.len(), self.threads, Finder::default, |finder, j| {
            let of_unit = |u| match codes.get(u) {
                Some(code) => {
                    let mut found = finder.find(&analysis.units[u], code, &never);
                    disasm::spin::mark(&mut found, self.memory);
                    found
                }
                None => ProcedureLoops::default(),
            };
            jobs[j].clone().map(of_unit).collect()
        });
        Findings { loops, calls }
    }
}

/// The calls of noted procedures; most programs have none.
fn noted_calls(units: &[Layout], codes: &Codes, noted: &[bool]) -> Vec<Call> {
    if !noted.contains(&true) {
        return Vec::new();
    }
    let mut calls = Vec::new();
    for (number, layout) in units.iter().enumerate() {
        let steps = codes.get(number).map_or(&[][..], |code| code.steps);
        calls.extend(steps.iter().filter_map(|step| {
            let is_noted = noted.get(step.target as usize) == Some(&true);
            (step.kind == unit::Kind::Call && is_noted)
                .then(|| Call { last: layout.address(step.end - 1), callee: step.target })
        }));
    }
    calls
}

/// The code of the procedures that were decoded.
struct Codes {
    chunks: Vec<Chunk>,
    /// By procedure: its chunk, and its number in there; the largest chunk number = not decoded.
    places: Vec<(u32, u32)>,
}

impl Codes {
    fn get(&self, procedure: usize) -> Option<Code<'_>> {
        let (chunk, index) = *self.places.get(procedure)?;
        self.chunks.get(chunk as usize)?.get(index as usize)
    }

    /// Adds the code of these procedures, in their order.
    fn add(&mut self, procedures: impl Iterator<Item = usize>, chunk: Chunk) {
        let number = self.chunks.len() as u32;
        for (procedure, index) in procedures.zip(0..) {
            self.places[procedure] = (number, index);
        }
        self.chunks.push(chunk);
    }
}

/// What names tell of procedures, by their numbers.
#[derive(Default)]
struct ByName {
    /// Whether it is known never to return.
    never_return: Vec<bool>,
    /// Whether it is known to throw no exception.
    never_throw: Vec<bool>,
}

/// Consecutive procedures that make one job each.
fn jobs(units: &[Layout]) -> Vec<Range<usize>> {
    let mut jobs = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (i, unit) in units.iter().enumerate() {
        bytes += u64::from(unit.len());
        if bytes >= JOB_BYTES || i + 1 == units.len() {
            jobs.push(from..i + 1);
            (from, bytes) = (i + 1, 0);
        }
    }
    jobs
}

/// A program with its procedures numbered: the wanted ones first.
struct Analysis<'a, 'd> {
    program: &'a Program<'a, 'd>,
    units: Vec<Layout>,
    /// How many are wanted.
    wanted: usize,
    by_entry: Map<u64, u32>,
    by_name: ByName,
}

impl Analysis<'_, '_> {
    /// Decodes the wanted procedures, and others as far as their returning matters.
    fn decode(&self) -> Codes {
        let mut codes = Codes { chunks: Vec::new(), places: vec![(u32::MAX, 0); self.units.len()] };
        let jobs = jobs(&self.units[..self.wanted]);
        let threads = self.program.threads;
        let first = parallel::run_with(jobs.len(), threads, unit::Scratch::default, |scratch, j| {
            self.translate(jobs[j].clone(), scratch)
        });
        for (job, chunk) in jobs.into_iter().zip(first) {
            codes.add(job, chunk);
        }
        let mut asked: Vec<u32> = (0..self.wanted as u32).collect();
        while !asked.is_empty() && self.wanted < self.units.len() {
            asked = self.undecided_callees(&asked, &codes);
            const CHUNK: usize = 32;
            let chunks: Vec<&[u32]> = asked.chunks(CHUNK).collect();
            let more = parallel::run_with(chunks.len(), threads, unit::Scratch::default, |scratch, c| {
                self.translate(chunks[c].iter().map(|u| *u as usize), scratch)
            });
            for (units, chunk) in chunks.into_iter().zip(more) {
                codes.add(units.iter().map(|u| *u as usize), chunk);
            }
        }
        codes
    }

    /// Procedures not decoded yet that those in `asked` call, where the answer depends on the callee.
    fn undecided_callees(&self, asked: &[u32], codes: &Codes) -> Vec<u32> {
        let mut scratch = noreturn::Scratch::default();
        let mut callees = Vec::new();
        for unit in asked {
            let Some(code) = codes.get(*unit as usize) else {
                continue;
            };
            let is_wanted = (*unit as usize) < self.wanted;
            let layout = &self.units[*unit as usize];
            if !is_wanted && noreturn::may_return(layout, code, None, &mut scratch) {
                continue;
            }
            let count = self.units.len();
            let is_new = |c: &u32| (*c as usize) < count && codes.get(*c as usize).is_none();
            callees.extend(code.callees().filter(is_new));
        }
        callees.sort_unstable();
        callees.dedup();
        callees
    }

    /// What the procedures' names tell.
    fn known_by_name(&self) -> ByName {
        const CHUNK: usize = 1 << 10;
        let named = &self.program.named;
        let found = parallel::run_in_chunks(named.len(), CHUNK, self.program.threads, |n| {
            let (address, name) = named[n];
            let never_returns = noreturn::known_never_to_return(name);
            let never_throws = noreturn::never_throws(name);
            let unit = (never_returns || never_throws).then(|| self.entered_at(address));
            Some((unit??, never_returns, never_throws))
        });
        let mut by_name = ByName {
            never_return: vec![false; self.units.len()],
            never_throw: vec![false; self.units.len()],
        };
        for (unit, never_returns, never_throws) in found.into_iter().flatten() {
            by_name.never_return[unit as usize] |= never_returns;
            by_name.never_throw[unit as usize] |= never_throws;
        }
        by_name
    }

    fn translate(&self, units: impl Iterator<Item = usize>, scratch: &mut unit::Scratch) -> Chunk {
        let mut chunk = Chunk::default();
        let program = self.program;
        let source = unit::Source { memory: program.memory, handlers: program.handlers };
        for unit in units {
            let layout = &self.units[unit];
            unit::translate(source, layout, self, scratch, &mut chunk);
        }
        chunk.finish();
        chunk
    }

    /// The slot that the linkage stub at an address jumps through; `None` where there is no stub.
    fn stub(&self, address: u64) -> Option<Option<u64>> {
        let stubs = self.program.stubs;
        let next = stubs.partition_point(|s| s.end <= address);
        stubs.get(next).filter(|s| s.start <= address)?;
        Some(disasm::stub(self.program.memory, address))
    }

    /// The procedure that is entered at an address.
    fn entered_at(&self, address: u64) -> Option<u32> {
        self.by_entry.get(&address).copied()
    }

    /// The name of what is called at an address of this module.
    fn name_at(&self, address: u64) -> Option<&[u8]> {
        let named = &self.program.named;
        let found = named.binary_search_by_key(&address, |n| n.0).ok()?;
        Some(named[found].1)
    }

    fn name_through(&self, slot: u64) -> Option<&[u8]> {
        match self.program.memory.word(slot)? {
            Word::Import(name) => Some(name),
            Word::Address(address) => self.name_at(address),
        }
    }

    fn local(&self, address: u64) -> Callee {
        self.entered_at(address).map_or(Callee::Returns, Callee::Procedure)
    }
}

fn by_entry(procedures: &[Layout]) -> Map<u64, u32> {
    let numbered = procedures.iter().zip(0..);
    let with_code = numbered.filter(|(layout, _)| !layout.ranges.is_empty());
    with_code.map(|(layout, i)| (layout.entry_address(), i)).collect()
}

impl Callees for Analysis<'_, '_> {
    fn direct(&self, address: u64) -> Callee {
        match self.stub(address) {
            Some(slot) => slot.map_or(Callee::Returns, |slot| self.through(slot)),
            None => self.local(address),
        }
    }

    fn may_throw(&self, call: ControlTransfer) -> bool {
        if let ControlTransfer::Call(address) = call {
            if let Some(unit) = self.entered_at(address) {
                return !self.by_name.never_throw[unit as usize];
            }
        }
        let name = match call {
            ControlTransfer::Call(address) => match self.stub(address) {
                Some(slot) => slot.and_then(|slot| self.name_through(slot)),
                None => self.name_at(address),
            },
            ControlTransfer::CallThrough(slot) => self.name_through(slot),
            _ => None,
        };
        !name.is_some_and(noreturn::never_throws)
    }

    fn through(&self, slot: u64) -> Callee {
        match self.program.memory.word(slot) {
            Some(Word::Import(name)) if noreturn::never_returns(name) => Callee::NeverReturns,
            Some(Word::Address(address)) => self.local(address),
            _ => Callee::Returns,
        }
    }
}

#[cfg(test)]
mod tests;
