//! From machine code to loop nests: instructions, jump tables, calls that never return, control
//! flow graphs, loops.
//!
//! The pipeline, in `Program::loops`: decode every procedure once into compact transfers of
//! control (`x86`, `aarch64` → `flow` → `unit`, with exception handlers from `pads`), find what never returns (`returns`), then build
//! each procedure's graph (`graph`) and find its loops (`nest`). Procedures are decoded only where
//! they are wanted, or where the question whether they return has to go into them.
//!
//! Invariants: any bytes are input; time and memory are bounded by the size of the code; the
//! result does not depend on the number of threads, nor on which other procedures are wanted.

mod aarch64;
mod callees;
mod flow;
mod graph;
mod handlers;
mod index;
pub(crate) mod memory;
mod nest;
mod pads;
mod quick;
mod returns;
mod sweep;
mod unit;
mod x86;

use crate::parallel;
use callees::{Recent, Remembering};
use flow::Flow;
use graph::Graph;
use index::Index;
use memory::{Memory, Word};
use nest::{NONE, Nest};
pub(crate) use pads::Handler;
use std::ops::Range;
pub(crate) use unit::Layout;
use unit::{Callee, Callees, Code};

/// Instruction sets whose code can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Architecture {
    /// x86 in 64-bit mode.
    X86_64,
    /// Arm in 64-bit state, little-endian.
    AArch64,
}

impl Architecture {
    /// Of an ELF file; `None` when its code cannot be read.
    pub(crate) fn of(file: &object::File<'_>) -> Option<Architecture> {
        use object::Object as _;
        match file.architecture() {
            object::Architecture::X86_64 => Some(Architecture::X86_64),
            object::Architecture::Aarch64 => Some(Architecture::AArch64),
            _ => None,
        }
    }
}

/// A loop of a procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loop {
    /// Address of its header: the block that every iteration begins with. Of an irreducible loop
    /// the one that is met first from the procedure's entry.
    pub header: u64,
    /// The loop around it, an index smaller than its own.
    pub parent: Option<u32>,
    /// Whether it can be entered elsewhere than at its header.
    pub irreducible: bool,
    /// Addresses of branches that leave it or go back to its header; some of them, ascending.
    pub controls: Vec<u64>,
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
}

/// Finds the loops in the bytes of one procedure that is entered at its first byte, `address`.
pub fn loops_of_bytes(architecture: Architecture, address: u64, bytes: &[u8]) -> ProcedureLoops {
    let memory = Memory::of_bytes(address, bytes);
    let end = address.checked_add(bytes.len() as u64);
    let layout = end.and_then(|end| Layout::new(std::iter::once(address..end).collect(), 0));
    let program = Program {
        architecture,
        memory: &memory,
        stubs: &[],
        handlers: &[],
        wanted: layout.into_iter().collect(),
        others: Vec::new(),
        named: Vec::new(),
        threads: 1,
    };
    program.loops().pop().unwrap_or_default()
}

/// The code of a module, cut into procedures.
#[derive(Debug)]
pub(crate) struct Program<'a, 'd> {
    /// Instruction set.
    pub(crate) architecture: Architecture,
    /// Its bytes.
    pub(crate) memory: &'a Memory<'d>,
    /// Ranges of linkage stubs (`.plt`), sorted.
    pub(crate) stubs: &'a [Range<u64>],
    /// Code with exception handlers, sorted, not overlapping.
    pub(crate) handlers: &'a [Handler],
    /// Procedures whose loops are wanted; their ranges do not overlap.
    pub(crate) wanted: Vec<Layout>,
    /// Further procedures, sorted, not overlapping each other nor those.
    pub(crate) others: Vec<Range<u64>>,
    /// Names of procedures by address.
    pub(crate) named: Vec<(u64, &'d [u8])>,
    /// Threads to use.
    pub(crate) threads: usize,
}

/// Procedures that are decoded, or analysed, by one job: bytes of code.
const JOB_BYTES: u64 = 1 << 17;

impl Program<'_, '_> {
    /// The loops of every wanted procedure, in their order.
    pub(crate) fn loops(self) -> Vec<ProcedureLoops> {
        let count = self.wanted.len();
        let single = |range: &Range<u64>| Layout::new(vec![range.clone()], 0).unwrap_or_default();
        let mut units = self.wanted.clone();
        units.extend(self.others.iter().map(single));
        let analysis = Analysis {
            index: Index::new(&units),
            program: &self,
            units,
        };
        let codes = analysis.decode(count);
        let known = analysis.known_never_to_return();
        let procedure = |i: usize| Some((&analysis.units[i], codes[i].as_ref()?));
        let never = returns::settle(codes.len(), procedure, known, self.threads);
        let jobs = jobs(&analysis.units[..count]);
        let found = parallel::run_with(jobs.len(), self.threads, Finder::default, |finder, j| {
            let of_unit = |u| match &codes[u] {
                Some(code) => finder.find(&analysis.units[u], code, &never),
                None => ProcedureLoops::default(),
            };
            jobs[j].clone().map(of_unit).collect::<Vec<_>>()
        });
        found.into_iter().flatten().collect()
    }
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
    index: Index,
}

impl Analysis<'_, '_> {
    /// Decodes the first `wanted` procedures and what must be known of others to tell whether they
    /// return.
    fn decode(&self, wanted: usize) -> Vec<Option<Code>> {
        let mut codes: Vec<Option<Code>> = Vec::new();
        codes.resize_with(self.units.len(), || None);
        let jobs = jobs(&self.units[..wanted]);
        let threads = self.program.threads;
        let first =
            parallel::run_with(jobs.len(), threads, Translator::default, |translator, j| {
                self.translate(jobs[j].clone(), translator)
            });
        for (unit, code) in first.into_iter().flatten() {
            codes[unit as usize] = Some(code);
        }
        let mut asked: Vec<u32> = (0..wanted as u32).collect();
        while !asked.is_empty() && wanted < self.units.len() {
            asked = self.undecided_callees(&asked, &codes);
            const CHUNK: usize = 32;
            let chunks: Vec<&[u32]> = asked.chunks(CHUNK).collect();
            let more = parallel::run_with(chunks.len(), threads, Translator::default, |t, c| {
                self.translate(chunks[c].iter().map(|u| *u as usize), t)
            });
            for (unit, code) in more.into_iter().flatten() {
                codes[unit as usize] = Some(code);
            }
        }
        codes
    }

    /// Procedures without code that the ones in `asked` call, as far as those do not return
    /// whatever they call.
    fn undecided_callees(&self, asked: &[u32], codes: &[Option<Code>]) -> Vec<u32> {
        let mut scratch = returns::Scratch::default();
        let mut callees = Vec::new();
        for unit in asked {
            let Some(code) = &codes[*unit as usize] else {
                continue;
            };
            let is_wanted = (*unit as usize) < self.program.wanted.len();
            let layout = &self.units[*unit as usize];
            if !is_wanted && returns::may_return(layout, code, None, &mut scratch) {
                continue;
            }
            callees.extend(
                code.callees()
                    .filter(|c| codes.get(*c as usize).is_some_and(|known| known.is_none())),
            );
        }
        callees.sort_unstable();
        callees.dedup();
        callees
    }

    /// Which procedures are known by name never to return.
    fn known_never_to_return(&self) -> Vec<bool> {
        const CHUNK: usize = 1 << 10;
        let chunks: Vec<_> = self.program.named.chunks(CHUNK).collect();
        let found = parallel::run(chunks.len(), self.program.threads, |c| {
            let known = chunks[c]
                .iter()
                .filter(|(_, name)| returns::known_never_to_return(name));
            let units = known.filter_map(|(address, _)| self.entered_at(*address));
            units.collect::<Vec<u32>>()
        });
        let mut known = vec![false; self.units.len()];
        for unit in found.into_iter().flatten() {
            known[unit as usize] = true;
        }
        known
    }

    fn translate(
        &self,
        units: impl Iterator<Item = usize>,
        translator: &mut Translator,
    ) -> Vec<(u32, Code)> {
        let Translator { scratch, recent } = translator;
        let callees = Remembering::new(self, recent);
        units
            .map(|u| {
                let program = self.program;
                let layout = &self.units[u];
                let source = unit::Source {
                    architecture: program.architecture,
                    memory: program.memory,
                    handlers: program.handlers,
                };
                let code = unit::translate(source, layout, &callees, scratch);
                (u as u32, code)
            })
            .collect()
    }

    /// The procedure that is entered at an address.
    fn entered_at(&self, address: u64) -> Option<u32> {
        let unit = self.index.find(address)?;
        (self.units[unit as usize].entry_address() == address).then_some(unit)
    }

    /// The slot that the linkage stub at an address jumps through; `None` where there is no stub.
    fn stub(&self, address: u64) -> Option<Option<u64>> {
        let stubs = self.program.stubs;
        let next = stubs.partition_point(|s| s.end <= address);
        stubs.get(next).filter(|s| s.start <= address)?;
        Some(match self.program.architecture {
            Architecture::X86_64 => x86::stub(self.program.memory, address),
            Architecture::AArch64 => aarch64::stub(self.program.memory, address),
        })
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
        match self.entered_at(address) {
            Some(unit) => Callee::Procedure(unit),
            None => Callee::Returns,
        }
    }
}

/// Buffers of a thread.
#[derive(Default)]
struct Translator {
    scratch: unit::Scratch,
    recent: Recent,
}

impl Callees for Analysis<'_, '_> {
    fn direct(&self, address: u64) -> Callee {
        match self.stub(address) {
            Some(slot) => slot.map_or(Callee::Returns, |slot| self.through(slot)),
            None => self.local(address),
        }
    }

    fn may_throw(&self, call: Flow) -> bool {
        let name = match call {
            Flow::Call(address) => match self.stub(address) {
                Some(slot) => slot.and_then(|slot| self.name_through(slot)),
                None => self.name_at(address),
            },
            Flow::CallThrough(slot) => self.name_through(slot),
            _ => None,
        };
        !name.is_some_and(returns::never_throws)
    }

    fn through(&self, slot: u64) -> Callee {
        match self.program.memory.word(slot) {
            Some(Word::Import(name)) if returns::never_returns(name) => Callee::NeverReturns,
            Some(Word::Address(address)) => self.local(address),
            _ => Callee::Returns,
        }
    }
}

/// Finds loops; its buffers are reused from procedure to procedure.
#[derive(Default)]
struct Finder {
    graph: Graph,
    nest: Nest,
}

impl Finder {
    fn find(&mut self, layout: &Layout, code: &Code, never: &[bool]) -> ProcedureLoops {
        let mut out = ProcedureLoops::default();
        if layout.ranges.is_empty() {
            return out;
        }
        out.entry = layout.entry_address();
        if !code.may_loop() {
            return out;
        }
        self.graph.build(layout, code, never);
        // Most graphs have no loop, which is soon known.
        if !self.nest.search(self.graph.rows(), &self.graph.roots) {
            return out;
        }
        if self.graph.judge_landings() {
            self.nest.find(self.graph.rows(), &self.graph.roots);
        } else {
            self.nest.find_searched(self.graph.rows());
        }
        out.loops = self
            .nest
            .loops
            .iter()
            .map(|l| Loop {
                header: layout.address(self.graph.starts[l.header as usize]),
                parent: (l.parent != NONE).then_some(l.parent),
                irreducible: l.irreducible,
                controls: Vec::new(),
            })
            .collect();
        if out.loops.is_empty() {
            return out;
        }
        self.add_regions(layout, &mut out);
        self.add_controls(layout, &mut out);
        out
    }

    fn add_regions(&self, layout: &Layout, out: &mut ProcedureLoops) {
        for (block, start) in self.graph.starts.iter().enumerate() {
            let inner = self.nest.inner[block];
            if inner == NONE {
                continue;
            }
            let end = self
                .graph
                .starts
                .get(block + 1)
                .copied()
                .unwrap_or(layout.len());
            let start = layout.address(*start);
            let length = u64::from(end - self.graph.starts[block]);
            match out.regions.last_mut() {
                Some(last) if last.range.end == start && last.inner == inner => {
                    last.range.end += length;
                }
                _ => out.regions.push(Region {
                    range: start..start + length,
                    inner,
                }),
            }
        }
    }

    /// Collects branches that leave or repeat loops. Code that only an exception leads to has no
    /// say where other code has one: what it does is not how the loop goes.
    fn add_controls(&self, layout: &Layout, out: &mut ProcedureLoops) {
        for block in (0..self.graph.len() as u32).filter(|b| self.graph.is_ordinary(*b)) {
            self.add_controls_of(block, layout, out, |_| true, true);
        }
        if !self.graph.has_exceptional {
            return;
        }
        let without: Vec<bool> = out.loops.iter().map(|l| l.controls.is_empty()).collect();
        for block in (0..self.graph.len() as u32).filter(|b| !self.graph.is_ordinary(*b)) {
            self.add_controls_of(block, layout, out, |l| without[l as usize], false);
        }
    }

    /// Adds the branch of one block to the loops that it repeats and, if `leaving`, leaves.
    fn add_controls_of(
        &self,
        block: u32,
        layout: &Layout,
        out: &mut ProcedureLoops,
        wants: impl Fn(u32) -> bool,
        leaving: bool,
    ) {
        /// Kept for each loop.
        const MOST: usize = 64;
        /// Loops that one branch may leave.
        const LEVELS: usize = 16;
        let branch = self.graph.branches[block as usize];
        let inner = self.nest.inner[block as usize];
        if branch == u32::MAX || inner == NONE {
            return;
        }
        for to in self.graph.successors(block) {
            let mut around = inner;
            for _ in 0..LEVELS {
                if around == NONE {
                    break;
                }
                let found = self.nest.loops[around as usize];
                let repeats = found.header == *to;
                if !repeats && self.nest.holds(around, *to) {
                    break;
                }
                let controls = &mut out.loops[around as usize].controls;
                let address = layout.address(branch);
                if (repeats || leaving)
                    && wants(around)
                    && controls.len() < MOST
                    && controls.last() != Some(&address)
                {
                    controls.push(address);
                }
                if repeats {
                    break;
                }
                around = found.parent;
            }
        }
    }
}

#[cfg(test)]
mod tests;
